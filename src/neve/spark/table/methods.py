"""A Java method as a function object, so that Java itself calls it for each of many files: one call from here, not one each.

Iceberg's builders take files one by one, and its JSON leaves sequence numbers out. What its actions do in tasks is not public:
`hidden` and `made` reach it. Used by `descriptions`, `deltas`, `manifests` and `reachable`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ICEBERG = "org.apache.iceberg"
_FUNCTION = f"{_ICEBERG}.relocated.com.google.common.base.Function"


class Methods:
    """Methods of Iceberg's types; the public ones applied to every element of a Java collection."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway

    def mapped(self, items: Any, owner: str, method: str) -> Any:
        """A Java list of what a method without parameters answers for each item, asked when it is read."""
        return self._lists.transform(items, self._as(_FUNCTION, self._handle(owner, method)))

    def written(self, files: Any, spec: Any) -> list[str]:
        """A Java list of files of one partition spec, each in Iceberg's JSON."""
        to_json = self._handle("ContentFileParser", "toJson", "ContentFile", "PartitionSpec")
        given = self._array(self._jvm.java.lang.Object, [spec])
        bound = self._jvm.java.lang.invoke.MethodHandles.insertArguments(to_json, 1, given)
        return self.plain(self._lists.transform(files, self._as(_FUNCTION, bound)))

    def give(self, items: Any, target: Any, owner: str, method: str, parameter: str) -> None:
        """Calls a method of `target` with each item."""
        bound = self._handle(owner, method, parameter).bindTo(target)
        # Py4J finds no method that a class merely inherits from an interface, as sets do this one; lists have their own.
        self._lists.newArrayList(items).forEach(self._as("java.util.function.Consumer", bound))

    def calling(self, target: Any, method: str, text: str) -> Any:
        """A Java callable: the call of a public method of `target` with a text."""
        kinds = self._array(self._jvm.java.lang.Class, [self._class("java.lang.String")])
        given = self._array(self._jvm.java.lang.Object, [text])
        handles = self._jvm.java.lang.invoke.MethodHandles
        handle = handles.publicLookup().unreflect(target.getClass().getMethod(method, kinds)).bindTo(target)
        return self._as("java.util.concurrent.Callable", handles.insertArguments(handle, 0, given))

    def hidden(self, target: Any, owner: str, method: str, given: Mapping[str, Any]) -> Any:
        """What a method answers that is not public; the values by the class of their parameter, all by whole names."""
        kinds = self._array(self._jvm.java.lang.Class, [self._class(kind) for kind in given])
        found = self._class(owner).getDeclaredMethod(method, kinds)
        found.setAccessible(True)
        return found.invoke(target, self._array(self._jvm.java.lang.Object, list(given.values())))

    def made(self, owner: str, *values: Any) -> Any:
        """An object of a class that is not public, by its first constructor."""
        found = self._class(owner).getDeclaredConstructors()[0]
        found.setAccessible(True)
        return found.newInstance(self._array(self._jvm.java.lang.Object, list(values)))

    def one_of(self, values: list[str], owner: str, method: str) -> Any:
        """A Java predicate: whether what a method without parameters answers is one of these texts."""
        handles, objects = self._jvm.java.lang.invoke.MethodHandles, self._class("java.lang.Object")
        kinds = self._array(self._jvm.java.lang.Class, [objects])
        contains = handles.publicLookup().unreflect(self._class("java.util.HashSet").getMethod("contains", kinds))
        kind = self._jvm.java.lang.invoke.MethodType.methodType(objects, self._class(f"{_ICEBERG}.{owner}"))
        asked = self._array(self._jvm.java.lang.invoke.MethodHandle, [self._handle(owner, method).asType(kind)])
        chosen = contains.bindTo(self._jvm.java.util.HashSet(self.texts(values)))
        return self._as("java.util.function.Predicate", handles.filterArguments(chosen, 0, asked))

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
        types = self._array(self._jvm.java.lang.Class, [self._class(f"{_ICEBERG}.{parameter}") for parameter in parameters])
        lookup = self._jvm.java.lang.invoke.MethodHandles.publicLookup()
        return lookup.unreflect(self._class(f"{_ICEBERG}.{owner}").getMethod(method, types))

    def _array(self, kind: Any, values: Sequence[Any]) -> Any:
        array = self._gateway.new_array(kind, len(values))
        for i, value in enumerate(values):
            array[i] = value
        return array

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
