"""What a worker's garbage collector passes through, and what it still finds."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from flinkish.spark.worker import MOST, TASKS_PER_FULL_COLLECTION, THRESHOLD, WorkerCollector


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    threshold, callbacks = gc.get_threshold(), gc.callbacks.copy()
    yield
    gc.unfreeze()
    gc.callbacks[:] = callbacks
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


def test_a_worker_whose_collections_find_nothing_collects_ever_more_seldom() -> None:
    WorkerCollector().task_begins()
    assert gc.get_threshold()[0] == THRESHOLD
    kept = [[number] for number in range(THRESHOLD + 1_000)]
    assert gc.get_threshold()[0] == 2 * THRESHOLD
    for _ in range(10):
        gc.collect(0)
    assert gc.get_threshold()[0] == MOST
    assert len(kept) == THRESHOLD + 1_000


def test_a_worker_whose_code_makes_cycles_collects_them_as_often_as_before_for_good() -> None:
    WorkerCollector().task_begins()
    for _ in range(4):
        gc.collect(0)
    for _ in range(MOST // 2 + 1_000):
        cycle()
    assert gc.get_threshold()[0] == THRESHOLD
    gone = weakref.ref(cycle())
    for _ in range(THRESHOLD):
        cycle()
    assert gone() is None
    gc.collect(0)
    assert gc.get_threshold()[0] == THRESHOLD
