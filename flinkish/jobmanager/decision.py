"""Decides what a job does next: `decide`, from what is known of it, and nothing else decides that.

Pure: it neither waits nor looks at anything. Whoever runs the job (`job_run.py`) gathers the facts, carries the step
out, and asks again with what has come of it, until the step is an `End`. `docs/architecture.md` shows the rules as a
table, which tests hold against this module.

Rule: whoever cancels is obeyed over all others, then who suspends, then who stops. Only a drain that has begun is
completed whatever is asked for: sinks have got what came after the last savepoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from flinkish.common.job_status import JobStatus


class Outcome(Enum):
    """What has come of the last step."""

    BEGUN = "the run begins"
    PREPARED = "the attempt is prepared"
    QUERY_ENDED = "the query has ended"
    FAILED = "the attempt has failed"
    ANSWERED = "the restart strategy has answered"
    WAITED = "the wait for the restart is over"
    WENT_BACK = "the job has gone back to a checkpoint"
    NOT_GONE_BACK = "the job could not go back"
    SAVED = "the savepoint is written"
    NOT_SAVED = "the savepoint has failed"
    STOP_FAILED = "the stop has failed"
    DRAIN_BEGUN = "the drain has begun"
    CHECKPOINTED = "the last checkpoint is taken"


class Wish(Enum):
    """What was asked for that needs no savepoint; of several the one that prevails."""

    NONE = "nothing"
    STOP = "stop"
    SUSPEND = "suspend"
    CANCEL = "cancel"


class Stop(Enum):
    """The stop with a savepoint that was asked for and is not answered."""

    NONE = "no"
    SAVE = "savepoint"
    CANCEL = "savepoint, then cancel"
    DRAIN = "drain"


class Drain(Enum):
    """How far a drain is."""

    NONE = "no"
    #: its marker is written, and the attempt is one of before
    BEGUN = "begun"
    #: the attempt carries it out
    RUNS = "runs"


class Failure(Enum):
    """What failed, by what may be done about it."""

    NONE = "none"
    #: one that the restart strategy is asked about
    OTHER = "any other"
    #: the query's own files are damaged, and a checkpoint may take their place
    DAMAGED = "damaged, checkpoints"
    #: another driver owns the job
    FENCED = "fenced"
    #: an error of ours
    UNEXPECTED = "unexpected"


class Remember(Enum):
    """What is written down of the end, for the next start."""

    NOTHING = "nothing"
    #: it is not started again unless that is asked for
    OVER = "over"
    #: nothing is left to run
    DONE = "done"


class Attempt(Enum):
    """Which attempt is prepared."""

    FIRST = "first"
    NEXT = "next"
    DRAIN = "drain"


@dataclass(frozen=True)
class Facts:
    """What is known when a step is decided."""

    outcome: Outcome
    wish: Wish = Wish.NONE
    stop: Stop = Stop.NONE
    #: whether the stop no longer waits for the first epoch
    stop_begun: bool = True
    drain: Drain = Drain.NONE
    #: of the attempt, or of the savepoint
    failure: Failure = Failure.NONE
    #: the answer of the restart strategy; None: it was not asked, or allows no restart
    delay_ms: int | None = None
    #: how the job has ended before, if it is not to be started again
    earlier_end: JobStatus | None = None
    #: whether all input has ended and is committed
    input_ended: bool = False
    #: whether all sources come to an end by themselves
    bounded: bool = False
    #: whether the attempt has another query to run
    more_queries: bool = False
    #: whether the query was ended because the clock was set back while it waited
    set_back: bool = False


class Step:
    """What a job does next."""

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class Prepare(Step):
    """Make an attempt ready: its plan, its directory, its first query."""

    attempt: Attempt

    def __str__(self) -> str:
        return f"Prepare the {self.attempt.value} attempt"


@dataclass(frozen=True)
class RunQuery(Step):
    """Run the next query of the attempt, or the same one again, until it ends."""

    again: bool = False

    def __str__(self) -> str:
        return "RunQuery again" if self.again else "RunQuery"


@dataclass(frozen=True)
class AskForRestart(Step):
    """Ask the restart strategy, which counts the failure."""


@dataclass(frozen=True)
class Wait(Step):
    """Wait before the restart, or until somebody asks for the end."""

    delay_ms: int

    def __str__(self) -> str:
        return "Wait"


@dataclass(frozen=True)
class GoBack(Step):
    """Let the next attempt begin with the last usable checkpoint, if there is one and the job may."""


@dataclass(frozen=True)
class Save(Step):
    """Write the savepoint of the stop, or the final one of a drain."""


@dataclass(frozen=True)
class BeginDrain(Step):
    """Write the marker behind which the job can only be drained."""


@dataclass(frozen=True)
class FailStop(Step):
    """Tell whoever has asked for the stop that it has failed, and whether the job goes on."""

    goes_on: bool

    def __str__(self) -> str:
        return "FailStop and go on" if self.goes_on else "FailStop"


@dataclass(frozen=True)
class TakeLastCheckpoint(Step):
    """Take a checkpoint with which the job can go on later."""


@dataclass(frozen=True)
class End(Step):
    """The job has come to its end. ``failed``: because of its last failure."""

    status: JobStatus
    remember: Remember = Remember.NOTHING
    failed: bool = False

    def __str__(self) -> str:
        how = "" if self.remember is Remember.NOTHING else f", remembered as {self.remember.value}"
        return f"End {self.status.name}{how}"


def decide(facts: Facts) -> Step:
    """The next step of a job."""
    return _RULES[facts.outcome](facts)


class Refusal(Enum):
    """Why a stop with a savepoint is refused."""

    TOO_LATE = "the job has ended"
    STOPPING = "it is being stopped already"
    RESTARTING = "it waits for its restart"


def refusal(step: Step | None, stop: Stop, drain: Drain, delay_ms: int | None) -> Refusal | None:
    """Why a stop with a savepoint is refused while a step is carried out; None: it is not. A refusal to end the job
    holds for a savepoint, too. Arguments are those of the facts."""
    if isinstance(step, (TakeLastCheckpoint, End)) or (isinstance(step, Save) and drain is Drain.RUNS):
        return Refusal.TOO_LATE
    if stop is not Stop.NONE:
        return Refusal.STOPPING
    return Refusal.RESTARTING if delay_ms is not None or isinstance(step, AskForRestart) else None


def _begun(facts: Facts) -> Step:
    if facts.earlier_end is not None:
        return End(JobStatus.CANCELED if facts.wish is Wish.CANCEL else facts.earlier_end)
    if facts.wish is not Wish.NONE and facts.drain is not Drain.RUNS:
        return _end(facts)
    return Prepare(Attempt.FIRST)


def _prepared(facts: Facts) -> Step:
    if facts.more_queries and (facts.wish is Wish.NONE or facts.drain is Drain.RUNS):
        return RunQuery()
    return _end_of_attempt(facts)


def _query_ended(facts: Facts) -> Step:
    stops = facts.wish is not Wish.NONE or (facts.stop is not Stop.NONE and facts.stop_begun)
    if stops and facts.drain is not Drain.RUNS:
        return _end_of_attempt(facts)
    if facts.set_back and not facts.input_ended:
        return RunQuery(again=True)
    return RunQuery() if facts.more_queries else _end_of_attempt(facts)


def _end_of_attempt(facts: Facts) -> Step:
    if facts.drain is Drain.RUNS:
        return Save()
    if facts.stop is Stop.NONE:
        return _end_in_order(facts)
    if facts.wish is Wish.CANCEL:
        return FailStop(goes_on=False)
    return BeginDrain() if facts.stop is Stop.DRAIN and not facts.input_ended else Save()


def _failed(facts: Facts) -> Step:
    return GoBack() if facts.failure is Failure.DAMAGED else _restart_or_end(facts)


def _restart_or_end(facts: Facts) -> Step:
    ends = facts.wish is not Wish.NONE or (facts.stop is not Stop.NONE and facts.drain is Drain.RUNS)
    return _failed_end(facts) if ends or facts.failure is Failure.UNEXPECTED else AskForRestart()


def _answered(facts: Facts) -> Step:
    if facts.delay_ms is None:
        return _failed_end(facts)
    return Wait(facts.delay_ms) if facts.stop is Stop.NONE else FailStop(facts.wish is Wish.NONE)


def _waited(facts: Facts) -> Step:
    return Prepare(Attempt.NEXT) if facts.wish is Wish.NONE else _end_in_order(facts)


def _went_back(facts: Facts) -> Step:
    # whoever suspends the job finds it where it can go on
    return _end_of_attempt(facts) if facts.wish is Wish.CANCEL else Prepare(Attempt.NEXT)


def _not_gone_back(facts: Facts) -> Step:
    # a cancellation interrupts it
    return _end_of_attempt(facts) if facts.wish is Wish.CANCEL else _restart_or_end(facts)


def _saved(facts: Facts) -> Step:
    cancels = facts.wish is Wish.CANCEL or (facts.stop is Stop.CANCEL and facts.drain is Drain.NONE)
    done = facts.drain is Drain.RUNS or (facts.bounded and facts.input_ended)
    return End(JobStatus.CANCELED if cancels else JobStatus.FINISHED, Remember.DONE if done else Remember.OVER)


def _not_saved(facts: Facts) -> Step:
    final = facts.drain is not Drain.NONE or facts.failure is Failure.FENCED
    return _failed_end(facts) if final else FailStop(facts.wish is Wish.NONE and not facts.input_ended)


def _stop_failed(facts: Facts) -> Step:
    if facts.delay_ms is not None:
        return Wait(facts.delay_ms) if facts.wish is Wish.NONE else _failed_end(facts)
    return _end_in_order(facts) if facts.input_ended or facts.wish is not Wish.NONE else Prepare(Attempt.NEXT)


def _end_in_order(facts: Facts) -> Step:
    """The end of a job that has not failed; with a checkpoint if it may be started again."""
    up_to_date = facts.wish is Wish.NONE and not facts.input_ended
    return TakeLastCheckpoint() if facts.wish is Wish.SUSPEND or up_to_date else _end(facts)


def _end(facts: Facts) -> Step:
    status = _STATUS[facts.wish]
    if facts.bounded and (facts.input_ended or facts.wish is Wish.NONE):
        return End(status, Remember.DONE)
    return End(status, Remember.OVER if facts.wish in (Wish.STOP, Wish.CANCEL) else Remember.NOTHING)


def _failed_end(facts: Facts) -> Step:
    fenced = facts.failure is Failure.FENCED
    return End(JobStatus.SUSPENDED if fenced else JobStatus.FAILED, failed=True)


_STATUS = {
    Wish.NONE: JobStatus.FINISHED,
    Wish.STOP: JobStatus.FINISHED,
    Wish.SUSPEND: JobStatus.SUSPENDED,
    Wish.CANCEL: JobStatus.CANCELED,
}

_RULES: dict[Outcome, Callable[[Facts], Step]] = {
    Outcome.BEGUN: _begun,
    Outcome.PREPARED: _prepared,
    Outcome.QUERY_ENDED: _query_ended,
    Outcome.FAILED: _failed,
    Outcome.ANSWERED: _answered,
    Outcome.WAITED: _waited,
    Outcome.WENT_BACK: _went_back,
    Outcome.NOT_GONE_BACK: _not_gone_back,
    Outcome.SAVED: _saved,
    Outcome.NOT_SAVED: _not_saved,
    Outcome.STOP_FAILED: _stop_failed,
    Outcome.DRAIN_BEGUN: lambda facts: Prepare(Attempt.DRAIN),
    Outcome.CHECKPOINTED: _end,
}
