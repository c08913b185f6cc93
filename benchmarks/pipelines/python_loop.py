"""A plain single-process Python loop over the same files, as one would write it without an engine.

Steady: the loop over all files; start-up (imports) precedes the first mark.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import contract
from benchmarks.data import EVENTS_PER_FILE
from benchmarks.pipelines import keyed_programs


def running_sums(paths: Iterable[Path]) -> dict[str, Any]:
    """Counts logged-in clicks per user; the dictionary has the running value after each event."""
    totals: dict[str, int] = {}
    for path in paths:
        table = pq.read_table(path, columns=["user_id", "logged_in"])
        for user, logged_in in zip(table["user_id"].to_pylist(), table["logged_in"].to_pylist(), strict=True):
            if logged_in:
                totals[user] = totals.get(user, 0) + 1
    return contract.sum_check(totals)


def windows(paths: Iterable[Path]) -> dict[str, Any]:
    """Count and amount per page and minute, all kept until the end, since the loop has no watermarks."""
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


def keyed(pipeline: str, paths: Iterable[Path]) -> dict[str, Any]:
    """The expected results of the keyed programs (`keyed_programs`); keeps all events until the end."""
    clicks: dict[str, list[tuple[int, float, bool]]] = {}
    for path in paths:
        table = pq.read_table(path, columns=[keyed_programs.COLUMNS[pipeline][0], "ts", "amount", "logged_in"])
        for key, *click in zip(*(column.to_pylist() for column in table.columns), strict=True):
            clicks.setdefault(key, []).append(tuple(click))
    minute, windows, count, amount = contract.WINDOW_MS, 0, 0, 0.0
    for found in clicks.values():
        found.sort()
        count += len(found)
        amount += sum(click[1] for click in found)
        if pipeline == "session":
            windows += 1 + sum(b[0] - a[0] > keyed_programs.SESSION_GAP_MS for a, b in pairwise(found))
        elif pipeline == "user_window":
            windows += len({click[0] // minute for click in found})
        elif pipeline == "sliding":
            each = keyed_programs.SLIDING_MS // minute
            windows += len({click[0] // minute - back for click in found for back in range(each)})
    if pipeline == "sliding":
        count, amount = count * each, amount * each
    elif pipeline == "visits":
        amount = 0.0
    elif pipeline == "connected":
        every = [click for found in clicks.values() for click in found]
        count, amount = sum(click[2] for click in every), sum(click[1] for click in every if not click[2])
    elif pipeline == "interval_join":
        joined = [total for found in clicks.values() if (total := _joined(found))[0]]
        windows, count, amount = len(joined), sum(total[0] for total in joined), sum(total[1] for total in joined)
    return keyed_programs.checked(pipeline, contract.window_check(windows, count, amount))


def _joined(found: list[tuple[int, float, bool]]) -> tuple[int, float]:
    """The number of pairs of a user's clicks, and the sum of their amounts."""
    others = [click for click in found if not click[2]]
    times, count, amount = [click[0] for click in others], 0, 0.0
    for click in found:
        if click[2]:
            begin = bisect_left(times, click[0] - keyed_programs.JOIN_MS)
            end = bisect_right(times, click[0] + keyed_programs.JOIN_MS)
            count += end - begin
            amount += sum(click[1] + other[1] for other in others[begin:end])
    return count, amount


def main() -> None:
    """Run one pipeline and print its figures."""
    options = contract.argument_parser(__doc__ or "").parse_args()
    paths = contract.files_of(options)
    meter = contract.Meter()
    first = meter.mark(0)
    if options.pipeline in contract.KEYED_PIPELINES:
        check = keyed(options.pipeline, paths)
    else:
        check = (running_sums if options.pipeline == "sum" else windows)(paths)
    last = meter.mark(len(paths) * EVENTS_PER_FILE)
    contract.emit(meter.result(first, last, "the loop alone", check))


if __name__ == "__main__":
    main()
