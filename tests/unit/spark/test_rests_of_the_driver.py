"""The driver rests while it converts the changes of a checkpoint, so that the running epoch hardly notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flinkish.spark import changelog

WORK_S = 0.02


@pytest.fixture
def rests_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rests, none of which is taken. Only the module's own name for the clock is replaced, since other threads of
    this process sleep as well."""
    rests: list[float] = []
    clock = SimpleNamespace(thread_time=time.thread_time, sleep=rests.append)
    monkeypatch.setattr(changelog, "time", clock)
    return rests


def work() -> None:
    began_s = time.thread_time()
    while time.thread_time() < began_s + WORK_S:
        pass


def consume(process: Callable[[], object]) -> list[Any]:
    parts = []
    for part in changelog.with_rests(iter(["a", "b", "c"])):
        parts.append(part)
        process()
    return parts


def test_after_each_part_it_rests_several_times_as_long_as_the_part_took(rests_s: list[float]) -> None:
    assert consume(work) == ["a", "b", "c"]
    assert len(rests_s) == 3
    assert min(rests_s) >= changelog.RESTS_PER_WORK * WORK_S


def test_waiting_is_no_work(rests_s: list[float]) -> None:
    never = threading.Event()
    assert consume(lambda: never.wait(3 * WORK_S)) == ["a", "b", "c"]
    assert max(rests_s) < WORK_S * changelog.RESTS_PER_WORK
