"""The processor time of reading stored values: texts of savepoints, the state of a job, and columns of rows.

    python -m benchmarks.stored_values [--rounds 7] [--rows 1000000] [--against CHECKOUT]

Printed: microseconds per value, or per row; with another checkout of flinkish also those of it, taken in turn, and the
ratio. Times are the lowest of all rounds, so other users of the machine matter little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from flinkish.common.types import Row
from flinkish.core.window.window import TimeWindow
from flinkish.runtime.state.saved.texts import SavepointColumns
from flinkish.runtime.state.saved.values import ProgramStates, RowReader
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.runtime.stored.pickles import dumps_all, loads_all
from flinkish.runtime.stored.texts import from_text, to_text

_BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Line:
    """An object of a program."""

    units: int
    article: str = "a"


@dataclass
class Cart:
    """An object of a program that holds others."""

    user: str
    lines: list[Line]
    opened: date
    tags: dict[str, Any] = field(default_factory=dict)


def _values() -> dict[str, Any]:
    lines = [Line(number, f"article {number}") for number in range(10)]
    carts = [Cart(f"user {number}", lines[:number], date(2024, 1, 1)) for number in range(10)]
    return {
        "datetime": datetime(2024, 1, 2, tzinfo=timezone.utc),
        "Decimal": Decimal("1.50"),
        "UUID": uuid.UUID(int=7),
        "TimeWindow": TimeWindow(0, 5),
        "Row with a date": Row(id=1, day=date(2024, 1, 1)),
        "object": Line(1),
        "object with ten others": Cart("user", lines, date(2024, 1, 1), {"a": 1}),
        "list of objects": carts,
        "set of integers": set(range(100)),
        "dict of tuples": {("a", number): Decimal(number) for number in range(50)},
    }


def _seconds(action: Callable[[], Any], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - started) / times


def _of_value(value: Any) -> dict[str, float]:
    classes = ProgramClasses.of_this_process()
    text = to_text(value, classes)
    (stored,) = dumps_all([value], classes)
    times = max(5, 20_000 // len(text))
    return {
        "text read": _seconds(lambda: from_text(text, "", classes), times),
        "text written": _seconds(lambda: to_text(value, classes), times),
        "state read": _seconds(lambda: loads_all([stored], classes=classes), times),
    }


def _of_rows(keys: list[str]) -> float:
    """The seconds of a row, given the texts of the keys."""
    columns = []
    for start in range(0, len(keys), _BATCH_ROWS):
        some = keys[start : start + _BATCH_ROWS]
        values = [f'{{"$tuple": [{key}, 1]}}' for key in some]
        columns.append(SavepointColumns("u", "s", "reducing", some, ["null"] * len(some), values))
    reader = RowReader(ProgramStates({}), {}, False, ProgramClasses())
    return _seconds(lambda: [reader.read_columns(some) for some in columns], 1) / len(keys)


def measured(rows: int) -> dict[str, float]:
    """One round: what was measured -> microseconds."""
    found = {
        f"{what}: {name}": seconds for name, value in _values().items() for what, seconds in _of_value(value).items()
    }
    found["rows read: keys are integers"] = _of_rows(list(map(str, range(rows))))
    found["rows read: keys are texts"] = _of_rows([f'"user-{number}"' for number in range(rows)])
    found["rows read: keys are tuples"] = _of_rows([f'{{"$tuple": ["user", {number}]}}' for number in range(rows)])
    return {name: seconds * 1e6 for name, seconds in found.items()}


_THIS = Path(__file__).resolve()


def _measure(checkout: str, rows: int, lowest: dict[str, float]) -> None:
    """Measure once, in a process that imports flinkish from a checkout."""
    done = subprocess.run(
        [sys.executable, str(_THIS), "--rows", str(rows), "--one"],
        env={**os.environ, "PYTHONPATH": checkout},
        capture_output=True,
        text=True,
        check=True,
    )
    for name, microseconds in json.loads(done.stdout).items():
        lowest[name] = min(microseconds, lowest.get(name, microseconds))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often to measure (default: 7)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a savepoint (default: 1000000)")
    parser.add_argument("--against", metavar="CHECKOUT", help="another checkout of flinkish, for a ratio")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.rows)))
        return
    now: dict[str, float] = {}
    before: dict[str, float] = {}
    for _ in range(options.rounds):
        _measure(str(_THIS.parents[1]), options.rows, now)
        if options.against:
            _measure(str(Path(options.against).resolve()), options.rows, before)
    for name, microseconds in now.items():
        ratio = f"{before[name]:10.2f} {microseconds / before[name]:6.2f}" if before else ""
        print(f"{name:40} {microseconds:10.2f} {ratio}")


if __name__ == "__main__":
    main()
