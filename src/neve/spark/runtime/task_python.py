"""The Python that runs our tasks. Called by everything here that sends Python code to Spark.

A local Spark starts whatever PYSPARK_PYTHON names, else `python3` from the PATH, and that may lack our libraries. On a local
master our tasks run on the interpreter of this process instead. The caller's own jobs keep the interpreter that they have: its
context is not changed, and Spark keeps workers of different interpreters apart.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession


def runs_on_our_python(context: SparkContext) -> bool:
    """Whether tasks run on this process's interpreter, so that they can import whatever this process can."""
    if re.fullmatch(r"local(\[.*\])?", context.master) is None:
        return False
    # In a program that embeds Python, sys.executable is that program.
    return context.pythonExec == sys.executable or os.path.basename(sys.executable).startswith("python")  # noqa: PTH119


def task_context(context: SparkContext) -> SparkContext:
    """The context to send our tasks through: the caller's own, or one like it with another interpreter."""
    if context.pythonExec == sys.executable or not runs_on_our_python(context):
        return context
    ours: Any = _OurPython(context)
    return ours


class _OurPython:
    """A Spark context with this process's interpreter and import path for the functions that are sent through it. Everything
    else is the context that it was made from."""

    def __init__(self, context: SparkContext) -> None:
        self._of = context
        self.pythonExec = sys.executable
        self.environment = {**context.environment, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}  # noqa: PTH109

    def __getattr__(self, name: str) -> Any:
        method = getattr(type(self._of), name, None)
        return MethodType(method, self) if isinstance(method, FunctionType) else getattr(self._of, name)


def rows_of(frame: DataFrame) -> RDD[Any]:
    """A frame's rows, for functions of ours."""
    rows = frame.rdd
    rows.ctx = task_context(frame.sparkSession.sparkContext)
    return rows


def map_in_arrow(frame: DataFrame, function: Callable[..., Any], schema: str) -> DataFrame:
    """`DataFrame.mapInArrow`, which asks for pandas and does not use it; neither tasks nor drivers need have it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import PythonEvalType

    session = frame.sparkSession
    mapper = python_function(session, function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column, java = mapper(*(frame[name] for name in frame.columns))._jc, frame._jdf
    # Spark 3.5 has it under another name, and takes an expression and no resource profile.
    old = session.version.startswith("3.")
    mapped = java.pythonMapInArrow(column.expr(), False) if old else java.mapInArrow(column, False, None)
    return DataFrame(mapped, session)


def python_function(session: SparkSession, function: Callable[..., Any], schema: str, kind: int) -> Any:
    """A function over columns that runs on the interpreter of our tasks; `kind` is one of PySpark's evaluation types."""
    from pyspark.sql.udf import UserDefinedFunction, _wrap_function

    udf: Any = UserDefinedFunction(function, schema, evalType=kind)
    context = task_context(session.sparkContext)
    if context is not session.sparkContext:
        java: Any = context._jvm
        wrapped = _wrap_function(context, function, udf.returnType)
        kind_of_result = session._jsparkSession.parseDataType(udf.returnType.json())
        made = java.org.apache.spark.sql.execution.python.UserDefinedPythonFunction
        udf._judf_placeholder = made(udf._name, wrapped, kind_of_result, kind, udf.deterministic)
    return udf
