"""Levels of Python's loggers: ``rootLogger`` and ``logger.NAME``, in the manner of ``log4j2.properties``.

A name in `CLASSES` is one of flinkish's own loggers, named after the class of Flink or Kafka Streams whose work it
reports; any other name is a logger of the program or of a library, such as ``logger.my_shop.cleaning``.
"""

from __future__ import annotations

import difflib

from flinkish.common.config_options import ConfigOption, ConfigOptions

LEVELS = ("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")

#: What each of flinkish's own loggers reports; in Python the logger is called ``flinkish.NAME``.
CLASSES = {
    "Aggregate": "queries of tables whose aggregates are others than those of the stored state",
    "BroadcastState": "broadcast state that is changed where it is not kept",
    "CheckpointCoordinator": "checkpoints and savepoints",
    "Committer": "what committers of the program return",
    "FileSource": "files that lack columns of their table",
    "FlinkKinesisConsumer": "records of Kinesis that may have been deleted before they were read",
    "HistoryServer": "the history tables of a job",
    "JobManager": "submission of jobs, requests to running ones",
    "JobMaster": "one job at work: its epochs, attempts and restarts",
    "KafkaPartitionSplitReader": "reading of Kafka partitions",
    "KafkaCommitter": "records that Kafka did not take, and that are lost because the program allows it",
    "KafkaSourceEnumerator": "discovery of Kafka partitions, their first and last offsets",
    "KafkaSourceReader": "offsets that are committed to Kafka's consumer groups",
    "KeyedStateBackend": "files of keyed state: writing, compaction, damage",
    "OnError": "records and timers that an operator with on_error skips",
    "Program": "what a program probably does not mean, such as results that nobody reads",
    "RestServerEndpoint": "the REST API: faults of its own, and, at DEBUG, what clients do wrong",
    "Session": "settings that flinkish changes in the Spark session that it makes",
    "StateDirectory": "files of state that an executor keeps on its disk",
    "Task": "the life of one task",
    "TaskManager": "tasks of a worker: assignment, restoration, corruption, commits",
}

ROOT_LOGGER: ConfigOption[str] = (
    ConfigOptions.key("rootLogger")
    .string_type()
    .default_value("WARN")
    .with_description("Level of all loggers, of driver and workers, that have none of their own.")
    .with_choices(*LEVELS)
)

PREFIX = "logger."


def logger_option(name: str) -> ConfigOption[str]:
    """The option ``logger.NAME``, which sets the level of one logger."""
    option = ConfigOptions.key(PREFIX + name).string_type().default_value("WARN").with_choices(*LEVELS)
    return option.with_description(f"Level of the logger of {CLASSES.get(name, name)}.")


OF_CLASSES = {PREFIX + name: logger_option(name) for name in CLASSES}


def lookup(key: str) -> ConfigOption[str] | None:
    """The option of a logger's key; None for any other key, and for a name that looks like a misspelt one of `CLASSES`.

    >>> lookup("logger.my_shop.cleaning").key
    'logger.my_shop.cleaning'
    >>> lookup("logger.TaskManger")
    """
    name = key.removeprefix(PREFIX)
    if key in OF_CLASSES:
        return OF_CLASSES[key]
    if name in ("", key) or difflib.get_close_matches(name, CLASSES, n=1, cutoff=0.8):
        return None
    # log4j's longer form: one key for the name of a logger, another for its level
    return None if name.endswith((".level", ".name")) else logger_option(name)
