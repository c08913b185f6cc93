"""What a worker keeps open: used again, one at a time, closed after an error, when idle, when there are too many."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count

import pytest

from flinkish.connectors.kept_resources import KeptResources
from tests.support.processes import wait_until


class Opened:
    """A resource that knows whether it is closed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = 0


class World:
    """Opens resources by the key's name and a number; time, process and timers are the test's."""

    def __init__(self, limit: int = 10) -> None:
        self.now_s, self.process = 0.0, 1
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.opened: list[Opened] = []
        self._numbers = count(1)
        self.kept = KeptResources[Opened](
            self._close, limit, 60.0, lambda: self.now_s, lambda: self.process, self._set_timer
        )

    def use(self, key: str = "a") -> str:
        with self.kept.use(key, lambda: self.open(key)) as resource:
            assert not resource.closed
        return resource.name

    def open(self, key: str) -> Opened:
        self.opened.append(Opened(f"{key}{next(self._numbers)}"))
        return self.opened[-1]

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now_s]
        self.timers = [timer for timer in self.timers if timer[0] > self.now_s]
        for _, function in due:
            function()

    @property
    def closed(self) -> list[str]:
        return [resource.name for resource in self.opened if resource.closed]

    @staticmethod
    def _close(resource: Opened) -> None:
        resource.closed += 1
        assert resource.closed == 1

    def _set_timer(self, delay_s: float, function: Callable[[], None]) -> None:
        self.timers.append((self.now_s + delay_s, function))


def test_a_resource_is_used_again_under_its_key() -> None:
    world = World()
    assert [world.use("a"), world.use("a"), world.use("b"), world.use("a"), world.use("b")] == [
        "a1", "a1", "b2", "a1", "b2",
    ]  # fmt: skip
    assert world.closed == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_after_an_error_of_any_kind_it_is_closed_and_opened_anew(error: type[BaseException]) -> None:
    world = World()
    world.use()
    with pytest.raises(error), world.kept.use("a", lambda: world.open("a")):
        raise error
    assert world.closed == ["a1"]
    assert world.use() == "a2"


def test_what_cannot_be_opened_is_not_kept() -> None:
    world = World()

    def failing() -> Opened:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"), world.kept.use("a", failing):
        pass
    assert (len(world.kept), world.use()) == (0, "a1")


def test_one_that_is_in_use_is_not_given_to_another_and_the_last_one_used_stays() -> None:
    world = World()
    with world.kept.use("a", lambda: world.open("a")) as first:
        assert world.use() == "a2"
        assert first.name == "a1"
    assert world.closed == ["a2"]
    assert world.use() == "a1"


def test_the_one_that_was_not_used_for_the_longest_time_makes_room() -> None:
    world = World(limit=2)
    for key in ("a", "b", "a", "c"):
        world.use(key)
    assert world.closed == ["b2"]
    assert [world.use("a"), world.use("c")] == ["a1", "c3"]


def test_what_nobody_uses_is_closed_after_the_idle_limit_and_not_before() -> None:
    world = World()
    world.use("a")
    world.pass_time(40)
    world.use("b")
    world.pass_time(19)
    assert world.closed == []
    world.pass_time(1)
    assert world.closed == ["a1"]
    world.pass_time(40)
    assert world.closed == ["a1", "b2"]
    assert world.timers == []
    assert world.use("a") == "a3"
    world.pass_time(60)
    assert world.closed == ["a1", "b2", "a3"]


def test_a_resource_that_is_used_again_and_again_is_not_idle_and_needs_one_timer() -> None:
    world = World()
    for _ in range(100):
        world.use()
        world.pass_time(7)
        assert len(world.timers) <= 1
    assert world.closed == []


def test_a_long_use_is_no_idle_time() -> None:
    world = World()
    world.use()
    with world.kept.use("a", lambda: world.open("a")):
        world.pass_time(500)
    assert world.closed == []
    world.pass_time(59)
    assert world.closed == []


def test_a_forked_process_opens_its_own_and_leaves_the_parents_alone() -> None:
    world = World()
    world.use("a")
    world.process = 2
    assert (len(world.kept), world.use("a")) == (0, "a2")
    world.kept.close_all()
    assert world.closed == ["a2"]


def test_a_timer_that_came_along_into_a_forked_process_does_nothing() -> None:
    world = World()
    world.use()
    world.process = 2
    world.pass_time(100)
    assert world.closed == []


def test_a_use_that_a_fork_interrupted_is_not_kept_in_the_child() -> None:
    world = World()
    with world.kept.use("a", lambda: world.open("a")):
        world.process = 2
    assert (len(world.kept), world.closed) == (0, [])


def test_real_time_and_timers_close_it_too() -> None:
    closed: list[str] = []
    kept = KeptResources[str](closed.append, 3, idle_limit_s=0.05)
    with kept.use("a", lambda: "opened"):
        pass
    wait_until(lambda: closed == ["opened"], 30, "the idle resource to be closed")


def test_all_are_closed_when_the_interpreter_ends_but_not_those_of_the_parent() -> None:
    code = """
import os
from flinkish.connectors.kept_resources import KeptResources
kept = KeptResources(lambda name: print(name, "closed", flush=True), 3)
with kept.use("a", lambda: "parents"):
    pass
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    with kept.use("a", lambda: "childs"):
        pass
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": "."}
    )
    assert result.stdout.splitlines() == ["childs closed", "parents closed"]
