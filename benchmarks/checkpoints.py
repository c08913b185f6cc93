"""The cost of checkpoints and savepoints in a job with much keyed state, 1 % of which changes between two checkpoints.

    python -m benchmarks.checkpoints [--keys 1000000] [--parallelism 2] [--checkpoints 12] [--json FILE]

A first source emits every key once; a second one changes the same 1 % of the keys again and again, a tenth of them in
each epoch. Printed: the time of a full checkpoint and of incremental ones; the time of epochs that overlap with a
checkpoint, of those that overlap with the merging of changes now and then, and of the others; the time of a
savepoint, and from a start with it to the first committed epoch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import spark_settings
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.results import NAMED, CollectSink, register_collector
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport

TIMEOUT_S = 3_600.0
#: A checkpoint that keeps its thread for so long after its completion has merged changes into the state.
MERGE_S = 0.5
#: Share of the keys that changes between two checkpoints, and number of epochs in which that happens.
CHANGED_SHARE, EPOCHS_PER_CYCLE = 0.01, 10


@dataclass
class Epochs(JobObserver):
    """Records when each epoch was done."""

    times_s: dict[int, float] = field(default_factory=dict)
    records: int = 0
    committed: int = -1
    changed: threading.Condition = field(default_factory=threading.Condition)

    def epoch_done(self, report: EpochReport) -> None:
        with self.changed:
            self.times_s[report.epoch] = time.monotonic()
            self.records += report.records_in
            self.changed.notify_all()

    def epoch_committed(self, epoch: int) -> None:
        with self.changed:
            self.committed = epoch
            self.changed.notify_all()

    def wait_for(self, condition: Any) -> None:
        """Wait until a condition holds after an epoch."""
        with self.changed:
            if not self.changed.wait_for(condition, TIMEOUT_S):
                raise TimeoutError("the job does not get further")

    def pass_by(self, epochs: int) -> None:
        """Wait for that many further epochs."""
        goal = self.committed + epochs
        self.wait_for(lambda: self.committed >= goal)

    def durations_between(self, start_s: float, end_s: float) -> list[float]:
        """Durations of the epochs that lie completely within this period."""
        times = sorted(self.times_s.values())
        return [after - before for before, after in zip(times, times[1:]) if before >= start_s and after <= end_s]

    def durations_over(self, start_s: float, end_s: float) -> list[float]:
        """Durations of the epochs that overlap with this period; waits for the last of them."""
        self.wait_for(lambda: max(self.times_s.values()) >= end_s)
        times = sorted(self.times_s.values())
        return [after - before for before, after in zip(times, times[1:]) if before < end_s and after > start_s]


def start(folder: Path, keys: int, parallelism: int, savepoint: str | None = None) -> tuple[Any, Epochs]:
    """Start the job; its checkpoints are taken on demand."""
    settings = {
        "parallelism.default": str(parallelism),
        "flinkish.progress": "never",
        "flinkish.history.enabled": "false",
        "flinkish.job.dir": str(folder),
        "flinkish.epoch.interval": "200 ms",
        "execution.checkpointing.interval": "100 d",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        **spark_settings.OF_A_JOB,
        **spark_settings.EPOCHS_OF_A_SIZE,
    }
    if savepoint is not None:
        settings["execution.state-recovery.path"] = savepoint
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    hot = max(1, int(keys * CHANGED_SHARE))
    all_keys = DataGeneratorSource(lambda i: (f"user-{i}", 1), keys, records_per_epoch=max(1, keys // 8))
    changes = DataGeneratorSource(
        lambda i: (f"user-{i % hot * 97 % keys}", 1), records_per_epoch=max(1, hot // EPOCHS_PER_CYCLE)
    )
    nothing = WatermarkStrategy.no_watermarks()
    both = (
        env.from_source(all_keys, nothing, "all")
        .uid("all")
        .union(env.from_source(changes, nothing, "changes").uid("changes"))
    )
    counts = both.key_by(lambda e: e[0]).sum(1).uid("counts")
    register_collector("benchmark", NAMED, lambda rows: None)
    counts.filter(lambda e: False).sink_to(CollectSink("benchmark"))
    client: Any = env.execute_async("checkpoints")
    epochs = Epochs()
    client.run.observers.append(epochs)
    return client, epochs


def timed(action: Any) -> tuple[float, Any]:
    """(seconds, result)."""
    started = time.monotonic()
    result = action()
    return time.monotonic() - started, result


@dataclass
class Taken:
    """Takes checkpoints, and records the durations of epochs without, during and after them."""

    client: Any
    epochs: Epochs
    quiet: list[float] = field(default_factory=list)
    #: for each checkpoint
    busy: list[list[float]] = field(default_factory=list)
    merging: list[float] = field(default_factory=list)
    merges_s: list[float] = field(default_factory=list)

    def checkpoint(self) -> Any:
        """Let some epochs pass and take a checkpoint; returns its description."""
        began = time.monotonic()
        self.epochs.pass_by(EPOCHS_PER_CYCLE)
        self.quiet.extend(self.epochs.durations_between(began, time.monotonic()))
        began = time.monotonic()
        self.client.run.checkpoints.take_last(TIMEOUT_S)
        ended = time.monotonic()
        taken = self.client.run.checkpoints.describe()[-1]
        complete = began + taken.duration_ms / 1000
        self.busy.append(self.epochs.durations_over(began, complete))
        if ended - complete > MERGE_S:
            self.merges_s.append(ended - complete)
            self.merging.extend(self.epochs.durations_over(complete, ended))
        return taken


def measure(folder: Path, keys: int, parallelism: int, checkpoints: int) -> dict[str, Any]:
    """All figures."""
    client, epochs = start(folder / "job", keys, parallelism)
    epochs.wait_for(lambda: epochs.records >= keys)
    epochs.pass_by(EPOCHS_PER_CYCLE)
    taken = Taken(client, epochs)
    full = taken.checkpoint()
    incremental = [taken.checkpoint() for _ in range(checkpoints)]
    quiet, merging = taken.quiet, taken.merging
    while_full, *while_incremental = taken.busy
    # it takes many checkpoints until the driver's JVM has compiled their code
    warm = [epoch for durations in while_incremental[checkpoints // 2 :] for epoch in durations]
    savepoint_s, savepoint = timed(lambda: client.trigger_savepoint(str(folder / "savepoints")).result())
    client.cancel().result()
    restore_s = restored(folder, keys, parallelism, savepoint)
    wrong = [c for c in (full, *incremental) if c.status != "COMPLETED"]
    return {
        "keys": keys,
        "parallelism, of two cores": parallelism,
        "full checkpoint, s": full.duration_ms / 1000,
        "incremental checkpoints, s": [c.duration_ms / 1000 for c in incremental],
        "incremental checkpoint, later half, median s": median(
            [c.duration_ms / 1000 for c in incremental[checkpoints // 2 :]]
        ),
        "really incremental": all(c.incremental for c in incremental) and not wrong,
        "rows of an incremental one": [c.rows_written for c in incremental],
        "epoch without a checkpoint, median s": median(quiet),
        "epoch during incremental checkpoints, median s of each": [
            median(durations) for durations in while_incremental
        ],
        "epoch during the later half of them, median s": median(warm),
        "epoch during the later half of them, times one without": ratio(warm, quiet),
        "median of the medians of the later half, times one without": ratio(
            [statistics.median(durations) for durations in while_incremental[checkpoints // 2 :] if durations], quiet
        ),
        "merges of changes after a checkpoint, s": taken.merges_s,
        "epoch during merges, median s": median(merging),
        "epoch during merges, times one without": ratio(merging, quiet),
        "epoch during the full checkpoint, median s": median(while_full),
        "longest epoch without a checkpoint and during the later half, s": [
            max(quiet, default=0),
            max(warm, default=0),
        ],
        "savepoint, s": savepoint_s,
        "start from the savepoint to the first committed epoch, s": restore_s,
    }


def restored(folder: Path, keys: int, parallelism: int, savepoint: str) -> float:
    """Seconds from the start of a job from a savepoint to its first committed epoch."""
    began = time.monotonic()
    client, epochs = start(folder / "restored", keys, parallelism, savepoint)
    epochs.wait_for(lambda: epochs.committed >= 0)
    elapsed_s = time.monotonic() - began
    client.cancel().result()
    return elapsed_s


def median(values: list[float]) -> float | None:
    """The median; None if there are no values, that is, no epoch lay completely within the period."""
    return round(statistics.median(values), 3) if values else None


def ratio(busy: list[float], quiet: list[float]) -> float | None:
    """How many times as long an epoch takes; None without values on either side."""
    return round(statistics.median(busy) / statistics.median(quiet), 3) if busy and quiet else None


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--parallelism", type=int, default=2, help="1 leaves a core to checkpoints, 2 none")
    parser.add_argument("--checkpoints", type=int, default=12, help="incremental ones")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.keys, options.parallelism, options.checkpoints)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
