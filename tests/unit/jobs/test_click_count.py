"""The main job's pipeline in the minicluster, and its command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flinkish.common import WatermarkStrategy
from flinkish.datastream.connectors.kafka import KafkaSource
from flinkish.errors import ConfigurationError, ConnectionFailedError
from flinkish.examples.clicks import clicks_of, generated_clicks
from flinkish.examples.options import JobOptions, parse, run_sql, text_table
from jobs import click_count
from tests.support.clicks import expected_counts, sqlite_rows
from tests.support.programs import new_environment

EVENTS, USERS = 9_000, 300
COUNTS = "SELECT user_id, clicks FROM click_counts"


def options(*arguments: str) -> JobOptions:
    return parse("click-count", "", arguments)


def run(database: Path, splits: int, parallelism: int, settings: dict[str, str]) -> dict[str, int]:
    given = options("--output", str(database))
    run_sql(given.database, click_count.CREATE_TABLE)
    env = new_environment(parallelism, **settings)
    source = generated_clicks(EVENTS, USERS, splits)
    clicks = env.from_source(source, WatermarkStrategy.no_watermarks(), "clicks")
    click_count.build(env, clicks, click_count.counts_sink(given.database))
    env.execute("click-count")
    return dict(sqlite_rows(database, COUNTS))


@pytest.mark.parametrize(
    ("splits", "parallelism", "settings"),
    [
        (1, 1, {}),
        (1, 2, {"flinkish.source.batch-size": "100", "flinkish.buffer.max-records": "100"}),
        (2, 2, {"flinkish.epoch.max-records-per-source": "1000"}),
        (3, 3, {"pipeline.max-parallelism": "7"}),
        (2, 2, {"execution.runtime-mode": "BATCH"}),
    ],
)
def test_counts_are_those_of_a_plain_loop(
    tmp_path: Path, splits: int, parallelism: int, settings: dict[str, str]
) -> None:
    assert run(tmp_path / "counts.db", splits, parallelism, settings) == expected_counts(
        clicks_of(range(EVENTS), USERS)
    )


def test_the_program_ends_with_a_table_and_says_how_to_use_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configuration = tmp_path / "flinkish.yaml"
    configuration.write_text("execution.target: minicluster\n")
    monkeypatch.setenv("FLINKISH_CONF", str(configuration))
    arguments = ["--events", "1000", "--users", "3", "--job-dir", str(tmp_path / "job"), "--parallelism", "1"]
    monkeypatch.setattr(sys, "argv", ["click_count.py", *arguments])
    click_count.main()
    counts = expected_counts(clicks_of(range(1_000), 3))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["user", "clicks"]
    assert {line.split()[0]: int(line.split()[1]) for line in lines[1:4]} == counts
    where = f"jdbc:sqlite:{tmp_path}/job/click-count.db"
    total = sum(counts.values())
    assert lines[4] == f"3 users, {total} clicks of logged-in users, in the table click_counts of {where}"
    assert "--bootstrap-servers" in lines[5] and "--jdbc-url postgresql://" in lines[5]


def test_without_options_no_server_is_needed_and_the_job_has_no_directory_to_go_on_in() -> None:
    given = options()
    assert given.embedded and given.configuration.to_dict() == {}
    file = Path(given.database.get_db_url().removeprefix("jdbc:sqlite:"))
    assert file.name == "click-count.db"
    file.parent.rmdir()


def test_servers_are_used_when_they_are_named() -> None:
    given = options(
        "--bootstrap-servers", "broker:9092", "--topic", "clicks", "--jdbc-url", "postgresql://db/shop",
        "--username", "me", "--password", "secret", "--from-savepoint", "/savepoints/1",
    )  # fmt: skip
    assert not given.embedded
    assert isinstance(given.source, KafkaSource) and not given.source.bounded
    assert (given.database.get_db_url(), given.database.get_user_name()) == ("postgresql://db/shop", "me")
    assert given.configuration.to_dict() == {"execution.state-recovery.path": "/savepoints/1"}


def test_a_job_directory_of_a_cluster_does_not_hold_the_embedded_database() -> None:
    url = options("--job-dir", "s3://bucket/job").database.get_db_url()
    assert "s3:" not in url
    Path(url.removeprefix("jdbc:sqlite:")).parent.rmdir()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "clicks"], "go together"),
        (["--bounded"], "the generator always ends"),
        (["--output", "x.db", "--jdbc-url", "postgresql://db/shop"], "without --jdbc-url"),
        (["--events", "0"], "--events must be at least 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(*arguments)
    assert message in capsys.readouterr().err


def test_a_database_that_cannot_be_reached_is_told_before_the_job_starts() -> None:
    given = options("--jdbc-url", "postgresql://me:secret@127.0.0.1:9/shop", "--job-dir", "/tmp")
    with pytest.raises(ConnectionFailedError, match=r"cannot be reached: .*postgresql://me:\*{6}@127.0.0.1:9/shop"):
        run_sql(given.database, click_count.CREATE_TABLE)


def test_a_database_for_which_the_programs_have_no_tables_is_refused() -> None:
    given = options("--jdbc-url", "jdbc:mysql://me:secret@db/shop", "--job-dir", "/tmp")
    with pytest.raises(
        ConfigurationError, match=r"are not MySQL's: MySQL db:3306/shop.*expected postgresql://"
    ) as error:
        run_sql(given.database, click_count.CREATE_TABLE)
    assert "secret" not in str(error.value)


def test_a_table_without_rows_is_its_header() -> None:
    assert text_table(["user", "clicks"], []) == "user  clicks"
