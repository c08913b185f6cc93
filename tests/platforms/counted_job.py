"""The job whose requests to S3 are counted: two subtasks of a source, a shuffle, and a sum per key in two subtasks.

``python -m tests.platforms.counted_job [key=value ...]`` runs it with these settings until it is killed.
"""

from __future__ import annotations

import sys

from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment


def main() -> None:
    """Runs the job."""
    configuration = Configuration()
    for setting in sys.argv[1:]:
        configuration.set_string(*setting.split("=", 1))
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    pairs = Types.TUPLE([Types.STRING(), Types.LONG()])
    source = DataGeneratorSource(lambda i: (f"key {i % 10}", 1), type_info=pairs, records_per_epoch=20, splits=2)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda pair: pair[0], Types.STRING()).reduce(lambda a, b: (a[0], a[1] + b[1])).print()
    env.execute("counted")


if __name__ == "__main__":
    main()
