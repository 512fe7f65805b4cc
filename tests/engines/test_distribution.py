from __future__ import annotations

from pathlib import Path

import pytest

from neve.errors import EnvironmentFaultError, MissingExtraError
from neve.spark.runtime import distribution


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PySpark 4.1.4 that is only file names."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "version.py").write_text("__version__: str = '4.1.4'\n", encoding="utf-8")
    monkeypatch.setattr(distribution, "pyspark_home", lambda: tmp_path)
    return tmp_path


def test_the_installed_pyspark_is_understood() -> None:
    pytest.importorskip("pyspark")
    found = distribution.installed({})
    assert found.pyspark_version == found.spark_version
    assert (distribution.minor(found.spark_version), found.scala) in (((4, 1), "2.13"), ((3, 5), "2.12"))


def test_reads_versions_from_file_names(fake: Path) -> None:
    (fake / "jars" / "spark-core_2.13-4.1.4.jar").touch()
    assert distribution.installed({}) == distribution.Distribution(fake, "4.1.4", "4.1.4", "2.13")


def test_spark_home_must_be_of_the_same_version(fake: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "jars").mkdir(parents=True)
    (other / "jars" / "spark-core_2.12-3.5.9.jar").touch()
    with pytest.raises(EnvironmentFaultError, match=r"PySpark 4\.1\.4 cannot drive Spark 3\.5\.9 in \S+other$") as caught:
        distribution.installed({"SPARK_HOME": str(other)})
    assert caught.value.hint == "Unset SPARK_HOME, or pip install 'pyspark==3.5.9'."
    assert distribution.spark_home({}) == fake


def test_a_newer_spark_is_refused(fake: Path) -> None:
    (fake / "jars" / "spark-core_2.13-4.2.0.jar").touch()
    with pytest.raises(EnvironmentFaultError, match=r"^Cannot start Spark 4\.2\.0: Iceberg has no runtime for it yet$"):
        distribution.installed({})


@pytest.mark.usefixtures("fake")
def test_a_directory_without_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFaultError, match=r"^Cannot start Spark: \S+ holds no Spark$"):
        distribution.installed({"SPARK_HOME": str(tmp_path)})


def test_a_missing_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"^Cannot start Spark: PySpark is not installed$") as caught:
        distribution.installed({})
    assert caught.value.hint == "Run pip install 'neve[spark]'."
