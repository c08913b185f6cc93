"""The programs that `benchmarks.operator_peers` runs beside PyFlink: their figures against plain Python."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from benchmarks.contract import WINDOW_MS, emit_peer
from benchmarks.data import FIRST_MS, JITTER_MS
from benchmarks.operator_peers import FLINKISH, Cell, agreement, ratio, table
from benchmarks.pipelines.figures_sink import FiguresSink, committed
from benchmarks.pipelines.peer_programs import ELEMENTS, GAPS_MS, PROGRAMS, TOO_LATE_AMOUNT, add
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.testing import ProgramTestHarness

CLICKS = 1_200
Click = tuple[str, int, float, bool]


def some_clicks() -> list[Click]:
    """Three minutes of clicks, out of order by less than a second."""
    chosen = random.Random(5)
    return [
        (
            f"u{chosen.randrange(40)}",
            FIRST_MS + number * 3 * WINDOW_MS // CLICKS + chosen.randrange(JITTER_MS),
            chosen.randrange(1, 400) / 4,
            chosen.random() < 0.7,
        )
        for number in range(CLICKS)
    ]


def expected(clicks: list[Click]) -> dict[str, dict[str, Any]]:
    """The figures of each program, from all clicks at once."""
    amount = sum(click[2] for click in clicks)
    logged_in = sum(click[3] for click in clicks)
    per_user = Counter(click[0] for click in clicks)
    per_tens = Counter((click[0], int(click[2]) // 10) for click in clicks)
    windows = {(click[0], click[1] // WINDOW_MS) for click in clicks}
    each = {"rows": CLICKS, "count": CLICKS, "amount": amount}
    twice_unless_logged_in = {**each, "count": 2 * CLICKS - logged_in}
    running = {**each, "count": sum(n * (n + 1) // 2 for n in per_user.values())}
    tens = sum(n // ELEMENTS for n in per_user.values())
    high = [click[2] for click in clicks if click[2] >= 50]
    slides = sum(max(0, n // (ELEMENTS // 2) - 1) for n in per_user.values())
    return {
        "stateless": {"rows": CLICKS + len(high), "count": CLICKS + 2 * len(high), "amount": amount + sum(high)},
        "union": each,
        "co_map": twice_unless_logged_in,
        "side_output": twice_unless_logged_in,
        "rebalance": each,
        "partition_custom": each,
        "rolling_sum": {"rows": CLICKS, "count": running["count"]},
        "max_by": {"rows": CLICKS, "highest": max(click[2] for click in clicks)},
        "value_state_ttl": running,
        "map_state": {**each, "count": sum(n * (n + 1) // 2 for n in per_tens.values())},
        "list_state": {"rows": tens, "count": tens * ELEMENTS},
        "reducing_state": running,
        "aggregating_state": running,
        "broadcast": running,
        "count_window": {"rows": tens, "count": tens * ELEMENTS},
        "count_sliding": {"rows": slides, "count": slides * ELEMENTS},
        "global_window": {"rows": tens, "count": tens * ELEMENTS},
        "window_process": {**each, "rows": len(windows)},
        "window_lateness": {"count": CLICKS, "amount": amount},
        "dynamic_session": {**each, "rows": sessions(clicks)},
        "window_all": {**each, "rows": len({minute for _, minute in windows})},
        "async_at_once": each,
        "async_call": each,
    }


def sessions(clicks: list[Click]) -> int:
    """How many sessions there are: a click opens one unless an earlier one of its user still lasts."""
    of_user: dict[str, list[Click]] = defaultdict(list)
    for click in sorted(clicks, key=lambda click: click[1]):
        of_user[click[0]].append(click)
    found = 0
    for each in of_user.values():
        end_ms = 0
        for click in each:
            found += click[1] > end_ms
            end_ms = max(end_ms, click[1] + GAPS_MS[0 if click[3] else 1])
    return found


def run(name: str, clicks: list[Click]) -> ProgramTestHarness:
    """The program after it has run to its end."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(2)
    add("flinkish", name, env.from_collection(clicks), JITTER_MS).sink_to(FiguresSink())
    harness = ProgramTestHarness(env)
    harness.run()
    return harness


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_figures_that_plain_python_finds(name: str) -> None:
    clicks = some_clicks()
    committed.clear()
    with run(name, clicks):
        (figures,) = committed.values()
    assert figures.chosen(PROGRAMS[name].figures) == expected(clicks)[name]


def test_the_program_with_late_clicks_has_some_for_the_side_output_and_some_that_fire_their_window_again() -> None:
    clicks = some_clicks()
    with run("window_lateness", clicks) as harness:
        late = [record.value for record in harness.emitted("TumblingEventTimeWindows", "late")]
        fired = [record.value[:2] for record in harness.emitted("TumblingEventTimeWindows")]
    assert late
    assert {click[2] < TOO_LATE_AMOUNT for click in late} == {True}
    assert len(fired) > len(set(fired))


def test_the_ratio_is_that_to_the_better_mode_of_pyflink() -> None:
    cells = {FLINKISH: Cell(100.0), "PyFlink process": Cell(20.0), "PyFlink thread": Cell(50.0)}
    assert ratio(cells) == 2.0
    assert ratio({**cells, "PyFlink thread": Cell(reason="not supported")}) == 5.0
    assert ratio({FLINKISH: Cell(100.0)}) is None


def test_engines_agree_only_if_all_that_have_results_have_the_same() -> None:
    one, other = Cell(1.0, {"rows": 1}), Cell(1.0, {"rows": 2})
    assert agreement({FLINKISH: one, "PyFlink process": one, "PyFlink thread": Cell(reason="failed")}) == "agree"
    assert agreement({FLINKISH: one, "PyFlink process": other}).startswith("DIFFER")
    assert agreement({FLINKISH: one}) == "-"


def test_a_program_that_fails_costs_its_own_cell_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> dict[str, Any]:
        raise RuntimeError("AsyncFunction is still not supported for 'thread' mode.")

    emit_peer("async_call", fail)
    line = json.loads(capsys.readouterr().out)
    assert line == {"program": "async_call", "reason": "AsyncFunction is still not supported for 'thread' mode."}
    lines = table({"async_call": {FLINKISH: Cell(10.0), "PyFlink thread": Cell(reason=line["reason"])}})
    assert lines[-1].endswith("async_call, PyFlink thread: AsyncFunction is still not supported for 'thread' mode.")
