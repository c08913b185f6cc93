"""The consumers that a process keeps for the readers of Kafka sources. No broker is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka import reader as kept_consumer
from flinkish.connectors.kafka.reader import KafkaSplitReader, KeptConsumer
from flinkish.connectors.kafka.settings import KafkaSourceSettings
from flinkish.core.source import SourceSplit, SplitRange
from flinkish.errors import ConnectionFailedError

SETTINGS = KafkaSourceSettings("localhost:1", SimpleStringSchema())
WANTED = SplitRange(SourceSplit("clicks-0", 0, None, {"topic": "clicks", "partition": 0}), 0, 5)


@pytest.fixture(autouse=True)
def none_kept() -> Iterator[None]:
    kept_consumer.close_idle()
    yield
    kept_consumer.close_idle()


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[KeptConsumer]:
    """The consumers that readers were lent, in order."""
    found: list[KeptConsumer] = []
    lend = kept_consumer.lend
    monkeypatch.setattr(kept_consumer, "lend", lambda *of: found.append(one := lend(*of)) or one)
    return found


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_consumer_that_has_failed_is_not_used_again(
    goes_on: bool, lent: list[KeptConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_consumer, "STALLED_S", 0.1)
    monkeypatch.setattr(kept_consumer, "POLL_S", 0.1)
    reader = KafkaSplitReader(SETTINGS)
    reader.open([WANTED], 10)
    with pytest.raises(ConnectionFailedError, match="has not delivered partition clicks-0"):
        list(reader.read(WANTED, 10))
    if not goes_on:
        reader.close()
        reader = KafkaSplitReader(SETTINGS)
    reader.open([WANTED], 10)
    failed, *others = lent
    assert failed not in others and len(others) == 1
    reader.close()


def test_a_reader_that_is_closed_gives_its_consumer_to_the_next_one(lent: list[KeptConsumer]) -> None:
    readers = [KafkaSplitReader(SETTINGS) for _ in range(2)]
    for reader in readers:
        reader.open([WANTED], 10)
        reader.close()
    assert lent[0] is lent[1]


def test_an_error_names_the_source_that_reads_whichever_other_one_was_read_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_consumer, "STALLED_S", 0.1)
    monkeypatch.setattr(kept_consumer, "POLL_S", 0.1)
    other = KafkaSplitReader(replace(SETTINGS, topics=("views",)))
    other.open([WANTED], 10)
    other.close()
    reader = KafkaSplitReader(replace(SETTINGS, topics=("clicks",)))
    reader.open([WANTED], 10)
    with pytest.raises(ConnectionFailedError, match="KafkaSource clicks at localhost:1"):
        list(reader.read(WANTED, 10))


def test_a_forked_process_leaves_the_consumers_of_its_parent_alone() -> None:
    code = """
import gc, os, signal
from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.kafka import reader as kept_consumer
from flinkish.connectors.kafka.settings import KafkaSourceSettings
settings = KafkaSourceSettings("localhost:1", SimpleStringSchema())
consumer = kept_consumer.lend(settings, {})
kept_consumer.give_back(settings, consumer)
kept = id(consumer)
del consumer
child = os.fork()
if child:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(id(kept_consumer.lend(settings, {})) == kept))
else:
    signal.alarm(60)
    kept_consumer.give_back(settings, kept_consumer.lend(settings, {}))
    # would wait for the threads of a consumer that is freed
    gc.collect()
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": "."}
    )
    assert result.stdout.split() == ["0", "1"]
