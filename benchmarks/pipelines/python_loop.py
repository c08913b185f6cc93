"""A plain single-process Python loop over the same files: what a person writes who has no engine.

Steady: the loop over all files; start-up (imports) is before the first mark.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import contract
from benchmarks.data import EVENTS_PER_FILE


def running_sums(paths: Iterable[Path]) -> dict[str, Any]:
    """Logged-in clicks per user; the running value is in the dictionary after each event."""
    totals: dict[str, int] = {}
    for path in paths:
        table = pq.read_table(path, columns=["user_id", "logged_in"])
        for user, logged_in in zip(table["user_id"].to_pylist(), table["logged_in"].to_pylist(), strict=True):
            if logged_in:
                totals[user] = totals.get(user, 0) + 1
    return contract.sum_check(totals)


def windows(paths: Iterable[Path]) -> dict[str, Any]:
    """Count and amount per page and minute, all kept until the end: the loop knows no watermark."""
    found: dict[tuple[str, int], list[float]] = {}
    for path in paths:
        table = pq.read_table(path, columns=["page", "ts", "amount"])
        columns = (table[name].to_pylist() for name in ("page", "ts", "amount"))
        for page, ts, amount in zip(*columns, strict=True):
            key = (page, ts // contract.WINDOW_MS)
            if key in found:
                window = found[key]
                window[0] += 1
                window[1] += amount
            else:
                found[key] = [1, amount]
    counts, amounts = (sum(column) for column in zip(*found.values(), strict=True))
    return contract.window_check(len(found), int(counts), amounts)


def main() -> None:
    """Run one pipeline and print its figures."""
    options = contract.argument_parser(__doc__ or "").parse_args()
    paths = contract.files_of(options)
    meter = contract.Meter()
    first = meter.mark(0)
    check = (running_sums if options.pipeline == "sum" else windows)(paths)
    last = meter.mark(len(paths) * EVENTS_PER_FILE)
    contract.emit(meter.result(first, last, "the loop alone", check))


if __name__ == "__main__":
    main()
