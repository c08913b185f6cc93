"""Changes are stored with the task up to a limit; how large they are is estimated before they are encoded."""

from __future__ import annotations

import pytest

from flinkish.runtime.state.limits import InlineLimit

LIMIT = 1_000


class Subtask:
    """A subtask whose changes, and the references to its files, have these encoded sizes."""

    def __init__(self, references: int = 0) -> None:
        self._limit = InlineLimit(LIMIT)
        self._references = references
        self._changes = 0
        #: what was done, in order
        self.calls: list[str] = []

    def barrier(self, changes: int, estimated: int, has_files: bool = False) -> list[str]:
        """What is done at the end of an epoch."""
        self.calls, self._changes = [], changes
        data = self._limit.encoded(self._encode, self._write_files, estimated, has_files)
        assert len(data or b"") == self._changes + self._references
        return self.calls

    def _encode(self) -> bytes:
        self.calls.append("encode")
        return bytes(self._changes + self._references)

    def _write_files(self) -> None:
        self.calls.append("write")
        self._changes = 0


TRIED, WRITTEN_AT_ONCE, IN_VAIN = ["encode"], ["write", "encode"], ["encode", "write", "encode"]


@pytest.mark.parametrize(("has_files", "limit"), [(False, LIMIT), (True, LIMIT // 4)])
def test_changes_up_to_the_limit_are_stored_with_the_task(has_files: bool, limit: int) -> None:
    subtask = Subtask()
    assert subtask.barrier(limit, limit, has_files) == TRIED
    assert subtask.barrier(limit + 1, limit, has_files) == IN_VAIN


def test_after_an_estimate_that_was_too_low_as_many_changes_are_not_encoded_in_vain_again() -> None:
    subtask = Subtask()
    assert subtask.barrier(3_000, estimated=1_500) == IN_VAIN
    assert subtask.barrier(3_000, estimated=1_500) == WRITTEN_AT_ONCE
    assert subtask.barrier(900, estimated=450) == TRIED


def test_changes_that_are_surely_too_large_are_written_at_once() -> None:
    assert Subtask().barrier(5_000, estimated=2 * LIMIT + 1) == WRITTEN_AT_ONCE


def test_references_to_files_count_for_the_limit_but_not_as_changes() -> None:
    subtask = Subtask(references=LIMIT)
    assert subtask.barrier(50, estimated=100) == IN_VAIN
    subtask._references = 100
    assert subtask.barrier(750, estimated=1_500) == TRIED


def test_without_changes_the_references_are_stored() -> None:
    subtask = Subtask(references=10)
    assert subtask.barrier(0, estimated=0) == TRIED
