"""A clock that was set back is noticed once; one that runs, or is set forward, is not."""

from __future__ import annotations

from flinkish.runtime.clock import ClockWatch, ManualClock

HOUR_MS = 3_600_000


class Machine:
    def __init__(self) -> None:
        self.clock, self.uptime = ManualClock(10 * HOUR_MS), ManualClock()
        self.watch = ClockWatch(self.clock, self.uptime.now_ms)

    def run(self, elapsed_ms: int, set_by_ms: int = 0) -> int:
        self.uptime.advance(elapsed_ms)
        self.clock.advance(elapsed_ms + set_by_ms)
        return self.watch.set_back_ms()


def test_time_that_passes_is_no_jump() -> None:
    machine = Machine()
    assert [machine.run(elapsed_ms) for elapsed_ms in (0, 5, HOUR_MS)] == [0, 0, 0]


def test_a_jump_back_is_told_once_by_its_length() -> None:
    machine = Machine()
    assert machine.run(100, -HOUR_MS) == HOUR_MS
    assert machine.run(100) == 0
    assert machine.run(100, -HOUR_MS) == HOUR_MS


def test_a_jump_forward_is_none_and_the_way_back_is_one() -> None:
    machine = Machine()
    assert machine.run(100, HOUR_MS) == 0
    assert machine.run(100, -HOUR_MS) == HOUR_MS


def test_small_corrections_are_none_until_they_add_up() -> None:
    machine = Machine()
    assert [machine.run(100, -400) for _ in range(3)] == [0, 0, 1200]
