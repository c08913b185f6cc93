"""The servers that integration tests share: each starts when the first test asks for it and ends with the run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.class_archive import set_java_options
from tests.support.forking_python import ForkingPython
from tests.support.kafka_broker import KafkaBroker
from tests.support.mariadb import MariadbServer
from tests.support.postgres import PostgresServer
from tests.support.spark_session import COMPILED, start_session


@pytest.fixture(scope="session", autouse=True)
def _java_options() -> None:
    """Of all JVMs, whoever starts them."""
    set_java_options()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run: two cores, with Delta."""
    with ForkingPython() as python:
        session = start_session(tmp_path_factory.mktemp("spark"), extra=COMPILED, python=str(python.executable))
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def _session_of_this_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test does, the next one finds the shared session active. PySpark makes the session that makes a
    DataFrame of rows that of the thread, and the jobs of the thread would run in it, where no listener hears of them.
    """
    yield
    if "spark" in request.fixturenames:
        session: Any = request.getfixturevalue("spark")
        active: Any = SparkSession.getActiveSession()
        if active is not None and active._jsparkSession.sessionUUID() != session._jsparkSession.sessionUUID():
            session.createDataFrame([], "n INT")


@pytest.fixture(scope="module", autouse=True)
def _no_clients_left() -> Iterator[None]:
    """Clients that a test has not closed are in cycles, and ask their server for records until these are collected."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A running broker; a test that stops it starts it again."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL; a test that stops it starts it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    """A running MariaDB; a test that stops it starts it again."""
    with MariadbServer() as server:
        yield server
