"""A record that user code or the engine refuses: the message says which and where; the mended job goes on."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import flinkish
from flinkish.common import Types
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.errors import InvalidKeyError, MalformedRecordError, ProgramError, TypeMismatchError, UserCodeError
from tests.integration.bad_input.job import COUNT, PAIR, PER_EPOCH, Job, event, pair

#: in the third epoch: two epochs are committed before it
BAD = 25


REGIONS = {"user-0": "north", "user-1": "south", "user-2": "west"}


def with_stranger(index: int) -> dict[str, Any]:
    return {**event(index), "user": "stranger"} if index == BAD else event(index)


def nan_pair(record: dict[str, Any]) -> tuple[Any, int]:
    return (math.nan if record["index"] == BAD else record["user"], 1)


def set_pair(record: dict[str, Any]) -> tuple[Any, int]:
    return ({1, 2} if record["index"] == BAD else record["user"], 1)


def text_pair(record: dict[str, Any]) -> tuple[Any, Any]:
    return (record["user"], "one" if record["index"] == BAD else 1)


def failing(record: dict[str, Any]) -> tuple[Any, int]:
    if record["index"] == BAD:
        raise LookupError("no such user")
    return pair(record)


def fails(job: Job, kind: type[ProgramError], **parts: Any) -> str:
    """Runs the job with wrong parts; the message of its failure."""
    with pytest.raises(ProgramError) as caught:
        job.run(**parts)
    assert type(caught.value) is kind, str(caught.value)
    assert len(job.rows) == 2 * PER_EPOCH, "the epochs before the bad record were committed, the one with it was not"
    assert "FAILING -> FAILED" in caught.value.story.splitlines()[-1]
    assert caught.value.story not in str(caught.value)
    return str(caught.value)


def test_user_code_that_raises_is_shown_with_its_own_traceback_first(job: Job) -> None:
    message = fails(job, UserCodeError, to_pair=failing)
    lines = message.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "test_bad_records.py" in lines[1] and lines[1].endswith("in failing")
    assert "LookupError: no such user" in lines
    # the checkout may have that name, too
    assert f"{Path(flinkish.__file__).parent}{os.sep}" not in message
    assert "pyspark" not in message and "Py4J" not in message
    assert "operator 'Map' (uid pairs)" in lines[-1] and "epoch 2" in lines[-1]
    job.run()
    job.check_complete()


@pytest.mark.nightly
def test_a_missing_key_names_the_key_selector_and_none_is_a_key(job: Job) -> None:
    source = DataGeneratorSource(with_stranger, COUNT, records_per_epoch=PER_EPOCH)
    message = fails(job, UserCodeError, source=source, key=lambda record: REGIONS[record[0]])
    lines = message.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "key=lambda record: REGIONS[record[0]]" in message
    assert "KeyError: 'stranger'" in lines
    assert "uid pairs" in lines[-1] and "epoch 2" in lines[-1]
    job.run(source=source, key=lambda record: REGIONS.get(record[0]))
    job.check_complete(dict(Counter(with_stranger(index)["user"] for index in range(COUNT))))


@pytest.mark.nightly
def test_a_nan_key_is_refused(job: Job) -> None:
    message = fails(job, InvalidKeyError, to_pair=nan_pair)
    assert message.startswith("a key is NaN [")
    assert "uid pairs" in message and "epoch 2" in message
    assert "expected a key that equals itself; filter such records out" in message
    job.run()
    job.check_complete()


@pytest.mark.nightly
def test_an_unhashable_key_is_refused(job: Job) -> None:
    message = fails(job, InvalidKeyError, to_pair=set_pair)
    assert message.startswith("a key of type set cannot be hashed [")
    assert "return a tuple, a list, a string or a number from the key selector" in message
    assert "uid pairs" in message and "epoch 2" in message
    job.run(to_pair=lambda record: (tuple(sorted(name)) if isinstance(name := set_pair(record)[0], set) else name, 1))
    users = Counter(event(index)["user"] for index in range(COUNT) if index != BAD)
    job.check_complete({**users, (1, 2): 1})


@pytest.mark.nightly
def test_a_value_that_does_not_fit_the_declared_type_is_refused(job: Job) -> None:
    message = fails(job, TypeMismatchError, to_pair=text_pair, pair_type=PAIR)
    assert "'one'" in message and "expected" in message
    assert "uid pairs" in message and "epoch 2" in message
    job.run(pair_type=PAIR)
    job.check_complete()


@pytest.mark.nightly
def test_a_malformed_json_line_is_quoted_with_its_file(job: Job, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [json.dumps(event(index)) for index in range(COUNT)]
    (folder / "1.json").write_text("\n".join([*lines[:BAD], '{"user": "user-', *lines[BAD + 1 :]]) + "\n")
    names = Types.ROW_NAMED(["user", "index"], [Types.STRING(), Types.LONG()])

    def run() -> None:
        job.run(source=FileSource.json(str(folder), type_info=names), to_pair=lambda row: (row[0], 1))

    with pytest.raises(MalformedRecordError) as caught:
        run()
    message = str(caught.value)
    assert '{"user": "user-' in message, "the line is quoted"
    assert f"file {folder / '1.json'}" in message
    assert "events" in message and "epoch 0" in message
    assert job.rows == []
    (folder / "1.json").write_text("\n".join(lines) + "\n")
    run()
    job.check_complete()
