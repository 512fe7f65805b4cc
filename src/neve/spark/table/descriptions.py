"""Files between Java and Iceberg's JSON, many in one text, as REST catalogs plan scans: partition, deletes, statistics and all.

Building files that way costs one Py4J call where the builder would cost a dozen each. Used by `bridge`, and by nobody else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from neve.rewrite.live_files import EQUALITY, DataFile, DeleteKey, LiveFile, SharedDeletes, delete_key
from neve.spark.table.methods import Methods

CHUNK = 50_000
"""Tasks per JSON text: much larger texts cost the JVM more memory than they save calls."""
_CHUNK_WITH_DELETES = 500
"""The same where deletes are attached, since each task names all of its own, be they thousands."""

_NOT_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})

_IDENTITY = ("spec-id", "content", "file-path", "file-format", "partition", "file-size-in-bytes", "record-count")
"""What names a file: removing one, or asking for its partition, needs no statistics, which are most of its text."""

_DELETE_IDENTITY = (*_IDENTITY, "equality-ids", "referenced-data-file", "content-offset", "content-size-in-bytes")
"""A vector is named by its place in a Puffin file as well, and Iceberg builds no equality delete without its columns."""


class Descriptions:
    """Reads and writes files of one table, whose partition specs they need."""

    def __init__(self, jvm: Any, table: Any, methods: Methods) -> None:
        self._jvm, self._table, self._methods = jvm, table, methods
        self._stand_ins: Any = None

    def live_files(self, tasks: Any) -> list[LiveFile]:
        """The files of a scan's tasks. A delete is described once, however many files have it."""
        found: list[LiveFile] = []
        scan, size = _Scan(), int(tasks.size())
        while len(found) < size:
            stop = min(len(found) + (_CHUNK_WITH_DELETES if scan.known or not found else CHUNK), size)
            answer = self._responses.toJson(self._response(tasks.subList(len(found), stop)))
            found += scan.read(json.loads(answer))
        return found

    def paths(self, tasks: Any) -> list[str]:
        """The data file of each task."""
        return self._each(self._data(tasks), "location")

    def numbers(self, tasks: Any) -> dict[str, int]:
        """Data sequence numbers by path, of data files and of the deletes attached to them; JSON leaves them out.

        The vectors of one Puffin file are committed together, so that they share its number as they share its path.
        """
        found: dict[str, int] = {}
        for files in (self._data(tasks), self._response(tasks).deleteFiles()):
            numbers = (number or 0 for number in self._each(files, "dataSequenceNumber"))
            found |= dict(zip(self._each(files, "location"), numbers, strict=True))
        return found

    def delete_numbers(self, files: Any) -> dict[DeleteKey, int]:
        """Data sequence numbers of a Java list of delete files and vectors."""
        paths, numbers = (self._each(files, name) for name in ("location", "dataSequenceNumber"))
        offsets = self._methods.plain(self._methods.mapped(files, "DeleteFile", "contentOffset"))
        return {(path, at or 0): number or 0 for path, at, number in zip(paths, offsets, numbers, strict=True)}

    def _data(self, tasks: Any) -> Any:
        return self._methods.mapped(tasks, "FileScanTask", "file")

    def _each(self, files: Any, property_: str) -> list[Any]:
        return self._methods.plain(self._methods.mapped(files, "ContentFile", property_))

    def of(self, files: Any) -> list[DataFile]:
        """A Java collection of a few files, one by one."""
        parser, specs = self._java("ContentFileParser"), self._table.specs()
        return [json.loads(parser.toJson(file, specs.get(file.specId()))) for file in files]

    def of_one_spec(self, files: Any, spec_id: int) -> list[DataFile]:
        """A Java list of files of one partition spec, in one call."""
        texts = self._methods.written(files, self._specs.get(spec_id))
        return [json.loads(text) for text in texts]

    def tasks(self, files: Iterable[DataFile]) -> Any:
        """A Java list of scan tasks over these files, without deletes."""
        return self._parsed(
            [{"data-file": self._readable(file), "residual-filter": True} for file in files], []
        ).fileScanTasks()

    def data_files(self, files: Sequence[DataFile]) -> Any:
        """A Java set of data files, by way of the class that Iceberg's own rewrites use for it."""
        new_group = self._java("actions.RewriteFileGroup")
        result = self._java("util.DataFileSet").create()
        for start in range(0, len(files), CHUNK):
            group = new_group(None, self.tasks(files[start : start + CHUNK]), 0, 0, 0, 0)
            result.addAll(group.rewrittenFiles())
        return result

    def delete_files(self, files: Sequence[DataFile]) -> Any:
        """A Java set of delete files. They are only read with a data file that they are attached to, so one is made up."""
        result = self._java("util.DeleteFileSet").create()
        for start in range(0, len(files), CHUNK):
            part = [self._readable(file) for file in files[start : start + CHUNK]]
            any_file = {**{key: part[0][key] for key in ("spec-id", "partition")}, "content": "data", "file-path": "/"}
            any_file |= {"file-format": "parquet", "file-size-in-bytes": 1, "record-count": 1}
            task = {"data-file": any_file, "delete-file-references": list(range(len(part))), "residual-filter": True}
            result.addAll(self._parsed([task], part).deleteFiles())
        return result

    def _readable(self, file: DataFile) -> DataFile:
        """Iceberg writes a NaN partition value as a text, which it then refuses to read as a number."""
        if not any(value in _NOT_NUMBERS for value in file.get("partition") or () if isinstance(value, str)):
            return file
        spec = self._specs.get(int(file["spec-id"]))
        values = zip(file["partition"], [str(field.type()) for field in spec.partitionType().fields()], strict=True)
        return {**file, "partition": [float(v) if k in ("float", "double") and v is not None else v for v, k in values]}

    def _parsed(self, tasks: list[dict[str, Any]], deletes: list[DataFile]) -> Any:
        answer = {"status": "completed", "file-scan-tasks": tasks} | ({"delete-files": deletes} if deletes else {})
        return self._responses.fromJson(self._lenient_json.readTree(json.dumps(answer)), self._specs, True)

    def _response(self, tasks: Any) -> Any:
        status = self._java("rest.PlanStatus").COMPLETED
        builder = self._java("rest.responses.PlanTableScanResponse").builder().withPlanStatus(status).withFileScanTasks(tasks)
        return builder.withSpecsById(self._specs).build()

    def _java(self, name: str) -> Any:
        return java_class(self._jvm, name)

    @property
    def _specs(self) -> Any:
        """The table's specs by id. A field that is dropped in format v1 stays as void; where only such are left, Iceberg's JSON
        calls the spec unpartitioned and then refuses the nulls of its files. Specs of as many other fields stand for these; no
        identity among them, which readers would take for a column's value."""
        specs = self._table.specs()
        if self._stand_ins is None or self._stand_ins.size() != specs.size():
            self._stand_ins = self._jvm.java.util.HashMap(specs)
            for spec_id, spec in specs.items():
                if fields := int(spec.fields().size()) * bool(spec.isUnpartitioned()):
                    self._stand_ins.put(spec_id, self._stand_in(spec_id, fields))
        return self._stand_ins

    def _stand_in(self, spec_id: int, fields: int) -> Any:
        names = {i: f"void{i}" for i in range(1, fields + 1)}
        columns = [{"id": i, "name": name, "required": False, "type": "int"} for i, name in names.items()]
        schema = self._java("SchemaParser").fromJson(json.dumps({"type": "struct", "fields": columns}))
        parts = [{"name": n, "transform": "bucket[2]", "source-id": i, "field-id": 999 + i} for i, n in names.items()]
        return self._java("PartitionSpecParser").fromJson(schema, json.dumps({"spec-id": spec_id, "fields": parts}))

    @cached_property
    def _lenient_json(self) -> Any:
        """Reads NaN and Infinity as numbers, as Python writes them."""
        feature = self._java("shaded.com.fasterxml.jackson.core.json.JsonReadFeature").ALLOW_NON_NUMERIC_NUMBERS
        return self._methods.mapper.copy().configure(feature.mappedFeature(), True)

    @cached_property
    def _responses(self) -> Any:
        return self._java("rest.responses.PlanTableScanResponseParser")


