"""What was found, and what the facts mean: a finding is OK, a warning or a failure, and says what to do.

Rule: the functions know nothing but their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from flinkish.errors import FlinkishError, redact
from flinkish.launch.spark_version import check_pyarrow, checked_version, no_package_of_delta, spark_of_delta
from flinkish.spark.session import check_versions

#: Clocks that differ by less do no harm: owners are watched for longer.
CLOCK_TOLERANCE_S = 2.0
#: An operation on a job directory that takes longer makes epochs slow.
SLOW_S = 1.0


class Level(Enum):
    """How bad a finding is: nothing; jobs run, but not as well as they could; jobs do not run."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Args:
        name: what was looked at.
        level: what came of it.
        text: what was found.
        hint: what to do; "": nothing.
    """

    name: str
    level: Level
    text: str
    hint: str = ""

    def to_json(self) -> dict[str, str]:
        """The finding as JSON has it."""
        return {"name": self.name, "level": self.level.value, "text": redact(self.text), "hint": redact(self.hint)}

    @staticmethod
    def from_json(content: dict[str, str]) -> Finding:
        """The inverse of `to_json`."""
        return Finding(content["name"], Level(content["level"]), content["text"], content["hint"])


#: The column in which texts begin.
_TEXTS_AT = 34


def shown(one: Finding) -> str:
    """A finding as a line for people, with what to do below."""
    line = f"{one.level.value:<4}  {one.name:<{_TEXTS_AT - 8}}  {one.text}"
    todo = f"\n{'':<{_TEXTS_AT}}{one.hint}" if one.hint and one.level is not Level.OK else ""
    return redact(line + todo)


def summed_up(findings: Iterable[Finding]) -> str:
    """A line with the number of findings of each level."""
    levels = [one.level for one in findings]
    counts = (levels.count(level) for level in (Level.FAIL, Level.WARN, Level.OK))
    return "failed: {}, warnings: {}, fine: {}".format(*counts)


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if something failed, else 0."""
    return int(any(one.level is Level.FAIL for one in findings))


def ok(name: str, text: str) -> Finding:
    return Finding(name, Level.OK, text)


def looked_at(name: str, look: Callable[[], str], level: Level = Level.FAIL) -> Finding:
    """What a look says, or the error that it raises."""
    try:
        return ok(name, look())
    except FlinkishError as error:
        return Finding(name, level, error.what, error.hint or error.expected)
    except (OSError, ValueError) as error:
        return Finding(name, level, f"{type(error).__name__}: {error}")


# ------------------------------------------------------------------------------------------------ versions


@dataclass(frozen=True)
class Versions:
    """The versions of what jobs need; None: it is not there. ``needs_java``: whether Spark's JVM runs here."""

    python: str
    java: str | None
    pyspark: str | None
    pyarrow: str | None
    pandas: str | None
    needs_java: bool = True


def of_versions(found: Versions) -> list[Finding]:
    """Whether the versions fit flinkish and each other."""
    return [
        looked_at("Python", lambda: _python(found.python)),
        _java(found),
        looked_at("PySpark", lambda: _pyspark(found.pyspark)),
        _delta(found.pyspark),
        _package("pyarrow", found.pyarrow, lambda version: check_pyarrow(version, found.pyspark)),
        _package("pandas", found.pandas, lambda version: None),
    ]


def _python(version: str) -> str:
    check_versions(python_version=tuple(map(int, re.findall(r"\d+", version)[:3])))
    return version


def _java(found: Versions) -> Finding:
    if found.java is None and not found.needs_java:
        return ok("Java", "none, and none needed: Spark is a server elsewhere")
    if found.java is None:
        hint = "install Java 17 or newer, or set JAVA_HOME to one"
        return Finding("Java", Level.FAIL, "there is none, and Spark is started here", hint)
    version = found.java

    def look() -> str:
        check_versions(java_version=version)
        return version

    return looked_at("Java", look, Level.FAIL if found.needs_java else Level.WARN)


def _pyspark(version: str | None) -> str:
    checked_version(version)
    return str(version)


def _delta(pyspark: str | None) -> Finding:
    if pyspark is None:
        return Finding("Delta Lake", Level.FAIL, "without PySpark there is none", "install PySpark first")
    spark = spark_of_delta(pyspark)
    if spark is None:
        text = f"none for PySpark {pyspark}: no checkpoints, no savepoints, no history"
        return Finding("Delta Lake", Level.WARN, text, no_package_of_delta(pyspark))
    return ok("Delta Lake", f"there is a package for Spark {spark}")


def _package(name: str, version: str | None, check: Callable[[str], None]) -> Finding:
    if version is None:
        return Finding(name, Level.FAIL, "it is not installed", f"pip install {name}")

    def look() -> str:
        check(version)
        return version

    return looked_at(name, look)


