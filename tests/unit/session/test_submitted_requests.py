"""What a request to run a program may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from flinkish.rest.route import BadRequestError
from flinkish.session.submission import asked_run

_PATH, _MODE = "execution.state-recovery.path", "execution.state-recovery.claim-mode"

#: Body and query -> arguments and settings.
GOOD: list[tuple[dict[str, Any], dict[str, str], list[str], dict[str, str]]] = [
    ({}, {}, [], {}),
    ({"entryClass": None, "programArgs": None, "parallelism": None, "savepointPath": None}, {}, [], {}),
    ({"entryClass": "", "programArgs": "", "parallelism": "", "savepointPath": ""}, {}, [], {}),
    ({"programArgs": "--a 'b c' d"}, {}, ["--a", "b c", "d"], {}),
    ({"programArgsList": ["--a", "b c"], "programArgs": "x"}, {}, ["--a", "b c"], {}),
    ({}, {"programArg": "a,b"}, ["a", "b"], {}),
    ({}, {"program-args": "a b", "parallelism": "2"}, ["a", "b"], {"parallelism.default": "2"}),
    ({"parallelism": 2}, {"parallelism": "3"}, [], {"parallelism.default": "2"}),
    ({"savepointPath": "/sp", "claimMode": "CLAIM"}, {}, [], {_PATH: "/sp", _MODE: "CLAIM"}),
    ({"allowNonRestoredState": False}, {}, [], {}),
    ({}, {"allowNonRestoredState": "true"}, [], {"execution.state-recovery.ignore-unclaimed-state": "true"}),
    ({"flinkConfiguration": {"a.b": "c", "d": True, "e": 1}}, {}, [], {"a.b": "c", "d": "true", "e": "1"}),
]


@pytest.mark.parametrize(("body", "query", "arguments", "settings"), GOOD)
def test_a_request_is_arguments_and_settings(
    body: dict[str, Any], query: dict[str, str], arguments: list[str], settings: dict[str, str]
) -> None:
    assert asked_run(body, query) == (arguments, settings)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"entryClass": "org.example.Job"}, "no entry class"),
    ({"programArgs": "'a"}, "cannot be split"),
    ({"programArgs": ["a"]}, "programArgs"),
    ({"programArgs": "a\0b"}, "programArgs"),
    ({"programArgsList": "a"}, "programArgsList"),
    ({"programArgsList": [1]}, "programArgsList"),
    ({"programArgsList": ["a\0"]}, "programArgsList"),
    ({"programArgsList": ["a"] * 2_000}, "more than 1,000 arguments"),
    ({"programArgsList": ["a" * 200_000]}, "100,000 characters"),
    ({"parallelism": 0}, "parallelism"),
    ({"parallelism": -1}, "parallelism"),
    ({"parallelism": "2; rm"}, "parallelism"),
    ({"parallelism": 10**9}, "parallelism"),
    ({"parallelism": [2]}, "parallelism"),
    ({"savepointPath": ["a"]}, "savepointPath"),
    ({"savepointPath": "a\nb"}, "savepointPath"),
    ({"claimMode": "ALL"}, "claim mode"),
    ({"claimMode": ["CLAIM"]}, "claim mode"),
    ({"flinkConfiguration": "a"}, "flinkConfiguration"),
    ({"flinkConfiguration": {"a b": "c"}}, "flinkConfiguration"),
    ({"flinkConfiguration": {"a": ["c"]}}, "flinkConfiguration"),
    ({"flinkConfiguration": {"a": "b\nc"}}, "flinkConfiguration"),
]


@pytest.mark.parametrize(("body", "sentence"), BAD)
def test_a_request_of_another_form_is_refused(body: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadRequestError, match=sentence):
        asked_run(body, {})
