"""The cost of keyed state: epochs with few and with many keys, the restart of a driver, checkpoints, savepoints.

    python -m benchmarks.keyed_state [--keys 10000 1000000 10000000] [--repeats 3] [--rows epochs one-record ...]
    python -m benchmarks.keyed_state --quick

Everything is measured in one run, in separate processes, with parallelism 2 on two cores. The job is a running sum per
user, a tuple: every key is added once, then epochs of records on random keys follow. The printed bounds apply
to ratios, not to seconds. Only Linux (through /proc).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import contract, runner

ROWS = ("epochs", "one-record", "restart", "max-parallelism", "checkpoints", "peer")
EPOCH_RECORDS = 10_000
#: Epochs of one record are short, so there are more of them.
ONE_RECORD_TIMES = 2
_JOB = "benchmarks.pipelines.keyed_state_job"


@dataclass(frozen=True)
class Line:
    """One line of the table: its name, its figure, and the bound for it; no bound if it is only for comparison."""

    what: str
    figure: str
    ratio: float | None = None
    at_most: float | None = None
    unit: str = "x"

    def __str__(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}{self.unit}"
        bound = "" if self.at_most is None else f"<= {self.at_most:g}{self.unit}"
        missed = self.ratio is not None and self.at_most is not None and self.ratio > self.at_most
        return f"{self.what:<72}{self.figure:>24}{ratio:>12}{bound:>14}{'  missed' if missed else ''}"


class Jobs:
    """Runs the job of `keyed_state_job` and keeps the figures of every repeat."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        #: (name, keys) -> one dictionary per repeat
        self.found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)

    def run(self, name: str, keys: int, folder: Path, phases: list[tuple[int, int]], *arguments: str) -> None:
        """Run the job once in a folder, and kill it when it has printed its figures."""
        command = [str(folder), "--keys", str(keys), "--warm-up", str(self._options.warm_up)]
        command += ["--phases", *(f"{records}:{epochs}" for records, epochs in phases), *arguments]
        if self._options.set:
            command += ["--set", *self._options.set]
        self._keep(name, keys, lambda: figures_of_killed(_JOB, command, folder / "log"))

    def run_peer(self, keys: int) -> None:
        """Run `transformWithState` once."""
        arguments = ["--pipeline", "sum", "--keys", str(keys), "--records", str(self._options.records)]
        arguments += ["--warm-up", str(self._options.warm_up), "--epochs", str(self._options.epochs)]
        module = "benchmarks.pipelines.spark_transform_with_state"
        self._keep("peer", keys, lambda: runner.last_json_line(sys.executable, module, arguments, 3_600.0))

    def median(self, name: str, keys: int, of: Callable[[dict[str, Any]], float]) -> float:
        """The median over the repeats."""
        return statistics.median(map(of, self.found[name, keys]))

    def epoch_s(self, name: str, keys: int, records: int) -> float:
        """The median over the repeats of their median epochs."""
        return self.median(name, keys, lambda run: statistics.median(run["epochs_s"][str(records)]))

    def _keep(self, name: str, keys: int, measure: Callable[[], dict[str, Any]]) -> None:
        """Print what is measured and the result at once, since a whole run takes long."""
        print(f"... {name}, {keys:,} keys", end="", file=sys.stderr, flush=True)
        figures = measure()
        self.found[name, keys].append(figures)
        medians = (f"{size}: {statistics.median(times):.3f} s" for size, times in figures["epochs_s"].items())
        print(f": epochs of {', '.join(medians)}", file=sys.stderr, flush=True)


