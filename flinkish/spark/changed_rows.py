"""Changes of state as rows of a table: read together with the rows of state that they change, or merged into them.

A change is of one entry (`ENTRY`) and an epoch: a ``marker`` row, which stands for the entry itself under each text
that its key may have, and a row for each row of state that the entry has then (none: it is gone). Rule: of an entry
only the changes of its last epoch count, and they replace all rows that it had. So it does no harm if they were merged
before.

The slot tells apart the entries that a key has of one state: timers, and entries of a map. A slot of a map is what the
text of its row begins with. A marker without slot stands for all that the key has; what changed before it counts no
more.
"""

from __future__ import annotations

import uuid
from typing import Any

from flinkish.runtime.state.savepoint_rows import SavepointRow

#: Columns of a table of changes, in Spark's DDL. A row without ``uid`` says that a key has more texts than can be
#: told.
CHANGES_SCHEMA = (
    "epoch long, uid string, state string, kind string, key string, namespace string, value string, slot string, "
    "marker boolean"
)
#: What the changes of one entry have in common.
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
#: Whether a row of state (t) is of the entry that a row of changes (c) marks.
_IS_OF_ENTRY = (
    "t.uid = c.uid AND t.state = c.state AND t.key = c.key AND t.namespace = c.namespace "
    "AND CASE WHEN c.slot = '' THEN true WHEN c.kind = 'map' THEN startswith(t.value, c.value) "
    "ELSE t.kind = c.kind AND t.value = c.value END"
)
_COLUMNS = ", ".join(SavepointRow._fields)


def with_changes(rows: Any, changes: Any) -> Any:
    """The rows of state, as the changes have left them."""
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
    """Apply the changes to the table of state, in one commit."""
    view = f"flinkish_changes_{uuid.uuid4().hex}"
    changes.createOrReplaceTempView(view)
    try:
        spark.sql(
            f"""
            MERGE INTO delta.`{table}` t
            USING ({_LAST.format(changes=view)}) c
            ON c.marker AND {_IS_OF_ENTRY}
            WHEN MATCHED THEN DELETE
            WHEN NOT MATCHED AND NOT c.marker THEN
                INSERT ({_COLUMNS}) VALUES ({", ".join(f"c.{name}" for name in SavepointRow._fields)})
            """
        ).collect()
    finally:
        spark.catalog.dropTempView(view)
