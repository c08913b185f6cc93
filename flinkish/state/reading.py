"""Finds the savepoint or checkpoint that a path means, reads it as DataFrames, and compares it with a program.

Rule: the columns have the types that the program declared; where it declared none, they have the type that all texts
have in common, or hold the texts as they are in the table.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flinkish.checkpoint.compatibility import CompatibilityReport
from flinkish.checkpoint.manifest import Manifest, Savepoint
from flinkish.checkpoint.restore import compatibility_report
from flinkish.checkpoint.rows import count_states, is_edited, open_table, reading
from flinkish.common.configuration import Configuration
from flinkish.errors import SavepointError
from flinkish.runtime.state.state_rows import KINDS_WITHOUT_KEY, TIMERS_PREFIX, WATERMARK, DeclaredState
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.spark.dependencies import py_files_of
from flinkish.spark.worker import DeployedClasses
from flinkish.state.rows import typed_rows
from flinkish.storage.files import child_names
from flinkish.storage.paths import absolute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flinkish.datastream import StreamExecutionEnvironment


_CHECKPOINT = re.compile(r"chk-(\d+)")


def open_snapshot(path: str) -> Savepoint:
    """Open a savepoint or checkpoint: that at the path itself, or the latest completed checkpoint of a job directory or
    of a directory of checkpoints.

    Raises:
        SavepointError: there is neither a savepoint nor a completed checkpoint, or it is damaged.
    """
    directory = absolute(str(path))
    names = child_names(directory)
    if Manifest.NAME in names:
        return Savepoint.open(directory)
    checkpoints = posixpath.join(directory, "checkpoints") if "checkpoints" in names else directory
    numbers = [int(match.group(1)) for match in map(_CHECKPOINT.fullmatch, child_names(checkpoints)) if match]
    for number in sorted(numbers, reverse=True):
        candidate = posixpath.join(checkpoints, f"chk-{number}")
        if Manifest.NAME in child_names(candidate):
            return Savepoint.open(candidate)
    raise SavepointError(
        f"there is neither a savepoint nor a completed checkpoint at {directory}",
        expected=f"a savepoint, a checkpoint (with a {Manifest.NAME}), or the directory of a job that has one",
    )


def session_of(spark: Any) -> Any:
    """The given Spark session; if it is None, the active one, or else a local one."""
    if spark is not None:
        return spark
    from flinkish.spark.session import get_session

    return get_session(Configuration(), "flinkish.state")


@dataclass(frozen=True, order=True)
class StateDescription:
    """One state of one operator in a savepoint or checkpoint.

    Args:
        uid: uid of the operator.
        state: name of the state.
        kind: kind of the state: ``value``, ``list``, ``map``, ``reducing``, ``aggregating``, ``broadcast``, ...
        rows: the number of its rows; 0: the state is declared, but empty.
        key_type, value_type, map_key_type: Spark's types as DDL text; None: not declared.
    """

    uid: str
    state: str
    kind: str
    rows: int
    key_type: str | None = None
    value_type: str | None = None
    map_key_type: str | None = None


def read_state(
    path: str,
    uid: str | None = None,
    state: str | None = None,
    spark: Any = None,
    *,
    class_aliases: Mapping[str, type] | None = None,
    packages: Collection[str] = (),
) -> DataFrame:
    """Read the state of a savepoint, of a checkpoint, or of the latest completed checkpoint of a job directory.

    Without ``state``, the DataFrame has the rows as they are in the table, in text columns: uid, state, kind, key,
    namespace, value. With ``uid`` and ``state``, it has the columns key, namespace and value with their types; for list
    state the value is an array, for map state there are map_key and map_value instead of value. ``namespace`` is the
    text of the window, NULL where there is none. Broadcast state has the columns of map state; its ``key`` is the
    subtask whose copy it is, its ``namespace`` the number of copies.

    Args:
        path: the savepoint, checkpoint, or job directory.
        uid: uid of the operator whose state is read; None: the state of all operators.
        state: name of the state, which needs a ``uid``; None: all states.
        spark: the Spark session to use; None: the active one, or else a local one.
        class_aliases: dotted name of a class as it was stored -> the class, as in
            `StreamExecutionEnvironment.register_class_alias`. Other stored instances are made of the classes of the
            running program.
        packages: installed packages whose classes may be instantiated, as in ``flinkish.state.packages``.

    Example::

        read_state("/savepoints/savepoint-1f", "counts", "n").where("value > 100").show()

    Raises:
        SavepointError: there is no such savepoint or state, or it is damaged, or ``state`` comes without ``uid``.
    """
    session = session_of(spark)
    found: DataFrame = rows_of(session, open_snapshot(path), uid, state, class_aliases, packages)
    return found


def rows_of(
    session: Any,
    savepoint: Savepoint,
    uid: str | None = None,
    state: str | None = None,
    class_aliases: Mapping[str, type] | None = None,
    packages: Collection[str] = (),
) -> Any:
    """What `read_state` gives, of a savepoint that is open."""
    where = f"savepoint {savepoint.path}"
    with reading(session, where):
        table = open_table(session, savepoint)
        if uid is not None:
            table = table.where(table["uid"] == uid)
        if state is None:
            return table
        if uid is None:
            raise SavepointError("a state needs the uid of its operator", where=where, expected="uid and state")
        table = table.where(table["state"] == state)
        known = _declared(table, savepoint.manifest, uid, state, where)
        classes = ProgramClasses.of_this_process(class_aliases, packages, py_files_of(session))
        return typed_rows(session, table, known, DeployedClasses.of(classes))


def _declared(table: Any, manifest: Manifest, uid: str, state: str, where: str) -> DeclaredState:
    """The declared types of a state, as far as they are known.

    Raises:
        SavepointError: the state is neither declared nor has it rows.
    """
    declared = next((known for known in manifest.states if (known.uid, known.name) == (uid, state)), None)
    found = table.select("kind").take(1)
    if declared is None and not found:
        raise SavepointError(
            f"there is no state {state!r} of an operator with the uid {uid!r}",
            where=where,
            hint="flinkish.state.list_states(path) shows all",
        )
    if declared is None or (found and found[0]["kind"] != declared.kind):
        kinds = KINDS_WITHOUT_KEY
        keyed = [known for known in manifest.states if known.uid == uid and known.kind not in kinds]
        without_key = bool(found) and found[0]["kind"] in kinds
        key_type = "BIGINT" if without_key else next((known.key_type for known in keyed), None)
        value_type = "BIGINT" if state.startswith(TIMERS_PREFIX) else None
        return DeclaredState(uid, state, found[0]["kind"], value_type, None, key_type)
    return declared


def list_states(path: str, spark: Any = None) -> list[StateDescription]:
    """All states of a savepoint or checkpoint, sorted by uid and name, including those that are declared but empty.
    Watermarks are left out.

    Args:
        path: a savepoint, a checkpoint, or a job directory, which stands for its latest completed checkpoint.
        spark: the Spark session that counts the rows, if the manifest does not have their number; None: the active one,
            or else a local one.

    Raises:
        SavepointError: there is no savepoint, or it is damaged.
    """
    return states_in(open_snapshot(path), spark)


def states_in(savepoint: Savepoint, spark: Any = None) -> list[StateDescription]:
    """What `list_states` gives, of a savepoint that is open."""
    manifest = savepoint.manifest
    if manifest.contents is not None and not is_edited(savepoint):
        counted = manifest.contents.states
    else:
        with reading(session_of(spark), f"savepoint {savepoint.path}") as session:
            counted = count_states(open_table(session, savepoint))
    declared = {(known.uid, known.name): known for known in manifest.states}
    found = []
    for entry in counted:
        if entry.kind != WATERMARK:
            known = declared.pop((entry.uid, entry.state), DeclaredState(entry.uid, entry.state, entry.kind))
            found.append(_description(known, entry.kind, entry.rows))
    return sorted([*found, *(_description(known, known.kind, 0) for known in declared.values())], key=_order)


def _description(known: DeclaredState, kind: str, rows: int) -> StateDescription:
    return StateDescription(known.uid, known.name, kind, rows, known.key_type, known.value_type, known.map_key_type)


def _order(state: StateDescription) -> tuple[str, str]:
    return state.uid, state.state


def compatibility(env: StreamExecutionEnvironment, path: str, spark: Any = None) -> CompatibilityReport:
    """Report what the program of an environment would take over of a savepoint or checkpoint.

    The job is not run and nothing is written, but a worker opens and closes the program's keyed operators once, to find
    out which states they declare.

    Args:
        env: the environment in which the program was built.
        path: a savepoint, a checkpoint, or a job directory, which stands for its latest completed checkpoint.
        spark: the Spark session to use; None: the active one, or else a local one.

    Example::

        report = compatibility(env, "/savepoints/savepoint-1f")
        print(report.text())
        assert report.compatible

    Raises:
        ProgramError: the program is wrong.
        SavepointError: there is no such savepoint, or it is damaged.
    """
    return compatibility_report(
        env.get_stream_graph(),
        env._configuration,
        open_snapshot(path),
        env.is_chaining_enabled(),
        spark,
    )