def figures_of_killed(module: str, arguments: list[str], log: Path) -> Any:
    """The JSON that a module prints; then the module and all its descendants are killed, as when a driver is lost."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(runner.ROOT), os.environ.get("PYTHONPATH", "")])}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=runner.ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("{"):
                return json.loads(line)
    finally:
        for pid in contract.process_tree(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.communicate()
    raise RuntimeError(f"{module} ended without figures:\n{log.read_text()[-4000:]}")


def measure(options: argparse.Namespace, jobs: Jobs) -> None:
    """Run everything once."""
    rows, middle = set(options.rows), options.middle_keys
    groups = _groups(options.max_parallelism)
    large, single = (options.records, options.epochs), (1, ONE_RECORD_TIMES * options.epochs)
    for keys in options.keys:
        one_record = "one-record" in rows and keys == middle
        restarts = options.restarts if "restart" in rows and keys in _ends(options) else 0
        if not ("epochs" in rows or one_record or restarts):
            continue
        with tempfile.TemporaryDirectory(prefix="flinkish-keyed-state-") as folder:
            jobs.run("epochs", keys, Path(folder), [large, single] if one_record else [large], *groups)
            for _ in range(restarts):
                short = ["--restarted", "--pss-epochs", "0"]
                jobs.run("restart", keys, Path(folder), [(options.records, 1)], *groups, *short)
    if "one-record" in rows:
        _in_folder(jobs, "stateless", middle, [large, single], "--stateless", *groups)
    if "max-parallelism" in rows:
        for number in (8, 1_024):
            _in_folder(jobs, f"max parallelism {number}", middle, [large], *_groups(number))
    if "peer" in rows:
        for keys in dict.fromkeys((options.keys[0], middle)):
            jobs.run_peer(keys)


def _groups(max_parallelism: int) -> list[str]:
    return ["--max-parallelism", str(max_parallelism)]


def _in_folder(jobs: Jobs, name: str, keys: int, phases: list[tuple[int, int]], *arguments: str) -> None:
    with tempfile.TemporaryDirectory(prefix="flinkish-keyed-state-") as folder:
        jobs.run(name, keys, Path(folder), phases, *arguments)


def measure_checkpoints(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of `benchmarks.checkpoints`."""
    print(f"... checkpoints and savepoint, {options.middle_keys:,} keys", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        arguments = ["--keys", str(options.middle_keys), "--checkpoints", str(options.checkpoints)]
        arguments += ["--parallelism", str(options.checkpoint_parallelism), "--json", str(path)]
        command = [sys.executable, "-m", "benchmarks.checkpoints", *arguments]
        subprocess.run(command, cwd=runner.ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        figures: dict[str, Any] = json.loads(path.read_text())
    return figures


def epoch_lines(options: argparse.Namespace, jobs: Jobs) -> list[Line]:
    """Epochs of the same size with ever more keys, and the memory of all Python workers together meanwhile."""
    few = options.keys[0]
    base = jobs.epoch_s("epochs", few, options.records)
    lines = []
    for keys in options.keys:
        seconds = jobs.epoch_s("epochs", keys, options.records)
        what = f"epoch of {options.records:,} records on random keys, {keys:,} keys"
        bound = None if keys == few else 1.2 if keys <= 1_000_000 else 1.4
        lines.append(Line(what, f"{seconds:.3f} s", seconds / base, bound))
        pss_mib = jobs.median("epochs", keys, lambda run: run["pss_mib"][str(options.records)])
        lines.append(Line("    all Python workers together (PSS)", f"{pss_mib:,.0f} MiB", pss_mib / 1024, 3, " GiB"))
    return lines


def one_record_lines(options: argparse.Namespace, jobs: Jobs) -> list[Line]:
    """An epoch of one record with and without state, in otherwise equal jobs."""
    keys = options.middle_keys
    with_state, without = jobs.epoch_s("epochs", keys, 1), jobs.epoch_s("stateless", keys, 1)
    return [
        Line("epoch of one record without state", f"{without:.3f} s"),
        Line(f"epoch of one record, {keys:,} keys, against it", f"{with_state:.3f} s", with_state / without, 1.15),
        Line(
            f"epoch of {options.records:,} records without state",
            f"{jobs.epoch_s('stateless', keys, options.records):.3f} s",
        ),
    ]


def restart_lines(options: argparse.Namespace, jobs: Jobs) -> list[Line]:
    """From the start of the job in a new driver to the end of its first epoch, with few and with all keys."""
    first = {keys: jobs.median("restart", keys, lambda run: run["first_epoch_s"]) for keys in _ends(options)}
    few, many = _ends(options)
    return [
        Line(f"restart of the driver to the end of the first epoch, {few:,} keys", f"{first[few]:.2f} s"),
        Line(f"the same with {many:,} keys, beyond it", f"{first[many]:.2f} s", first[many] - first[few], 3, " s"),
    ]


def _ends(options: argparse.Namespace) -> tuple[int, int]:
    return options.keys[0], options.keys[-1]


def max_parallelism_lines(options: argparse.Namespace, jobs: Jobs) -> list[Line]:
    """Few key groups and many."""
    keys = options.middle_keys
    few, many = (jobs.epoch_s(f"max parallelism {groups}", keys, options.records) for groups in (8, 1_024))
    return [
        Line(f"epoch with max parallelism 8, {keys:,} keys", f"{few:.3f} s"),
        Line("the same with max parallelism 1,024", f"{many:.3f} s", many / few, 1.05),
    ]


def checkpoint_lines(figures: dict[str, Any]) -> list[Line]:
    """Uses the later half of the incremental checkpoints, when the JVM is warm."""
    later = figures["incremental checkpoints, s"]
    incremental_s = statistics.median(later[len(later) // 2 :])
    quiet_s = figures["epoch without a checkpoint, median s"]
    during_s = figures["epoch during the later half of them, median s"]
    savepoint_s, start_s = figures["savepoint, s"], figures["start from the savepoint to the first committed epoch, s"]
    keys = figures["keys"]
    merging_s = figures["epoch during merges, median s"]
    meanwhile, merging = (None if not (busy_s and quiet_s) else busy_s / quiet_s for busy_s in (during_s, merging_s))
    return [
        Line(f"incremental checkpoint, {keys:,} keys, 1 % changed", f"{incremental_s:.2f} s", incremental_s, 1.5, " s"),
        Line("    epochs meanwhile", f"{during_s or 0:.3f} s", meanwhile, 1.1),
        Line("    epochs while changes are merged", f"{merging_s or 0:.3f} s", merging),
        Line(f"savepoint of {keys:,} keys", f"{savepoint_s:.1f} s", savepoint_s, 8, " s"),
        Line("    start from it to the first committed epoch", f"{start_s:.1f} s", start_s, 12, " s"),
    ]


def peer_lines(options: argparse.Namespace, jobs: Jobs) -> list[Line]:
    """The same epochs with Spark's own operator."""
    few, many = (jobs.epoch_s("peer", keys, options.records) for keys in (options.keys[0], options.middle_keys))
    what = f"transformWithState, epoch of {options.records:,} records"
    return [
        Line(f"{what}, {options.keys[0]:,} keys", f"{few:.3f} s"),
        Line(f"{what}, {options.middle_keys:,} keys", f"{many:.3f} s", many / few),
    ]


def argument_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keyed_state", description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000], help="few ones first")
    parser.add_argument("--records", type=int, default=EPOCH_RECORDS, help="in an epoch")
    parser.add_argument("--epochs", type=int, default=60, help="measured epochs of one run; the median counts")
    parser.add_argument("--warm-up", type=int, default=40, help="epochs before them")
    parser.add_argument("--restarts", type=int, default=3, help="of which the median counts")
    parser.add_argument("--max-parallelism", type=int, default=8, help="of all rows but the one about it")
    parser.add_argument("--checkpoints", type=int, default=12, help="incremental ones")
    parser.add_argument("--checkpoint-parallelism", type=int, default=1, help="1 leaves a core to checkpoints, 2 none")
    parser.add_argument("--repeats", type=int, default=1, help="of the whole; the medians of the repeats count")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="only these")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further configuration of the jobs")
    parser.add_argument("--quick", action="store_true", help="2,000, 20,000 and 40,000 keys: does it work at all?")
    parser.add_argument("--json", type=Path, help="write all figures to this file as well")
    return parser


def main() -> None:
    """Measure and print the table."""
    options = argument_parser().parse_args()
    if options.quick:
        options.keys, options.records, options.epochs, options.warm_up = [2_000, 20_000, 40_000], 1_000, 3, 2
        options.restarts, options.checkpoints = 1, 4
    #: the number of keys for the rows that use only one
    options.middle_keys = options.keys[min(1, len(options.keys) - 1)]
    jobs = Jobs(options)
    checkpoints: list[dict[str, Any]] = []
    for _ in range(options.repeats):
        measure(options, jobs)
        if "checkpoints" in options.rows:
            checkpoints.append(measure_checkpoints(options))
    tables: dict[str, Callable[[], list[Line]]] = {
        "epochs": lambda: epoch_lines(options, jobs),
        "one-record": lambda: one_record_lines(options, jobs),
        "restart": lambda: restart_lines(options, jobs),
        "max-parallelism": lambda: max_parallelism_lines(options, jobs),
        "checkpoints": lambda: checkpoint_lines(_medians(checkpoints)),
        "peer": lambda: peer_lines(options, jobs),
    }
    lines = [line for row in ROWS if row in options.rows for line in tables[row]()]
    print("\n".join(map(str, lines)))
    if options.json:
        runs = {f"{name}, {keys} keys": found for (name, keys), found in jobs.found.items()}
        options.json.write_text(json.dumps({"runs": runs, "checkpoints": checkpoints}, indent=1))


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each number over the repeats; for lists of seconds, element by element."""
    merged: dict[str, Any] = {}
    for name in runs[0]:
        values = [run[name] for run in runs if run[name] is not None]
        if values and isinstance(values[0], list):
            merged[name] = [statistics.median(column) for column in zip(*values)] if name.endswith(", s") else values
        elif values and isinstance(values[0], (int, float)) and not isinstance(values[0], bool):
            merged[name] = statistics.median(values)
        else:
            merged[name] = None
    return merged


if __name__ == "__main__":
    main()
