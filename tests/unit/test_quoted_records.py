"""What records hold cannot pose as a line of an error, a log or the history, nor steer a terminal."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from flinkish.common.arguments import abbreviated
from flinkish.common.typeinfo import Types
from flinkish.core.functions import MapFunction
from flinkish.error_display import text_of
from flinkish.errors import FlinkishError, MalformedRecordError, UserCodeError, escaped, message_of
from flinkish.formats.csv import CsvRowDeserializationSchema
from flinkish.jobmanager.history import Rows
from flinkish.jobmanager.job_record import describe_exception
from flinkish.jobmanager.restart import one_line
from flinkish.runtime.job import log as task_log
from flinkish.runtime.job.log import TaskLog, TaskLogHandler, log_in_driver
from tests.support.programs import new_environment, results_of

FAKE = "2026-01-01 00:00:00 ERROR fake"
#: line ends of Python and Unicode, escape sequences of terminals, a change of direction, half of a surrogate pair
ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]
STEERING = ["\x1b[2J", "\x07", "\x9b1A", "\x7f", "\u202e", "\u2066", "\ud83d", "\0"]


def lines_of(text: str) -> list[str]:
    text.encode()
    assert not any(mark[0] in text for mark in (*STEERING, *ENDS) if mark != "\n")
    return text.splitlines()


def texts_of(error: FlinkishError) -> list[str]:
    """All texts in which an error arrives somewhere."""
    described = describe_exception(error, 0, 0, None)
    row = Rows("id", "name", "driver").exception(described)
    texts = [
        str(error),
        error.message,
        error.what,
        text_of(error, error.__traceback__),
        one_line(error),
        described.where,
    ]
    return texts + [part for part in row if isinstance(part, str)]


class Quoting(MapFunction):
    def map(self, value: Any) -> Any:
        raise ValueError(f"what is this: {value}")


class Unquoted:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@pytest.mark.parametrize("mark", [*ENDS, *STEERING], ids=ascii)
def test_a_record_in_an_exception_of_user_code_begins_no_line(mark: str) -> None:
    stream = new_environment().from_collection([f"a{mark}{FAKE}"], Types.PICKLED_BYTE_ARRAY()).map(Quoting())
    with pytest.raises(UserCodeError) as failure:
        results_of(stream)
    for text in texts_of(failure.value):
        assert not any(line.startswith(FAKE) for line in lines_of(text))
    # the lines of the program remain lines
    assert '    raise ValueError(f"what is this: {value}")' in str(failure.value).splitlines()
    assert len(failure.value.message.splitlines()) == 1


@pytest.mark.parametrize("mark", [*ENDS, *STEERING], ids=ascii)
def test_a_record_in_an_error_of_flinkish_begins_no_line(mark: str) -> None:
    text = f"a{mark}{FAKE}"
    errors = [
        MalformedRecordError(f"the record {text}", where=f"file {text}", expected=text, hint=text),
        MalformedRecordError(f"the record {abbreviated(Unquoted(text))}: {message_of(ValueError(text))}"),
    ]
    for error in errors:
        error.where += text
        assert len(lines_of(error.message)) == len(lines_of(str(error))) == 1, "logs and the history"
        for shown in texts_of(error):
            # what is shown to people has lines, of which none is at the margin
            assert all(line.startswith("    ") for line in lines_of(shown)[1:])
    schema = CsvRowDeserializationSchema.Builder(Types.ROW_NAMED(["n"], [Types.INT()])).build()
    with pytest.raises(MalformedRecordError) as failure:
        schema.deserialize(f'"{text}"'.encode(errors="replace"))
    assert len(lines_of(str(failure.value))) == 1


@pytest.mark.parametrize("mark", [*ENDS, *STEERING], ids=ascii)
def test_a_record_in_a_line_of_a_task_begins_no_line_of_the_log(mark: str, caplog: pytest.LogCaptureFixture) -> None:
    shop, handler, log = logging.getLogger("shop"), TaskLogHandler(also_here=False), TaskLog()
    shop.addHandler(handler)
    # the report of pytest cannot hold half of a surrogate pair
    shop.propagate = False
    task_log.enter(log)
    try:
        shop.error("cannot read %s", f"a{mark}{FAKE}")
        try:
            raise KeyError("x") from ValueError(f"b{mark}{FAKE}")
        except KeyError:
            shop.exception("a failure")
    finally:
        task_log.enter(None)
        shop.propagate = True
        shop.removeHandler(handler)
    caplog.clear()
    log_in_driver(log.take(), "Map (1/1)", 3)
    message, failure = (record.getMessage() for record in caplog.records)
    assert len(lines_of(message)) == 1 and message.endswith(f"{FAKE} [Map (1/1), epoch 3]")
    assert len(lines_of(failure)) > 5
    assert all(line.startswith("    ") for line in lines_of(failure)[1:])


def test_a_record_in_a_line_of_a_task_begins_no_line_of_the_executor() -> None:
    program = (
        "import logging\n"
        "from flinkish.runtime.job.log import TaskLog, enter, forward_to_driver\n"
        "forward_to_driver(also_here=True)\n"
        "enter(TaskLog())\n"
        "text = 'a\\n2026-01-01 ERROR fake \\x1b[2J'\n"
        "logging.getLogger('shop').error('cannot read %s', text)\n"
        "try:\n"
        "    raise ValueError(text)\n"
        "except ValueError:\n"
        "    logging.getLogger('shop').exception('a failure')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    first, second, *rest = lines_of(done.stderr)
    assert (first, second) == ("cannot read a\\n2026-01-01 ERROR fake \\x1b[2J", "a failure")
    assert len(rest) == 4 and all(line.startswith("    ") for line in rest)


def test_text_that_has_no_control_characters_stays_as_it_is() -> None:
    text = "a\tb ü€ \N{GRINNING FACE} \\n \u200b \xa0"
    assert escaped(text) == text
    assert escaped(escaped("\n\x1b")) == escaped("\n\x1b") == "\\n\\x1b"
