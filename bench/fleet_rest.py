"""A fleet behind a REST catalog: how many requests each round of the scheduler sends, and how long it takes to know all tables.

Run as `python -m bench.fleet_rest --work DIR`. The server is a process of its own that answers from the same metadata files as
`bench.fleet` and counts requests. Exits with 2 when a round sends more than `service.catalog-requests`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen

from bench.chart_page import Figures, leave, machine
from bench.fleet import write_fleet

LOOPBACK = "127.0.0.1"
PAGE = 1_000
BUDGET = 600
_MOST_ROUNDS = 200


class OverBudgetError(Exception):
    """A round sent more requests than it may."""


@dataclass(frozen=True)
class Round:
    """One round of the scheduler."""

    number: int
    wall_seconds: float
    cpu_seconds: float
    requests: int
    """As the server counted them."""
    reported: int
    """As the scheduler reported them."""
    read: int
    known: int
    """Tables whose metadata was read so far."""


def main() -> int:
    """Generates, measures, prints, writes, judges."""
    options, about = _options(), machine()
    if options.server is not None:
        _serve(options.work)
        return 0
    shutil.rmtree(options.work, ignore_errors=True)
    write_fleet(options.work, options.tables)
    command = [sys.executable, "-m", "bench.fleet_rest", "--work", str(options.work), "--server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            rounds = _measured(options.work, options.tables, int(server.stdout.readline()))
        except OverBudgetError as error:
            print(error, file=sys.stderr)
            return 2
        finally:
            server.kill()
    content = {**about, "tables": options.tables, "rounds": [asdict(one) for one in rounds]}
    leave("fleet_rest", _figures(options.tables, rounds), content, {}, json_file=options.json, quick=options.quick)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="a directory for the fleet")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/fleet_rest.json)")
    parser.add_argument("--quick", action="store_true", help="a thousand tables: only to see that it works")
    parser.add_argument("--tables", type=int, default=10_000, help="how many tables (10000)")
    parser.add_argument("--server", action="store_true", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.work = options.work.absolute()
    if options.quick:
        options.tables = 1_000
    return options


def _measured(directory: Path, tables: int, port: int) -> list[Round]:
    """Rounds until every table is known, and one more."""
    from neve.api import Neve
    from neve.service.policies import Policies
    from neve.service.scheduler import Scheduler
    from neve.settings import load_settings

    (directory / "neve.yaml").write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: rest\n    uri: http://{LOOPBACK}:{port}\n"
        f"state:\n  url: sqlite:///{directory}/state.db\ncache:\n  directory: {directory}/cache\n"
        f"service:\n  catalog-requests: {BUDGET}\n",
        encoding="utf-8",
    )
    rounds: list[Round] = []
    with Neve.open(load_settings(file=directory / "neve.yaml", environ={}), environ={}) as neve:
        Policies(neve.connection).apply(str(directory / "policies.yaml"))
        with neve.connection.store() as store:
            scheduler = Scheduler(neve.connection, store, holder="bench")
            known = 0
            while known < tables and len(rounds) < _MOST_ROUNDS:
                _sent(port)
                wall, cpu = time.perf_counter(), time.process_time()
                scheduler.tick()
                seconds = round(time.perf_counter() - wall, 3), round(time.process_time() - cpu, 3)
                observed = scheduler.observed
                assert observed is not None
                known = sum(entry.observation is not None for entry in store.fleet.entries())
                sent, reported = _sent(port), sum(observed.requests.values())
                rounds.append(Round(len(rounds) + 1, *seconds, sent, reported, observed.read, known))
                print(rounds[-1], file=sys.stderr, flush=True)
                if sent > BUDGET:
                    raise OverBudgetError(f"round {len(rounds)} sent {sent} requests, and may send {BUDGET}")
    return rounds


def _sent(port: int) -> int:
    """How many requests came since this was asked last."""
    with urlopen(f"http://{LOOPBACK}:{port}/counted", timeout=10) as answer:
        return int(answer.read())


def _figures(tables: int, rounds: list[Round]) -> Figures:
    head = ("tables", "rounds until all are known", "most requests in a round", "reported", "median wall s", "median CPU s")
    row = [
        f"{tables:,}",
        str(len(rounds)),
        str(max(one.requests for one in rounds)),
        str(max(one.reported for one in rounds)),
        f"{median(one.wall_seconds for one in rounds):.2f}",
        f"{median(one.cpu_seconds for one in rounds):.2f}",
    ]
    return Figures(head, [row], left=0, notes=[f"A round may send {BUDGET} requests to a catalog (service.catalog-requests)."])


class _Fleet:
    """What the server answers from."""

    def __init__(self, directory: Path) -> None:
        with closing(sqlite3.connect(directory / "lake.db")) as connection:
            rows = connection.execute("SELECT table_namespace, table_name, metadata_location FROM iceberg_tables").fetchall()
        self.tables: dict[str, dict[str, str]] = {}
        for namespace, name, location in rows:
            self.tables.setdefault(namespace, {})[name] = location
        self._requests, self._lock = 0, Lock()

    def answer(self, target: str) -> tuple[int, Any]:
        """The status and the document for a GET."""
        parts = urlsplit(target)
        match unquote(parts.path).strip("/").split("/"):
            case ["counted"]:
                with self._lock:
                    counted, self._requests = self._requests, 0
                return 200, counted
            case ["v1", *path]:
                with self._lock:
                    self._requests += 1
                return self._answer(path, {key: values[0] for key, values in parse_qs(parts.query).items()})
        return 404, {"error": {"message": "no such path", "type": "NotFoundException", "code": 404}}

    def _answer(self, path: list[str], query: dict[str, str]) -> tuple[int, Any]:
        match path:
            case ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case ["namespaces"]:
                return 200, {"namespaces": [] if "parent" in query else [[name] for name in sorted(self.tables)]}
            case ["namespaces", namespace, "tables"] if namespace in self.tables:
                names, start = sorted(self.tables[namespace]), int(query.get("pageToken") or 0)
                page = [{"namespace": [namespace], "name": name} for name in names[start : start + PAGE]]
                more = {"next-page-token": str(start + PAGE)} if start + PAGE < len(names) else {}
                return 200, {"identifiers": page, **more}
            case ["namespaces", namespace, "tables", name] if name in self.tables.get(namespace, ()):
                location = self.tables[namespace][name]
                document = json.loads(Path(location.removeprefix("file://")).read_text(encoding="utf-8"))
                return 200, {"metadata-location": location, "metadata": document, "config": {}}
        return 404, {"error": {"message": "there is none", "type": "NoSuchTableException", "code": 404}}


def _serve(directory: Path) -> None:
    fleet = _Fleet(directory)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Answers."""
            status, document = fleet.answer(self.path)
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
