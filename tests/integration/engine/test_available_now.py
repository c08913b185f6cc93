"""``execution.trigger: available-now``: all there is, then the end; a later run goes on with what came since."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import JobStatus, WatermarkStrategy
from flinkish.common.serialization import SimpleStringSchema
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.kafka.settings import KafkaOffsetsInitializer
from flinkish.connectors.kafka.source import KafkaSource
from flinkish.core.source import Source
from tests.integration.engine.collecting import Collected, collecting, environment
from tests.support.kafka_broker import KafkaBroker

WORDS = "to be or not to be that is the question".split()


def run(source: Source, job_dir: Path, collected: Collected, **settings: Any) -> dict[str, int]:
    """Counts words; the counts so far, of all runs in the directory."""
    env = environment(job_dir, execution__trigger="available-now", **settings)
    words = env.from_source(source, WatermarkStrategy.no_watermarks(), "words").uid("words")
    words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1).uid("counts").sink_to(collected.sink()).uid(
        "out"
    )
    client = env.execute_async("available-now")
    client.get_job_execution_result().result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    rows = collected.rows["out"]
    # each word once per occurrence, counted up without a gap
    for word, most in Counter(row[0] for row in rows).items():
        assert sorted(row[1] for row in rows if row[0] == word) == list(range(1, most + 1))
    return {word: max(row[1] for row in rows if row[0] == word) for word, _ in rows}


@pytest.mark.nightly
def test_files_that_come_later_are_read_by_the_next_run(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("\n".join(WORDS[:4]) + "\n")
    source = FileSource.text(str(folder)).monitor()
    with collecting() as collected:
        assert run(source, tmp_path / "job", collected) == Counter(WORDS[:4])
        assert run(source, tmp_path / "job", collected) == Counter(WORDS[:4]), "nothing new"
        (folder / "b.txt").write_text("\n".join(WORDS[4:]) + "\n")
        # in the meantime checkpoints were turned on: the last thing that a run does is to take one
        settings = {"execution__checkpointing__interval": "1 h"}
        assert run(source, tmp_path / "job", collected, **settings) == Counter(WORDS)
    assert len(list((tmp_path / "job" / "checkpoints").glob("chk-*/manifest.json"))) == 1
    assert not (tmp_path / "job" / "ended.json").exists()


def test_a_topic_is_read_to_its_end_in_as_many_epochs_as_it_takes(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    kafka.create_topic("available-now", partitions=2)
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics("available-now")
    source = (
        builder.set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    settings = {"flinkish__epoch__max_records_per_source": "3"}
    with collecting() as collected:
        kafka.produce("available-now", WORDS[:7])
        assert run(source, tmp_path / "job", collected, **settings) == Counter(WORDS[:7])
        kafka.produce("available-now", WORDS[7:])
        assert run(source, tmp_path / "job", collected, **settings) == Counter(WORDS)


@pytest.mark.nightly
def test_a_generator_without_end_gives_one_epoch_a_run_and_one_with_an_end_all_it_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    endless = DataGeneratorSource(lambda index: WORDS[index % len(WORDS)], records_per_epoch=5)
    with collecting() as collected:
        assert run(endless, tmp_path / "endless", collected) == Counter(WORDS[:5])
        assert run(endless, tmp_path / "endless", collected) == Counter(WORDS)
    bounded = DataGeneratorSource(lambda index: WORDS[index], len(WORDS), records_per_epoch=4)
    with collecting() as collected:
        assert run(bounded, tmp_path / "bounded", collected) == Counter(WORDS)
        assert run(bounded, tmp_path / "bounded", collected) == Counter(WORDS), "finished"
