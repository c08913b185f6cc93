"""A driver of its own whose jobs need files beside the program. ``shipping_job.py FOLDER SESSION``: SESSION is
``local``, ``local-cluster``, ``connect`` or ``minicluster``. It prints what the functions found, a line of JSON per
job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from flinkish.common import Configuration
from flinkish.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment


def make_files(folder: Path, text: str) -> Path:
    """Everything that a job ships, with this text in it."""
    folder.mkdir()
    (folder / "modules").mkdir()
    (folder / "modules" / f"module_{text}.py").write_text(f"VALUE = '{text}'\n")
    (folder / f"single_{text}.py").write_text(f"VALUE = '{text}'\n")
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr("inner/data.txt", text)
    (folder / "words.txt").write_text(text)
    (folder / "shout.sh").write_text(f"#!/bin/sh\necho {text} $1\n")
    (folder / "requirements.txt").write_text(f"package-{text}==1.0\n")
    (folder / "wheels").mkdir()
    _make_wheel(folder / "wheels", text)
    return folder


def _make_wheel(folder: Path, text: str) -> None:
    info = f"package_{text}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"package_{text}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"package_{text}/__init__.py", f"VALUE = '{text}'\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: package-{text}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


class Look(MapFunction):
    """Says what it finds of the files with that text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def open(self, runtime_context: RuntimeContext) -> None:
        self.files = runtime_context.get_distributed_cache()

    def map(self, value: Any) -> dict[str, str]:
        shout = [self.files.get_file("shout"), "loud"]
        return {
            "module": __import__(f"module_{self.text}").VALUE,
            "file": __import__(f"single_{self.text}").VALUE,
            "package": __import__(f"package_{self.text}").VALUE,
            "archive": Path("stuff/inner/data.txt").read_text(),
            "cached": Path(self.files.get_file("words")).read_text(),
            "executable": subprocess.run(shout, capture_output=True, text=True, check=True).stdout.strip(),
            "python path": str("/on/each/node" in sys.path),
        }


def run(files: Path, text: str, configuration: Configuration) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.add_python_file(str(files / "modules"))
    env.add_python_file(str(files / f"single_{text}.py"))
    env.set_python_requirements(str(files / "requirements.txt"), str(files / "wheels"))
    env.add_python_archive(str(files / "data.zip"), "stuff")
    env.register_cached_file(str(files / "words.txt"), "words")
    env.register_cached_file((files / "shout.sh").as_uri(), "shout", executable=True)
    env.configure(Configuration().set_string("python.pythonpath", "/on/each/node"))
    with env.from_collection(range(8)).rebalance().map(Look(text)).execute_and_collect() as found:
        print("found", json.dumps([json.loads(one) for one in {json.dumps(one) for one in found}]), flush=True)


def main(folder: Path, session: str) -> None:
    configuration = Configuration()
    if session == "minicluster":
        configuration.set_string("execution.target", "minicluster")
    elif session == "connect":
        from pyspark.sql import SparkSession

        from tests.support.spark_session import session_settings

        builder = SparkSession.builder.remote("local[2]")
        for key, value in session_settings(folder / "spark").items():
            builder = builder.config(key, value)
        builder.getOrCreate()
    elif session == "local-cluster":
        from tests.support.local_cluster import start_cluster_session

        start_cluster_session(folder / "spark")
    else:
        from tests.support.spark_session import start_session

        start_session(folder / "spark")
    # two jobs of one driver, whose files have the same names
    run(make_files(folder / "first", "first"), "first", configuration)
    run(make_files(folder / "second", "second"), "second", configuration)
    # and one without any: its functions run where the driver's program does not look into archives
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    inside = env.from_collection([1]).rebalance().map(lambda _: "flinkish-work" in os.getcwd())
    with inside.execute_and_collect() as last:
        print("inside", list(last), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
