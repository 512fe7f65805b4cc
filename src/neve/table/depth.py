"""How deep an inspection looks. Apart from the other values so that a surface can name a depth without loading Arrow."""

from __future__ import annotations

from enum import StrEnum


class Depth(StrEnum):
    """How much metadata an inspection reads; the cheapest that answers the question is used."""

    SUMMARY = "summary"  # the current snapshot's summary: one catalog call
    MANIFESTS = "manifests"  # and the manifest list
    FILES = "files"  # and every manifest
