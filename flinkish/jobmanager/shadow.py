"""Compares what a run does next with what `decide` says of the same facts; switched on by tests only."""

from __future__ import annotations

from collections.abc import Callable

from flinkish.jobmanager.decision import Facts, RunQuery, Step, decide

#: Called with the facts, the step of `decide` and what the run does; None: nothing is compared.
hook: Callable[[Facts, Step, str], None] | None = None

#: What a run does whose queries have ended, whatever follows.
LEAVES = "leave the attempt"


def compare(facts: Facts, done: str) -> None:
    """``done``: what the run does, as the step calls itself."""
    if hook is not None:
        step = decide(facts)
        same = not isinstance(step, RunQuery) if done == LEAVES else str(step) == done
        hook(facts, step, "" if same else done)
