"""The flinkish counterpart of the bare query in `benchmarks.empty_epochs`: a silent source, and keyed operators with
processing-time timers in a row, so that every subtask is called in every epoch."""

from __future__ import annotations

import json
import tempfile
import time
from typing import Any

from benchmarks import spark_settings
from benchmarks.empty_epochs import SUBTASKS, EpochEnds, argument_parser, steps_ms
from benchmarks.pipelines.dict_sink import DictSink
from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.generated import NumberedSplitSource
from flinkish.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from flinkish.jobmanager.job.description import JobObserver
from flinkish.runtime.epoch.steps import EpochReport


class SilentSource(NumberedSplitSource):
    """A source that never has a record."""

    @property
    def bounded(self) -> bool:
        """Unbounded."""
        return False

    @property
    def produced_type(self) -> TypeInformation:
        """Any type."""
        return Types.PICKLED_BYTE_ARRAY()

    @property
    def splits(self) -> int:
        """One split."""
        return 1

    def size_of(self, split: int) -> int | None:
        """Unbounded."""
        return None

    def end_of_epoch(self, split: int, position: int) -> int:
        """No new records."""
        return position

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        """No records."""
        return []


class Reminder(KeyedProcessFunction):
    """May register processing-time timers, so that its subtasks are called without data."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        """Register a timer for a second later."""
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 1000)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        """Emits nothing."""
        return ()


class Ends(JobObserver):
    """Records when the epochs end."""

    def __init__(self, warm_up: int) -> None:
        self.epochs = EpochEnds(warm_up)

    def epoch_done(self, report: EpochReport) -> None:
        """Called after each epoch."""
        self.epochs.add()


def epochs_ms(spark: Any, operators: int, epochs: int, warm_up: int) -> dict[str, Any]:
    """Run one job for `warm_up + epochs` epochs."""
    configuration = Configuration()
    configuration.set_string("flinkish.heartbeat.interval", "0 ms")
    configuration.set_string("flinkish.job.dir", tempfile.mkdtemp(prefix="flinkish-empty-epochs-"))
    configuration.set_string("execution.checkpointing.interval", "0")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(SUBTASKS)
    stream: Any = env.from_source(SilentSource(), WatermarkStrategy.no_watermarks(), "silence")
    for _ in range(operators):
        stream = stream.key_by(lambda value: value).process(Reminder())
    stream.sink_to(DictSink())
    client = env.execute_async(f"empty-epochs-{operators}")
    ends = Ends(warm_up)
    client.run.observers.append(ends)  # type: ignore[attr-defined]
    result = client.get_job_execution_result()
    while len(ends.epochs.ended_s) < warm_up + epochs + 1 and not result.done():
        time.sleep(0.05)
    (stream,) = spark.streams.active
    measured = ends.epochs.figures(steps_ms(stream, warm_up))
    client.cancel()
    result.result()
    return measured


def main() -> None:
    """Print one line of JSON: figures per count of operators."""
    options = argument_parser().parse_args()
    spark = spark_settings.session("flinkish empty epochs")
    measured = {str(n): epochs_ms(spark, n, options.epochs, options.warm_up) for n in options.operators}
    spark.stop()
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