def java_class(jvm: Any, name: str) -> Any:
    """A class of Iceberg's by its name; found by its packages, each part of the name would be a call."""
    from py4j.java_gateway import JavaClass

    return JavaClass(f"org.apache.iceberg.{name}", jvm._gateway_client)


def identity(file: DataFile) -> DataFile:
    """What names a data file."""
    return {key: file[key] for key in _IDENTITY if key in file}


def delete_identity(file: DataFile) -> DataFile:
    """What names a delete file or a vector."""
    return {key: file[key] for key in _DELETE_IDENTITY if key in file}


class _Scan:
    """Reads the texts of one scan: what they tell of deletes is kept once, for all files that have them."""

    def __init__(self) -> None:
        self.known: dict[DeleteKey, DataFile] = {}
        self._shared: dict[tuple[int, ...], SharedDeletes] = {}

    def read(self, answer: dict[str, Any]) -> Iterator[LiveFile]:
        """The files of one text."""
        deletes = [self.known.setdefault(delete_key(file), file) for file in answer.get("delete-files", ())]
        attached: dict[tuple[int, ...], tuple[tuple[DataFile, ...], SharedDeletes]] = {}
        for task in answer["file-scan-tasks"]:
            references = tuple(task.get("delete-file-references", ()))
            if references not in attached:
                attached[references] = self._attached([deletes[i] for i in references])
            yield LiveFile(task["data-file"], *attached[references])

    def _attached(self, deletes: Sequence[DataFile]) -> tuple[tuple[DataFile, ...], SharedDeletes]:
        """Files of about the same age have the same equality deletes, but seldom the same position deletes."""
        by_equality = tuple(delete for delete in deletes if delete["content"] == EQUALITY)
        shared = self._shared.setdefault(tuple(map(id, by_equality)), SharedDeletes(by_equality))
        return tuple(delete for delete in deletes if delete["content"] != EQUALITY), shared
