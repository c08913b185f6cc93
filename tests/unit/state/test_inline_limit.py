"""Changes are stored with the task up to a limit; how large they are is estimated before they are encoded."""

from __future__ import annotations

import pytest

from flinkish.runtime.state.inline_limit import InlineLimit

LIMIT = 1_000


@pytest.mark.parametrize(("has_files", "limit"), [(False, LIMIT), (True, LIMIT // 4)])
def test_changes_up_to_the_limit_are_stored_with_the_task(has_files: bool, limit: int) -> None:
    inline = InlineLimit(LIMIT)
    assert inline.may_hold(limit, has_files)
    assert inline.holds(bytes(limit), limit, has_files)
    assert not inline.holds(bytes(limit + 1), limit, has_files)


def test_after_an_estimate_that_was_too_low_as_many_changes_are_not_encoded_again() -> None:
    inline = InlineLimit(LIMIT)
    assert inline.may_hold(1_500, False)
    assert not inline.holds(bytes(3_000), 1_500, False)
    assert not inline.may_hold(1_500, False)
    assert inline.may_hold(500, False)


def test_after_an_estimate_that_was_right_the_factor_stays() -> None:
    inline = InlineLimit(LIMIT)
    assert inline.holds(bytes(900), 1_800, False)
    assert inline.may_hold(1_800, False)


def test_changes_of_no_estimated_size_are_encoded() -> None:
    inline = InlineLimit(0)
    assert inline.may_hold(0, True)
    assert not inline.holds(b"x", 0, True)
    assert inline.may_hold(0, True)
