"""Which Parquet files are all of a Delta table that was just written, as its log says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flinkish.delta.log import DeltaLog

PLAIN: list[dict[str, Any]] = [
    {"commitInfo": {"operation": "WRITE"}},
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {"metaData": {"id": "1", "partitionColumns": [], "configuration": {}}},
]


def table(folder: Path, actions: list[dict[str, Any]]) -> str:
    (folder / "_delta_log").mkdir()
    lines = [json.dumps(action) for action in actions]
    (folder / "_delta_log" / f"{0:020d}.json").write_text("\n".join(lines) + "\n")
    return str(folder)


def test_they_are_those_that_the_commit_has_added_and_no_others_that_lie_there(tmp_path: Path) -> None:
    (tmp_path / "part-of-a-failed-task.parquet").touch()
    added = [{"add": {"path": "part-0.parquet"}}, {"add": {"path": "part%201.parquet"}}]
    path = table(tmp_path, [*PLAIN, *added])
    assert DeltaLog(path).files_of_first_commit() == [f"{path}/part-0.parquet", f"{path}/part 1.parquet"]


@pytest.mark.parametrize(
    "feature",
    [
        {"metaData": {"partitionColumns": [], "configuration": {"delta.columnMapping.mode": "name"}}},
        {"metaData": {"partitionColumns": ["uid"], "configuration": {}}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}},
    ],
)
def test_a_table_with_features_of_delta_is_left_to_delta(tmp_path: Path, feature: dict[str, Any]) -> None:
    assert (
        DeltaLog(table(tmp_path, [*PLAIN, feature, {"add": {"path": "part-0.parquet"}}])).files_of_first_commit() == []
    )


def test_a_table_without_a_first_commit_has_none(tmp_path: Path) -> None:
    assert DeltaLog(str(tmp_path)).files_of_first_commit() == []
