"""The exit code of a program that fails: the same from `flinkish run` and from plain Python, and 75 only where a
supervisor helps by starting the same once more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flinkish import error_display, errors
from flinkish.error_display import exit_code_of
from flinkish.errors import FencedError, FlinkishError, OperationError, UserCodeError
from tests.support.processes import REPOSITORY

#: Whatever class is not named here ends with 1.
CODES = {
    77: {"FencedError", "JobDirectoryError"},
    75: {
        *(
            "OperationError",
            "ConnectionFailedError",
            "NoResourceAvailableError",
            "RetryableError",
            "SparkLostError",
            "CheckpointError",
        ),
        *("CorruptStateError", "MissingFileError", "EpochTimeoutError"),
    },
}
CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FlinkishError)]

PROGRAM = """
import sys
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import FencedError, OperationError

def fail(number):
    raise {raised}

settings = Configuration().set_string("execution.target", "minicluster").set_string("flinkish.progress", "never")
env = StreamExecutionEnvironment.get_execution_environment(settings)
numbers = env.from_collection([1])
if {in_the_program}:
    fail(1)
numbers.map(fail).print()
env.execute("fails")
"""
START = "import sys; from flinkish.launch.__main__ import main; sys.exit(main(sys.argv[1:]))"
STARTS = {"python": ["{python}"], "flinkish run": ["{python}", "-c", START]}


@pytest.mark.parametrize("kind", CLASSES)
def test_each_class_of_errors_has_its_code(kind: type[FlinkishError]) -> None:
    error = kind.__new__(kind)
    expected = next((code for code, names in CODES.items() if kind.__name__ in names), 1)
    assert exit_code_of(error) == expected


@pytest.mark.parametrize(
    ("failure", "stopped", "code"),
    [
        (None, False, 0),
        (None, True, 0),
        (FencedError("another driver"), False, 0),
        (OperationError("the disk is full"), False, 75),
        (KeyError("user"), False, 1),
    ],
)
def test_yarn_starts_a_driver_in_cluster_mode_again_only_where_that_helps(
    failure: BaseException | None, stopped: bool, code: int
) -> None:
    assert exit_code_of(failure, stopped, {"SPARK_YARN_STAGING_DIR": "hdfs://host/user/ann/.sparkStaging/x"}) == code


@pytest.mark.parametrize(
    ("raised", "in_the_program", "code", "start"),
    [
        ("KeyError('user')", False, 1, "python"),
        ("KeyError('user')", False, 1, "flinkish run"),
        ("KeyError('user')", True, 1, "python"),
        ("OperationError('the disk is full')", True, 75, "flinkish run"),
        ("FencedError('another driver')", True, 77, "python"),
        ("SystemExit(5)", True, 5, "flinkish run"),
        pytest.param("KeyError('user')", True, 1, "flinkish run", marks=pytest.mark.nightly),
        pytest.param("OperationError('the disk is full')", True, 75, "python", marks=pytest.mark.nightly),
        pytest.param("FencedError('another driver')", True, 77, "flinkish run", marks=pytest.mark.nightly),
        pytest.param("SystemExit(5)", True, 5, "python", marks=pytest.mark.nightly),
    ],
)
def test_a_program_ends_with_the_same_code_however_it_is_started(
    tmp_path: Path, start: str, raised: str, in_the_program: bool, code: int
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(raised=raised, in_the_program=in_the_program))
    command = [part.format(python=sys.executable) for part in STARTS[start]]
    ended = subprocess.run([*command, str(program)], cwd=REPOSITORY, capture_output=True, text=True, timeout=100)
    assert ended.returncode == code, ended.stderr
    assert "sys.excepthook" not in ended.stderr


def test_an_error_at_an_interactive_prompt_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = UserCodeError("KeyError in user code: 'user'", user_traceback="")
    with pytest.raises(SystemExit) as ended:
        error_display.show_uncaught(OperationError, OperationError("the disk is full"), None)
    assert ended.value.code == 75
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    error_display.show_uncaught(UserCodeError, error, None)
    assert capsys.readouterr().err.endswith("flinkish.errors.UserCodeError: KeyError in user code: 'user'\n")
