"""What a job at one epoch a second leaves in its directory: files and bytes of each kind, and in a day.

    python -m benchmarks.files_of_a_job [--epochs 300] [--keys 20000]

A job on Spark counts random keys, with a checkpoint every ten seconds. After a third of the epochs its directory is
looked at every few seconds; printed is the most that was there in the second and in the last third. What is the same in
both is all that there ever is. Only the history grows with time: a commit a minute for each table that has news, of
which Delta keeps the files for one to two days, and the rows, which `benchmarks.history` measures.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import spark_settings

#: A path below the job directory -> what it is called; the first one counts. And what bounds it.
LOGS, ROWS = "`history/`: logs of the tables", "`history/`: rows"
KINDS = (
    (r"history/[a-z]+/_delta_log/.*", LOGS, "one to two days of commits"),
    (r"history/.*", ROWS, "`flinkish.history.retention`; a file a day for each table"),
    (r"fencing/.*", "`fencing/`", "the starts of drivers"),
    (r"checkpoints/[a-z]+/_delta_log/.*", "`checkpoints/`: logs of the tables", "the oldest retained checkpoint"),
    (
        r"checkpoints/(state|changes)/.*",
        "`checkpoints/`: rows",
        "`execution.checkpointing.num-retained`, twice the state",
    ),
    (r"checkpoints/chk-.*", "`checkpoints/chk-N/`", "`execution.checkpointing.num-retained`"),
    (r"spark[^/]*/prepared/.*", "`prepared/`", "two committed epochs and the running one"),
    (r"spark[^/]*/(offsets|commits)/.*", "`spark/`: epochs", "`spark.sql.streaming.minBatchesToRetain`"),
    (r"spark[^/]*/state/.*", "`spark/`: state", "`flinkish.state.inline-size`, the retained epochs"),
    (r"spark[^/]*/.*", "`spark/`: sources, metadata", "what the sources have read"),
    (r"keyed-state/.*", "`keyed-state/`", "the live state, and what the last 18 epochs have replaced"),
    (r"changelog/.*", "`changelog/`", "`execution.checkpointing.interval`"),
    (r"accumulators/.*", "`accumulators/`", "the last epochs"),
    (r".*", "files of the job directory itself", "a few small files"),
)
#: Commits of the tables of the history in a day, where there is a checkpoint every minute or more often; and for how
#: many days Delta keeps the files of a commit (two, and every tenth time a checkpoint of the log).
COMMITS_A_DAY, DAYS_KEPT, FILES_A_COMMIT = 1_440, 2, 2.1


@dataclass
class Look:
    """The most files and bytes of each kind that were there at one time."""

    files: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def take(self, folder: Path) -> None:
        """Look at the directory."""
        files: dict[str, int] = defaultdict(int)
        sizes: dict[str, int] = defaultdict(int)
        for path in folder.rglob("*"):
            relative = str(path.relative_to(folder))
            kind = next(name for form, name, _ in KINDS if re.fullmatch(form, relative))
            try:
                if path.is_file():
                    files[kind] += 1
                    sizes[kind] += path.stat().st_size
            except FileNotFoundError:
                continue
        for kind, count in files.items():
            self.files[kind] = max(self.files[kind], count)
            self.bytes[kind] = max(self.bytes[kind], sizes[kind])


def table(early: Look, late: Look) -> list[str]:
    """The lines of the table."""
    lines = ["| what | files; KiB | later | bounded by |", "| --- | ---: | ---: | --- |"]
    for _, name, bound in KINDS:
        files, size = late.files[name], late.bytes[name] / 1024
        later = f"{files:,}; {size:,.0f}"
        if name == LOGS:
            most = COMMITS_A_DAY * DAYS_KEPT * FILES_A_COMMIT
            later = f"{most:,.0f}; {size / files * most:,.0f} after two days"
        elif name == ROWS:
            later = "a file a day"
        if late.files[name]:
            lines.append(f"| {name} | {early.files[name]:,}; {early.bytes[name] / 1024:,.0f} | {later} | {bound} |")
    return lines


def run(options: argparse.Namespace, folder: Path) -> list[str]:
    """Run the job; returns the table."""
    from benchmarks.pipelines.dict_sink import DictSink
    from flinkish.common import Configuration, Types, WatermarkStrategy
    from flinkish.connectors.generated import DataGeneratorSource
    from flinkish.datastream import StreamExecutionEnvironment

    configuration = Configuration()
    for key, value in (
        ("flinkish.job.dir", str(folder)),
        ("flinkish.epoch.interval", "1 s"),
        ("execution.checkpointing.interval", "10 s"),
        ("flinkish.progress", "never"),
    ):
        configuration.set_string(key, value)
    keys = options.keys
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    source = DataGeneratorSource(lambda number: number * 7919 % keys, type_info=Types.LONG(), records_per_second=2_000)
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    ones = env.from_source(source, WatermarkStrategy.no_watermarks(), "keys").map(lambda key: (key, 1), pair)
    counts = ones.key_by(lambda one: one[0], Types.LONG()).reduce(lambda one, other: (one[0], one[1] + other[1]))
    counts.sink_to(DictSink())
    client = env.execute_async("files of a job")
    early, late, third = Look(), Look(), options.epochs // 3
    while (epochs := client.describe().metrics["epochs"]) < options.epochs:
        time.sleep(3)
        if epochs > third:
            (early if epochs < 2 * third else late).take(folder)
    client.cancel().result()
    client.get_job_execution_result().exception()
    return table(early, late)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files_of_a_job", description=__doc__)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--keys", type=int, default=20_000)
    options = parser.parse_args()
    spark = spark_settings.session("files of a job")
    try:
        with tempfile.TemporaryDirectory() as folder:
            print("\n".join(run(options, Path(folder) / "job")))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
