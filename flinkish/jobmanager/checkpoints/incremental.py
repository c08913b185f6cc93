"""The incremental way of a checkpoint: the changes since the last one, applied to the table by one MERGE.

Rule: the table is then what a full checkpoint of the epoch would have written. Applying changes twice gives the same,
so what a driver leaves behind that dies between the commit and the manifest is mended by the next checkpoint. In doubt
(a gap in the changelog, keys whose text is not unique) nothing is applied and the checkpoint must be a full one.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import Any

from flinkish.jobmanager.checkpoints.changelog_ledger import ChangelogLedger
from flinkish.jobmanager.checkpoints.checkpoint_table import CheckpointTable, Written
from flinkish.jobmanager.directory.files import delete_directory, directory_bytes
from flinkish.jobmanager.savepoints.manifest import Manifest
from flinkish.runtime.changelog_files import epoch_directory
from flinkish.spark.changelog import STAGED_SCHEMA, staged_rows
from flinkish.spark.worker import DeployedClasses

_LOG = logging.getLogger("flinkish.CheckpointCoordinator")

#: A state of fewer rows is written anew in less time than a MERGE takes to begin.
SMALL_STATE_ROWS = 20_000
#: Changes of so few bytes are applied in any case.
_FEW_BYTES = 4 * 1024 * 1024

_ENTRY = "uid, state, key, namespace, slot"


@dataclass(frozen=True)
class Changes:
    """``rows``: a DataFrame of rows that are written down."""

    rows: Any
    count: int


class IncrementalWriter:
    """Of one job."""

    def __init__(self, session: Any, table: CheckpointTable, ledger: ChangelogLedger) -> None:
        self._session = session
        self._table = table
        self._ledger = ledger

    def stage(self, base: Manifest, epoch: int, full: Written, deployed: DeployedClasses) -> Changes | None:
        """The changes behind the base; None: a full checkpoint, please.

        ``full``: the last full one. Another one costs less if it is small, or when there are more changes than that.
        """
        if full.rows < SMALL_STATE_ROWS:
            return None
        ledger = self._ledger
        if base.epoch is None or ledger.refused is not None or not ledger.covers(base.epoch + 1):
            return None
        epochs = ledger.epochs(base.epoch + 1, epoch)
        changed = sum(directory_bytes(epoch_directory(ledger.path, number)) for number in epochs)
        if changed > max(_FEW_BYTES, full.bytes):
            return None
        return self._staged(epochs, deployed)

    def _staged(self, epochs: list[int], deployed: DeployedClasses) -> Changes | None:
        if not epochs:
            return Changes(self._session.createDataFrame([], STAGED_SCHEMA), 0)
        # written down, so that Python decodes them once and Spark knows their size
        path = self._ledger.staged
        staged_rows(self._session, self._ledger.path, epochs, deployed).write.mode("overwrite").parquet(path)
        staged = self._session.read.schema(STAGED_SCHEMA).parquet(path)
        changes, state, key = staged.selectExpr(
            "count(*)", "first(state) FILTER (WHERE uid IS NULL)", "first(key) FILTER (WHERE uid IS NULL)"
        ).collect()[0]
        if key is not None:
            self._refuse(state, key)
            return None
        return Changes(staged, changes)

    def _refuse(self, state: str, key: str) -> None:
        reason = f"state '{state}' has the key {key}, which other keys equal that are written otherwise"
        self._ledger.refuse(reason)
        _LOG.warning("checkpoints of this job are not incremental: %s", reason)

    def apply(self, base: Manifest, changes: Changes) -> Written:
        """One commit with all that has changed."""
        if base.state.version is not None and not changes.count:
            return Written(base.state.version, 0)
        view = f"flinkish_changes_{uuid.uuid4().hex}"
        changes.rows.createOrReplaceTempView(view)
        try:
            self._session.sql(
                f"""
                MERGE INTO delta.`{self._table.path}` t
                USING (
                    SELECT * FROM (SELECT *, max(epoch) OVER (PARTITION BY {_ENTRY}) AS last FROM {view})
                    WHERE epoch = last
                ) s
                ON s.marker AND t.uid = s.uid AND t.state = s.state AND t.key = s.key AND t.namespace = s.namespace
                    AND (s.slot = '' OR (t.kind = s.kind AND t.value = s.value))
                WHEN MATCHED THEN DELETE
                WHEN NOT MATCHED AND NOT s.marker THEN
                    INSERT (uid, state, kind, key, namespace, value)
                    VALUES (s.uid, s.state, s.kind, s.key, s.namespace, s.value)
                """
            ).collect()
        finally:
            self._session.catalog.dropTempView(view)
        delete_directory(self._ledger.staged)
        return self._table.written("numTargetRowsInserted")
