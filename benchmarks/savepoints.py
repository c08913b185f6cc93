"""The cost of a savepoint of much keyed state, and of a start from it, split into steps.

    python -m benchmarks.savepoints [--keys 1000000] [--key-type int|str] [--parallelism 2] [--rounds 3] [--json FILE]

A job counts per user, with as many users as there are keys. Its first epoch holds all of them; the next epoch comes a
minute later, so that nothing else runs meanwhile. Each round takes a savepoint, and starts a new job from it in its own
directory. Printed: the seconds of both, split into steps, and processor time. The first round includes the classes that
the driver's JVM has to load and compile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks import spark_settings
from benchmarks.checkpoints import Epochs
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.results import NAMED, CollectSink, register_collector
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.runtime.phases import Phase, set_hook
from flinkish.spark.session import settings_of_long_lived_sessions

KEYS: dict[str, Callable[[int], Any]] = {"int": lambda i: i, "str": lambda i: f"user-{i}"}

_SAVEPOINT_STEPS = {
    Phase.SAVEPOINT_READ: "planned",
    Phase.SAVEPOINT_WRITTEN: "state read and rows written",
    Phase.SAVEPOINT_COMPLETED: "digest and manifest written",
}
_START_STEPS = {
    Phase.RESTORE_PREPARED: "program opened, rows checked and moved",
    Phase.RESTORE_APPLIED: "positions written",
    Phase.EPOCH_PREPARED: "first epoch run",
    Phase.METADATA_COMMITTED: "first epoch committed",
}


def _processor_seconds() -> float:
    """CPU seconds of this process and all that it started: independent of other users of the machine."""
    this = psutil.Process()
    seconds = 0.0
    for process in [this, *this.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            spent = process.cpu_times()
            seconds += spent.user + spent.system
    return seconds


class Steps:
    """Records when the driver passes phases."""

    def __init__(self) -> None:
        self._passed: list[tuple[Phase, float]] = []
        set_hook(lambda phase, details: self._passed.append((phase, time.monotonic())))

    def timed(self, steps: dict[Phase, str], action: Callable[[], Any]) -> tuple[dict[str, float], Any]:
        """The seconds of each step and of the whole, the processor seconds, and the result of the action."""
        self._passed.clear()
        processors = _processor_seconds()
        started = before = time.monotonic()
        result = action()
        ended = time.monotonic()
        seconds: dict[str, float] = {}
        for phase, passed in list(self._passed):
            name = steps.get(phase)
            if name is not None and name not in seconds:
                seconds[name] = round(passed - before, 2)
                before = passed
        seconds["in all"] = round(ended - started, 2)
        seconds["of processors"] = round(_processor_seconds() - processors, 2)
        return seconds, result


def start(folder: Path, keys: int, key_type: str, parallelism: int, savepoint: str | None = None) -> tuple[Any, Epochs]:
    """Start the job."""
    settings = {
        "parallelism.default": str(parallelism),
        "flinkish.progress": "never",
        "flinkish.job.dir": str(folder),
        "execution.checkpointing.interval": "0",
        "flinkish.epoch.interval": "60 s",
        "flinkish.epoch.max-records-per-source": str(keys),
        **spark_settings.EPOCHS_OF_A_SIZE,
    }
    if savepoint is not None:
        settings["execution.state-recovery.path"] = savepoint
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    key = KEYS[key_type]
    users = DataGeneratorSource(lambda i: (key(i % keys), 1), records_per_epoch=keys)
    counts = (
        env.from_source(users, WatermarkStrategy.no_watermarks(), "users")
        .uid("users")
        .key_by(lambda e: e[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .uid("counts")
    )
    register_collector("benchmark", NAMED, lambda rows: None)
    counts.filter(lambda e: False).sink_to(CollectSink("benchmark"))
    client: Any = env.execute_async("savepoints")
    epochs = Epochs()
    client.run.observers.append(epochs)
    return client, epochs


def one_round(steps: Steps, client: Any, folder: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Take a savepoint, and start from it."""
    savepoint, path = steps.timed(
        _SAVEPOINT_STEPS, lambda: client.trigger_savepoint(str(folder / "savepoints")).result()
    )

    def begin() -> Any:
        restored, epochs = start(folder / "restored", options.keys, options.key_type, options.parallelism, path)
        epochs.wait_for(lambda: epochs.committed >= 0)
        return restored

    restore, restored = steps.timed(_START_STEPS, begin)
    restored.cancel().result()
    return {"savepoint, s": savepoint, "start from it, s": restore}


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.savepoints", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--key-type", choices=sorted(KEYS), default="int")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    spark_settings.SETTINGS.update(settings_of_long_lived_sessions())
    spark_settings.session("savepoints")
    steps, rounds = Steps(), []
    with tempfile.TemporaryDirectory() as name:
        client, epochs = start(Path(name) / "job", options.keys, options.key_type, options.parallelism)
        epochs.wait_for(lambda: epochs.committed >= 0)
        for number in range(options.rounds):
            folder = Path(name) / f"round-{number}"
            figures = one_round(steps, client, folder, options)
            rounds.append(figures)
            print(f"round {number + 1}: {json.dumps(figures)}", flush=True)
        client.cancel().result()
    for what in rounds[0]:
        for figure in ("in all", "of processors"):
            print(f"{what}, {figure}: median {statistics.median(figures[what][figure] for figures in rounds)}")
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1))


if __name__ == "__main__":
    main()
