"""What a job does next, as tables that people read: for each outcome of a step the rows that ``decide`` must hold, and
what becomes of a wish in each phase of a job.

Rule upheld here: the first row that fits decides; `tests/unit/jobmanager/test_decision.py` holds every combination of
the facts that the rows of an outcome name against it. ``python -m tests.support.decision_table`` writes the tables to
``docs/architecture.md``; the test fails while the page is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from flinkish.common.job_status import JobStatus
from flinkish.jobmanager.decision import (
    Attempt,
    BeginDrain,
    Drain,
    End,
    Facts,
    Failure,
    GoBack,
    Outcome,
    Prepare,
    Refusal,
    RunQuery,
    Save,
    Step,
    Stop,
    TakeLastCheckpoint,
    Wait,
    Wish,
    decide,
    refusal,
)

COMMAND = "python -m tests.support.decision_table"
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
BEGIN, END = "<!-- what a job does next -->\n", "<!-- end of what a job does next -->\n"

#: Field of the facts -> the values that are tried.
VALUES: dict[str, tuple[Any, ...]] = {
    "wish": tuple(Wish),
    "stop": tuple(Stop),
    "stop_begun": (True, False),
    "drain": tuple(Drain),
    "failure": tuple(Failure),
    "delay_ms": (None, 7),
    "earlier_end": (None, JobStatus.FINISHED, JobStatus.CANCELED),
    "input_ended": (False, True),
    "bounded": (False, True),
    "more_queries": (False, True),
    "set_back": (False, True),
}
ASKED = tuple(Wish)[1:]
STOPS = tuple(Stop)[1:]


@dataclass(frozen=True)
class Row:
    """``when``: field of the facts -> the values with which the row fits; ``step``: what is done, or the name of other
    rows that decide."""

    when: dict[str, tuple[Any, ...]]
    step: str
    why: str = ""

    def fits(self, facts: Facts) -> bool:
        """Whether the row is about these facts."""
        return all(getattr(facts, name) in values for name, values in self.when.items())


def _row(step: str, why: str = "", **when: Any) -> Row:
    return Row({name: value if isinstance(value, tuple) else (value,) for name, value in when.items()}, step, why)


#: Name of rows that several outcomes share -> the rows.
SHARED: dict[str, tuple[Row, ...]] = {
    "the end of an attempt": (
        _row("Save", "the final savepoint: a drain is completed, whatever is asked for", drain=Drain.RUNS),
        _row("FailStop", "a cancellation aborts the savepoint of a stop", stop=STOPS, wish=Wish.CANCEL),
        _row("BeginDrain", stop=Stop.DRAIN, input_ended=False),
        _row("Save", "also for who has asked to drain what is at its end", stop=STOPS),
        _row("the end in order"),
    ),
    "the end in order": (
        _row("TakeLastCheckpoint", "the job goes on later", wish=Wish.SUSPEND),
        _row("TakeLastCheckpoint", "all that was available is read", wish=Wish.NONE, input_ended=False),
        _row("the end"),
    ),
    "the end": (
        _row("End FINISHED, remembered as done", wish=Wish.NONE, bounded=True),
        _row("End FINISHED", "it may be started again", wish=Wish.NONE),
        _row("End FINISHED, remembered as done", wish=Wish.STOP, bounded=True, input_ended=True),
        _row("End FINISHED, remembered as over", wish=Wish.STOP),
        _row("End SUSPENDED, remembered as done", wish=Wish.SUSPEND, bounded=True, input_ended=True),
        _row("End SUSPENDED", "another driver goes on", wish=Wish.SUSPEND),
        _row("End CANCELED, remembered as done", wish=Wish.CANCEL, bounded=True, input_ended=True),
        _row("End CANCELED, remembered as over", wish=Wish.CANCEL),
    ),
    "the end of a failed job": (
        _row("End SUSPENDED", "another driver has taken the job over", failure=Failure.FENCED),
        _row("End FAILED"),
    ),
}

#: Outcome of the last step -> what is done next.
TABLE: dict[Outcome, tuple[Row, ...]] = {
    Outcome.BEGUN: (
        _row("End CANCELED", earlier_end=(JobStatus.FINISHED, JobStatus.CANCELED), wish=Wish.CANCEL),
        _row("End FINISHED", "it had finished, or was stopped with a savepoint", earlier_end=JobStatus.FINISHED),
        _row("End CANCELED", "it was cancelled", earlier_end=JobStatus.CANCELED),
        _row("Prepare the first attempt", "a drain is completed first", drain=Drain.RUNS),
        _row("the end", "asked for during the start", wish=ASKED),
        _row("Prepare the first attempt"),
    ),
    Outcome.PREPARED: (
        _row("RunQuery", "the epoch of the drain", drain=Drain.RUNS, more_queries=True),
        _row("RunQuery", wish=Wish.NONE, more_queries=True),
        _row("the end of an attempt"),
    ),
    Outcome.QUERY_ENDED: (
        _row("RunQuery again", drain=Drain.RUNS, set_back=True, input_ended=False),
        _row("RunQuery", drain=Drain.RUNS, more_queries=True),
        _row("the end of an attempt", wish=ASKED),
        _row("the end of an attempt", stop=STOPS, stop_begun=True),
        _row("RunQuery again", "the clock was set back while it waited", set_back=True, input_ended=False),
        _row("RunQuery", "such as the one that announces the end of the input", more_queries=True),
        _row("the end of an attempt"),
    ),
    Outcome.FAILED: (
        _row("GoBack", "the query's own files are damaged", failure=Failure.DAMAGED),
        _row("the end of a failed job", "an error of ours is never retried", failure=Failure.UNEXPECTED),
        _row("the end of a failed job", "a failure while the job is being ended is final", wish=ASKED),
        _row("the end of a failed job", "the next driver ends the drain", stop=STOPS, drain=Drain.RUNS),
        _row("AskForRestart"),
    ),
    Outcome.ANSWERED: (
        _row("the end of a failed job", delay_ms=None),
        _row("FailStop and go on", "the job is restarted as without the stop", stop=STOPS, wish=Wish.NONE),
        _row("FailStop", stop=STOPS),
        _row("Wait"),
    ),
    Outcome.WAITED: (
        _row("Prepare the next attempt", wish=Wish.NONE),
        _row("the end in order", "asked for during the wait, which ends with it", wish=ASKED),
    ),
    Outcome.WENT_BACK: (
        _row("the end of an attempt", wish=Wish.CANCEL),
        _row("Prepare the next attempt", "it is no restart, and nothing is waited for"),
    ),
    Outcome.NOT_GONE_BACK: (
        _row("the end of an attempt", "a cancellation interrupts it", wish=Wish.CANCEL),
        _row("the end of a failed job", wish=(Wish.STOP, Wish.SUSPEND)),
        _row("the end of a failed job", failure=Failure.UNEXPECTED),
        _row("the end of a failed job", "there is no way back from a drain", stop=STOPS, drain=Drain.RUNS),
        _row("AskForRestart", "which allows none if there is no usable checkpoint"),
    ),
    Outcome.SAVED: (
        _row("End CANCELED, remembered as done", drain=Drain.RUNS, wish=Wish.CANCEL),
        _row("End FINISHED, remembered as done", drain=Drain.RUNS),
        _row("End CANCELED, remembered as done", wish=Wish.CANCEL, bounded=True, input_ended=True),
        _row("End CANCELED, remembered as over", "with the path of the savepoint", wish=Wish.CANCEL),
        _row("End CANCELED, remembered as done", drain=Drain.NONE, stop=Stop.CANCEL, bounded=True, input_ended=True),
        _row("End CANCELED, remembered as over", drain=Drain.NONE, stop=Stop.CANCEL),
        _row("End FINISHED, remembered as done", bounded=True, input_ended=True),
        _row("End FINISHED, remembered as over", "although a signal has come meanwhile"),
    ),
    Outcome.NOT_SAVED: (
        _row("the end of a failed job", "the next driver ends the drain", drain=(Drain.BEGUN, Drain.RUNS)),
        _row("the end of a failed job", failure=Failure.FENCED),
        _row("FailStop and go on", wish=Wish.NONE, input_ended=False),
        _row("FailStop"),
    ),
    Outcome.STOP_FAILED: (
        _row("Wait", "the attempt had failed, a restart was granted", delay_ms=7, wish=Wish.NONE),
        _row("the end of a failed job", delay_ms=7, wish=ASKED),
        _row("Prepare the next attempt", "the job goes on as before", wish=Wish.NONE, input_ended=False),
        _row("the end in order"),
    ),
    Outcome.DRAIN_BEGUN: (_row("Prepare the drain attempt", "from here on the job can only be drained"),),
    Outcome.CHECKPOINTED: (_row("the end"),),
}


def step_of(facts: Facts) -> str:
    """What is to be done by the tables."""
    rows = TABLE[facts.outcome]
    while True:
        step = next(row.step for row in rows if row.fits(facts))
        if step not in SHARED:
            return step
        rows = SHARED[step]


def named(rows: Iterable[Row]) -> set[str]:
    """The fields of the facts that decide in these rows."""
    found: set[str] = set()
    for row in rows:
        found |= {*row.when, *named(SHARED.get(row.step, ()))}
    return found


def combinations(outcome: Outcome) -> Iterator[Facts]:
    """All combinations of the values that are named in the rows of an outcome."""
    names = sorted(named(TABLE[outcome]))
    for values in product(*(VALUES[name] for name in names)):
        yield Facts(outcome, **dict(zip(names, values)))


def others(outcome: Outcome) -> list[str]:
    """The fields of the facts that must not matter to an outcome."""
    return [one.name for one in fields(Facts) if one.name not in {"outcome", *named(TABLE[outcome])}]


# ---------------------------------------------------------------------- what becomes of a wish


@dataclass(frozen=True)
class Told:
    """What becomes of a wish that comes in a phase of a job: the steps that follow, or the refusal; in words."""

    steps: str
    words: str


_OVER, _DONE = "End FINISHED, remembered as over", "End FINISHED, remembered as done"
_DRAINS = f"BeginDrain, Prepare the drain attempt, RunQuery, Save, {_DONE}"
_CANCELED = "End CANCELED, remembered as over"
_GOES_ON = "the job goes on"

#: Phase -> wish -> what becomes of it.
WISHES: dict[str, dict[str, Told]] = {
    "it waits for its directory, or restores": {
        "cancel": Told(_CANCELED, "at once, with what Spark does for a restore, as in Flink"),
        "stop": Told(
            f"Prepare the first attempt, RunQuery, Save, {_OVER}",
            "when the job runs and has committed an epoch; Flink refuses it while a job is INITIALIZING",
        ),
        "drain": Told(f"Prepare the first attempt, RunQuery, {_DRAINS}", "as a stop"),
        "savepoint": Told(_GOES_ON, "when it has committed an epoch; Flink refuses it while a job is INITIALIZING"),
        "suspend": Told("End SUSPENDED", "at once; the next start begins anew"),
    },
    "an epoch runs": {
        "cancel": Told(_CANCELED, "the epoch is given up, unless its commit has begun, as in Flink"),
        "stop": Told(f"Save, {_OVER}", "after the epoch, as in Flink"),
        "drain": Told(_DRAINS, "after the epoch, as in Flink"),
        "savepoint": Told(
            _GOES_ON, "of the last committed epoch, while others run; of one that fails only the asker learns"
        ),
        "suspend": Told(
            "TakeLastCheckpoint, End SUSPENDED", "after the epoch, within half of `flinkish.shutdown.timeout`"
        ),
    },
    "it waits for its restart": {
        "cancel": Told(_CANCELED, "at once, as in Flink"),
        "stop": Told("refused: it waits for its restart", "as in Flink; the wait goes on"),
        "drain": Told("refused: it waits for its restart", "as in Flink; the wait goes on"),
        "savepoint": Told(_GOES_ON, "of the last committed epoch; Flink refuses it"),
        "suspend": Told("TakeLastCheckpoint, End SUSPENDED", "at once"),
    },
    "it goes back to a checkpoint": {
        "cancel": Told(_CANCELED, "at once, with what Spark does for it, as in Flink"),
        "stop": Told(f"Prepare the next attempt, RunQuery, Save, {_OVER}", "when it runs again; Flink refuses it"),
        "drain": Told(f"Prepare the next attempt, RunQuery, {_DRAINS}", "as a stop"),
        "savepoint": Told(_GOES_ON, "of the last committed epoch, if its files can be read; Flink refuses it"),
        "suspend": Told(
            "Prepare the next attempt, TakeLastCheckpoint, End SUSPENDED",
            "once it has gone back, so that the next start need not; no query is started",
        ),
    },
    "a drain that an earlier driver has begun": {
        "cancel": Told(
            "Save, End CANCELED, remembered as done", "the drain is completed: sinks have its results; Flink ends it"
        ),
        "stop": Told(f"Save, {_DONE}", "with the savepoint of the drain"),
        "drain": Told(f"Save, {_DONE}", "with the savepoint of the drain"),
        "savepoint": Told(_GOES_ON, "waits for the epoch of the drain; is aborted when the final one is written"),
        "suspend": Told(f"Save, {_DONE}", "the drain is completed"),
    },
    "a drain": {
        "cancel": Told("Save, End CANCELED, remembered as done", "as above"),
        "stop": Told("refused: it is being stopped already", "as in Flink"),
        "drain": Told("refused: it is being stopped already", "as in Flink"),
        "savepoint": Told(_GOES_ON, "as above"),
        "suspend": Told(f"Save, {_DONE}", "the drain is completed"),
    },
}

#: Wish -> what it is to the decision.
WISHED: dict[str, dict[str, Any]] = {
    "cancel": {"wish": Wish.CANCEL},
    "stop": {"stop": Stop.SAVE},
    "drain": {"stop": Stop.DRAIN},
    "suspend": {"wish": Wish.SUSPEND},
}
_DRAIN_RUNS = {"drain": Drain.RUNS}
#: Phase -> the step that is being carried out when the wish comes, what has come of it when it is over, and what is
#: known.
PHASES: dict[str, tuple[Step | None, Outcome, dict[str, Any]]] = {
    "it waits for its directory, or restores": (None, Outcome.BEGUN, {}),
    "an epoch runs": (RunQuery(), Outcome.QUERY_ENDED, {}),
    "it waits for its restart": (Wait(7), Outcome.WAITED, {"delay_ms": 7}),
    "it goes back to a checkpoint": (GoBack(), Outcome.WENT_BACK, {}),
    "a drain that an earlier driver has begun": (RunQuery(), Outcome.QUERY_ENDED, _DRAIN_RUNS),
    "a drain": (RunQuery(), Outcome.QUERY_ENDED, {**_DRAIN_RUNS, "stop": Stop.DRAIN}),
}

#: What comes of each step if nothing fails.
_COMES: dict[type[Step], Outcome] = {
    Prepare: Outcome.PREPARED,
    RunQuery: Outcome.QUERY_ENDED,
    Save: Outcome.SAVED,
    BeginDrain: Outcome.DRAIN_BEGUN,
    TakeLastCheckpoint: Outcome.CHECKPOINTED,
}


def becomes(phase: str, wish: str) -> str:
    """The steps that follow a wish, by ``decide`` alone, in a job in which nothing more fails."""
    step, outcome, known = PHASES[phase]
    facts = replace(Facts(outcome), **known)
    if wish == "savepoint":
        late = refusal(step, facts.stop, facts.drain, facts.delay_ms) is Refusal.TOO_LATE
        return f"refused: {Refusal.TOO_LATE.value}" if late else _GOES_ON
    if "stop" in WISHED[wish]:
        refused = refusal(step, facts.stop, facts.drain, facts.delay_ms)
        if refused is not None:
            return f"refused: {refused.value}"
    facts, steps = replace(facts, **WISHED[wish]), list[Step]()
    while not isinstance(step := decide(facts), End):
        steps.append(step)
        facts = replace(facts, outcome=_COMES[type(step)], more_queries=isinstance(step, Prepare))
        if step == Prepare(Attempt.DRAIN):
            facts = replace(facts, drain=Drain.RUNS)
    return ", ".join(map(str, [*steps, step]))


# ---------------------------------------------------------------------- the page

_FIELDS = {
    "wish": "asked for",
    "stop": "stop with savepoint",
    "stop_begun": "the stop has begun",
    "drain": "drain",
    "failure": "failure",
    "delay_ms": "restart",
    "earlier_end": "ended before",
    "input_ended": "end of input",
    "bounded": "bounded",
    "more_queries": "more queries",
    "set_back": "clock set back",
}


def _words(name: str, values: tuple[Any, ...]) -> str:
    if name == "delay_ms":
        return "not allowed" if values == (None,) else "allowed"
    if set(values) == {one for one in VALUES[name] if isinstance(one, (Wish, Stop)) and one.name != "NONE"}:
        return f"{_FIELDS[name]}: any"
    if values in ((True,), (False,)):
        return _FIELDS[name] if values[0] else f"not: {_FIELDS[name]}"
    texts = [str(getattr(one, "name" if isinstance(one, JobStatus) else "value", one)) for one in values]
    return f"{_FIELDS[name]}: {' or '.join(texts)}"


def _lines(title: str, rows: tuple[Row, ...]) -> Iterator[str]:
    for number, row in enumerate(rows):
        when = "; ".join(_words(*one) for one in row.when.items())
        step = f"as *{row.step}*" if row.step in SHARED else f"`{row.step}`"
        head = f"**{title}**" if number == 0 else ""
        yield f"| {head} | {when or ('otherwise' if number else 'always')} | {step} | {row.why} |"


def section() -> str:
    """The part of the page that is made of the tables."""
    lines = ["| what has come of the last step | when | next step | |", "| --- | --- | --- | --- |"]
    for outcome, rows in TABLE.items():
        lines += _lines(outcome.value, rows)
    for title, rows in SHARED.items():
        lines += _lines(f"({title})", rows)
    lines += [
        "",
        "What becomes of a wish in each phase:",
        "",
        "| phase | wish | what follows | |",
        "| --- | --- | --- | --- |",
    ]
    for phase, wishes in WISHES.items():
        for wish, told in wishes.items():
            head = f"**{phase}**" if wish == next(iter(wishes)) else ""
            lines.append(f"| {head} | {wish} | {told.steps} | {told.words} |")
    return "\n".join(["", *lines, ""]) + "\n"


def page(text: str) -> str:
    """The page with the section as it should be."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + section() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
