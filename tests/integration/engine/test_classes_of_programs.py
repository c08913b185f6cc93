"""Keys and values of classes of the program: the state moves between the ways to start a program, and runs its code."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.processes import ProcessGroup, python_path
from tests.support.spark_session import session_settings

PROGRAM = """
import dataclasses, enum, os, sys
from pathlib import Path

from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.connectors.file_system.source import FileSource
from flinkish.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from flinkish.datastream.state import ValueStateDescriptor


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


@dataclasses.dataclass(frozen=True)
class User:
    name: str
    colour: Colour


class Shop:
    class Tally:
        def __init__(self):
            self.count = 0

        def text(self):
            return f"VERSION {self.count}"


class Count(KeyedProcessFunction):
    def open(self, context):
        self.tally = context.get_state(ValueStateDescriptor("tally", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, user, context):
        tally = self.tally.value() or Shop.Tally()
        tally.count += 1
        self.tally.update(tally)
        same = context.get_current_key().colour in (Colour.RED, Colour.GREEN)
        yield f"{user.name} {same} {tally.text()}"


def user_of(line):
    name, colour = line.split()
    return User(name, Colour[colour])


def main():
    folder = Path(sys.argv[1])
    if os.environ.get("TEST_SESSION") == "connect":
        from pyspark.sql import SparkSession
        from tests.support.spark_session import session_settings

        builder = SparkSession.builder.remote("local[2]")
        for key, value in session_settings(folder).items():
            builder = builder.config(key, value)
        builder.getOrCreate()
    elif os.environ.get("TEST_SESSION") != "spark-submit":  # which has the settings on its command line
        from tests.support.spark_session import start_session

        start_session(folder)
    settings = Configuration()
    for key, value in {
        "flinkish.job.dir": str(folder / "job"),
        "execution.trigger": "available-now",
        "flinkish.history.enabled": "false",
        "execution.checkpointing.interval": "0 s",
    }.items():
        settings.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
    #ALIASES
    lines = env.from_source(
        FileSource.text(str(folder / "in")).monitor(), WatermarkStrategy.no_watermarks(), "lines"
    )
    users = lines.uid("lines").map(user_of).uid("users").key_by(lambda user: user)
    users.process(Count(), Types.STRING()).uid("counts").map(lambda text: f"SAW {text}", Types.STRING()).print()
    env.execute("classes")


if __name__ == "__main__":
    main()
"""


class Program:
    """A program in a folder, started in several ways, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = PROGRAM
        self._runs = 0
        (folder / "in").mkdir()

    def run(self, way: str, *lines: str, exit_code: int = 0) -> tuple[list[str], str]:
        """What the program has counted of these lines, in order of the texts, and all that it has said."""
        self._runs += 1
        temporary = self.folder / f".{self._runs}.txt"
        temporary.write_text("".join(f"{line}\n" for line in lines))
        temporary.rename(self.folder / "in" / f"{self._runs}.txt")
        program = self.folder / "program.py"
        program.write_text(self.source)
        command = [sys.executable, str(program)]
        if way == "run":
            command = [sys.executable, "-m", "flinkish.launch.driver", str(program)]
        elif way == "import":
            starter = self.folder / "starter.py"
            starter.write_text("import program\nprogram.main()\n")
            command = [sys.executable, str(starter)]
        elif way == "spark-submit":
            submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
            settings = session_settings(self.folder)
            conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
            command = [submit, "--master", "local[2]", *conf, str(program)]
        environment = {
            "PYTHONPATH": os.pathsep.join([python_path(), str(self.folder)]),
            "PYTHONHASHSEED": str(self._runs),
            "PYSPARK_PYTHON": sys.executable,
            "TEST_SESSION": way,
        }
        log = self.folder / f"{self._runs}.log"
        with ProcessGroup([*command, str(self.folder)], log, environment) as driver:
            driver.end_with(exit_code, 300)
        said = log.read_text()
        return sorted(re.findall(r"SAW (.*)", said)), said


@pytest.mark.slow
def test_counts_by_objects_of_a_script_go_on_in_another_process_with_its_new_code(tmp_path: Path) -> None:
    program = Program(tmp_path)
    seen, _ = program.run("python", "ann RED", "ann RED", "bob GREEN")
    assert seen == ["ann True VERSION 1", "ann True VERSION 2", "bob True VERSION 1"]

    program.source = PROGRAM.replace("VERSION", "NEW")
    renamed = program.source.replace("User", "Client")
    program.source = renamed.replace("#ALIASES", 'env.register_class_alias("__main__.User", Client)')
    seen, _ = program.run("run", "ann RED", "ann GREEN", "bob GREEN")
    assert seen == ["ann True NEW 1", "ann True NEW 3", "bob True NEW 2"]


@pytest.mark.slow
def test_state_moves_between_all_ways_to_start_a_program(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for count, way in enumerate(("python", "connect", "run", "spark-submit", "connect"), start=1):
        seen, _ = program.run(way, "ann RED")
        assert seen == [f"ann True VERSION {count}"], way

    _, said = program.run("import", "ann RED", exit_code=1)
    assert "the stored class __main__." in said
    assert "env.register_class_alias(" in said
    names = ("Colour", "User", "Shop.Tally")
    aliases = "; ".join(f'env.register_class_alias("__main__.{name}", {name})' for name in names)
    program.source = PROGRAM.replace("#ALIASES", aliases)
    assert program.run("import")[0] == ["ann True VERSION 6"]
