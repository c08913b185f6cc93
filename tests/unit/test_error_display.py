"""What the author of a program sees of an error that nobody catches."""

from __future__ import annotations

import linecache
import subprocess
import sys
from pathlib import Path

import pytest

from flinkish import error_display
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ConfigurationError, FlinkishError, InternalError, ProgramError, UserCodeError

LAMBDA = 'Traceback (most recent call last):\n  File "job.py", line 3, in <lambda>\nValueError: no\n'

JOB = """
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
configuration = Configuration()
configuration.set_string("execution.target", "minicluster")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.from_collection([1]).map(lambda number: number // 0).print()
env.execute("job")
"""


def caught(error: FlinkishError) -> FlinkishError:
    """The error as it comes out of flinkish, after another one."""
    try:
        StreamExecutionEnvironment.from_collection(None, error)  # type: ignore[arg-type]
    except TypeError as cause:
        try:
            raise error from cause
        except FlinkishError as raised:
            return raised
    raise AssertionError


def job(folder: Path, text: str = JOB) -> str:
    """What Python says of a program."""
    (folder / "job.py").write_text(text)
    command = [sys.executable, "-c", "exec(compile(open('job.py').read(), 'job.py', 'exec'))"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr


def shown(text: str) -> str:
    """What is shown of the error of a program that runs in this process."""
    with pytest.raises(FlinkishError) as raised:
        exec(compile(text, "job.py", "exec"), {"__name__": "__main__"})
    return error_display.text_of(raised.value, raised.tb)


def test_an_error_in_a_function_is_its_traceback_and_one_line() -> None:
    error = UserCodeError(
        "ValueError in user code: no", user_traceback=LAMBDA, where="operator 'Map', epoch 3", hint="x"
    )
    error.story = "RUNNING -> FAILED"
    line = "flinkish.errors.UserCodeError: ValueError in user code: no [operator 'Map', epoch 3]; x"
    assert error_display.text_of(caught(error), error.__traceback__) == f"{LAMBDA}\n{line}"
    assert error._render_traceback_() == f"{LAMBDA}\n{line}".splitlines(), "what IPython shows"


@pytest.mark.parametrize("chained", ["cause", "context", "group"])
def test_no_line_of_a_quoted_record_begins_at_the_margin_of_a_whole_traceback(chained: str) -> None:
    record = "a\n2026-01-01 00:00:00 ERROR forged\r\x1b[2J"

    def fail() -> None:
        raise ValueError(f"the record {record!s} is no number")

    def lead_to() -> None:
        try:
            fail()
        except ValueError as error:
            if chained == "context":
                raise InternalError("the epoch has failed")  # noqa: B904
            if chained == "group":
                group = RuntimeError("several")
                group.exceptions = (error,)  # type: ignore[attr-defined]
                raise InternalError("the epoch has failed") from group
            raise InternalError("the epoch has failed") from error

    with pytest.raises(InternalError) as caught:
        lead_to()
    lines = error_display.text_of(caught.value, caught.value.__traceback__).splitlines()
    assert "ValueError: the record a" in lines
    assert "    2026-01-01 00:00:00 ERROR forged\\r\\x1b[2J is no number" in lines
    assert any(line.startswith('  File "') and line.endswith("in fail") for line in lines)
    assert lines[-1] == "flinkish.errors.InternalError: the epoch has failed"
    assert not any(line.startswith("2026") for line in lines)


def test_another_error_is_shown_with_the_users_frames_and_without_what_led_to_it() -> None:
    lines = caught(ProgramError("the key is wrong", hint="mend it"))._render_traceback_()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.rpartition(" ")[2] for line in lines if line.startswith("  File ")] == ["caught"]
    assert lines[-1] == "flinkish.errors.ProgramError: the key is wrong; mend it"


def test_the_error_of_a_cell_shows_the_lines_of_the_cell_and_none_of_its_shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    # a shell sets it, too, and leaves it
    monkeypatch.setattr(sys, "ps1", "In: ", raising=False)
    try:
        shells.instance().run_cell("from flinkish.errors import ProgramError\nraise ProgramError('wrong')")
    finally:
        shells.clear_instance()
    frames = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  File ")]
    assert len(frames) == 1 and frames[0].endswith("line 2, in <module>")


def test_on_request_and_for_faults_of_flinkish_all_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, asked in ((ConfigurationError, "1"), (InternalError, "0")):
        monkeypatch.setenv(error_display.VARIABLE, asked)
        error = caught(kind("wrong"))
        error.story = "RUNNING -> FAILED"
        text = "\n".join(error._render_traceback_())
        assert "in from_collection" in text and "direct cause" in text
        assert text.endswith("What had happened:\nRUNNING -> FAILED")


