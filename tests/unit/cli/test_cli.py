"""The console command: it ends by becoming the program. What the program gets is looked at in this process; that it
runs, with its exit code and without what it does not need, in another one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from unittest import mock

import pytest

import flinkish
from flinkish.cli import main
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ConfigurationError
from tests.support.programs import configuration_of

PROGRAM = """
import json, sys
from flinkish.datastream import StreamExecutionEnvironment
print(sys.argv[1:])
print(json.dumps(StreamExecutionEnvironment.get_execution_environment()._configuration.to_dict()))
sys.exit(11)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    # no packages to resolve
    (tmp_path / "conf/spark-defaults.conf").write_text("spark.jars.packages\n")
    (tmp_path / "conf/flinkish.yaml").write_text("# a comment\nparallelism.default: 2\nstate.backend.type: hashmap\n")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def environment_in(home: Path, **variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("FLINKISH_CONF", "SPARK_HOME")}
    return {**inherited, "FLINKISH_HOME": str(home), **variables}


def run(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = environment_in(home, **variables)
    command = [sys.executable, "-c", "import sys; from flinkish.cli import main; sys.exit(main())", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def configuration(output: str) -> dict[str, str]:
    settings: dict[str, str] = json.loads(output.partition("\n")[2])
    return settings


class Became(NamedTuple):
    """The program that a process becomes: its file and arguments, and its environment variables."""

    words: list[str]
    environment: Mapping[str, str]

    def settings(self) -> dict[str, str]:
        """The settings of an environment of the program."""
        with mock.patch.dict(os.environ, self.environment, clear=True):
            return configuration_of(StreamExecutionEnvironment.get_execution_environment()).to_dict()


class _Replaced(BaseException):
    """Ends a command where its process would be another one."""


@pytest.fixture
def command(program: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Became]:
    """Runs a command in this process. Raises SystemExit if it ends by itself."""

    def execve(_: str, words: list[str], environment: Mapping[str, str]) -> NoReturn:
        raise _Replaced(words, environment)

    def carry_out(*arguments: str) -> Became:
        with mock.patch.dict(os.environ, environment_in(program.parent), clear=True):
            try:
                sys.exit(main(arguments))
            except _Replaced as replaced:
                (python, _, _, *words), environment = replaced.args
                assert python == sys.executable
                return Became(words, environment)

    monkeypatch.setattr(os, "execve", execve)
    return carry_out


@pytest.fixture
def refused(command: Callable[..., Became], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command says that ends with the exit code 2."""

    def said(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            command(*arguments)
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        return err

    return said


def test_a_program_in_the_minicluster_needs_neither_java_nor_jars(program: Path) -> None:
    (program.parent / "conf/spark-defaults.conf").write_text("spark.jars.packages no.such:package:1.0\n")
    setting = "execution.target=minicluster"
    result = run(program.parent, "run", "-D", setting, str(program), "--flag", PATH="/nowhere", JAVA_HOME="/nowhere")
    assert (result.returncode, result.stderr) == (11, "")
    assert result.stdout.startswith("['--flag']")
    assert configuration(result.stdout)["execution.target"] == "minicluster"


@pytest.mark.parametrize("packages", ["no.such:package:1.0", ""], ids=["jars to be resolved", "no jars"])
def test_without_java_a_program_says_that_it_needs_one(program: Path, packages: str) -> None:
    (program.parent / "conf/spark-defaults.conf").write_text(f"spark.jars.packages {packages}\n")
    program.write_text(
        "from flinkish.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\nenv.execute()\n"
    )
    result = run(program.parent, "run", str(program), PATH="/nowhere", JAVA_HOME="/nowhere")
    assert result.returncode == 1 + bool(packages)
    assert "Java could not be started" in result.stderr.splitlines()[-1]
    assert "expected Java 17 or newer" in result.stderr.splitlines()[-1]


def modules_with_a_main_function() -> list[str]:
    root = Path(flinkish.__file__).parent
    defined = [path for path in root.rglob("*.py") if re.search(r"^def main\(", path.read_text(), re.MULTILINE)]
    names = (path.parent if path.stem in ("__init__", "__main__") else path.with_suffix("") for path in defined)
    return sorted({".".join(name.relative_to(root.parent).parts) for name in names})


@pytest.mark.parametrize("module", modules_with_a_main_function())
def test_each_module_with_a_main_function_runs_it_when_it_is_run_by_its_name(module: str) -> None:
    result = subprocess.run([sys.executable, "-m", module], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("usage: ")


def test_a_command_runs_by_the_name_of_its_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flinkish.cli", "stop", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (2, "")
    assert "no driver runs a job in this directory" in result.stderr


def test_a_program_runs_with_its_options_and_its_exit_code(program: Path) -> None:
    result = run(program.parent, "run", str(program), "-x", "--y", "z", "--", "--master", "local[1]")
    assert result.returncode == 11, result.stderr
    assert result.stdout.startswith("['-x', '--y', 'z']\n")
    assert configuration(result.stdout) == {"parallelism.default": "2", "state.backend.type": "hashmap"}


def test_settings_of_the_command_line_win_over_those_of_the_file(program: Path, command: Any) -> None:
    became = command("run", "-D", "state.backend.type=rocksdb", "-D", "env.a=b=c", "-p", "3", str(program), "-p")
    assert became.words == [str(program), "-p"]
    assert became.settings() == {"parallelism.default": "3", "state.backend.type": "rocksdb", "env.a": "b=c"}


def test_settings_of_the_command_line_are_in_no_file_and_in_no_argument_of_the_program(program: Path) -> None:
    program.write_text("import psutil\nprint(psutil.Process().cmdline())\n" + PROGRAM)
    result = run(program.parent, "run", "-D", "env.a=SECRET", str(program))
    shown, _, rest = result.stdout.partition("\n")
    assert "SECRET" not in shown
    assert "SECRET" in rest, result.stderr
    files = [path for path in program.parent.rglob("*") if path.is_file()]
    assert [path for path in files if b"SECRET" in path.read_bytes()] == []


def test_settings_of_a_program_that_starts_another_one_remain_below_its_settings(program: Path) -> None:
    outer = program.with_name("outer.py")
    inner = ["run", "-D", "env.a=2", str(program)]
    outer.write_text(f"import sys\nfrom flinkish.cli import main\nsys.exit(main({inner!r}))")
    result = run(program.parent, "run", "-D", "env.a=1", "-D", "env.b=1", str(outer))
    assert configuration(result.stdout) == {
        "parallelism.default": "2",
        "state.backend.type": "hashmap",
        "env.a": "2",
        "env.b": "1",
    }


def test_a_savepoint_to_restore_from_becomes_flinks_setting(program: Path, command: Any) -> None:
    became = command("run", "-s", "/savepoints/1", str(program))
    assert became.settings()["execution.state-recovery.path"] == "/savepoints/1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "no program given"),
        (["run", "nothing.py"], "there is no job file 'nothing.py'"),
        (["run", "-D", "key", "x.py"], "an option -D is not of its form; expected -D KEY=VALUE"),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why(refused: Any, arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_without_a_home_the_settings_of_the_command_line_need_no_file_and_no_package(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    text = f"""
import builtins, os, sys
from flinkish import cli
from flinkish.launch import spark_command
sys.modules["yaml"] = None  # as if pyyaml were not installed
spark_command.resolve = lambda packages, options, cache: []
os.environ["HOME"] = {str(tmp_path)!r}
sys.exit(cli.main(["run", "-D", "env.a=it's # {{b}}", {str(program)!r}]))
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLINKISH")}
    result = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 11, result.stderr
    assert configuration(result.stdout) == {"env.a": "it's # {b}"}


def test_a_configuration_that_is_not_yaml_is_refused_whatever_the_command_line_sets(
    program: Path, command: Any
) -> None:
    (program.parent / "conf/flinkish.yaml").write_text("a: [\n")
    with pytest.raises(ConfigurationError, match="the configuration is not YAML"):
        command("run", "-p", "1", str(program)).settings()


def test_what_a_restore_takes_over_is_said_with_the_options_of_flink(program: Path, command: Any, refused: Any) -> None:
    for option in ("-s", "--fromSavepoint", "--from-savepoint"):
        options = ["-n", "-claim", "claim", "--dry-run", "--restart"]
        assert command("run", option, "/sp/1", *options, str(program)).settings() == {
            "parallelism.default": "2",
            "state.backend.type": "hashmap",
            "execution.state-recovery.path": "/sp/1",
            "execution.state-recovery.ignore-unclaimed-state": "true",
            "execution.state-recovery.claim-mode": "CLAIM",
            "execution.state-recovery.dry-run": "true",
            "flinkish.job.restart": "true",
        }
    assert "NO_CLAIM" in refused("run", "--claimMode", "mine", str(program))
    assert command("run", "--dry-run", "--json", str(program)).environment["FLINKISH_DRY_RUN"] == "json"
    assert "--json is for what a dry run prints" in refused("run", "--json", str(program))


def test_a_replay_starts_the_program_with_the_request_in_its_environment(
    program: Path, tmp_path: Path, command: Any, refused: Any
) -> None:
    options = ["--epoch", "3", "--subtask", "sums/1", "--pdb", "--limit", "5"]
    became = command("replay", str(tmp_path / "job"), *options, str(program), "--epoch", "x")
    assert became.words == [str(program), "--epoch", "x"]
    expected = {"directory": str(tmp_path / "job"), "epoch": 3, "subtask": "sums/1", "pdb": True, "limit": 5}
    assert json.loads(became.environment["FLINKISH_REPLAY"]) == {**expected, "json": False}
    for wrong in (["--epoch", "3"], ["--epoch", "three", str(program)], [str(program)]):
        refused("replay", str(tmp_path / "job"), *wrong)


@pytest.mark.parametrize("words", [["-D", "env.x=/a/b.py"], ["-Denv.x=/a/b.py"]])
def test_a_setting_of_a_replay_may_end_like_a_program(
    words: list[str], program: Path, tmp_path: Path, command: Any
) -> None:
    became = command("replay", str(tmp_path / "job"), "--epoch", "3", *words, str(program))
    assert became.settings()["env.x"] == "/a/b.py"


def test_a_setting_of_several_lines_in_the_file_keeps_them(program: Path, command: Any) -> None:
    (program.parent / "conf/flinkish.yaml").write_text("env.a: |\n  one\n  two\n")
    became = command("run", "-p", "1", str(program))
    assert became.settings() == {"env.a": "one\ntwo\n", "parallelism.default": "1"}


def test_the_examples_are_copied_and_run(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "copies"
    assert main(["examples", str(folder)]) == 0
    jobs = {path.name: path.read_text() for path in Path(flinkish.__file__).parents[1].joinpath("jobs").glob("*.*")}
    assert "click_count.py" in jobs and {path.name: path.read_text() for path in folder.iterdir()} == jobs
    assert capsys.readouterr().out.splitlines() == [str(folder / name) for name in sorted(jobs)]
    job = str(folder / "word_count.py")
    counts = run(program.parent, "run", "-D", "execution.target=minicluster", job, "--events", "5")
    assert (counts.returncode, "50 words, 27 of them different" in counts.stdout) == (0, True), counts.stdout


def test_an_example_that_was_changed_is_not_replaced(tmp_path: Path, refused: Any) -> None:
    own = tmp_path / "word_count.py"
    own.write_text("# mine\n")
    said = refused("examples", str(tmp_path))
    assert said == f"flinkish: {own}: exists, with other contents; expected a directory without these files\n"
    assert own.read_text() == "# mine\n"
    assert not (tmp_path / "click_count.py").exists()


def test_a_folder_for_the_examples_that_cannot_be_made_is_said_in_one_line(program: Path, refused: Any) -> None:
    said = refused("examples", str(program / "below"))
    assert said.count("\n") == 1
    assert f"the examples cannot be written to {program / 'below'}: Not a directory" in said
