"""Where a release has left the records of a source, the source goes on: after its offset, and after its position."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka.enumerator import next_offsets
from flinkish.connectors.kinesis.shards import KinesisSettings
from flinkish.connectors.kinesis.source import FlinkKinesisConsumer
from flinkish.connectors.spark import DeltaSource
from flinkish.runtime.sources.job_enumerator import progress_in
from flinkish.runtime.sources.progress import decode_position, known_in
from flinkish.runtime.sources.split_list import SegmentsInMemory
from tests.golden.positions import FOLDER, read_to_end, sources
from tests.golden.write import unpack

LOCAL = sorted(sources(Path()))
SERVERS = ["kafka", "kinesis"]


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """What is stored of each source, with its files in a folder of the test."""
    found: dict[str, dict[str, Any]] = json.loads(
        json.dumps(unpack("positions", tmp_path)).replace(FOLDER, str(tmp_path))
    )
    assert set(found) == {*LOCAL, *SERVERS, "delta"}
    return found


@pytest.mark.parametrize("name", LOCAL)
def test_a_source_goes_on_behind_what_a_release_has_read(
    name: str, stored: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    source, before = sources(tmp_path)[name], stored[name]
    whole, _, _ = read_to_end(source, tmp_path / "anew", {})
    assert 0 < len(before["records"]) < len(whole)
    after_offset, _, _ = read_to_end(source, tmp_path, json.loads(before["offset"]))
    assert sorted([*before["records"], *after_offset]) == sorted(whole)
    after_position, _, _ = read_to_end(source, tmp_path, {}, before["position"])
    assert sorted([*before["records"], *after_position]) == sorted(whole)


@pytest.mark.parametrize("name", [*LOCAL, *SERVERS])
def test_an_offset_is_stored_as_a_release_has_stored_it(name: str, stored: dict[str, dict[str, Any]]) -> None:
    offset = json.loads(stored[name]["offset"])
    assert progress_in(offset, "source", "").encode() == offset["sources"]["source"]


def test_partitions_of_kafka_go_on_at_their_offsets(stored: dict[str, dict[str, Any]]) -> None:
    position = stored["kafka"]["position"]
    assert next_offsets(position) == {("clicks", 0): 6, ("clicks", 1): 8}
    assert known_in(position) == {"clicks": "made"}


def test_shards_of_kinesis_go_on_behind_their_records(
    stored: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    class Client:
        def identity(self, stream: str) -> str:
            return "made"

        def keeps(self, *place: Any) -> bool:
            asked.append(place)
            return True

        def close(self) -> None:
            pass

    monkeypatch.setattr(KinesisSettings, "client", lambda self: Client())
    source = FlinkKinesisConsumer("clicks", SimpleStringSchema(), {"aws.region": "eu-west-1"})
    position = stored["kinesis"]["position"]
    assert source.check_continuation(position, known_in(position)) == {"clicks": "made"}
    assert asked == [("clicks", "shardId-000000000000", 0)]
    (split,) = decode_position(position, "source", SegmentsInMemory()).splits.tail
    assert split.info == {"at_ms": 5, "hashes": ["0", "7"], "parents": []}


def test_the_versions_of_a_delta_table_behind_a_position_are_known(
    stored: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    unpack("minicluster", tmp_path)
    table = DeltaSource(str(tmp_path / "savepoint" / "state"))
    assert table.left_behind(stored["delta"]["position"]) == 1
