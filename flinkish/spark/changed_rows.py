"""Changes of state as rows of a table, which are read together with the rows of state that they change, or merged into
those.

A change belongs to one entry (columns `ENTRY`) and one epoch. It consists of ``marker`` rows, which name the entry once
for each text that its key may have, and of one row for each row of state that the entry has after the epoch (none if
the entry is gone). Rule: only the changes of the last epoch of an entry count, and they replace all rows that the entry
had. So merging the same changes twice does no harm.

The slot tells the entries of one key and state apart: timers, and the entries of a map. The slot of a map entry is the
beginning of the text of its row. A marker with an empty slot stands for all that the key has of the state; changes of
earlier epochs do not count any more.
"""

from __future__ import annotations

import uuid
from typing import Any

from flinkish.common.storage import for_spark
from flinkish.runtime.state.savepoint_rows import SavepointRow

#: Columns of a table of changes, in Spark's DDL. A row whose ``uid`` is null says that a key has more texts than can
#: be listed.
CHANGES_SCHEMA = (
    "epoch long, uid string, state string, kind string, key string, namespace string, value string, slot string, "
    "marker boolean"
)
#: The columns that identify an entry: all changes of one entry have the same values in them.
ENTRY = "uid, state, key, namespace, slot"

_LAST = f"""
    SELECT * EXCEPT (last, last_of_all) FROM (
        SELECT
            *,
            max(epoch) OVER (PARTITION BY {ENTRY}) AS last,
            max(CASE WHEN slot = '' THEN epoch END) OVER (PARTITION BY uid, state, key, namespace) AS last_of_all
        FROM {{changes}}
    ) WHERE epoch = last AND epoch >= coalesce(last_of_all, epoch)
"""
#: SQL condition: a row of state (t) belongs to the entry that a marker row of the changes (c) names.
_IS_OF_ENTRY = (
    "t.uid = c.uid AND t.state = c.state AND t.key = c.key AND t.namespace = c.namespace "
    "AND CASE WHEN c.slot = '' THEN true WHEN c.kind = 'map' THEN startswith(t.value, c.value) "
    "ELSE t.kind = c.kind AND t.value = c.value END"
)
_COLUMNS = ", ".join(SavepointRow._fields)


def with_changes(rows: Any, changes: Any) -> Any:
    """The rows of state with the changes applied, as a DataFrame with the columns of a savepoint."""
    spark = rows.sparkSession
    return spark.sql(
        f"""
        WITH last AS ({_LAST})
        SELECT {_COLUMNS} FROM {{rows}} t WHERE NOT EXISTS (SELECT 1 FROM last c WHERE c.marker AND {_IS_OF_ENTRY})
        UNION ALL
        SELECT {_COLUMNS} FROM last WHERE NOT marker
        """,
        rows=rows,
        changes=changes,
    )


def merge_changes(spark: Any, table: str, changes: Any) -> None:
    """Apply the changes to the Delta table of state, in one commit."""
    view = f"flinkish_changes_{uuid.uuid4().hex}"
    changes.createOrReplaceTempView(view)
    try:
        spark.sql(
            f"""
            MERGE INTO delta.`{for_spark(table)}` t
            USING ({_LAST.format(changes=view)}) c
            ON c.marker AND {_IS_OF_ENTRY}
            WHEN MATCHED THEN DELETE
            WHEN NOT MATCHED AND NOT c.marker THEN
                INSERT ({_COLUMNS}) VALUES ({", ".join(f"c.{name}" for name in SavepointRow._fields)})
            """
        ).collect()
    finally:
        spark.catalog.dropTempView(view)
