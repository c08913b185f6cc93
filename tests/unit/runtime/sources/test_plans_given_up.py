"""A plan that was given up is replaced by another one: nothing is lost, doubled or looked up twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flinkish.common import Duration, WatermarkStrategy
from flinkish.core.source import SourceSplit, SplitEnumerator, SplitEnumeratorContext
from flinkish.datastream import ProcessFunction
from flinkish.runtime.epoch.planner import ReachedWatermarks
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.alignment import Reached
from flinkish.runtime.sources.job_enumerator import JobEnumerator
from flinkish.runtime.sources.progress import SourceProgress
from flinkish.runtime.sources.split_list import SegmentsInMemory
from tests.support.lettered_source import LetteredSource
from tests.unit.minicluster.programs import environment
from tests.unit.minicluster.programs import job_of as job_graph_of
from tests.unit.runtime.sources.test_planning import job_of, records_of

Offset = dict[str, Any]


class OnceOnly(LetteredSource):
    """A service that tells of each split only once, some of them at a time; its cursor counts the calls."""

    def __init__(self, sizes: dict[str, int], together: bool, at_once: int) -> None:
        super().__init__(sizes, together)
        self.queue = deque(SourceSplit(name, 0, size) for name, size in sizes.items())
        self.at_once = at_once

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return _Asking(self)


class _Asking(SplitEnumerator):
    def __init__(self, source: OnceOnly) -> None:
        self._source = source
        self._told = 0

    def start(self, context: SplitEnumeratorContext) -> None:
        self._told = context.state or 0

    def snapshot_state(self) -> int:
        return self._told

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        queue = self._source.queue
        found = [queue.popleft() for _ in range(min(self._source.at_once, len(queue)))]
        self._told += len(found)
        assert known.isdisjoint(split.id for split in found)
        return found

    @property
    def complete(self) -> bool:
        return self._told == len(self._source.sizes)


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 30), max_size=8),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=30),
)
def test_whatever_plans_are_given_up_each_record_is_read_once_and_no_split_is_lost(
    sizes: dict[str, int], together: bool, parallelism: int, at_once: int, tries: list[tuple[int, bool]]
) -> None:
    source, store = OnceOnly(sizes, together, at_once), SegmentsInMemory()
    job = job_of(source, parallelism)
    # the job has a source of its own
    source = job.vertices[0].source  # type: ignore[assignment]
    offset: Offset = {}
    given_up: Offset = {}
    read: list[Any] = []
    ended: list[int] = []
    for limit, fails in [*tries, *[(7, False)] * 100]:
        limited = replace(job, settings=replace(job.settings, max_records_per_epoch=limit))
        planner = JobEnumerator(limited, store, ManualClock(), given_up=given_up)
        planned = json.loads(json.dumps(planner.next_offset(offset)))
        if planned == offset:
            break
        if fails:
            given_up = planned
            continue
        shares = JobEnumerator(job, store, ManualClock()).shares(offset, planned)
        now = [record for share in shares for record in records_of(share)]
        assert len(now) <= limit
        read += now
        ended += [share.subtask for share in shares if share.ends]
        offset = planned
    assert len(ended) == len(set(ended)) == parallelism, "each subtask hears of the end once"
    assert sorted(read) == sorted((name, n) for name, size in sizes.items() for n in range(size))
    assert not source.queue


def test_streams_are_aligned_by_the_watermarks_of_committed_epochs_only() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("group", Duration.of_millis(10))
    env = environment(1)
    sources = [env.from_source(LetteredSource({name: 100}, True), strategy, name).uid(name) for name in ("a", "b")]
    sources[0].union(sources[1]).print()
    job, store = job_graph_of(env, source_batch_size=5, max_records_per_epoch=20), SegmentsInMemory()

    def planner(given_up: Offset) -> JobEnumerator:
        return JobEnumerator(job, store, ManualClock(), given_up=given_up)

    committed = planner({}).next_offset({})
    reached = Reached({"a": {"a": 5}, "b": {"b": 5}})
    planned = planner({}).next_offset(committed, reached=reached)
    # its tasks ran to their ends, so that the file of reached watermarks is of that epoch: a is far ahead of b
    ran = Reached({"a": {"a": 500}, "b": {"b": 20}})
    again = planner(planned).next_offset(committed, reached=ran)
    assert again == planned
    held = planner({}).next_offset(committed, reached=ran)
    assert SourceProgress.decode(held["sources"]["a"], "").held, "with watermarks that do not count, a would wait"


class Sees(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield ctx.timer_service().current_watermark()


def test_an_epoch_begins_with_what_committed_epochs_know_of_its_splits() -> None:
    env = environment(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    env.from_source(LetteredSource({"x": 9, "y": 9}, True), strategy, "s").uid("s").process(Sees()).print()
    job, store = job_graph_of(env, max_records_per_epoch=4), SegmentsInMemory()

    def planner(given_up: Offset) -> JobEnumerator:
        return JobEnumerator(job, store, ManualClock(), given_up=given_up)

    def states(start: Offset, end: Offset) -> dict[str, Any]:
        (share,) = planner({}).shares(start, end)
        return dict(share.states)

    committed = planner({}).next_offset({})
    assert states({}, committed) == {}
    known = {"x": [5, {"assign": [6, 5]}], "y": [1, {"assign": [2, 1]}]}
    planned = json.loads(json.dumps(planner({}).next_offset(committed, reached=Reached(states={"s": known}))))
    assert states(committed, planned) == known, "a replay has them from the log"
    ran = Reached(states={"s": {"x": [90, {}]}})
    again = planner(planned).next_offset(committed, reached=ran)
    assert states(committed, again) == known, "those of the epoch that was given up do not count"
    assert states(committed, planner({}).next_offset(committed)) == {}


def test_what_sources_have_reached_is_kept_for_two_epochs(tmp_path: Path) -> None:
    """Sources that Spark reads look for it while the next epoch runs, however often that is tried."""
    file = ReachedWatermarks(str(tmp_path))
    assert not file.read()
    file.write(0, Reached({"a": {"0": 7}}, {"s": {"x": [5, {}], "y": [1, {}]}}))
    file.write(1, Reached({}, {"s": {"x": [6, {}]}}))
    assert file.read(before=1).states == {"s": {"x": [5, {}], "y": [1, {}]}}
    assert file.read() == Reached({}, {"s": {"x": [6, {}], "y": [1, {}]}})
    file.write(1, Reached({}, {"s": {"y": None}}))
    assert file.read(before=1).watermarks == {"a": {"0": 7}}, "the second try begins with the same"
    assert file.read().states == {"s": {"x": [5, {}]}}, "a split that has ended is forgotten"


# --- The plan of an epoch, and who reads what in it, is the same in another process with another hash seed ----------


def shares(folder: Path, what: str, hash_seed: int) -> list[str]:
    """The shares of all epochs, by a process of its own."""
    command = [sys.executable, "-m", "tests.support.planned_epochs", str(folder), what]
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def test_another_process_with_another_hash_seed_plans_and_replays_the_same_epochs(tmp_path: Path) -> None:
    """It is another query over the same files, and goes on with the first one when they are gone."""
    (tmp_path / "input").mkdir()
    # so many files that the list of them leaves the offsets
    for number in range(90):
        path = tmp_path / "input" / f"{number * 37 % 90}.txt"
        path.write_text("".join(f"line {line}\n" for line in range(number * 7 % 30 + 1)))
        os.utime(path, (1_700_000_000 + number // 4,) * 2)
    planned = shares(tmp_path, "plan", 1)
    assert len(planned) > 10
    assert list((tmp_path / "plan" / "splits").iterdir()), "the list of files has left the offsets"
    assert shares(tmp_path, "again", 2) == planned * 2
