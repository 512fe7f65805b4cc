from __future__ import annotations

from pathlib import Path

import pytest

from neve.errors import BadRequestError, EnvironmentFaultError
from neve.spark.runtime.coordinates import Coordinate, spark_coordinates
from neve.spark.runtime.ivy import module_xml, reason, settings_xml


def test_coordinates_round_trip_with_and_without_a_classifier() -> None:
    for text in ("org.postgresql:postgresql:42.7.4", "org.apache.iceberg:iceberg-core:1.11.0:tests"):
        assert str(Coordinate.parse(text)) == text
    assert Coordinate.parse("g:a:1:tests").file_name == "a-1-tests.jar"
    assert Coordinate.parse("g:a:1").file_name == "a-1.jar"


@pytest.mark.parametrize("text", ["", "a:b", "a:b:c:d:e", "a::1", 'a:b:1"/><x', "a:../b:1"])
def test_what_is_no_coordinate_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"^Cannot read Maven coordinate '.*': not group:artifact:version"):
        Coordinate.parse(text)


def test_each_spark_gets_its_own_runtime_and_each_need_one_bundle() -> None:
    assert spark_coordinates("4.1.4", scala="2.13") == ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
    assert spark_coordinates("3.5.9", scala="2.12", needs=["sqlite", "aws", "sqlite"]) == (
        "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
        "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
        "org.xerial:sqlite-jdbc:3.53.4.0",
    )


@pytest.mark.parametrize(("spark", "scala"), [("4.2.0", "2.13"), ("3.5.9", "2.13"), ("3.4.1", "2.12")])
def test_a_spark_without_a_runtime_is_refused(spark: str, scala: str) -> None:
    expected = f"^Cannot choose an Iceberg runtime: there is none for Spark {spark[:3]} with Scala {scala}$"
    with pytest.raises(EnvironmentFaultError, match=expected):
        spark_coordinates(spark, scala=scala)


def test_an_unknown_need_is_refused() -> None:
    with pytest.raises(BadRequestError, match=r"^Cannot choose jars: nothing is known to serve oracle$"):
        spark_coordinates("4.1.4", scala="2.13", needs=["oracle"])


def test_classifiers_of_one_module_stand_in_one_element() -> None:
    xml = module_xml([Coordinate.parse("g:a:1"), Coordinate.parse("g:a:1:tests")], transitive=True, exclusions=["x:y", "z"])
    assert xml.count("<dependency ") == 1
    assert '<artifact name="a" type="jar" ext="jar"/><artifact name="a" type="jar" ext="jar" m:classifier="tests"/>' in xml
    assert '<exclude org="x" module="y"/><exclude org="z" module="*"/>' in xml
    assert 'force="true" transitive="true" conf="default->default"' in xml


def test_no_repository_is_named_unless_a_mirror_is() -> None:
    assert "http" not in settings_xml(Path("/cache"), None)
    assert ' root="https://mirror.example/maven/"' in settings_xml(Path("/cache"), "https://mirror.example/maven")


def test_reasons_are_taken_from_what_ivy_prints() -> None:
    refused = "\tServer access error at url https://h/x.pom (java.net.ConnectException: Connection refused)\n"
    assert reason(refused) == "the repository cannot be reached (java.net.ConnectException: Connection refused)"
    assert reason("\t\t:: g#a;1: not found\n") == "the repository does not have it"
    assert reason("Error: boom\n\n") == "Error: boom"
    assert reason("") == "Ivy said nothing"
