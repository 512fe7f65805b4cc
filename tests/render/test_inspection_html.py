"""The page of an inspection: complete, self-contained, well-formed, and deaf to markup in metadata."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from neve.health.inspection import Finding, Health, Inspection
from neve.render.html import inspection_html
from tests.builders.inspections import make_clustering, make_empty, make_healthy, make_inspection, make_partition, make_shallow

VOID = {"meta", "br"}


class Outline(HTMLParser):
    """Collects tags and attributes, and refuses a page whose tags do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize("make", [make_inspection, make_healthy, make_shallow, make_empty])
def test_every_page_is_well_formed_and_shows_no_missing_value(make: Callable[[], Inspection]) -> None:
    page = inspection_html(make())
    outline(page)
    assert "None" not in page
    assert "nan" not in re.sub(r"<style>.*</style>", "", page, flags=re.DOTALL).lower().split()


def test_the_page_asks_nobody_for_anything() -> None:
    page = inspection_html(make_inspection())
    names = {name for _, attributes in outline(page).tags for name in attributes}
    assert names.isdisjoint({"src", "href", "srcset", "action", "data", "onload", "onclick"})
    assert not re.search(r"https?:|//[a-z]+\.|url\(|@import|<script|<link|<iframe", page.replace("file:///", ""))


def test_the_page_has_its_plots_and_numbers() -> None:
    page = inspection_html(make_inspection())
    labels = [attributes["aria-label"] for tag, attributes in outline(page).tags if tag == "svg"]
    assert labels[0] == "Health 50 of 100"
    assert labels[1] == "Where the 100 points went"
    assert labels[2] is not None
    assert labels[2].startswith("Files by size: < 64 KB: 12 files, 500 KB; 64 KB \N{EN DASH} 256 KB: 140 files, 25 MB")
    assert labels[3] is not None
    assert labels[3].startswith("Data by file size: ")
    assert labels[4:] == [f"need {p.score:.2f}" for p in make_inspection().partitions or ()]
    assert "1,204 data files, 4.41 GB, 12,040,000 rows" in page
    assert "prefers-color-scheme: dark" in page


def svgs(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)]  # noqa: S314


def test_columns_are_to_scale() -> None:
    _, _, files, stored, *_ = svgs(inspection_html(make_inspection()))
    heights = [float(rect.attrib["height"]) for rect in files.iter("rect")]
    assert heights == [2.9, 33.5, 146.0, 96.2, 3.8, 0.0, 2.2, 3.6]
    assert max(float(rect.attrib["height"]) for rect in stored.iter("rect")) == 146.0
    assert [rect.attrib["class"] for rect in files.iter("rect")] == ["small"] * 6 + ["good"] * 2


def test_the_points_add_up_to_the_width() -> None:
    _, points, *_ = svgs(inspection_html(make_inspection()))
    widths = [float(rect.attrib["width"].rstrip("%")) for rect in points.iter("rect")]
    assert widths == [50.0, 34.3, 15.0, 0.2]


def test_points_never_run_over_the_edge() -> None:
    finding = Finding(code="a", title="A", weight=100, severity=1, evidence="b", fix="c")
    _, points, *_ = svgs(inspection_html(make_inspection(health=Health(score=0, findings=(finding, finding)))))
    assert [rect.attrib["width"] for rect in points.iter("rect")] == ["0.00%", "100.00%", "0.00%"]


def test_markup_in_metadata_stays_text() -> None:
    evil = "<script>alert('x')</script>\"&"
    finding = Finding(code="a", title=evil, weight=10, severity=1, evidence=evil, fix=evil)
    page = inspection_html(
        make_inspection(
            table=evil,
            location=evil,
            partitioning=evil,
            partitions=(make_partition(0, partition=evil),),
            health=Health(score=90, findings=(finding,)),
        )
    )
    outline(page)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 7


def test_a_shallow_page_has_no_empty_plots() -> None:
    labels = [attributes["aria-label"] for tag, attributes in outline(inspection_html(make_shallow())).tags if tag == "svg"]
    assert labels == ["Health 50 of 100", "Where the 100 points went"]


def test_clustering_has_a_bar_for_now_and_for_after_of_each_column() -> None:
    page = inspection_html(make_inspection(clustering=make_clustering(layout="sort(<b>)"), partitions=()))
    labels = [attributes["aria-label"] for tag, attributes in outline(page).tags if tag == "svg"]
    assert labels[-4:] == ["now 100%", "once clustered 31%", "now 7.0%", "once clustered 2.0%"]
    assert "Clustering by sort(&lt;b&gt;)" in page
    assert "A run would rewrite 1,180 files (2 GB): `neve cluster local.db.events --by &#39;sort(&lt;b&gt;)&#39;`" in page


def test_only_the_neediest_partitions_go_on_the_page() -> None:
    many = tuple(make_partition(0, partition=f"p={n}") for n in range(150))
    page = inspection_html(make_inspection(partitions=many, partition_count=15_000))
    assert "100 of 15,000" in page
    assert "p=99<" in page
    assert "p=100<" not in page
