"""How large epochs are, given what the epochs before them have taken: simulated programs whose costs are known."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.sources.memory_bound import MemoryBound
from flinkish.runtime.sources.sizer import EpochSize, EpochSizer, EpochTimes, SourceBounds, work_of
from flinkish.storage.sealed import json_as
from tests.support.job_descriptors import job_of_levels

TARGET_MS = 2_000
MOST = 4_000_000


@dataclass
class Program:
    """A program with a backlog in each source: what its epochs take is known.

    Args:
        costs_ms: what the tasks take for a record, for each source.
        overhead_ms: what each epoch takes besides.
        commit_ms: what the sinks take for a record when they commit it.
        empty_commit_ms: what each commit takes besides.
        empty_work_ms: what the tasks take besides, such as for large state that they write in each epoch.
        start_ms: what the first epoch takes in addition.
        ready: how many records each source has in an epoch.
        kept: the share of memory that is in use whatever the epochs read.
        record: the share of memory that a record needs.
        frees: whether the memory of records is free again when their epoch has ended.
    """

    costs_ms: tuple[float, ...]
    overhead_ms: float = 200.0
    commit_ms: float = 0.0
    empty_commit_ms: float = 0.0
    empty_work_ms: float = 0.0
    start_ms: float = 5_000.0
    parallelism: int = 2
    most: int = MOST
    ready: float = float("inf")
    kept: float = 0.0
    record: float = 0.0
    frees: bool = True
    used: float = 0.0
    size: EpochSize = field(init=False)
    #: (records of the first source, duration in ms) of each epoch
    epochs: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size = self.sizer.first()

    @property
    def sizer(self) -> EpochSizer:
        bounds = SourceBounds(self.parallelism, self.most)
        return EpochSizer(TARGET_MS, {str(number): bounds for number in range(len(self.costs_ms))})

    def run(self, epochs: int) -> list[tuple[float, float]]:
        for _ in range(epochs):
            read = {uid: min(limit, self.ready) for uid, limit in self.size.limits.items()}
            work = {
                str(n): self.empty_work_ms + cost * read[str(n)] / self.parallelism
                for n, cost in enumerate(self.costs_ms)
            }
            commit_ms = self.commit_ms * sum(read.values()) + self.empty_commit_ms
            start_ms = 0.0 if self.epochs else self.start_ms
            duration_ms = max(work.values()) + commit_ms + self.overhead_ms + start_ms
            self.epochs.append((read["0"], duration_ms))
            need = self.kept + self.record * sum(read.values())
            self.used = need if self.frees else max(self.used, need)
            times = EpochTimes(duration_ms, commit_ms, work, self.used)
            self.size = self.sizer.next(replace(self.size, read=read), times)
        return self.epochs


@pytest.mark.parametrize(
    ("cost_ms", "records"),
    [(0.004, 900_000), (2, 1_800), (200, 18), (20_000, 2)],
    ids=["4-us", "2-ms", "200-ms", "20-s"],
)
def test_an_epoch_has_as_many_records_as_take_the_target_and_at_least_one_a_subtask(
    cost_ms: float, records: int
) -> None:
    program = Program((cost_ms,))
    assert program.run(8)[-1][0] == pytest.approx(records, rel=0.1)
    assert program.epochs[0][0] == 2, "the first epoch may have records of any cost"


@pytest.mark.parametrize("cost_ms", [0.004, 2, 200], ids=["4-us", "2-ms", "200-ms"])
def test_no_epoch_takes_much_longer_than_the_target_on_the_way_there(cost_ms: float) -> None:
    assert all(duration <= 1.3 * TARGET_MS for _, duration in Program((cost_ms,)).run(20)[1:])


def test_a_backlog_of_fast_records_fills_the_target_within_six_epochs() -> None:
    records = [records for records, _ in Program((0.002,)).run(6)]
    assert records[:3] == [2, 2_000, 32_000]
    assert records[4:] == [pytest.approx(1_800_000, rel=0.01)] * 2


@given(st.floats(0.0005, 60_000), st.floats(0, 20_000), st.integers(1, 500), st.sampled_from([0.0, 30_000.0]))
def test_constant_costs_give_epochs_of_the_target_or_twice_the_overhead_if_that_is_more(
    cost_ms: float, overhead_ms: float, parallelism: int, start_ms: float
) -> None:
    program = Program((cost_ms,), overhead_ms, start_ms=start_ms, parallelism=parallelism, most=10_000 * parallelism)
    records, duration_ms = program.run(15)[-1]
    expected_ms = max(TARGET_MS, 2 * overhead_ms)
    bounded = records == program.most and duration_ms <= expected_ms * 1.01
    smallest = records < 4 * parallelism
    assert bounded or smallest or duration_ms == pytest.approx(expected_ms, rel=0.1)
    assert not smallest or duration_ms - overhead_ms <= 1.01 * max(expected_ms, cost_ms)


@given(st.floats(0.0005, 50), st.floats(3, 10_000))
def test_the_epoch_after_one_that_took_longer_than_the_target_fits_into_it(cost_ms: float, factor: float) -> None:
    program = Program((cost_ms,))
    program.run(12)
    slower = replace(program, costs_ms=(cost_ms * factor,))
    slower.size, slower.epochs = program.size, program.epochs
    (_, too_long_ms), (records, duration_ms) = slower.run(2)[-2:]
    if too_long_ms > TARGET_MS:
        assert duration_ms <= 1.01 * TARGET_MS or records <= 2 * slower.parallelism


@given(
    st.dictionaries(st.sampled_from("ab"), st.floats(0, 1e9)),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e9)),
    st.tuples(*[st.floats(0, 1e9)] * 6, st.integers(0, 100)),
)
def test_no_times_make_a_size_beyond_the_bounds(
    read: dict[str, float],
    duration_ms: float,
    commit_ms: float,
    work_ms: dict[str, float],
    known: tuple[float, ...],
) -> None:
    sizer = EpochSizer(TARGET_MS, {"a": SourceBounds(3, 1_000), "b": SourceBounds(8, 5)})
    size = sizer.next(EpochSize({"a": 7, "b": 5}, read, *known), EpochTimes(duration_ms, commit_ms, work_ms))
    assert 3 <= size.limits["a"] <= 1_000
    assert size.limits["b"] == 5, "the limit counts where it is less than a record per subtask"


@pytest.mark.parametrize("commit_ms", [0.002, 1, 100], ids=["2-us", "1-ms", "100-ms"])
def test_slow_commits_count_like_slow_tasks(commit_ms: float) -> None:
    program = Program((0.001,), commit_ms=commit_ms)
    assert program.run(12)[-1][1] == pytest.approx(TARGET_MS, rel=0.1)
    assert all(duration <= 1.3 * TARGET_MS for _, duration in program.epochs[1:])


@pytest.mark.parametrize("empty_ms", [50, 500, 1_500, 4_000])
@pytest.mark.parametrize("part", ["empty_commit_ms", "empty_work_ms"])
def test_commits_and_tasks_that_are_slow_whatever_they_read_count_like_overhead(part: str, empty_ms: float) -> None:
    program = Program((0.002,), **{part: empty_ms})  # type: ignore[arg-type]
    assert program.run(15)[-1][1] == pytest.approx(max(TARGET_MS, 2 * (200 + empty_ms)), rel=0.1)
    if part == "empty_work_ms":
        program.empty_work_ms = 6_000
        assert all(duration >= 1.5 * 6_200 for _, duration in program.run(100)[-50:]), "half of it is for the records"


def test_records_that_cannot_be_fewer_are_doubled_now_and_then_to_see_whether_it_is_they_that_take_so_long() -> None:
    records = [records for records, _ in Program((20_000,)).run(40)]
    assert set(records) == {2, 4}
    assert records.count(4) <= 4


def test_an_overhead_that_becomes_more_than_the_target_does_not_make_epochs_tiny() -> None:
    program = Program((0.002,))
    program.run(8)
    program.overhead_ms = 5_000
    assert program.run(12)[-1][1] == pytest.approx(2 * 5_000, rel=0.1)
    program.overhead_ms = 200
    assert program.run(12)[-1][1] == pytest.approx(TARGET_MS, rel=0.1)


def test_a_source_with_slow_records_does_not_hold_back_one_with_fast_records() -> None:
    program = Program((200, 0.002))
    program.run(10)
    assert program.size.limits["0"] == pytest.approx(18, abs=1)
    assert program.size.limits["1"] == pytest.approx(1_800_000, rel=0.1)


def test_epochs_that_read_nothing_change_no_size() -> None:
    program = Program((0.002,))
    program.run(8)
    before, program.ready = program.size, 0
    program.run(3)
    assert program.size.limits == before.limits
    program.ready = float("inf")
    assert program.run(1)[-1][0] == pytest.approx(1_800_000, rel=0.1)


def test_records_that_became_slow_while_there_were_few_do_not_fill_an_epoch_when_there_are_many() -> None:
    program = Program((0.002,))
    program.run(8)
    program.costs_ms, program.ready = (200,), 10
    program.run(2)
    program.ready = float("inf")
    assert program.run(1)[-1][1] <= 2 * TARGET_MS
    assert program.run(3)[-1][1] == pytest.approx(TARGET_MS, rel=0.1)


#: What the epochs of a program with records of 0.002 ms have without bounds of memory.
FAST = 1_800_000


def test_epochs_that_need_too_much_memory_are_half_as_large_and_grow_slowly() -> None:
    # epochs of all that the time permits would need 90 % of the memory
    program = Program((0.002,), kept=0.2, record=0.7 / FAST)
    program.run(40)
    records = [one for one, _ in program.epochs]
    assert max(program.kept + program.record * one for one in records) < 1
    grown = [after / before for before, after in zip(records[5:], records[6:])]
    assert max(grown) <= 1.26 and min(grown) >= 0.49
    assert min(records[6:]) > FAST / 4, "nor are they smaller than they need be"


@pytest.mark.parametrize("frees", [True, False], ids=["freed", "kept-by-Python"])
def test_memory_that_no_smaller_epoch_frees_does_not_keep_epochs_small(frees: bool) -> None:
    full = Program((0.002,), kept=0.9 if frees else 0.2, record=0.0 if frees else 0.7 / FAST, frees=frees)
    records = [one for one, _ in full.run(60)]
    assert records[-1] == pytest.approx(FAST, rel=0.1)


def test_memory_that_is_not_known_bounds_nothing_that_was_not_bound() -> None:
    assert Program((0.002,)).run(8)[-1][0] == pytest.approx(FAST, rel=0.1)


def test_a_trickle_of_records_does_not_make_the_epochs_of_a_burst_tiny() -> None:
    program = Program((0.002,), kept=0.75, ready=10)
    program.run(30)
    burst = replace(program, ready=float("inf"))
    burst.size, burst.epochs = program.size, program.epochs
    records = [one for one, _ in burst.run(2)[-2:]]
    assert records[-1] >= 2_000


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(1, 1e9)), max_size=60))
def test_a_bound_of_memory_never_more_than_halves_or_grows_by_more_than_a_quarter(
    epochs: list[tuple[float, float]],
) -> None:
    bound = MemoryBound()
    for share, records in epochs:
        bound, factor = bound.after(share, records)
        assert factor in (None, 0.5, 1.25)
        assert json_as(MemoryBound, json.dumps(asdict(bound))) == bound


def test_a_size_is_the_same_after_its_way_through_the_log() -> None:
    program = Program((2,))
    program.run(3)
    size = replace(program.size, read={"0": 7.0})
    assert json_as(EpochSize, json.dumps(asdict(size))) == size


def test_a_source_is_charged_with_its_own_work_and_that_of_the_vertices_behind_it() -> None:
    # sources 0 and 1; vertex 2 is behind both of them, vertex 3 behind 1, and both of these are at one level
    job = job_of_levels({0: (), 1: (), 2: (0, 1), 3: (1,), 4: (3,)})
    work_ms = {0: [1, 30], 1: [5], 2: [100, 80], 3: [200], 4: [7]}
    tasks = [
        TaskReport(vertex, subtask, work_ms=each, worker=f"worker {subtask}")
        for vertex, all_of_it in work_ms.items()
        for subtask, each in enumerate(all_of_it)
    ]
    assert work_of(job, tasks) == {"uid-0": 30 + 100, "uid-1": 5 + 200 + 7}
    in_one_worker = [replace(task, worker="the only one") for task in tasks]
    assert work_of(job, in_one_worker) == {"uid-0": 31 + 180, "uid-1": 5 + 200 + 7}
