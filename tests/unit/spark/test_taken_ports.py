"""A port that a driver cannot listen at is named, though Spark's exception says nothing of it."""

from __future__ import annotations

import re
import socket
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from flinkish.common import Configuration
from flinkish.errors import OperationError
from flinkish.spark import session


class Failing:
    """A builder whose JVM ends while it makes the session, as Spark's does when the port of its UI is taken."""

    def appName(self, name: str) -> Failing:
        return self

    def master(self, name: str) -> Failing:
        return self

    def config(self, key: str, value: Any) -> Failing:
        return self

    def getOrCreate(self) -> Any:
        raise RuntimeError("[JAVA_GATEWAY_EXITED]")


def no_session() -> Any:
    raise PySparkRuntimeError(errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={})


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not started Spark yet."""
    monkeypatch.setattr(SparkSession, "active", no_session)
    monkeypatch.setattr(SparkSession, "builder", Failing())
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda: None)
    monkeypatch.setattr(session, "jvm_is_running", lambda: False)
    monkeypatch.setattr(session, "submit_variables", lambda own, short_lived: nullcontext())


def failing_with(**settings: str) -> Any:
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(f"spark.{key.replace('_', '.')}", value)
    return session.get_session(configuration, "clicks")


@pytest.mark.parametrize("key", ["ui", "driver", "blockManager"])
def test_a_port_that_is_in_use_is_named_with_its_setting(key: str) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        said = f"port {port} of this machine is in use [Spark's setting spark.{key}.port]; expected a port"
        with pytest.raises(OperationError, match=re.escape(said)):
            failing_with(**{f"{key}_port": str(port), "port_maxRetries": "0"})


@pytest.mark.parametrize("settings", [{"port_maxRetries": "16"}, {"port_maxRetries": "0", "ui_enabled": "false"}])
def test_a_port_that_spark_need_not_take_is_not_the_reason(settings: dict[str, str]) -> None:
    with socket.create_server(("", 0)) as taken, pytest.raises(RuntimeError, match="JAVA_GATEWAY_EXITED"):
        failing_with(ui_port=str(taken.getsockname()[1]), **settings)
