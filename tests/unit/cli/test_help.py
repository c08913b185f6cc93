"""Help, versions and completion of the command itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flinkish as package
from flinkish.cli import main
from tests.support.served_jobs import Told

Command = Callable[..., Told]


@pytest.fixture(scope="module")
def commands() -> list[str]:
    """The names of all commands, out of the script for bash."""
    script = subprocess.run(
        [sys.executable, "-m", "flinkish.cli", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    return re.findall(r"^ {8}'?([a-z ]+?)'?\) words=", script, re.MULTILINE)


def test_each_command_has_an_example_and_prints_json_where_it_can(commands: list[str], flinkish: Command) -> None:
    assert {"list", "describe", "savepoint", "savepoint status", "savepoint dispose", "run"} <= set(commands)
    # these become a program or serve, print a script, or are groups of commands
    without_json = {"run", "sql", "jobmanager", "completion", "state"}
    for command in commands:
        told = flinkish(*command.split(), "--help")
        assert told.code == 0
        assert "example" in told.out or command == "state", command
        assert command in without_json or "--json" in told.out, command


def test_the_versions_that_matter_are_shown_without_an_import_of_spark(flinkish: Command) -> None:
    code = "import sys\nfrom flinkish.cli import main\nassert main(['--version']) == 0\n"
    code += "assert not {'pyspark', 'pandas', 'pyarrow'} & set(sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = [line.rpartition(" ")[0] for line in shown.splitlines()]
    assert shown.splitlines()[0] == f"flinkish {package.__version__}"
    assert names[:6] == ["flinkish", "Python", "PySpark", "Delta Lake", "pyarrow", "pandas"]
    assert flinkish("--version", "--json").json()["Python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_list_and_a_description_need_neither_spark_nor_a_server(tmp_path: Path) -> None:
    code = "import sys\nfrom flinkish.cli import main\nassert main(['list']) == 0\nfound = set(sys.modules)\n"
    code += "assert not found & {'pyspark', 'pandas', 'pyarrow', 'starlette', 'uvicorn', 'flinkish.jobmanager'}, found"
    subprocess.run([sys.executable, "-c", code], env={"HOME": str(tmp_path), "PATH": "/usr/bin"}, check=True)


def test_a_command_of_one_word_keeps_its_arguments(flinkish: Command) -> None:
    """Only what is a command of two words is one: a job may be called like anything else."""
    assert "no job 'state' is found" in flinkish("savepoint", "state").err
    assert "no job 'status' is found" in flinkish("describe", "status").err


def test_no_command_is_refused_with_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == "" and "exit codes: 0 carried out, 2 refused or failed, 3 accepted and going on" in told.err


#: The words of a command line, the last one unfinished, and some of what it may become.
COMPLETIONS = [
    (["flinkish", "sa"], {"savepoint"}),
    (["flinkish", "savepoint", "st"], {"status"}),
    (["flinkish", "savepoint", "di"], {"dispose", "diff"}),
    (["flinkish", "savepoint", "status", "--js"], {"--json"}),
    (["flinkish", "state", "qu"], {"query"}),
    (["flinkish", "state", "query", "--u"], {"--uid"}),
    (["flinkish", "savepoint", "--det"], {"--detached"}),
    (["flinkish", "stop", "clicks", "--dr"], {"--drain"}),
    (["flinkish", "run", "--from"], {"--fromSavepoint", "--from-savepoint"}),
    (["flinkish", "completion", ""], {"bash", "zsh", "fish"}),
    (["flinkish", "list", "--w"], {"--watch"}),
    (["flinkish", "savepoint", "clicks", "st"], set()),
]


@pytest.mark.parametrize(("words", "expected"), COMPLETIONS, ids=[" ".join(row[0]) for row in COMPLETIONS])
def test_bash_completes_commands_and_options(words: list[str], expected: set[str], flinkish: Command) -> None:
    script = flinkish("completion", "bash").out
    asked = f"{script}\nCOMP_WORDS=({' '.join(repr(word) for word in words)})\nCOMP_CWORD={len(words) - 1}\n"
    asked += '_flinkish\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    shown = subprocess.run(["bash", "-eu", "-c", asked], capture_output=True, text=True, timeout=60)
    assert shown.stderr == ""
    found = set(filter(None, shown.stdout.splitlines()))
    assert found == expected or (words[-1] == "" and expected <= found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_of_their_shells(shell: str, flinkish: Command, tmp_path: Path) -> None:
    told = flinkish("completion", shell)
    assert (told.code, told.err) == (0, "")
    for word in ("savepoint", "status", "detached", "completion", "withSavepoint"):
        assert word in told.out
    if shutil.which(shell) is not None:
        file = tmp_path / "script"
        file.write_text(told.out)
        checked = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True, timeout=60)
        assert (checked.returncode, checked.stderr) == (0, "")
    assert flinkish("completion", "csh").code == 2
