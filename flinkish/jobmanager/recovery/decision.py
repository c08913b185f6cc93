"""Whether a job may go back to a checkpoint, decided by nothing but the names of files and the configuration.

Epochs are numbered without gaps, and Spark writes ``offsets/<batch>`` before anything of a batch happens. So the last
epoch that anything can have happened in is known from names alone, also when the files themselves are damaged: the
highest of ``offsets``, ``commits`` and versions of state, without the one that a stop has kept from beginning
(``not-begun.json``). With a checkpoint at the end of that very epoch nothing is repeated (*exact*). Otherwise epochs
behind it have been delivered to sinks already and would be delivered again (*replay*).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fallback(Enum):
    """``flinkish.recovery.fallback``."""

    #: only where nothing is delivered to sinks again
    EXACT = "exact"
    #: also where epochs are repeated: right with idempotent sinks, others see their records again
    REPLAY = "replay"
    #: refuse
    NEVER = "never"


@dataclass(frozen=True)
class Traces:
    """What the names of files say of a query. In epochs of the job."""

    #: of ``offsets/``
    planned: tuple[int, ...]
    #: of ``commits/``
    committed: tuple[int, ...]
    #: the last epoch of which there is state
    last_state: int | None = None
    #: an epoch that was planned, and of which it is written that no sink has heard of it
    not_begun: int | None = None

    @property
    def last(self) -> int | None:
        """The last epoch in which anything can have happened; None: no trace of any."""
        states = () if self.last_state is None else (self.last_state,)
        begun = (epoch for epoch in (*self.planned, *states) if epoch != self.not_begun)
        return max((*begun, *self.committed), default=None)

    @property
    def last_planned(self) -> int:
        """The last epoch that was planned; -1: none."""
        return max(self.planned, default=-1)

    def missing(self) -> int | None:
        """The epoch whose offsets must be there and are not: without them Spark would plan it anew, with other ones."""
        return self.last if self.last is not None and self.last > self.last_planned else None


@dataclass(frozen=True)
class Candidate:
    """A completed checkpoint."""

    path: str
    epoch: int


@dataclass(frozen=True)
class Decision:
    """``checkpoint`` None: refused."""

    checkpoint: Candidate | None
    #: epochs that are delivered to sinks again
    repeated: range
    #: number of the first epoch that follows
    first_epoch: int
    #: why it is refused
    refusal: str = ""


def decide(mode: Fallback, traces: Traces, candidate: Candidate | None) -> Decision:
    """What to do about a damaged query. ``candidate``: the newest checkpoint that can be used."""
    if candidate is None:
        return Decision(None, range(0), 0, "there is no completed checkpoint")
    last = max(candidate.epoch, -1 if traces.last is None else traces.last)
    repeated = range(candidate.epoch + 1, last + 1)
    # numbers of epochs that were only planned are not given again either
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
            "begun: what they gave to sinks would be given again"
        )
    return f"the offsets of epoch {candidate.epoch} are gone: it is not known which epochs have been begun behind it"
