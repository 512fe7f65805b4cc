"""Deletion vectors in Puffin files: pyiceberg reads what is written, and damage is told with the file's name."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from neve.kernels.deletes.puffin import VectorWriter, read_vector, write_vectors
from neve.kernels.deletes.roaring import Encoder, encode
from neve.kernels.faults import CorruptFileError
from tests.builders.arrow_files import MemorySink

FIRST, SECOND = np.array([1, 5, 70_000], np.int64), np.arange(1000, 9000, dtype=np.int64)


def written() -> bytes:
    sink = MemorySink()
    write_vectors(sink, [("s3://b/é.parquet", FIRST), ("s3://b/2.parquet", SECOND)])
    assert sink.data is not None
    return sink.data


def blob(bitmap: bytes, magic: bytes = b"\xd1\xd3\x39\x64") -> bytes:
    content = magic + bitmap
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def test_another_reader_finds_every_vector_of_the_file() -> None:
    file = PuffinFile(written())
    blobs = file.footer.blobs
    assert [b.properties["referenced-data-file"] for b in blobs] == ["s3://b/é.parquet", "s3://b/2.parquet"]
    assert [b.properties["cardinality"] for b in blobs] == ["3", "8000"]
    vectors = {v.referenced_data_file: v.to_vector().to_pylist() for v in deletion_vectors_from_puffin_file(file)}
    assert vectors == {"s3://b/é.parquet": FIRST.tolist(), "s3://b/2.parquet": SECOND.tolist()}


def test_the_footer_says_what_icebergs_own_writer_says() -> None:
    footer = PuffinFile(written()).footer.model_dump(by_alias=True)
    assert footer["properties"] == {"created-by": "Neve"}
    first = footer["blobs"][0]
    assert {key: first[key] for key in ("type", "fields", "snapshot-id", "sequence-number", "offset")} == {
        "type": "deletion-vector-v1",
        "fields": [2147483645],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": 4,
    }


def test_the_place_of_each_vector_is_where_its_bytes_are() -> None:
    sink = MemorySink()
    vectors, size = write_vectors(sink, [("a", FIRST), ("b", SECOND)])
    data = sink.data
    assert data is not None
    assert size == len(data)
    assert [(v.data_file, v.cardinality) for v in vectors] == [("a", 3), ("b", 8000)]
    for vector, rows in zip(vectors, (FIRST, SECOND), strict=True):
        part = data[vector.offset : vector.offset + vector.length]
        assert read_vector(part, "p.puffin", cardinality=vector.cardinality).tolist() == rows.tolist()


def test_a_vector_that_was_built_bit_by_bit_is_written_like_one_at_once() -> None:
    encoder, sink = Encoder(), MemorySink()
    encoder.add(FIRST[:2])
    encoder.add(FIRST[2:])
    writer = VectorWriter(sink)
    assert writer.add("s3://b/é.parquet", encoder).cardinality == 3
    writer.add("s3://b/2.parquet", SECOND)
    writer.finish()
    assert sink.data == written()


def test_a_vector_that_cannot_be_written_leaves_nothing() -> None:
    sink = MemorySink()
    with pytest.raises(ValueError, match="must ascend"):
        write_vectors(sink, [("a", FIRST[::-1])])
    assert (sink.aborted, sink.data) == (True, None)


@pytest.mark.parametrize(
    ("data", "cardinality", "reason"),
    [
        (b"\0" * 11, None, "its deletion vector has only 11 bytes"),
        (blob(encode(FIRST))[:-1], None, r"its deletion vector says \d+ bytes, the table says \d+"),
        (blob(encode(FIRST), magic=b"abcd"), None, "its deletion vector begins with 61626364, not d1d33964"),
        (blob(encode(FIRST))[:-1] + b"\xff", None, "the checksum of its deletion vector is wrong"),
        (blob(encode(FIRST)[:-1]), None, "in its deletion vector, the bitmap ends too early"),
        (blob(encode(FIRST)), 4, "its deletion vector holds 3 positions, the table says 4"),
    ],
)
def test_a_damaged_vector_names_its_file(data: bytes, cardinality: int | None, reason: str) -> None:
    with pytest.raises(CorruptFileError, match=f"^Cannot read s3://b/1.puffin: {reason}$"):
        read_vector(data, "s3://b/1.puffin", cardinality=cardinality)


def test_every_flipped_byte_of_a_vector_is_noticed() -> None:
    right = blob(encode(np.arange(0, 300, 3)))
    for at in range(len(right)):
        wrong = right[:at] + bytes([right[at] ^ 0x10]) + right[at + 1 :]
        with pytest.raises(CorruptFileError, match="Cannot read p:"):
            read_vector(wrong, "p")
