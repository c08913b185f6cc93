"""A job directory belongs to no version of Spark: a driver begins it, one of another Spark goes on, and back again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY, python_path

OLDER = REPOSITORY / ".venv-4.0/bin/python"

#: Counts the words of the files that have come since its last run, three in each epoch, and prints all counts.
PROGRAM = """
import json, sys
from flinkish.common import Configuration, WatermarkStrategy
from flinkish.connectors.file_system.source import FileSource
from flinkish.datastream import StreamExecutionEnvironment

folder = sys.argv[1]
configuration = Configuration()
for key, value in {
    "flinkish.job.dir": folder + "/job",
    "execution.trigger": "available-now",
    "execution.checkpointing.interval": "1 h",
    "flinkish.epoch.max-records-per-source": "3",
    "parallelism.default": "2",
    "flinkish.prepare": "off",
}.items():
    configuration.set_string(key, value)
env = StreamExecutionEnvironment.get_execution_environment(configuration)
source = FileSource.text(folder + "/in").monitor()
words = env.from_source(source, WatermarkStrategy.no_watermarks(), "words").uid("words")
counts = words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1).uid("counts")
rows = list(counts.execute_and_collect("versions"))
import pyspark
print("RESULT", json.dumps([pyspark.__version__, sorted(rows)]))
"""

WORDS = [["a", "b", "a", "c", "a"], ["b", "a", "d", "b"], ["d", "a", "c", "a", "a"]]


def run(python: str, folder: Path) -> tuple[str, list[list[object]]]:
    """The version of Spark that has run, and the counts that it has added."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
    environment = {**inherited, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": python}
    result = subprocess.run(
        [python, str(program), str(folder)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("RESULT ")]
    version, rows = json.loads(line.removeprefix("RESULT "))
    return version, rows


@pytest.mark.slow
@pytest.mark.skipif(not OLDER.exists(), reason="no second Spark: ./run-tests.sh --spark 4.0 makes its environment")
def test_a_job_directory_of_one_spark_goes_on_with_another_one_and_back(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    versions, found = [], []
    for number, python in enumerate((str(OLDER), sys.executable, str(OLDER))):
        (tmp_path / f"in/{number}.txt").write_text("\n".join(WORDS[number]) + "\n")
        version, rows = run(python, tmp_path)
        versions.append(version)
        found += rows
    assert versions[0] == versions[2] != versions[1]
    # each word is counted up without a gap, over all runs
    words = [word for part in WORDS for word in part]
    assert sorted(found) == sorted([word, count] for word in set(words) for count in range(1, words.count(word) + 1))
    assert len(list((tmp_path / "job/checkpoints").glob("chk-*/manifest.json"))) == 1
