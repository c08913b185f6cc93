"""Has all decisions of the runs of a test compared with those of ``decide``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flinkish.jobmanager import shadow
from flinkish.jobmanager.decision import Facts, Step


@contextmanager
def shadowed() -> Iterator[list[tuple[Facts, Step]]]:
    """Within the block decisions are compared; afterwards none may differ. Gives the decisions."""
    decisions: list[tuple[Facts, Step]] = []
    differences: list[str] = []

    def hook(facts: Facts, step: Step, done: str) -> None:
        decisions.append((facts, step))
        if done:
            differences.append(f"{facts}: {step} was decided, {done} was done")

    before, shadow.hook = shadow.hook, hook
    try:
        yield decisions
    finally:
        shadow.hook = before
    assert differences == [], "\n".join(differences)
