"""Makes a savepoint from a DataFrame: state with which a job begins its first run (bootstrapping)."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from flinkish.checkpoint.manifest import Manifest, StateContents, TableContents, TableVersion, write_manifest
from flinkish.checkpoint.rows import COLUMNS, check_unique, written_contents
from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.arrow import spark_type
from flinkish.errors import ProgramError, SavepointError
from flinkish.runtime.state.state_rows import MAP_KINDS, DeclaredState
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.spark.dependencies import py_files_of
from flinkish.spark.failures import translate
from flinkish.spark.state import SAVEPOINT_SCHEMA
from flinkish.spark.worker import DeployedClasses
from flinkish.state.rows import NativeToTexts
from flinkish.storage.files import child_names, delete_directory
from flinkish.storage.paths import absolute, for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REQUIRED = ("uid", "state", "key", "value")
_OPTIONAL = ("kind", "namespace", "map_key")

#: (uid, state name) -> type of the state's values; for map state that of the map's values, for list state that of the
#: elements.
StateTypes = Mapping[tuple[str, str], TypeInformation]


def write_savepoint(
    df: DataFrame | Sequence[DataFrame],
    path: str,
    *,
    states: StateTypes | None = None,
    texts: bool = False,
    sources: Mapping[str, str] | None = None,
    job_name: str = "",
) -> str:
    """Write a savepoint from the rows of a DataFrame, or of several ones if the values of states have different types;
    returns its path. A job then starts from it with ``-s PATH``.

    Args:
        df: has the columns uid, state, key and value, and optionally kind, map_key and namespace (text; NULL: none).
            The kind is value, list, map, reducing, aggregating, or broadcast, whose key is NULL; without it the kind is
            ``map`` if there is a map_key, and otherwise ``value``. Keys and values have the types that the program
            uses: a string column holds strings, an array column lists, a struct column Rows with its field names
            (tuples, if it is a key), and a map column under kind ``map`` a whole map state.
        path: a new or empty directory.
        states: (uid, state name) -> type of its values, to which they are checked and converted: a struct under a TUPLE
            becomes a tuple.
        texts: whether key, map_key and value hold the texts of a savepoint's table (``"u42"`` with quotes).
        sources: source uid -> position, from another manifest. Other sources begin at their beginning.
        job_name: the job name in the manifest, for people.

    Example::

        rows = spark.createDataFrame([("counts", "n", "u42", 17)], "uid string, state string, key string, value long")
        write_savepoint(rows, "/savepoints/initial")

    Raises:
        ProgramError: columns are missing or unknown.
        SavepointError: the directory is not empty, or a row is wrong; then the error names the row, and nothing is left
            behind.
    """
    frames: list[Any] = list(df) if isinstance(df, Sequence) else [df]
    for frame in frames:
        _check_columns(frame.columns)
    directory = absolute(str(path))
    if child_names(directory):
        raise SavepointError("the directory is not empty", where=directory, expected="a new directory")
    deployed = DeployedClasses.of(ProgramClasses.of_this_process(shipped=py_files_of(frames[0].sparkSession)))
    parts = (_rows(frame, states or {}, texts, deployed) for frame in frames)
    rows = reduce(lambda left, right: left.unionByName(right), parts)
    contents = _write_rows(frames[0].sparkSession, rows, directory, deployed.secret)
    declared = tuple(_declared(state, states or {}, frames) for state in contents.states)
    write_manifest(
        directory,
        Manifest(
            job_id="",
            job_name=job_name,
            epoch=None,
            time_ms=time.time_ns() // 1_000_000,
            operators=tuple(sorted({state.uid for state in contents.states})),
            sources=dict(sources or {}),
            states=declared,
            contents=contents,
        ),
    )
    return directory


def _write_rows(spark: Any, rows: DataFrame, directory: str, secret: bytes) -> TableContents:
    """Write and check the table of a savepoint; if that fails, the whole directory is deleted."""
    table = posixpath.join(directory, TableVersion().table)
    try:
        rows.write.format("delta").save(for_spark(table))
        contents = written_contents(spark, table)
        check_unique(spark.read.format("delta").load(for_spark(table)), f"savepoint {directory}")
    except BaseException as error:
        delete_directory(directory)
        if isinstance(error, Exception):
            raise translate(error, f"savepoint {directory}", secret) from error
        raise
    return contents


def _check_columns(columns: Sequence[str]) -> None:
    missing = [name for name in _REQUIRED if name not in columns]
    unknown = [name for name in columns if name not in (*_REQUIRED, *_OPTIONAL)]
    if missing or unknown:
        raise ProgramError(
            f"the DataFrame lacks the columns {missing}" if missing else f"nobody knows the columns {unknown}",
            where=f"columns {list(columns)}",
            expected=f"{', '.join(_REQUIRED)}; and, if needed, {', '.join(_OPTIONAL)}",
            hint="rename or drop columns",
        )


def _rows(frame: DataFrame, states: StateTypes, texts: bool, deployed: DeployedClasses) -> DataFrame:
    """The rows of a DataFrame as rows of a savepoint's table."""
    names = tuple(name for name in (*_REQUIRED, *_OPTIONAL) if name in frame.columns)
    convert = NativeToTexts(names, dict(states), texts, deployed)
    return frame.select(*names).mapInArrow(convert, SAVEPOINT_SCHEMA).select(*COLUMNS)


def _declared(state: StateContents, states: StateTypes, frames: Sequence[Any]) -> DeclaredState:
    known = states.get((state.uid, state.state))
    value_type = None if known is None else spark_type(known)
    key_type = None
    if len(frames) == 1 and known is None and state.kind not in (*MAP_KINDS, "list"):
        value_type = str(frames[0].schema["value"].dataType.simpleString()).upper()
    return DeclaredState(state.uid, state.state, state.kind, value_type, None, key_type)
