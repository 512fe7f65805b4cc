"""A Java method as a function object, so that Java itself calls it for each of many files: one call from here, not one each.

Iceberg's builders take files one by one, and its JSON leaves sequence numbers out. Used by `descriptions` and `deltas`.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ICEBERG = "org.apache.iceberg"
_FUNCTION = f"{_ICEBERG}.relocated.com.google.common.base.Function"


class Methods:
    """Public methods of Iceberg's public types, applied to every element of a Java collection."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway

    def mapped(self, items: Any, owner: str, method: str) -> Any:
        """A Java list of what a method without parameters answers for each item, asked when it is read."""
        return self._lists.transform(items, self._as(_FUNCTION, self._handle(owner, method)))

    def written(self, files: Any, spec: Any) -> list[str]:
        """A Java list of files of one partition spec, each in Iceberg's JSON."""
        to_json = self._handle("ContentFileParser", "toJson", "ContentFile", "PartitionSpec")
        given = self._gateway.new_array(self._jvm.java.lang.Object, 1)
        given[0] = spec
        bound = self._jvm.java.lang.invoke.MethodHandles.insertArguments(to_json, 1, given)
        return self.plain(self._lists.transform(files, self._as(_FUNCTION, bound)))

    def give(self, items: Any, target: Any, owner: str, method: str, parameter: str) -> None:
        """Calls a method of `target` with each item."""
        bound = self._handle(owner, method, parameter).bindTo(target)
        # Py4J finds no method that a class merely inherits from an interface, as sets do this one; lists have their own.
        self._lists.newArrayList(items).forEach(self._as("java.util.function.Consumer", bound))

    def plain(self, values: Any) -> list[Any]:
        """A Java list of texts or numbers, in one call."""
        found: list[Any] = json.loads(self.mapper.writeValueAsString(self._lists.newArrayList(values)))
        return found

    def texts(self, values: list[str]) -> Any:
        """A Java list of texts, in one call."""
        return self.mapper.readValue(json.dumps(values), self._class("java.util.ArrayList"))

    @cached_property
    def mapper(self) -> Any:
        """Iceberg's own reader and writer of JSON."""
        return self._jvm.org.apache.iceberg.util.JsonUtil.mapper()

    def _handle(self, owner: str, method: str, *parameters: str) -> Any:
        types = self._gateway.new_array(self._jvm.java.lang.Class, len(parameters))
        for i, parameter in enumerate(parameters):
            types[i] = self._class(f"{_ICEBERG}.{parameter}")
        lookup = self._jvm.java.lang.invoke.MethodHandles.publicLookup()
        return lookup.unreflect(self._class(f"{_ICEBERG}.{owner}").getMethod(method, types))

    def _as(self, interface: str, handle: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(self._class(interface), handle)

    def _class(self, name: str) -> Any:
        return self._loader.loadClass(name)

    @cached_property
    def _loader(self) -> Any:
        return self._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()

    @cached_property
    def _lists(self) -> Any:
        return self._jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
