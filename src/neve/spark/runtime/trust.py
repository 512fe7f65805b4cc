"""A Java trust store made of the certificates that this machine trusts.

The Java that comes as a wheel knows only the public authorities; behind a company's proxy or mirror it would refuse what
pip and curl accept. `java` gives the store to that Java; a Java installed by the user keeps its own.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_JKS_MAGIC, _JKS_VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
_DER_SEQUENCE = b"\x30"
_END = "-----END CERTIFICATE-----"
STORE_PASSWORD = "changeit"  # noqa: S105 (public by convention; the store holds no secret)


def system_bundle(environ: Mapping[str, str]) -> Path | None:
    """The file of certificates that OpenSSL programs on this machine use, None where there is none."""
    candidates = (environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((Path(name) for name in candidates if name and Path(name).is_file()), None)


def certificates(bundle: Path) -> tuple[bytes, ...]:
    """The certificates of a PEM bundle in DER form, duplicates and unreadable blocks left out."""
    found: dict[bytes, None] = {}
    for block in bundle.read_text(encoding="utf-8", errors="replace").split(_END)[:-1]:
        start = block.find("-----BEGIN CERTIFICATE-----")
        if start < 0:
            continue
        try:
            der = ssl.PEM_cert_to_DER_cert(block[start:] + _END)
        except ValueError:
            continue
        if der.startswith(_DER_SEQUENCE):  # the decoder skips what is not base64, down to nothing at all
            found[der] = None
    return tuple(found)


def java_trust_store(ders: Sequence[bytes]) -> bytes:
    """The certificates as a JKS file: the one Java format that takes no cryptography to write."""
    body = bytearray(struct.pack(">III", _JKS_MAGIC, _JKS_VERSION, len(ders)))
    for number, der in enumerate(ders):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _utf(f"system-{number}") + struct.pack(">q", 0)
        body += _utf("X.509") + struct.pack(">I", len(der)) + der
    salted = STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    return bytes(body) + hashlib.sha1(salted, usedforsecurity=False).digest()


def _utf(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return struct.pack(">H", len(encoded)) + encoded
