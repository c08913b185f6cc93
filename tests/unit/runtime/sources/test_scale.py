"""What the driver and the planner do in an epoch grows no faster than splits, files and subtasks. The parts are those
that `benchmarks.scale` measures; work is counted, not timed."""

from __future__ import annotations

import pytest

from benchmarks.scale import PARTS, Part, SyntheticKafka, job_of
from flinkish.connectors.kafka.enumerator import SAMPLES_PER_PLAN
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.job_enumerator import JobEnumerator
from flinkish.runtime.sources.split_list import SegmentsInMemory
from tests.support.executed_work import lines_executed

SMALL, LARGE = 125, 1_000


def test_counted_work_of_a_loop_in_a_loop_is_quadratic_also_inside_of_an_expression() -> None:
    def in_loop(size: int) -> int:
        return lines_executed(lambda: [max(other for other in range(size)) for _ in range(size)])

    assert in_loop(80) > 12 * in_loop(20)


def work_of(part: Part, size: int) -> int:
    # the first call of all imports modules
    part.prepare(1)()
    return lines_executed(part.prepare(size))


@pytest.mark.parametrize("small", [SMALL, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.name}, {part.grows_with}".replace(" ", "-"))
def test_four_times_as_many_take_at_most_four_times_the_work(part: Part, small: int) -> None:
    assert work_of(part, 4 * small) < 5 * work_of(part, small)


@pytest.mark.parametrize("name", ["plan of 10 new files", "ranges of 10 new files"])
def test_files_that_were_read_long_ago_make_no_work(name: str) -> None:
    (part,) = (part for part in PARTS if part.name == name)
    assert work_of(part, LARGE) < 1.2 * work_of(part, SMALL)


def test_first_plan_of_a_backlog_makes_as_many_requests_for_any_number_of_partitions() -> None:
    requests = []
    for partitions in (1_000, 10_000):
        source = SyntheticKafka(partitions)
        JobEnumerator(job_of(source, 4), SegmentsInMemory(), ManualClock()).next_offset({})
        requests.append(SyntheticKafka.cluster.requests)
    # partitions, their first offsets, their end offsets
    assert requests == [3 + SAMPLES_PER_PLAN] * 2
