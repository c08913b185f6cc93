"""What an epoch gives to each subtask depends on the program, the splits and their positions, and on no cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine import replayed_job
from tests.integration.engine.replayed_job import RECORDS, fill_topic
from tests.support import epoch_digests
from tests.support.epoch_digests import Digest, Given, digests
from tests.support.kafka_broker import KafkaBroker
from tests.support.processes import start_driver

TIMEOUT_S = 1800

WITHOUT_SERVER = ["collection", "sequence", "generator", "text", "csv", "json", "parquet", "delta"]


def replay(folder: Path, name: str, clusters: list[Any], sources: list[str], kafka: str | None = None) -> None:
    """A job for each source; each epoch fails on one cluster and is replayed on the next one."""
    options = {"folder": str(folder), "name": name, "clusters": clusters, "sources": sources, "kafka": kafka}
    env = {**epoch_digests.environment(folder / "plan.json"), "PYTHONHASHSEED": "random"}
    log_file = folder / f"{name}.log"
    with start_driver(Path(replayed_job.__file__), json.dumps(options), log_file=log_file, env=env) as driver:
        assert "finished" in driver.succeed(TIMEOUT_S)


def assert_same_epochs(folder: Path, name: str, replays: int) -> None:
    """Whoever ran an epoch, each subtask was given the same, and each record once."""
    found = digests(folder / "digests" / name)
    different = {given: several for given, several in found.items() if len(several) > 1}
    assert not different, f"{name}: subtasks were given something else in another run: {different}"
    for recorder in ("source", "subtask", "keyed"):
        of_it: dict[Given, Digest] = {given: one for given, (one,) in found.items() if given.recorder == recorder}
        assert sum(digest.records for digest in of_it.values()) == RECORDS
        epochs = {given.epoch for given in of_it}
        assert epochs >= set(range(replays)), f"{name}: only the epochs {epochs} had data"
    for start in (folder / "digests" / name).iterdir():
        of_start = digests(start)
        epochs = {given.epoch for given in of_start if given.recorder == "source"}
        # what was to fail had read all of the epoch
        for given in found:
            if given.recorder == "source" and given.epoch in epochs:
                assert given in of_start, f"{name}: {given} was not read by {start.name}"


@pytest.mark.slow
def test_an_epoch_replayed_with_fewer_cores_gives_each_subtask_the_same(tmp_path: Path) -> None:
    sources = ["text", "delta"]
    replay(tmp_path, "small", ["local[3]", "local[1]"], sources)
    for name in sources:
        assert_same_epochs(tmp_path, name, 1)


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_all_sources_give_the_same_epochs_with_other_cores_and_executors(tmp_path: Path, kafka: KafkaBroker) -> None:
    fill_topic(kafka)
    sources = [*WITHOUT_SERVER, "kafka"]
    clusters: list[Any] = ["local[2]", "local[1]", "local[3]", "local[5]", ["executors", 2], ["executors", 1]]
    replay(tmp_path, "rising", clusters, sources, kafka.bootstrap_servers)
    # the same input in other directories, where each epoch fails on and is replayed by other clusters than before
    clusters = [clusters[place] for place in (3, 4, 0, 5, 1, 2)]
    replay(tmp_path, "mixed", clusters, sources, kafka.bootstrap_servers)
    for name in sources:
        assert_same_epochs(tmp_path, name, len(clusters) - 1)
