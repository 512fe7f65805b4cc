"""Ranks among sampled boundaries: they never contradict the values, and every bit parts the rows as evenly as can be."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.kernels.curves.ranks import Boundaries
from tests.builders.ordered_columns import KINDS, LAW, Kind, ordered


def told_apart(kind: Kind, value: Any) -> Any:
    """Words do not tell a text from the same with zero bytes after it."""
    key = ordered(kind, value)
    return (True, key[1].rstrip(b"\0")) if isinstance(key[1], bytes) else key


def halved(weights: list[int], bits: int) -> list[int]:
    """The rank of each value, by the definition: cut where the two sides differ least, then go on within each side."""
    if not bits or len(weights) == 1:
        return [0] * len(weights)
    cut = min(range(1, len(weights)), key=lambda at: (abs(sum(weights[:at]) - sum(weights[at:])), -at))
    left, right = halved(weights[:cut], bits - 1), halved(weights[cut:], bits - 1)
    return left + [rank + 2 ** (bits - 1) for rank in right]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.name}-{kind.arrow}")
@LAW
@given(data=st.data())
def test_a_greater_value_never_has_a_smaller_rank(kind: Kind, data: st.DataObject) -> None:
    sample = data.draw(st.lists(st.none() | kind.values, max_size=40))
    others = data.draw(st.lists(st.none() | kind.values, max_size=20))
    bits = data.draw(st.integers(1, 16))
    values = sorted(sample + others, key=lambda value: ordered(kind, value))
    found = Boundaries.of([kind.array(sample)], bits).ranks([kind.array(values)])
    assert found.shape == (len(values), 1)
    assert found.dtype == np.uint32
    assert np.all(np.diff(found[:, 0].astype(np.int64)) >= 0)
    assert np.all(found < 2**bits)
    assert not found[[value is None for value in values]].any()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.name}-{kind.arrow}")
@LAW
@given(data=st.data())
def test_every_bit_halves_the_sample_as_evenly_as_its_values_let_it(kind: Kind, data: st.DataObject) -> None:
    distinct = {
        told_apart(kind, value): value for value in data.draw(st.lists(st.none() | kind.values, min_size=1, max_size=12))
    }
    values = [distinct[key] for key in sorted(distinct)]
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(values), max_size=len(values)))
    bits = data.draw(st.integers(1, 16))
    sample = [value for value, weight in zip(values, weights, strict=True) for _ in range(weight)]
    found = Boundaries.of([kind.array(sample)], bits).ranks([kind.array(values)])
    assert found[:, 0].tolist() == halved(weights, bits)


def test_skewed_numbers_fill_all_ranks_evenly() -> None:
    values = pa.array(np.random.default_rng(1).lognormal(0, 4, 50_000))
    ranks = Boundaries.of([values], 16).ranks([values])[:, 0]
    shares = np.bincount(ranks >> 10, minlength=64) / len(ranks)
    assert shares.min() > 0.0155
    assert shares.max() < 0.0158


def test_a_value_that_is_half_of_the_sample_takes_one_bit() -> None:
    numbers = np.random.default_rng(2).integers(-10_000, 10_000, 40_000)
    values = pa.array(np.concatenate([numbers, np.full(40_000, -10_001)]))
    ranks = Boundaries.of([values], 16).ranks([values])[:, 0]
    assert set(ranks[40_000:].tolist()) == {0}
    shares = np.bincount(ranks[:40_000] >> 10, minlength=64) / 40_000
    assert not shares[:32].any()
    assert shares[32:].min() > 0.030
    assert shares[32:].max() < 0.033


def test_few_values_are_told_apart_by_the_highest_bits() -> None:
    values = pa.array(["new", "paid", "sent", "done"] * 100)
    ranks = Boundaries.of([values], 16).ranks([pa.array(["done", "new", "paid", "sent", None])])[:, 0]
    assert ranks.tolist() == [0, 2**14, 2**15, 3 * 2**14, 0]


def test_nulls_that_are_half_of_the_sample_are_parted_from_values_by_the_first_bit() -> None:
    ranks = Boundaries.of([pa.array([None, None, 5, 7])], 16).ranks([pa.array([4, None, 5, 6, 7, 8])])[:, 0]
    assert ranks.tolist() == [2**15, 0, 2**15, 2**15, 3 * 2**14, 3 * 2**14]


def test_a_long_common_prefix_costs_no_rank() -> None:
    names = [f"https://warehouse.example.com/customers/eu-central/customer_{i:06d}" for i in range(4096)]
    ranks = Boundaries.of([pa.array(names)], 16).ranks([pa.array(names)])[:, 0]
    assert (ranks >> 4).tolist() == list(range(4096))


def test_an_empty_sample_and_one_of_nulls_rank_everything_alike() -> None:
    for sample in (pa.array([], pa.string()), pa.nulls(4, pa.string()), pa.chunked_array([], pa.string())):
        assert not Boundaries.of([sample], 16).ranks([pa.array(["b", None, ""])]).any()
    assert Boundaries.of([pa.nulls(3)], 4).ranks([pa.nulls(2)]).tolist() == [[0], [0]]
    assert Boundaries.of([pa.array([1])], 4).ranks([pa.array([], pa.int64())]).shape == (0, 1)


def test_boundaries_are_small_and_rank_the_same_in_another_process() -> None:
    random = np.random.default_rng(3)
    columns = [pa.array(random.normal(size=100_000)), pa.array([f"user_{i:06d}" for i in random.integers(0, 10**6, 100_000)])]
    boundaries = Boundaries.of(columns)
    packed = pickle.dumps(boundaries)
    assert len(packed) < 600_000
    assert np.array_equal(pickle.loads(packed).ranks(columns), boundaries.ranks(columns))  # noqa: S301
    assert [len(set(ranks)) > 4096 for ranks in boundaries.ranks(columns).T.tolist()] == [True, True]


def test_promoted_types_are_ranked_by_the_same_boundaries() -> None:
    sample = [
        pa.array([1, 2, 3], pa.int32()),
        pa.array([1.5, 2.5, 9.0], pa.float32()),
        pa.array([1, 2, 3], pa.decimal128(9, 2)),
    ]
    wide = [pa.array([3, 2, 2**40]), pa.array([9.0, 2.5, 1e300]), pa.array([3, 2, 10**30], pa.decimal128(38, 2))]
    found = Boundaries.of(sample).ranks(wide)
    assert np.array_equal(found[0], found[2])
    assert np.all(found[1] < found[0])


def test_columns_of_another_type_are_not_ranked() -> None:
    nanos = pa.timestamp("ns", "UTC")
    for sample, other in ((pa.int32(), pa.string()), (pa.float32(), pa.int64()), (pa.timestamp("us"), nanos)):
        with pytest.raises(TypeError, match=rf"Cannot rank a column of type {re.escape(str(other))}: its sample was of type "):
            Boundaries.of([pa.nulls(1, sample)]).ranks([pa.nulls(1, other)])


def test_more_bits_than_a_key_has_are_refused() -> None:
    with pytest.raises(ValueError, match="2 columns of 17 bits do not make a key"):
        Boundaries.of([pa.array([1]), pa.array([1])], 17)
