"""What a job at one epoch a second leaves in its directory: files and bytes of each kind, and in a day.

    python -m benchmarks.files_of_a_job [--minutes 6] [--keys 20000]

A job on Spark counts random keys, with a checkpoint every ten seconds. Its directory is looked at after a third of the
time, and then every five seconds until the end; printed is the most that was there before and after the middle of that.
What is the same in both is all that there ever is. Of what grows, the rest of a day is computed from how it has grown;
the tables of the history write a row for each checkpoint, and Delta keeps their logs for one to two days. The job ends
with the same text as `docs/operations.md` has.
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
KINDS = (
    (r"history/[a-z]+/_delta_log/.*", "`history/`: logs of the tables", "one to two days of commits"),
    (r"history/.*", "`history/`: rows", "`flinkish.history.retention`; a file a day for each table"),
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
#: Days for which what grows is computed.
DAY_S = 86_400.0


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


def table(early: Look, late: Look, grown_s: float) -> list[str]:
    """The lines of the table. ``grown_s``: seconds between the two looks."""
    lines = ["| what | files; KiB | a day later | bounded by |", "| --- | ---: | ---: | --- |"]
    for _, name, bound in KINDS:
        if not late.files[name]:
            continue
        files, size = late.files[name], late.bytes[name]
        day = "the same"
        if name.startswith("`history"):
            more = (late.files[name] - early.files[name], late.bytes[name] - early.bytes[name])
            # compaction leaves a file a day of the rows, with as many bytes as all of them have
            files_a_day = files if "rows" in name else files + more[0] * DAY_S / grown_s
            day = f"{files_a_day:,.0f}; {(size + more[1] * DAY_S / grown_s) / 1024:,.0f}"
        lines.append(f"| {name} | {files:,}; {size / 1024:,.0f} | {day} | {bound} |")
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
    early, late, length_s = Look(), Look(), options.minutes * 60 / 3
    while client.describe().metrics["epochs"] < 10:
        time.sleep(1)
    time.sleep(length_s)
    for look in (early, late):
        deadline = time.monotonic() + length_s
        while time.monotonic() < deadline:
            time.sleep(5)
            look.take(folder)
    epochs = client.describe().metrics["epochs"]
    client.cancel().result()
    client.get_job_execution_result().exception()
    print(f"{epochs:.0f} epochs in {options.minutes} minutes")
    return table(early, late, length_s)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files_of_a_job", description=__doc__)
    parser.add_argument("--minutes", type=float, default=6.0)
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
