"""What a worker's garbage collector passes through, and what it still finds."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from flinkish.runtime.collector import TASKS_PER_FULL_COLLECTION, THRESHOLD, WorkerCollector


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


class Node:
    """Part of a cycle, in tests that make one."""

    other: Node


def cycle() -> Node:
    node, other = Node(), Node()
    node.other, other.other = other, node
    return node


def test_state_that_was_there_before_a_task_is_not_passed_through_behind_it() -> None:
    kept = [cycle() for _ in range(1_000)]
    WorkerCollector().task_begins()
    assert gc.get_freeze_count() >= len(kept)
    seen = {id(object_) for object_ in gc.get_objects()}
    assert not any(id(node) in seen for node in kept)


def test_a_cycle_made_and_dropped_within_a_task_goes_with_the_collection_behind_it() -> None:
    WorkerCollector().task_begins()
    gone = weakref.ref(cycle())
    gc.collect()
    assert gone() is None


def test_a_cycle_that_has_lived_for_tasks_goes_within_so_many_tasks_after_it_was_dropped() -> None:
    collector, kept = WorkerCollector(), cycle()
    gone = weakref.ref(kept)
    collector.task_begins()
    del kept
    gc.collect()
    assert gone() is not None, "it was passed through after each task"
    for _ in range(TASKS_PER_FULL_COLLECTION):
        collector.task_begins()
        gc.collect()
    assert gone() is None


def test_a_worker_collects_the_youngest_objects_seldom() -> None:
    WorkerCollector().task_begins()
    assert gc.get_threshold()[0] == THRESHOLD
