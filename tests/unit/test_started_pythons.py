"""Each Python that flinkish starts gets its command in one place, and imports nothing of the folder it starts in."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkish.common.dependencies import Dependencies, installed_requirements
from flinkish.interpreter import FLINKISH, python_command
from flinkish.rest.route import Asked
from flinkish.rest.state import state
from flinkish.session.children import Child, Children, RestartPolicy
from tests.support import described_jobs
from tests.support.processes import python_path, wait_until
from tests.support.sources import name_of, trees

TIMEOUT_S = 60.0

#: What starts a process, and the module that it is of.
STARTS = re.compile(
    r"(subprocess\.(?!PIPE|DEVNULL|STDOUT|TimeoutExpired|CalledProcessError|CompletedProcess|SubprocessError)\w+"
    r"|os\.(exec|spawn|posix_spawn|system|popen|fork|startfile)\w*"
    r"|(multiprocessing|pty|runpy|_posixsubprocess)\.\w+|asyncio\.(subprocess|create_subprocess)\w*"
    r"|.*\.(subprocess_exec|subprocess_shell|ProcessPoolExecutor))$"
)
PYTHON = "its command comes from `python_command`"
#: All places that start a process: what it is.
PLACES = {
    "common/dependencies.py installed_requirements": PYTHON,
    "doctor/machine.py _of_spark": PYTHON,
    "launch/__main__.py run": PYTHON,
    "launch/class_archive.py _make": PYTHON,
    "launch/class_archive.py begin": PYTHON,
    "launch/packages.py resolved_by_spark": PYTHON,
    "rest/state.py _read": PYTHON,
    "session/children.py _start": PYTHON,
    "spark/driver_jvm.py as_part_of_this_driver": "the JVM, by PySpark; `_import_path` is in its environment",
    "spark/session.py installed_java": "java",
}
#: Who names an interpreter otherwise: for what.
INTERPRETERS = {
    "interpreter.py": "the one place",
    "launch/spark_command.py": "what the JVM is told to run, with PYTHONSAFEPATH",
    "runtime/stored/classes.py": "where its scripts are",
    "spark/executors.py": "what the JVM is told to run, with PYTHONSAFEPATH",
    "spark/session.py": "what the JVM is told to run, with PYTHONSAFEPATH",
}


def named(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{named(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def places(node: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Each node outside of annotations, with the name of the function that it is in."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        inside = node.name
    yield inside, node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in ("annotation", "returns"):
                yield from places(child, inside)


def test_each_process_that_is_started_is_known_and_each_python_gets_its_command_in_one_place() -> None:
    found: dict[str, set[str]] = {}
    for path, tree in trees().items():
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for function, node in places(tree):
            place = f"{name_of(path)} {function}"
            if isinstance(node, (ast.Attribute, ast.Name)):
                full = imported.get(named(node), named(node))
                if STARTS.match(full):
                    found.setdefault(place, set()).add(full)
            if isinstance(node, ast.Call):
                called = named(node.func)
                found.setdefault(f"calls {place}", set()).add(called)
            if isinstance(node, ast.Constant) and node.value == "Popen":
                found.setdefault(place, set()).add("Popen")
    calls = {place.removeprefix("calls "): names for place, names in found.items() if place.startswith("calls ")}
    starts = {place for place, names in found.items() if not place.startswith("calls ") and names}
    assert starts == set(PLACES)
    takes = {
        place for place, names in calls.items() if any(re.search(r"python_command$|\.words$", one) for one in names)
    }
    assert {place for place, what in PLACES.items() if what == PYTHON} <= takes


def test_no_other_module_names_an_interpreter_or_writes_its_options() -> None:
    naming, writing = set(), set()
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("executable", "_base_executable"):
                if named(node).startswith("sys."):
                    naming.add(name_of(path))
            if isinstance(node, (ast.List, ast.Tuple)):
                words = [one.value for one in node.elts if isinstance(one, ast.Constant)]
                if "/bin/sh" not in words and {"-m", "-c"} & {word for word in words if isinstance(word, str)}:
                    writing.add(name_of(path))
    assert naming == set(INTERPRETERS)
    assert writing == {"interpreter.py"}


#: Modules that Python, PySpark or flinkish import, and that are beside the program in no other test.
HOSTILE = (
    "argparse",
    "json",
    "flinkish",
    "sitecustomize",
    "usercustomize",
    "pyspark",
    "subprocess",
    "runpy",
    "pip",
    "os",
)

PROGRAM = """
import os, sys
import beside
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment

