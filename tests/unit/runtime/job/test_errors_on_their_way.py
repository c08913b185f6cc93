"""Errors on their way from a worker to the driver: they arrive as they were, and nothing else arrives as an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flinkish
from flinkish import errors
from flinkish.error_display import exit_code_of
from flinkish.errors import ConnectionFailedError, CorruptStateError, FlinkishError, ProgramError, UserCodeError
from flinkish.runtime.job.failure import OUTPUTS, decode_error, describe_failure, encode_error
from flinkish.runtime.job.log import MAX_LINES

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FlinkishError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_of_each_class_arrives_with_all_that_is_known_of_it(kind: type[FlinkishError]) -> None:
    more = {"user_traceback": "Traceback"} if issubclass(kind, UserCodeError) else {}
    error = kind("the key \ud83d is none", where="uid a", expected="a key", hint="filter", **more)
    error.task, error.epoch, error.place, error.log = "Map (1/2)", 7, "host a", ((1.5, 20, "shop", "a\nline"),)
    arrived = decode_error(encode_error(error))
    assert type(arrived) is kind and str(arrived) == str(error)
    for name in ("what", "where", "expected", "hint", "task", "epoch", "place", "log", "story"):
        assert getattr(arrived, name) == getattr(error, name)


def test_a_log_whose_loggers_have_endless_names_does_not_cost_the_error() -> None:
    error = ProgramError("wrong")
    error.log = ((1.5, 20, "n" * 10_000, "line"),) * MAX_LINES
    assert decode_error(encode_error(error)).what == "wrong"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"class": "SystemExit"}, "class"),
        ({"class": "shortened"}, "class"),
        ({"class": "FlinkishError.message"}, "class"),
        ({"class": None}, "class"),
        ({"class": ["ProgramError"]}, "class"),
        ({"version": 2}, "format version"),
        ({"what": None}, "what"),
        ({"what": ["a"]}, "what"),
        ({"hint": "x" * 20_000}, "hint"),
        ({"where": {}}, "where"),
        ({"epoch": "4"}, "epoch"),
        ({"epoch": True}, "epoch"),
        ({"epoch": 10**30}, "epoch"),
        ({"task": 1}, "task"),
        ({"file": None}, "file"),
        ({"log": "line"}, "log"),
        ({"log": [[1.0, 20, "a"]]}, "log"),
        ({"log": [[1.0, 20, "a", None]]}, "log"),
        ({"log": [[float("nan"), 20, "a", "b"]]}, "log"),
        ({"log": [[1.0, 20, "a", "b"]] * (MAX_LINES + 2)}, "log"),
        ({"retryable": True}, "retryable"),
        ({"__notes__": 1}, "__notes__"),
        ({"needs_new_driver": True}, "needs_new_driver"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_fields_that_are_not_those_of_an_error_are_refused(changed: dict[str, Any], said: str) -> None:
    value = {**json.loads(encode_error(ProgramError("wrong"))), **changed}
    with pytest.raises(CorruptStateError, match=f"cannot be decoded: .*{said}") as refused:
        decode_error(json.dumps(value).encode(), "far-end.json")
    assert refused.value.where == "far-end.json"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"\xff", b"1" * 5_000, b'"text"', b"[" * 200_000, b'{"version": 3', b" " * 20_000_000 + b"{}"],
    ids=lambda data: repr(data[:15]),
)
def test_what_is_no_error_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptStateError, match="cannot be decoded"):
        decode_error(data)


WAITS = """
import concurrent.futures, socket

def future():
    concurrent.futures.Future().result(0)

def closed():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    socket.create_connection(("127.0.0.1", port))

def silent():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client = socket.create_connection(server.getsockname())
        client.settimeout(0.001)
        client.recv(1)

def of_the_program(function):
    function()
"""


@pytest.mark.parametrize("wait", ["future", "closed", "silent"])
def test_what_a_connector_waits_for_in_vain_is_a_server_that_does_not_answer(wait: str) -> None:
    variables: dict[str, Any] = {}
    exec(compile(WAITS, str(Path(flinkish.__file__).parent / "connectors" / "x.py"), "exec"), variables)

    def failure(call: Callable[[], None]) -> FlinkishError:
        try:
            call()
        except Exception as error:
            assert error.__traceback__ is not None
            # without the frame of this test, which is a program's
            return describe_failure(error.with_traceback(error.__traceback__.tb_next.tb_next), "read (1/1)", 3)
        raise AssertionError

    found = failure(lambda: variables[wait]())
    assert type(found) is ConnectionFailedError
    assert (found.task, found.epoch, exit_code_of(found, environment={})) == ("read (1/1)", 3, 75)
    of_program = failure(lambda: variables["of_the_program"](lambda: variables[wait]()))
    assert type(of_program) is UserCodeError, "a function of the program that a connector calls is the program's"


def test_the_files_of_what_takes_the_results_of_an_operator_are_there() -> None:
    assert [file for file in OUTPUTS if not Path(file).is_file()] == []
