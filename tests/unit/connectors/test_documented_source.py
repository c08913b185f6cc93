"""The sources and sinks of one's own in docs/connectors.md are ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flinkish.common import Row
from flinkish.common.typeinfo import Types
from flinkish.core.source import SourceLimits
from flinkish.errors import UserCodeError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from tests.support.documented import documented
from tests.support.split_reading import SplitReading
from tests.unit.minicluster.programs import environment, job_of


def test_the_documented_source_gives_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = documented("documented_source", 1, tmp_path, monkeypatch).Countdowns()
    reading = SplitReading(source, SourceLimits(max_records=4)).run()
    assert reading.ended
    assert reading.by_split == {"3": [3, 2, 1], "5": [5, 4, 3, 2, 1]}


def test_the_documented_sink_writes_each_epoch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = documented("documented_sink", 4, tmp_path, monkeypatch).JsonFiles(str(tmp_path))
    env, store = environment(1), StateStore()
    numbers = env.from_collection([Row(n=n) for n in range(7)], Types.ROW_NAMED(["n"], [Types.LONG()]))
    numbers.sink_to(sink)
    commit = type(sink).commit
    while not store.finished:
        cluster = MiniCluster(job_of(env), ManualClock(), store, 3)
        with pytest.raises(UserCodeError, match="the answer was lost"), monkeypatch.context() as patched:
            patched.setattr(type(sink), "commit", lambda *given: (commit(*given), _lose_it()))
            cluster.run_epoch()
        # the epoch is delivered again
        cluster.run_epoch()
        cluster.dispose()
    files = sorted(tmp_path.glob("*.json"))
    assert [json.loads(file.read_text()) for file in files] == [
        [{"n": 0}, {"n": 1}, {"n": 2}],
        [{"n": 3}, {"n": 4}, {"n": 5}],
        [{"n": 6}],
    ]


def _lose_it() -> None:
    raise RuntimeError("the answer was lost")
