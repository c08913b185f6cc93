"""``flinkish info``: the plan of a program that runs up to its ``execute`` and no further."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

import pytest

from flinkish.cli import main
from flinkish.jobmanager import signals as live_jobs

PROGRAM = """
import sys
from flinkish.common import Types
from flinkish.datastream import StreamExecutionEnvironment

print("arguments", sys.argv[1:])
env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1], Types.INT())
numbers.key_by(lambda n: n, Types.INT()).reduce(lambda a, b: a + b).name("Sum").uid("sum").print()
env.execute("shop")
print("behind execute")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def info(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command in this process; gives its exit code and what it wrote to both outputs."""
    # the code of a program tells of jobs that somebody has stopped, such as those of other tests
    live_jobs.forget_stops()
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def run(*arguments: Any) -> tuple[int, str, str]:
        with mock.patch.dict(os.environ), pytest.raises(SystemExit) as ended:
            sys.exit(main(["info", *map(str, arguments)]))
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def test_the_plan_is_shown_as_a_table_with_what_keeps_state(info: Callable[..., Any], program: Path) -> None:
    code, out, err = info("-p", "3", program, "--input", "x")
    assert (code, err) == (0, "arguments ['--input', 'x']\n")
    assert out.startswith("job 'shop', parallelism 3\n\nOperator")
    assert "Sum (sum): by key (Integer)\n" in out and "Without a uid, so not restored from a savepoint: 'Source" in out


def test_the_plan_is_shown_as_flinks_json(info: Callable[..., Any], program: Path) -> None:
    _, out, _ = info("--json", program)
    assert [node["type"] for node in json.loads(out)["nodes"]][1:3] == ["_stream_key_by_map_operator", "Sum"]


@pytest.mark.parametrize(
    ("given", "behind", "begins", "arguments"),
    [
        (["--mermaid"], [], "flowchart LR", []),
        ([], ["--mermaid"], "flowchart LR", []),
        (["--svg", "-"], ["--json"], "<svg ", ["--json"]),
        ([], ["--svg"], "<svg ", []),
        ([], ["--svg", "-"], "<svg ", []),
        ([], ["a", "--json"], "{", ["a"]),
        ([], ["a", "--json", "b"], "job 'shop'", ["a", "--json", "b"]),
        ([], ["a", "--json", "--", "--master", "local"], "{", ["a"]),
    ],
)
def test_a_form_stands_before_the_program_or_at_the_end_of_the_line(
    info: Callable[..., Any], program: Path, given: list[str], behind: list[str], begins: str, arguments: list[str]
) -> None:
    code, out, err = info(*given, program, *behind)
    assert (code, out[: len(begins)], err) == (0, begins, f"arguments {arguments}\n")


def test_a_picture_is_written_to_a_file(info: Callable[..., Any], program: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    assert info("--svg", file, program)[:2] == (0, f"{file}\n")
    assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    code, out, err = info(program, "--svg", tmp_path / "no" / "plan.svg")
    assert (code, out) == (1, "") and "cannot be written: No such file" in err


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("x = 1 / 0", 1, 'program.py", line 1, in <module>'),
        ("x = 1", 1, "the program has ended without calling execute()"),
        ("import sys; sys.exit(5)", 5, ""),
    ],
)
def test_a_program_that_executes_nothing_ends_as_it_would(program: Path, text: str, code: int, says: str) -> None:
    program.write_text(text)
    command = [sys.executable, "-m", "flinkish.cli", "info", str(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (code, "") and says in ended.stderr
    assert "flinkish/" not in ended.stderr


@pytest.mark.parametrize("arguments", [[], ["no_such_program.py"], ["-D", "no value", "program.py"]])
def test_without_a_program_it_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", *arguments]) == 2
    assert capsys.readouterr().out == ""


def test_no_spark_is_started_or_even_imported(program: Path) -> None:
    code = "import atexit, sys; from flinkish.cli import main\n"
    code += (
        "atexit.register(lambda: print(sorted({name.split('.')[0] for name in sys.modules} & {'pyspark', 'py4j'})))\n"
    )
    code += f"main(['info', '--json', {str(program)!r}])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout[-4:]) == (0, "}\n[]\n"[-4:]), ended.stderr
