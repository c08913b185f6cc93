"""The job that `benchmarks.keyed_state` measures: a running sum per user, with epochs of a requested size.

It first adds every key once, in large epochs. With `--restarted` it instead continues in the job directory of an
earlier run. It prints one line of JSON with its figures and then waits to be killed; no epoch is running by then.

    python -m benchmarks.pipelines.keyed_state_job FOLDER --keys 1000000 --phases 10000:20 1:20
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import spark_settings
from benchmarks.keyed_records import LOAD_EPOCHS, key_numbers, sums_at, user_names
from benchmarks.pipelines.sums_sink import SumsSink, committed
from benchmarks.process_memory import sizes_mib
from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.generated import NumberedSplitSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport

SPLITS = 2
TIMEOUT_S = 2 * 3_600.0
SAMPLE_EVERY_S = 0.3


class PacedSource(NumberedSplitSource):
    """Emits every key once, a tenth of them in each epoch; then as many records per epoch as a file says."""

    def __init__(self, keys: int, pace: Path) -> None:
        self._keys = keys
        self._pace = pace

    @property
    def bounded(self) -> bool:
        """Unbounded."""
        return False

    @property
    def produced_type(self) -> TypeInformation:
        """A pair of undeclared type, as lambdas return it."""
        return Types.PICKLED_BYTE_ARRAY()

    @property
    def splits(self) -> int:
        """One split per source task."""
        return SPLITS

    def size_of(self, split: int) -> int | None:
        """Unbounded."""
        return None

    def end_of_epoch(self, split: int, position: int) -> int:
        """Called where epochs are planned. The pace decides how records are cut into epochs, never their content."""
        loaded = _share(self._keys, split)
        if position < loaded:
            return min(loaded, position + max(1, loaded // LOAD_EPOCHS))
        return position + _share(int(self._pace.read_text()), split)

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        """Record n of the job is record n // SPLITS of split n % SPLITS."""
        numbers = key_numbers(start * SPLITS + split, stop * SPLITS + split, self._keys, SPLITS)
        return [(user, 1) for user in user_names(numbers)]


def _share(records: int, split: int) -> int:
    """How many of the first ``records`` records belong to a split."""
    return (records - split + SPLITS - 1) // SPLITS


class Epochs(JobObserver):
    """Records (end time, number of records, epoch) of each epoch since the start of this driver."""

    def __init__(self) -> None:
        self.done: list[tuple[float, int, int]] = []
        self.changed = threading.Condition()

    def epoch_done(self, report: EpochReport) -> None:
        """Called after each epoch."""
        with self.changed:
            self.done.append((time.perf_counter(), report.records_in, report.epoch))
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], result: Any) -> None:
        """Wait until a condition on the epochs holds."""
        deadline_s = time.monotonic() + TIMEOUT_S
        with self.changed:
            while not condition():
                if result.done():
                    result.result()
                    raise RuntimeError("the job has ended")
                if time.monotonic() > deadline_s:
                    raise TimeoutError("the job does not get further")
                self.changed.wait(1.0)

    def wait_for_durations(self, records: int, count: int, result: Any) -> list[float]:
        """Seconds of the first epochs with this many records that follow an epoch with as many."""
        self.wait_for(lambda: len(self._durations_of(records)) >= count, result)
        return self._durations_of(records)[:count]

    def _durations_of(self, records: int) -> list[float]:
        pairs = zip(self.done, self.done[1:])
        return [after[0] - before[0] for before, after in pairs if before[1] == after[1] == records]


class PssWatch:
    """The highest memory (proportional set size) of all Python workers together at any time."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> float:
        """The highest memory in MiB; ends the watch."""
        self._over.set()
        self._thread.join()
        return round(self.peak_mib, 1)

    def _watch(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, sizes_mib(os.getpid()).get("all workers", 0.0))
            if self._over.wait(SAMPLE_EVERY_S):
                return


class Pace:
    """The number of records per epoch. Written by rename, because another process reads it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "pace"

    def set(self, records: int) -> None:
        """Set the size of epochs, effective within the next epochs; 0: no more epochs."""
        new = self.path.with_suffix(".new")
        new.write_text(str(records))
        new.replace(self.path)


