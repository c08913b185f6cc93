"""Environments for jobs of these tests, and sinks whose records the test can look at."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flinkish.common import Configuration, Time, WatermarkStrategy
from flinkish.common.time import Duration
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.results import NAMED, CollectSink, register_collector, unregister_collector
from flinkish.datastream import StreamExecutionEnvironment

__all__ = ["Collected", "Time", "by_field", "collecting", "environment", "settings"]

_numbers = itertools.count()


def settings(job_dir: Path | str | None = None, **more: Any) -> Configuration:
    """Two subtasks, four key groups, no progress, no checkpoints and so no restarts. ``more`` are keys with ``__`` for
    ``.`` and ``_`` for ``-``."""
    configuration = Configuration()
    values = {
        "parallelism.default": "2",
        "pipeline.max-parallelism": "4",
        "flinkish.progress": "never",
        "flinkish.history.enabled": "false",
        "execution.checkpointing.interval": "0 s",
        **{key.replace("__", ".").replace("_", "-"): str(value) for key, value in more.items()},
    }
    if job_dir is not None:
        values["flinkish.job.dir"] = str(job_dir)
    for key, value in values.items():
        configuration.set_string(key, value)
    return configuration


def environment(job_dir: Path | str | None = None, **more: Any) -> StreamExecutionEnvironment:
    """An environment with `settings`."""
    return StreamExecutionEnvironment.get_execution_environment(settings(job_dir, **more))


class Collected:
    """What each sink got, by its name."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._names: list[str] = []
        self.rows: dict[str, list[Any]] = defaultdict(list)

    def sink(self, name: str = "out") -> CollectSink:
        """A sink whose records are then found under this name."""
        full = f"{self._prefix}-{name}"
        self._names.append(full)
        register_collector(full, NAMED, self.rows[name].extend)
        return CollectSink(full)

    def sorted(self) -> dict[str, list[Any]]:
        """The records of each sink in an order that does not depend on subtasks."""
        return {name: sorted(rows, key=repr) for name, rows in self.rows.items()}

    def close(self) -> None:
        """Forget the sinks."""
        for name in self._names:
            unregister_collector(name, NAMED)


@contextmanager
def collecting() -> Iterator[Collected]:
    """Sinks for one test."""
    collected = Collected(f"engine-{next(_numbers)}")
    try:
        yield collected
    finally:
        collected.close()


class _Field(TimestampAssigner):
    def __init__(self, index: int) -> None:
        self._index = index

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[self._index])


def by_field(index: int, out_of_order_ms: int = 0) -> WatermarkStrategy:
    """Event time is a field of the record, in ms."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(out_of_order_ms))
    return strategy.with_timestamp_assigner(_Field(index))
