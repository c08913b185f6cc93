"""Decides whether a job may go back to a checkpoint, by nothing but the names of files and the configuration.

Epochs are numbered without gaps, and sinks hear of an epoch only when it is prepared; its file is deleted when Spark
has committed later epochs. So the last epoch that any sink can have heard of is known from names alone, also when the
files themselves are damaged: the highest of ``prepared`` and ``commits``, or the one before the last that was planned
or has state (Spark plans an epoch when the one before it is committed). With a checkpoint at the end of that very epoch
nothing is repeated (*exact*). Otherwise epochs after it have been delivered to sinks already and would be delivered
again (*replay*).
"""

from __future__ import annotations

from dataclasses import dataclass

from flinkish.jobdir.query import Traces
from flinkish.jobmanager.settings import Fallback


@dataclass(frozen=True)
class Candidate:
    """A completed checkpoint to which the job may go back."""

    path: str
    epoch: int


@dataclass(frozen=True)
class Decision:
    """To which checkpoint the job goes back. ``checkpoint`` None: that is refused."""

    checkpoint: Candidate | None
    #: epochs that are delivered to sinks again
    repeated: range
    #: number of the first epoch after the job has gone back
    first_epoch: int
    #: why it is refused; empty if it is not
    refusal: str = ""


def decide(mode: Fallback, traces: Traces, candidate: Candidate | None) -> Decision:
    """Decide what to do about a damaged query. ``candidate``: the newest usable checkpoint; None: there is none."""
    if candidate is None:
        return Decision(None, range(0), 0, "there is no completed checkpoint")
    last = max(candidate.epoch, -1 if traces.last_delivered is None else traces.last_delivered)
    repeated = range(candidate.epoch + 1, last + 1)
    # numbers of epochs that were only planned are not used again either
    first_epoch = max(last, *traces.planned) + 1 if traces.planned else last + 1
    # without the offsets of the checkpoint's epoch those of later ones may be gone as well
    exact = not repeated and candidate.epoch in traces.planned
    if mode is Fallback.NEVER:
        return Decision(None, repeated, first_epoch, "flinkish.recovery.fallback is 'never'")
    if mode is Fallback.EXACT and not exact:
        return Decision(None, repeated, first_epoch, _why_not(candidate, repeated))
    return Decision(candidate, repeated, first_epoch)


def _why_not(candidate: Candidate, repeated: range) -> str:
    if repeated:
        return (
            f"the last completed checkpoint is of epoch {candidate.epoch}, and epochs up to {repeated[-1]} have been "
            "delivered: what they gave to sinks would be given again"
        )
    return f"the offsets of epoch {candidate.epoch} are gone: it is not known which epochs were delivered behind it"