settings = Configuration()
settings.set_string("execution.target", "minicluster")
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.from_collection([1, 2]).map(beside.double).print()
env.execute("job")
print("path", os.path.basename(sys.path[0]), sys.argv[1:], flush=True)
"""


class Folders:
    """A program with a module beside it, and a folder of somebody else in which processes are started."""

    def __init__(self, folder: Path) -> None:
        self.program, self.hostile = folder / "own" / "program.py", folder / "hostile"
        self.program.parent.mkdir()
        self.hostile.mkdir()
        self.program.write_text(PROGRAM)
        (self.program.parent / "beside.py").write_text("def double(n):\n    return 2 * n\n")
        self._marker = folder / "marker"
        for name in HOSTILE:
            text = f"open({str(self._marker)!r}, 'a').write(__name__ + ' ')\nraise ImportError(__name__)\n"
            (self.hostile / f"{name}.py").write_text(text)

    def imported(self) -> str:
        return self._marker.read_text() if self._marker.exists() else ""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    made = Folders(tmp_path)
    monkeypatch.chdir(made.hostile)
    monkeypatch.setenv("PYTHONPATH", python_path())
    return made


def _reads_state(folders: Folders) -> None:
    job = described_jobs.checkpointed_job(folders.program.parent)
    latest = job.checkpoints.latest_completed
    assert latest is not None
    saved = replace(latest, path=described_jobs.savepoint_of_job(folders.program.parent / "savepoints"))
    job = replace(job, checkpoints=replace(job.checkpoints, latest_completed=saved))
    answer: Any = state(Asked(described_jobs.FixedJobs((job,)), 0, {"job": job.id}, {}))
    assert [one["uid"] for one in answer["states"]] == ["count"]


def _installs_requirements(folders: Folders) -> None:
    file = folders.program.with_name("requirements.txt")
    file.write_text("# none\n")
    assert os.path.isdir(installed_requirements(Dependencies(requirements=str(file))))


def _runs_a_command(*words: str) -> Callable[[Folders], None]:
    def run(folders: Folders) -> None:
        line = [word.replace("PROGRAM", str(folders.program)) for word in words]
        ended = subprocess.run(python_command(FLINKISH, *line), capture_output=True, text=True, timeout=TIMEOUT_S)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        if "run" in line:
            assert ended.stdout.splitlines()[-1:] == ["path own ['a']"]

    return run


def _runs_a_program(folders: Folders) -> None:
    ended = subprocess.run(
        [sys.executable, str(folders.program), "a"], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert ended.stdout.splitlines()[-1:] == ["path own ['a']"], ended.stderr


def _starts_a_driver_of_the_session(folders: Folders) -> None:
    """The directory of a job, in which its driver is started, is the hostile one."""
    children = Children(folders.hostile.parent, {}, RestartPolicy(attempts=0), dict(os.environ))
    children.submit(Child("hostile", str(folders.program), ["a"], {}, "upload", 0))
    log = folders.hostile / "driver.log"
    wait_until(lambda: children.look() or children.all()[0].status == "ENDED", TIMEOUT_S, "the driver's end")
    assert log.read_text().splitlines()[-1:] == ["path own ['a']"]


#: What starts Python in the current directory.
WAYS: dict[str, Callable[[Folders], None]] = {
    "the route of the state": _reads_state,
    "requirements are installed": _installs_requirements,
    "flinkish run": _runs_a_command("run", "PROGRAM", "a"),
    "flinkish info": _runs_a_command("info", "PROGRAM"),
    "flinkish doctor": _runs_a_command("doctor", "-D", "execution.target=minicluster"),
    "python program.py": _runs_a_program,
    "the session process": _starts_a_driver_of_the_session,
}


@pytest.mark.parametrize("way", WAYS)
def test_no_module_of_the_current_directory_is_imported(folders: Folders, way: str) -> None:
    WAYS[way](folders)
    assert folders.imported() == ""


@pytest.mark.parametrize("own", [True, False])
def test_a_command_finds_nothing_in_the_current_directory_and_its_children_do_as_they_are_told(
    folders: Folders, own: bool
) -> None:
    code = "import subprocess\nprint(subprocess.run(sys.argv[1:], capture_output=True, text=True).stdout)"
    child = folders.program.with_name("child.py")
    child.write_text("import beside\nprint(beside.double(4))\n")
    command = python_command(code, sys.executable, str(child), own=own)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "8"
    assert folders.imported() == ""


@pytest.mark.parametrize("safe", ["", "1"])
def test_this_very_installation_is_found_before_all_others(tmp_path: Path, safe: str) -> None:
    (tmp_path / "flinkish.py").write_text("raise ImportError('of somebody else')\n")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": safe}
    ended = subprocess.run(python_command("import flinkish"), env=variables, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