# ------------------------------------------------------------------------------------------------ the cluster


@dataclass(frozen=True)
class Executor:
    """What a Python worker of an executor says of itself; ``time_s`` is its clock."""

    host: str
    python: str
    flinkish: str
    time_s: float


def of_executors(
    found: Sequence[Executor], python: str, flinkish: str, before_s: float, after_s: float
) -> list[Finding]:
    """Whether the executors run this Python and this flinkish, and whether their clocks are right.

    Args:
        found: the answers.
        python, flinkish: the versions of the driver.
        before_s, after_s: the driver's clock, before they were asked and after they have answered.
    """
    if not found:
        return [Finding("Executors", Level.FAIL, "none has answered", "look at Spark's log and at its web page")]
    hosts = sorted({one.host for one in found})
    findings = [ok("Executors", f"{len(found)} task slots on {', '.join(hosts[:5])}{' and more' if hosts[5:] else ''}")]
    other = sorted({f"{one.python} on {one.host}" for one in found if _minor(one.python) != _minor(python)})
    hint = "functions are pickled for one version of Python: set PYSPARK_PYTHON to one of the driver's version"
    findings.append(
        Finding("Python of executors", Level.FAIL, f"{other[0]}, and {python} in the driver", hint)
        if other
        else ok("Python of executors", found[0].python)
    )
    stale = sorted({f"{one.flinkish} on {one.host}" for one in found if one.flinkish != flinkish})
    hint = "remove the flinkish that is installed there: the driver ships its own"
    findings.append(
        Finding("flinkish of executors", Level.FAIL, f"{stale[0]}, and {flinkish} in the driver", hint)
        if stale
        else ok("flinkish of executors", flinkish)
    )
    worst = max(found, key=lambda one: abs(_skew(one.time_s, before_s, after_s)))
    return [*findings, of_clock(f"Clock of {worst.host}", worst.time_s, before_s, after_s)]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def of_clock(name: str, time_s: float, before_s: float, after_s: float) -> Finding:
    """Whether a clock that showed ``time_s`` at some moment between two moments of this process is right."""
    skew = _skew(time_s, before_s, after_s)
    if abs(skew) <= CLOCK_TOLERANCE_S:
        return ok(name, "as the driver's")
    text = f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the driver's"
    return Finding(name, Level.WARN, text, "let NTP (chrony, systemd-timesyncd) set the clocks of all machines")


def _skew(time_s: float, before_s: float, after_s: float) -> float:
    return max(0.0, time_s - after_s) + min(0.0, time_s - before_s)


def of_slots(slots: int | None, parallelism: int | None) -> Finding:
    """Whether as many tasks can run at a time as a job has subtasks; None: the slots are not known, or the parallelism
    is not set."""
    wanted = "not set, so it is the number of slots" if parallelism is None else str(parallelism)
    text = f"{'not known' if slots is None else slots}, parallelism.default: {wanted}"
    if slots is not None and parallelism is not None and parallelism > slots:
        hint = (
            f"add executors or cores, or set parallelism.default to {slots}: subtasks of an epoch run one after another"
        )
        return Finding("Slots", Level.WARN, text, hint)
    return ok("Slots", text)


# ------------------------------------------------------------------------------------------------ files


@dataclass(frozen=True)
class Trial:
    """One operation on a directory, how long it took, and how it failed; "": it did not."""

    operation: str
    seconds: float
    error: str = ""


def of_trials(name: str, trials: Sequence[Trial]) -> Finding:
    """Whether a process can use a directory."""
    failed = [one for one in trials if one.error]
    if failed:
        hint = "check permissions, credentials and network of that process, and that the path means the same there"
        return Finding(name, Level.FAIL, f"cannot {failed[0].operation}: {failed[0].error}", hint)
    slow = [one for one in trials if one.seconds > SLOW_S]
    if slow:
        text = ", ".join(f"{one.operation} takes {one.seconds:.1f} s" for one in slow)
        return Finding(name, Level.WARN, text, "epochs wait for it: use storage that is nearer")
    slowest = max((one.seconds for one in trials), default=0.0)
    operations = ", ".join(one.operation for one in trials)
    return ok(name, f"{operations} (at most {slowest * 1000:.0f} ms)")


def of_mode(path: str, mode: int, owner: int, me: int) -> Finding:
    """Whether a file with secrets is read by this user alone."""
    name = "File with secrets"
    if mode & 0o077:
        who = "everybody" if mode & 0o007 else "its group"
        return Finding(name, Level.WARN, f"{who} can read or write {path}", f"chmod 600 {path}")
    if owner not in (me, 0):
        return Finding(name, Level.WARN, f"another user ({owner}) owns {path}", f"chown {me} {path}")
    return ok(name, f"this user's alone, {path}")
