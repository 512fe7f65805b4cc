"""Which kernel a group is given, by what is right and then by what is cheap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neve.policy.model import Policy
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.groups import KERNELS, TIERS
from neve.rewrite.kernel_choice import GroupTraits, choose_kernels
from neve.table.units import MIB
from tests.builders.table_states import make_state


def chosen(**changes: Any) -> Kernel:
    """For one group of ten files of a megabyte, each with one row group."""
    plain: dict[str, Any] = {
        "tier": TIERS.index(Tier.MINOR),
        "all_parquet": True,
        "has_deletes": False,
        "splits": False,
        "files": 10,
        "bytes": 10 * MIB,
        "row_groups": 10,
        "ordered": False,
        "inputs_sorted": False,
        "changes_spec": False,
    }
    single: dict[str, Any] = {"columns": 12, "is_remote": False}
    words: dict[str, Any] = {name: np.array([value]) for name, value in (plain | changes).items() if name not in single}
    traits = GroupTraits(**words, **{name: changes.get(name, value) for name, value in single.items()})
    return KERNELS[choose_kernels(traits, Policy()).kernel[0]]


@pytest.mark.parametrize(
    ("changes", "kernel"),
    [
        ({}, Kernel.COPY),
        ({"is_remote": True}, Kernel.ARROW),
        ({"is_remote": True, "bytes": 40 * MIB}, Kernel.COPY),
        ({"is_remote": True, "bytes": 40 * MIB, "row_groups": 11}, Kernel.ARROW),
        ({"is_remote": True, "bytes": 39 * MIB, "row_groups": 0}, Kernel.ARROW),
        ({"tier": TIERS.index(Tier.MAJOR)}, Kernel.ARROW),
        ({"tier": TIERS.index(Tier.MAJOR), "bytes": 80 * MIB}, Kernel.COPY),
    ],
)
def test_fragments_are_copied_unless_requests_for_their_row_groups_would_cost_readers_more(
    changes: dict[str, Any], kernel: Kernel
) -> None:
    assert chosen(**changes) is kernel


@pytest.mark.parametrize(
    ("location", "remote"),
    [
        ("s3://lake/t", True),
        ("abfss://c@a.dfs.core.windows.net/t", True),
        ("gs://lake/t", True),
        ("/lake/t", False),
        ("file:/lake/t", False),
        ("file:///lake/t", False),
        ("hdfs://host:8020/t", False),
    ],
)
def test_a_table_is_remote_in_an_object_store(location: str, remote: bool) -> None:
    assert make_state(location=location).is_remote is remote
