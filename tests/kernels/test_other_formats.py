"""ORC and Avro files are opened by readers that did not write them, before they are committed."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from pyarrow import orc

from neve.errors import StorageError
from neve.kernels.faults import CorruptFileError
from neve.kernels.other_formats import open_avro, open_orc
from neve.kernels.streams import BytesSource
from neve.rewrite.work_order import OpenedFile

MARKER = bytes(range(16))
HEADER = b'Obj\x01\x02\x16avro.schema\x0c"long"\x00' + MARKER
AVRO = HEADER + b"\x04\x04\x02\x04" + MARKER


def orc_file() -> bytes:
    out = io.BytesIO()
    orc.write_table(pa.table({"id": range(1000)}), out)
    return out.getvalue()


def test_an_orc_file_is_opened_by_pyarrow() -> None:
    data = orc_file()
    assert open_orc(BytesSource(data, "f.orc")) == OpenedFile(reader="pyarrow", size_bytes=len(data), rows=1000)


@pytest.mark.parametrize("data", [b"", orc_file()[:3], orc_file()[:-1], orc_file()[:-30] + bytes(29) + orc_file()[-1:]])
def test_an_orc_file_that_does_not_open_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"f\.orc.*pyarrow cannot open it"):
        open_orc(BytesSource(data, "f.orc"))


@pytest.mark.parametrize("data", [HEADER, AVRO], ids=["no rows", "rows"])
def test_an_avro_file_begins_and_ends_as_the_format_says(data: bytes) -> None:
    assert open_avro(BytesSource(data, "f.avro")) == OpenedFile(reader="its markers", size_bytes=len(data))


@pytest.mark.parametrize("data", [b"", AVRO[:-1], AVRO[1:], AVRO + b"\x00", b"Obj\x01"])
def test_an_avro_file_that_was_cut_or_goes_on_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"f\.avro.*it does not begin and end like an Avro file"):
        open_avro(BytesSource(data, "f.avro"))


def test_storage_that_does_not_answer_says_nothing_of_a_file() -> None:
    class Silent(BytesSource):
        def read_at(self, offset: int, length: int) -> bytes:
            raise StorageError(f"Cannot read {self.path} at {offset}, {length} bytes")

    with pytest.raises(StorageError):
        open_orc(Silent(orc_file(), "f.orc"))
