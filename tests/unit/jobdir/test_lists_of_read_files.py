"""The files with which a query starts are looked at before Spark is started. What a file source has read is known from
its log alone: without it Spark would read everything again."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.errors import CorruptStateError
from flinkish.jobdir.directory import QueryLocation
from flinkish.jobdir.query import check_query


def query(folder: Path, position: str) -> QueryLocation:
    for name, text in {
        "metadata": '{"id":"x"}',
        "offsets/0": f'v1\n{{}}\n{{"offset":1}}\n{position}',
        "commits/0": "v1\n{}",
        "sources/1/3": "v1\n{}",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return QueryLocation(str(folder), 0)


@pytest.mark.parametrize("position", ['{"logOffset":3}', '{"logOffset":-1}', "-", '{"topic":{"0":4}}'])
def test_a_list_that_is_there_will_do_also_if_it_is_a_compacted_one(tmp_path: Path, position: str) -> None:
    check_query(query(tmp_path, position))
    location = query(tmp_path, '{"logOffset":9}')
    (tmp_path / "sources/1/9.compact").write_text("v1\n{}")
    check_query(location)


def test_the_offsets_before_the_last_ones_are_needed_too(tmp_path: Path) -> None:
    location = query(tmp_path, "-")
    (tmp_path / "offsets/2").write_text((tmp_path / "offsets/0").read_text())
    with pytest.raises(CorruptStateError, match=f"{tmp_path}/offsets/1 is missing"):
        check_query(location)


def test_a_list_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    location = query(tmp_path, '{"logOffset":3}')
    (tmp_path / "sources/1/3").write_text("")
    with pytest.raises(CorruptStateError, match=f"{tmp_path}/sources/1/3 is empty"):
        check_query(location)
    (tmp_path / "sources/1/3").unlink()
    with pytest.raises(CorruptStateError, match=f"{tmp_path}/sources/1/3 is missing"):
        check_query(location)


@pytest.mark.parametrize(
    ("file", "content", "how"),
    [
        ("metadata", None, "missing"),
        ("metadata", "", "empty"),
        ("metadata", '{"ix":"x"}', "not what Spark writes"),
        ("commits/0", "", "empty"),
        ("commits/0", "v1\n{", "not what Spark writes"),
        ("commits/0", "w1\n{}", "not what Spark writes"),
        ("offsets/0", "", "unreadable"),
        ("offsets/0", 'v1\n{}\n{"offset":1', "unreadable"),
        ("state/0/1/1.delta", "", "empty"),
    ],
)
def test_each_file_with_which_the_query_starts_is_named_if_it_is_damaged(
    tmp_path: Path, file: str, content: str | None, how: str
) -> None:
    location = query(tmp_path, "-")
    check_query(location)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(CorruptStateError, match=f"{tmp_path}/{file} is {how}"):
        check_query(location)
