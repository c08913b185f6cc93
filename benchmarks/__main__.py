"""The ONE command: every engine over the same data in one run, and a table of ratios.

    python -m benchmarks [--pyflink-python PATH] [--bytewax-python PATH] [--before CHECKOUT] [--rounds N]
        [--json FILE] [--quick]

PyFlink and bytewax need other packages than flinkish: name interpreters that have them, by options or the environment
variables BENCHMARKS_PYFLINK_PYTHON and BENCHMARKS_BYTEWAX_PYTHON. Flink in Java runs with the jars of PyFlink and needs
a Java compiler. The table says which engines are not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import contract, data, runner

COMPARISONS = (
    ("sum", 1_000),
    ("sum", 200_000),
    ("window", 1_000),
    ("user_window", 1_000),
    ("user_window", 200_000),
    ("visits", 1_000),
    ("visits", 200_000),
    ("sliding", 1_000),
    ("session", 200_000),
    ("connected", 1_000),
    ("interval_join", 1_000),
)
"""Windows (`window`, `sliding`) are keyed by page: the number of users makes no difference to them."""
EMPTY_EPOCHS = {
    "bare": "benchmarks.empty_epochs",
    "flinkish": "benchmarks.pipelines.flinkish_empty_epochs",
}


def argument_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--pyflink-python", default=os.environ.get("BENCHMARKS_PYFLINK_PYTHON", sys.executable))
    parser.add_argument("--bytewax-python", default=os.environ.get("BENCHMARKS_BYTEWAX_PYTHON", sys.executable))
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="also measure this earlier flinkish")
    parser.add_argument("--data", type=Path, default=data.default_directory(), help="where the events are kept")
    parser.add_argument("--engines", nargs="*", help="only these, by their names in the table")
    parser.add_argument("--pipelines", nargs="*", choices=[*contract.PIPELINES, "empty"], metavar="NAME")
    parser.add_argument("--users", type=int, nargs="*", choices=data.USERS, help="only these numbers of users")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few events, the same ones for every engine, and their results are compared: figures mean little",
    )
    parser.add_argument("--rounds", type=int, default=1, help="runs of each engine, in turns; the table has medians")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="for one run of one engine")
    parser.add_argument("--json", type=Path, help="write all figures to this file as well")
    return parser


def measure(options: argparse.Namespace) -> list[runner.Row]:
    """Run every comparison on every engine, one after the other, and print each figure when it is there."""
    rows = []
    for pipeline, users in COMPARISONS:
        if not _wanted(options.pipelines, pipeline) or not _wanted(options.users, users):
            continue
        data.ensure(users, 1, options.data)
        engines = [
            engine
            for engine in runner.engines(options.pyflink_python, options.bytewax_python, options.before)
            if _wanted(options.engines, engine.name)
        ]
        runs: dict[str, list[runner.Row]] = {engine.name: [] for engine in engines}
        for _ in range(options.rounds):
            for engine in engines:
                row = runner.run_pipeline(engine, pipeline, users, options.data, options.timeout_s, options.quick)
                runs[engine.name].append(row)
                print(f"... {pipeline}, {users} users:{_throughput_line(row, None)}", file=sys.stderr, flush=True)
        rows += [_median(of_engine) for of_engine in runs.values()]
    return rows


def _median(runs: list[runner.Row]) -> runner.Row:
    """The run with the median of events/s; one without figures only if none has any."""
    measured = sorted((row for row in runs if row.result), key=lambda row: row.result.events_per_s if row.result else 0)
    return measured[(len(measured) - 1) // 2] if measured else runs[-1]


def _wanted(chosen: list[Any] | None, one: Any) -> bool:
    return not chosen or one in chosen


def disagreements(rows: list[runner.Row]) -> list[str]:
    """A line for each comparison whose engines found different results for the same events."""
    found: dict[tuple[str, int], dict[str, list[str]]] = {}
    for row in rows:
        if row.result is not None:
            results = found.setdefault((row.pipeline, row.users), {})
            results.setdefault(json.dumps(row.result.check, sort_keys=True), []).append(row.engine)
    return [
        f"{pipeline}, {users:,} users: RESULTS DIFFER: "
        + "; ".join(f"{', '.join(names)}: {check}" for check, names in results.items())
        for (pipeline, users), results in found.items()
        if len(results) > 1
    ]


def measure_empty_epochs(timeout_s: float) -> dict[str, Any]:
    """Figures per number of operators, of the bare query and of flinkish, or the reason why there are none."""
    measured: dict[str, Any] = {}
    for name, module in EMPTY_EPOCHS.items():
        if not Path(runner.ROOT, *module.split(".")).with_suffix(".py").exists():
            measured[name] = "not installed"
            continue
        print(f"... empty epochs: {name}", file=sys.stderr, flush=True)
        try:
            measured[name] = runner.last_json_line(sys.executable, module, [], timeout_s)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            measured[name] = str(error)
    return measured


def throughput_table(rows: list[runner.Row]) -> list[str]:
    """One block per comparison. The ratio is flinkish's events/s over the row's."""
    lines = []
    for pipeline, users in dict.fromkeys((row.pipeline, row.users) for row in rows):
        block = [row for row in rows if (row.pipeline, row.users) == (pipeline, users)]
        own = next((row.result for row in block if row.engine == "flinkish"), None)
        lines += ["", f"{pipeline}, {users:,} users"]
        lines.append(
            f"  {'engine':<20}{'events/s':>12}{'flinkish is':>13}{'CPU us/event':>14}{'peak MiB':>10}  steady state"
        )
        lines += [_throughput_line(row, own.events_per_s if own else None) for row in block]
    return lines


def _throughput_line(row: runner.Row, own_per_s: float | None) -> str:
    result = row.result
    if result is None:
        return f"  {row.engine:<20}{row.reason}"
    ratio = "-" if own_per_s is None else f"{own_per_s / result.events_per_s:.2f}x"
    cpu = "-" if result.cpu_s is None else f"{result.cpu_s / result.events * 1e6:.2f}"
    peak = "-" if result.peak_rss_mib is None else f"{result.peak_rss_mib:.0f}"
    return f"  {row.engine:<20}{result.events_per_s:>12,.0f}{ratio:>13}{cpu:>14}{peak:>10}  {result.steady}"


def empty_epochs_table(measured: dict[str, Any]) -> list[str]:
    """Median milliseconds of an epoch without data; the ratio is flinkish's over the bare query's."""
    lines = ["", "epoch without data, median ms", f"  {'operators':<16}{'bare':>12}{'flinkish':>12}{'ratio':>8}"]
    for name, figures in measured.items():
        if isinstance(figures, str):
            lines.append(f"  {name}: {figures}")
    medians = {
        name: {count: figure["median_ms"] for count, figure in figures.items()}
        for name, figures in measured.items()
        if not isinstance(figures, str)
    }
    for count in sorted({count for figures in medians.values() for count in figures}):
        bare, own = (medians.get(name, {}).get(count) for name in EMPTY_EPOCHS)
        ratio = f"{own / bare:.2f}x" if bare and own else "-"
        lines.append(f"  {count:<16}{bare or '-':>12}{own or '-':>12}{ratio:>8}")
        steps = [
            figures.get(count, {}).get("steps_ms", {}) for figures in measured.values() if figures.__class__ is dict
        ]
        for step in dict.fromkeys(step for of_engine in steps for step in of_engine):
            lines.append(f"    {step:<14}" + "".join(f"{of_engine.get(step, '-'):>12}" for of_engine in steps))
    return lines


def main() -> None:
    """Run the measurements that the options ask for and print the tables."""
    options = argument_parser().parse_args()
    rows = measure(options)
    lines = throughput_table(rows)
    empty = measure_empty_epochs(options.timeout_s) if _wanted(options.pipelines, "empty") and not options.quick else {}
    if empty:
        lines += empty_epochs_table(empty)
    differ = disagreements(rows) if options.quick else []
    print("\n".join(lines + differ))
    if options.json:
        figures = {"throughput": [asdict(row) for row in rows], "empty_epochs": empty}
        options.json.write_text(json.dumps(figures, indent=1))
    if differ:
        sys.exit(1)


if __name__ == "__main__":
    main()
