"""Files of keyed state that are damaged: the job goes on from the last checkpoint, or from a good copy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common.typeinfo import Types
from flinkish.datastream import DataStream, KeyedProcessFunction, KeyedStream, RuntimeContext
from flinkish.datastream.state import ValueStateDescriptor
from tests.integration.damage.harm import HARMS
from tests.integration.damage.prepared_job import PreparedJob

#: State of each key that is written once, and in each epoch.
LARGE_BYTES, SMALL_BYTES = 1_500_000, 120_000


class CountingWithMuchState(KeyedProcessFunction):
    """Counts; its state makes a large base, deltas behind it, and timers lie in files of their own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._large = runtime_context.get_state(ValueStateDescriptor("large", Types.PICKLED_BYTE_ARRAY()))
        self._small = runtime_context.get_state(ValueStateDescriptor("small", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        key = value[0]
        if self._large.value() is None:
            self._large.update(random.Random(key).randbytes(LARGE_BYTES))
        count = (self._small.value() or (0, b""))[0] + 1
        self._small.update((count, random.Random(count).randbytes(SMALL_BYTES)))
        ctx.timer_service().register_event_time_timer(10**12 + count)
        yield key, count

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        assert len(self._large.value()) == LARGE_BYTES
        yield from ()


class JobWithFiles(PreparedJob):
    """A `PreparedJob` whose state lies in files."""

    def counts(self, ones: KeyedStream) -> DataStream:
        return ones.process(CountingWithMuchState())

    def files(self, kind: str) -> list[Path]:
        """Of the subtask's state. A file whose rows are timers is small."""
        low, high = {"base": (3_000_000, 10**9), "delta": (200_000, 3_000_000), "timers": (1, 50_000)}[kind]
        found = self.directory.glob("keyed-state/*/0/*.arrow")
        return [path for path in found if low <= path.stat().st_size < high]


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> JobWithFiles:
    made = JobWithFiles(tmp_path_factory.mktemp("damage") / "prepared")
    made.prepare(spark)
    return made


def kinds_and_harms() -> list[Any]:
    # that damage of the others is found as well is shown without a job (tests/unit/runtime/state/files)
    nightly = {("base", "flipped")}
    pairs = [(kind, harm) for kind in ("base", "delta", "timers") for harm in HARMS]
    return [pytest.param(*pair, marks=pytest.mark.nightly if pair in nightly else pytest.mark.slow) for pair in pairs]


@pytest.mark.parametrize(("kind", "harm"), kinds_and_harms())
def test_a_job_goes_on_from_the_last_checkpoint_and_says_so(
    prepared: JobWithFiles, tmp_path: Path, kind: str, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = prepared.copy(tmp_path / "copy")
    files = job.files(kind)  # type: ignore[attr-defined]
    assert files
    for file in files:
        HARMS[harm](file)
    capsys.readouterr()
    job.go_on()
    job.check_golden()
    said = capsys.readouterr().err
    assert any(f"{file} is" in said for file in files), said
    assert f"goes on from the checkpoint {job.checkpoint_before} of epoch {job.epochs - 1}" in said, said


@pytest.mark.nightly
def test_damaged_copies_on_an_executors_disk_are_fetched_again(prepared: JobWithFiles, tmp_path: Path) -> None:
    job = prepared.copy(tmp_path / "copy")
    root = tmp_path / "disks"
    local = {"taskmanager__state__local__root_dirs": str(root)}
    job.run_and_stop(1, **local)
    copies = list(root.rglob("*.arrow"))
    assert copies
    for harm, file in zip(list(HARMS.values()) * len(copies), copies):
        harm(file)
    job.go_on(**local)
    job.check_golden()
    assert not (job.directory / "query-location.json").exists()