def build(env: Any, keys: int, pace: Path, stateless: bool) -> None:
    """Source, shuffle by user, running sum, sink; or the same without state."""
    records = env.from_source(PacedSource(keys, pace), WatermarkStrategy.no_watermarks(), "records").uid("records")
    users = records.key_by(lambda record: record[0])
    if stateless:
        sums = users.map(lambda record: (record[0], record[1])).uid("sums")
    else:
        sums = users.reduce(lambda left, right: (left[0], left[1] + right[1])).uid("sums")
    sums.sink_to(SumsSink()).uid("sink")


def environment(folder: Path, max_parallelism: int | None, settings: list[str]) -> Any:
    """Two subtasks, epochs without pause, no history."""
    configuration = Configuration()
    fixed = [
        f"flinkish.job.dir={folder / 'job'}",
        "execution.checkpointing.interval=0",
        "flinkish.progress=never",
        "flinkish.history.enabled=false",
        "flinkish.epoch.max-bytes-per-source=4gb",
        "parallelism.default=2",
        *(f"{key}={value}" for key, value in {**spark_settings.OF_A_JOB, **spark_settings.EPOCHS_OF_A_SIZE}.items()),
    ]
    for setting in (*fixed, *settings):
        key, _, value = setting.partition("=")
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_max_parallelism(max_parallelism) if max_parallelism else env


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the phases one after the other; returns the seconds per epoch of each."""
    pace = Pace(options.folder)
    phases = [tuple(map(int, phase.split(":"))) for phase in options.phases]
    pace.set(phases[0][0])
    env = environment(options.folder, options.max_parallelism, options.set)
    build(env, options.keys, pace.path, options.stateless)
    epochs = Epochs()
    started_s = time.perf_counter()
    client = env.execute_async("keyed-state")
    client.run.observers.append(epochs)
    result = client.get_job_execution_result()
    epochs.wait_for(lambda: bool(epochs.done), result)
    figures: dict[str, Any] = {"first_epoch_s": epochs.done[0][0] - started_s, "epochs_s": {}, "pss_mib": {}}
    for records, count in phases:
        pace.set(records)
        durations = epochs.wait_for_durations(records, options.warm_up + count, result)
        figures["epochs_s"][records] = durations[options.warm_up :]
        # reading the sizes of large processes takes time itself, so it is done in separate epochs
        watch = PssWatch()
        epochs.wait_for_durations(records, len(durations) + options.pss_epochs, result)
        figures["pss_mib"][records] = watch.end()
    if not options.restarted and not options.stateless:
        _check(epochs, options.keys, phases[0][0])
    pace.set(0)
    _wait_for_quiet(epochs, result)
    return figures


def _wait_for_quiet(epochs: Epochs, result: Any) -> None:
    """Wait until no epoch has ended for longer than any of the last ones took."""
    seen, since_s = len(epochs.done), time.monotonic()
    while True:
        longest_s = max(after[0] - before[0] for before, after in zip(epochs.done[-5:], epochs.done[-4:]))
        if time.monotonic() - since_s > 2 + 3 * longest_s:
            return
        time.sleep(0.1)
        if len(epochs.done) != seen:
            seen, since_s = len(epochs.done), time.monotonic()
        if result.done():
            result.result()


def _check(epochs: Epochs, keys: int, epoch_records: int) -> None:
    """Check that the last results before epochs got another size are those that the records give."""
    sizes = [records for _, records, _ in epochs.done]
    first = sizes.index(epoch_records)
    last = first + next((n for n, records in enumerate(sizes[first:]) if records != epoch_records), len(sizes[first:]))
    expected = sums_at(sum(sizes[:last]), epoch_records, keys)
    epoch = epochs.done[last - 1][2]
    if committed[epoch][1] != expected:
        raise RuntimeError(f"epoch {epoch} committed sums of {committed[epoch][1]}, expected {expected}")


def main() -> None:
    """Print the figures, then wait for the end of standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--phases", nargs="+", required=True, metavar="RECORDS:EPOCHS", help="sizes of epochs, in turn")
    parser.add_argument("--warm-up", type=int, default=10, help="epochs of each phase that are left out")
    parser.add_argument("--pss-epochs", type=int, default=10, help="further epochs, in which memory is looked at")
    parser.add_argument("--max-parallelism", type=int, default=None)
    parser.add_argument("--stateless", action="store_true", help="the same without state")
    parser.add_argument("--restarted", action="store_true", help="go on in the folder")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further configuration")
    options = parser.parse_args()
    if options.keys % (SPLITS * LOAD_EPOCHS):
        parser.error(f"--keys {options.keys}: expected a multiple of {SPLITS * LOAD_EPOCHS}, for epochs of one size")
    print(json.dumps(measure(options)), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