def test_a_job_that_plain_python_runs_shows_no_frame_of_flinkish(tmp_path: Path) -> None:
    lines = [line for line in job(tmp_path).splitlines() if "~" not in line]
    start = lines.index("Traceback (most recent call last):")
    assert lines[start + 1].startswith('  File "job.py", line 7, in <lambda>')
    assert lines[-3] == "ZeroDivisionError: integer division or modulo by zero"
    assert lines[-1].startswith("flinkish.errors.UserCodeError: ZeroDivisionError in user code")
    assert "flinkish/" not in "".join(lines[start:]).replace(str(tmp_path), "")


def test_a_job_shows_all_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(error_display.VARIABLE, "1")
    text = shown(JOB)
    assert "in execute" in text and "What had happened:" in text and "RUNNING -> FAILING" in text


def test_errors_of_others_and_other_ways_to_show_errors_are_left_alone(tmp_path: Path) -> None:
    own = "raise KeyError('mine')\n"
    assert job(tmp_path, JOB.replace("env.execute", own + "#")).endswith("KeyError: 'mine'\n")
    hook = "import sys\nsys.excepthook = lambda *error: print('hooked', file=sys.stderr)\n"
    assert job(tmp_path, hook + JOB).splitlines()[-1] == "hooked"


def test_frames_of_libraries_are_left_out_unless_they_are_asked_for_or_there_are_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = JOB.replace("number // 0", "__import__('json').loads('{')")
    lines = shown(program).partition("Traceback (most recent call last):\n")[2].splitlines()
    assert [line for line in lines if line.startswith("  File ")] == ['  File "job.py", line 7, in <lambda>']
    assert "  ... and 3 frames of libraries (flinkish run --traceback)" in lines
    monkeypatch.setenv(error_display.VARIABLE, "1")
    assert "json/decoder.py" in shown(program)
    alone = 'Traceback (most recent call last):\n  File "/usr/lib/python3.12/json/decoder.py", line 3, in f\nE: no\n'
    assert error_display.own_frames(alone) == alone


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        pytest.param(
            ProgramError(
                "Spark refuses the query:\n== SQL ==\nselect frm\n-------^^^", where="job 'a'", hint="mend it"
            ),
            [
                "flinkish.errors.ProgramError: Spark refuses the query:",
                "    == SQL ==",
                "    select frm",
                "    -------^^^ [job 'a']; mend it",
            ],
            id="lines of a quoted error are lines, with its marks below what they mean",
        ),
        pytest.param(
            UserCodeError("E in user code: 2 errors\na: wrong\nb: wrong", user_traceback="Traceback\nE: 2 errors\n"),
            ["Traceback", "E: 2 errors", "", "flinkish.errors.UserCodeError: E in user code: 2 errors ..."],
            id="what the traceback has said in full is said once",
        ),
        pytest.param(
            UserCodeError(
                "no", user_traceback='Traceback\n  File "a", line 1, in f\n    get(token="abc")\n    ~~~^^^^^^\nE: no\n'
            ),
            ["Traceback", '  File "a", line 1, in f', "    get(token=******)", "E: no"],
            id="marks below a line from which a secret was taken are left out",
        ),
    ],
)
def test_lines_of_what_an_error_quotes_are_lines(error: FlinkishError, lines: list[str]) -> None:
    assert error_display.text_of(error, None).splitlines()[: len(lines)] == lines
    assert "\n" not in error.message, "logs and the history have one line"


def test_details_are_lines_below_the_message_that_cannot_be_taken_for_others() -> None:
    error = ProgramError("refused", hint="give the old uid")
    error.details = "  uid  state\n2026-01-01 ERROR forged"
    assert error_display.text_of(error, None).splitlines() == [
        "flinkish.errors.ProgramError: refused; give the old uid",
        "      uid  state",
        "    2026-01-01 ERROR forged",
    ]


def test_frames_of_the_cells_of_a_notebook_get_the_lines_that_only_the_driver_knows() -> None:
    cell = "/tmp/ipykernel_1/12.py"
    linecache.cache[cell] = (10, None, ["def f(x):\n", "    return 1 // x\n"], cell)
    try:
        places = [(cell, 2, "f\n"), ("/none.py", 7, "g\n"), ("/a.py", 1, "h\n    h()\n")]
        frames = "".join(f'  File "{file}", line {line}, in {rest}' for file, line, rest in places)
        shown = error_display.with_sources(f"Traceback (most recent call last):\n{frames}ZeroDivisionError: no\n")
    finally:
        del linecache.cache[cell]
    assert shown.splitlines()[1:] == [
        f'  File "{cell}", line 2, in f',
        "    return 1 // x",
        '  File "/none.py", line 7, in g',
        '  File "/a.py", line 1, in h',
        "    h()",
        "ZeroDivisionError: no",
    ]
