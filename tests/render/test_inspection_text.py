"""The text of an inspection, at several widths and on terminals that can do less."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from neve.health.inspection import Health, Inspection, ManifestCounts, SizeBucket
from neve.health.not_due import NotDue
from neve.render.phrases import ago, band, printable, share, size_range
from neve.render.text import inspection_text
from neve.table.units import MIB
from tests.builders.inspections import (
    FINDINGS,
    NOW_MS,
    make_clustering,
    make_empty,
    make_healthy,
    make_inspection,
    make_partition,
    make_shallow,
)


def shown(inspection: Inspection, *, width: int = 80, partitions: int = 10, color: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, color_system="truecolor" if color else None, highlight=False)
    console.print(inspection_text(inspection, partitions=partitions))
    return out.getvalue()


def shown_in(encoding: str, inspection: Inspection) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    Console(file=stream, width=80, highlight=False).print(inspection_text(inspection))
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_the_header_tells_what_was_looked_at_and_when() -> None:
    assert shown(make_inspection()).splitlines()[:4] == [
        "local.db.events",
        "Iceberg v2 · 12 columns · partitioned by day: day, region: identity (2 specs)",
        "snapshot 4127533092817263544 · last write 3 min ago · depth files",
        "file:///data/warehouse/db/events",
    ]


def test_a_branch_is_named_and_goes_with_commands_that_take_one() -> None:
    found = [FINDINGS[0].model_copy(update={"operation": operation}) for operation in ("compact", "expire")]
    page = shown(make_inspection(branch="audit", health=Health(score=50, findings=tuple(found))), width=120)
    assert page.splitlines()[0] == "local.db.events, branch audit"
    assert "(`neve compact local.db.events --branch audit`)" in page
    assert "(`neve expire local.db.events`)" in page


def test_only_the_sources_of_row_groups_that_were_used_are_named() -> None:
    groups = make_inspection().row_groups
    assert groups is not None
    mixed = groups.model_copy(update={"source": "mixed", "sources": ("records", "split-offsets")})
    assert "(from our records and split offsets)" in shown(make_inspection(row_groups=mixed), width=120)
    three = groups.model_copy(update={"source": "mixed", "sources": ("records", "footers", "split-offsets")})
    assert "(from our records, footers and split offsets)" in shown(make_inspection(row_groups=three), width=120)


def test_manifests_with_next_to_no_files_are_told_as_in_the_finding() -> None:
    few = ManifestCounts(data_manifests=11, delete_manifests=0, bytes=1000, average_files=1 / 11)
    assert "11 of data, 1000 B, fewer than 1 file each" in shown(make_inspection(manifests=few))


def test_the_score_has_a_bar_and_a_verdict() -> None:
    assert "Health 50 / 100  ██████████████████████──────────────────────  poor" in shown(make_inspection())


def test_findings_come_with_points_evidence_and_fix() -> None:
    lines = shown(make_inspection()).splitlines()
    at = lines.index("  \N{MINUS SIGN}34  Small files")
    assert lines[at + 1 : at + 3] == [
        "       1,180 of 1,204 data files are below 64 MB",
        "       → neve compact local.db.events",
    ]
    assert "  \N{MINUS SIGN}<1  Old snapshots" in lines


@pytest.mark.parametrize(
    "line",
    [
        "  Files       1,204 data files, 4.41 GB, 12,040,000 rows",
        "  Average     3.75 MB, target 128 MB",
        "  Small       1,180 files (98%) below 64 MB; 1,164 fragments",
        "  Deletes     300 position files (361,200 rows), 24 equality files (12,000 rows); duplicate ratio 3.1%",
        "  Row groups  1,310 in 1,204 files, 3.4 MB on average (from split offsets); small in 1,180 files",
        "  Sort order  ts asc nulls-first; 24 of 1,204 files written in that order",
        "  Workload    cdc: 18 of 50 commits delete rows, 32 s apart",
        "  Manifests   50 of data and 18 of deletes, 1.24 MB, 22.5 files each",
        "  Snapshots   50, oldest 9 days ago",
        "  Refs        2 branches: main, audit; 1 tag: 2025-q1",
        "  Metadata    205 KB, 50 versions kept in its log, 1 statistics file",
    ],
)
def test_every_number_has_its_line(line: str) -> None:
    assert line in shown(make_inspection(), width=120).splitlines()


def test_the_histogram_is_to_scale_and_marks_the_target() -> None:
    text = shown(make_inspection())
    bars = {line.split("  █")[0].strip(): line.count("█") for line in text.splitlines() if "MB  █" in line or "KB  █" in line}
    assert bars["256 KB \N{EN DASH} 1 MB"] == 38
    assert bars["1 MB \N{EN DASH} 4 MB"] == 25  # 402 of 610 files: 402 / 610 * 38
    target = next(line for line in text.splitlines() if "← target" in line)
    assert target.split() == ["128", "MB", "\N{EN DASH}", "256", "MB", "▉", "15", "2", "GB", "←", "target"]


def test_a_single_file_among_thousands_still_shows_in_the_histogram() -> None:
    buckets = (
        SizeBucket(low_bytes=0, high_bytes=MIB, files=1_000_000, bytes=MIB),
        SizeBucket(low_bytes=MIB, high_bytes=None, files=1, bytes=MIB),
    )
    assert "▏" in next(line for line in shown(make_inspection(histogram=buckets)).splitlines() if "≥ 1 MB" in line)


def test_partitions_are_cut_to_the_number_asked_for() -> None:
    text = shown(make_inspection(), width=110, partitions=3)
    assert "3 of 42 partitions, most in need first" in text
    assert len(re.findall("day=2025-06-", text)) == 3
    assert re.search(r"day=2025-06-15/region=eu-west +0.95 ██████▋ +200 +199 +50 +400 MB +2 MB\n", text)


def section(text: str, title: str) -> list[str]:
    lines = text.splitlines()
    at = lines.index(title)
    return lines[at + 1 : lines.index("", at)]


def test_clustering_tells_what_a_query_reads_now_and_once_it_is_done() -> None:
    text = shown(make_inspection(clustering=make_clustering()))
    assert section(text, "Clustering by hilbert(city, place.amount)") == [
        "  a query for one value of  depth  reads now               once clustered",
        "  city                         64  ████████████████  100%  ████▋             31%",
        "  place.amount                4.2  █▏                7.0%  ▎                2.0%",
        "  → A run would rewrite 1,180 files (2 GB): `neve cluster local.db.events --by",
        "  'hilbert(city, place.amount)'`",
    ]
    line = "  Clustering  by hilbert(city, place.amount); 53 files deep on average, 64 at worst"
    assert line in shown(make_inspection(clustering=make_clustering()), width=100).splitlines()


def test_where_clustering_is_not_advised_the_text_says_why_and_names_no_command() -> None:
    gain = NotDue(
        rule="read-gain",
        what="bytes that a query reads after a run, as a share of now",
        measured=1.1,
        threshold=0.75,
        unit="ratio",
        comparison="up to",
        until="the table is larger",
    )
    text = shown(make_inspection(clustering=make_clustering(advised=False, not_due=(gain,))))
    lines = section(text, "Clustering by hilbert(city, place.amount)")[3:]
    assert " ".join(line.strip() for line in lines) == (
        "→ Clustering is not advised. Bytes that a query reads after a run, as a share of now: 1.1, due up to 0.75, "
        "once the table is larger"
    )
    assert "neve cluster" not in text


def test_what_the_policy_leaves_alone_takes_no_points_and_an_operation_is_named_by_its_command() -> None:
    due, left = (FINDINGS[0].model_copy(update=changes) for changes in ({"operation": "compact"}, {"severity": 0}))
    lines = shown(make_inspection(health=Health(score=66, findings=(due, left)))).splitlines()
    assert f"       → {due.fix} (`neve compact local.db.events`)" in lines
    assert "    0  Small files" in lines


def test_without_a_layout_there_is_no_word_on_clustering() -> None:
    assert "luster" not in shown(make_inspection())


def test_no_partitions_are_listed_when_none_are_wanted() -> None:
    assert "most in need" not in shown(make_inspection(), partitions=0)


def test_a_long_partition_name_is_folded_not_cut() -> None:
    name = "day=2025-06-15/customer=" + "x" * 60
    text = shown(make_inspection(partitions=(make_partition(0, partition=name),), partition_count=1))
    cells = [line[:37].strip() for line in text.splitlines() if "day=2025" in line or "xxx" in line]
    assert "".join(cells) == name


def test_a_narrow_terminal_does_without_the_average_and_keeps_common_names_whole() -> None:
    lines = shown(make_inspection(), width=80).splitlines()
    assert "  partition                          need          files  small  deletes    size" in lines
    assert "  day=2025-06-15/region=eu-west      0.95 ██████▋    200    199       50  400 MB" in lines


def test_a_healthy_table_says_so() -> None:
    text = shown(make_healthy())
    assert "Nothing hurts." in text
    assert "100 / 100" in text
    assert "healthy" in text
    assert "(unpartitioned)" in text


def test_a_shallow_look_leaves_out_what_it_did_not_see() -> None:
    text = shown(make_shallow())
    assert "depth summary" in text
    assert "None" not in text
    for word in ("Deletes", "Row groups", "Manifests", "File sizes", "most in need", "Small  "):
        assert word not in text.replace("Deletes to apply", "")


def test_a_table_without_a_snapshot_is_no_special_case() -> None:
    text = shown(make_empty())
    assert "no snapshot yet · depth files" in text
    assert "0 data files, 0 B, 0 rows" in text
    assert "None" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 120, 250])
def test_no_line_is_wider_than_the_terminal_or_ends_in_blanks(width: int) -> None:
    lines = shown(make_inspection(), width=width).splitlines()
    assert max(map(len, lines)) <= min(width, 110)
    assert [line for line in lines if line != line.rstrip()] == []


def test_an_ascii_terminal_gets_plain_characters_in_the_same_places() -> None:
    plain, rich = shown_in("ascii", make_inspection()).splitlines(), shown_in("utf-8", make_inspection()).splitlines()
    assert [len(line) for line in plain] == [len(line) for line in rich]
    assert "Health 50 / 100  ######################......................  poor" in plain
    assert "  -34  Small files" in plain


def test_a_name_that_the_terminal_cannot_write_does_not_break_it() -> None:
    assert shown_in("ascii", make_inspection(table="local.db.évènements")).startswith("local.db.?v?nements\n")


def test_metadata_cannot_steer_the_terminal() -> None:
    text = shown(make_inspection(table="local.db.\x1b[31mred\u202e", location="[bold]here[/bold]"))
    assert "local.db.\\x1b[31mred\\u202e" in text
    assert "[bold]here[/bold]" in text


def test_colour_tells_small_from_good_and_none_is_used_without_colour() -> None:
    assert "\x1b[" in shown(make_inspection(), color=True)
    assert "\x1b[" not in shown(make_inspection())


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0%"),
        (0.0001, "<0.1%"),
        (0.004, "0.4%"),
        (0.031, "3.1%"),
        (0.0996, "10%"),
        (0.5, "50%"),
        (0.9999, "99.9%"),
        (1, "100%"),
    ],
)
def test_shares_never_round_to_nothing_or_all(ratio: float, text: str) -> None:
    assert share(ratio) == text


@pytest.mark.parametrize(
    ("back_ms", "text"), [(0, "just now"), (-500, "just now"), (90_000, "90 s ago"), (10_800_000, "3 h ago")]
)
def test_ages_are_in_one_unit(back_ms: int, text: str) -> None:
    assert ago(NOW_MS - back_ms, NOW_MS) == text


@pytest.mark.parametrize(
    ("score", "word"), [(100, "healthy"), (90, "healthy"), (89, "fair"), (70, "fair"), (69, "poor"), (0, "bad")]
)
def test_verdicts_begin_where_they_say(score: int, word: str) -> None:
    assert band(score).word == word


def test_size_ranges_without_an_end_say_so() -> None:
    assert size_range(SizeBucket(low_bytes=0, high_bytes=MIB, files=0, bytes=0)) == "< 1 MB"
    assert size_range(SizeBucket(low_bytes=MIB, high_bytes=None, files=0, bytes=0)) == "≥ 1 MB"


def test_printable_shows_what_it_does_not_obey() -> None:
    assert printable("a\nb\x07\u200bé") == "a\\nb\\x07\\u200bé"
