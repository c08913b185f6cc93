"""A job whose records say which Python has processed them: ``located_job.py [--own-session MASTER]``.

With the option it runs in a session that the program has made itself, and from another thread, as notebooks do. It
prints one line of JSON for each record: the record, and the interpreter and flinkish of both of its tasks.
"""

from __future__ import annotations

import json
import sys
import threading

import flinkish
from flinkish.common import Types, WatermarkStrategy
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import StreamExecutionEnvironment

try:
    from pricing import price  # of --py-files; the planner must import it, since functions refer to it
except ImportError:
    price = int

COUNT = 40


def located(record: int) -> tuple[int, str]:
    return price(record), f"{sys.executable} {flinkish.__file__}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    source = DataGeneratorSource(lambda i: i, count=COUNT, type_info=Types.LONG(), records_per_epoch=COUNT // 2)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    first = records.map(located, Types.TUPLE([Types.LONG(), Types.STRING()]))
    both = first.key_by(lambda pair: pair[0] % 5).map(
        lambda pair: json.dumps([*pair, located(pair[0])[1]]), Types.STRING()
    )
    with both.execute_and_collect("located") as rows:
        print(*rows, sep="\n", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--own-session"]:
        from pyspark.sql import SparkSession

        SparkSession.builder.master(sys.argv[2]).config("spark.ui.enabled", "false").getOrCreate()
        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
    else:
        main()
