"""The settings of table environments: what they begin with, and what they may be asked and told later."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flinkish.common.arguments import check_instance
from flinkish.common.configuration import Configuration
from flinkish.common.no_effect import supply_names, warn_without_effect
from flinkish.common.options import execution, tables
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ArgumentValueError
from flinkish.table.refusals import refusal

__all__ = ["EnvironmentSettings", "SqlDialect", "TableConfig"]


class SqlDialect:
    DEFAULT, HIVE = range(2)


class EnvironmentSettings:
    """Whether the program of a table environment is a streaming or a batch one; its own builder.

    Example: ``EnvironmentSettings.in_streaming_mode()``, ``EnvironmentSettings.new_instance().in_batch_mode().build()``
    """

    def __init__(self) -> None:
        self._configuration = Configuration().set_string("execution.runtime-mode", "STREAMING")

    @staticmethod
    def new_instance() -> EnvironmentSettings:
        return EnvironmentSettings()

    Builder = new_instance

    # called with settings, which they change, or with none: EnvironmentSettings.in_batch_mode()
    def in_streaming_mode(self: EnvironmentSettings | None = None) -> EnvironmentSettings:
        return _in_mode("STREAMING", self)

    def in_batch_mode(self: EnvironmentSettings | None = None) -> EnvironmentSettings:
        return _in_mode("BATCH", self)

    def with_configuration(self, configuration: Configuration) -> EnvironmentSettings:
        """Add the entries of a configuration, which the environment takes over."""
        where, hint = "with_configuration()", "Configuration.from_dict({...})"
        check_instance(configuration, Configuration, "the configuration is", where, hint)
        self._configuration.add_all(configuration)
        return self

    def get_configuration(self) -> Configuration:
        return self._configuration

    def is_streaming_mode(self) -> bool:
        return self._configuration.get(execution.RUNTIME_MODE) == "STREAMING"

    def get_built_in_catalog_name(self) -> str:
        return "default_catalog"

    def get_built_in_database_name(self) -> str:
        return "default_database"

    def with_built_in_catalog_name(self, built_in_catalog_name: str) -> EnvironmentSettings:
        """Accepts the only catalog, or the only database."""
        if built_in_catalog_name not in ("default_catalog", "default_database"):
            raise refusal("CATALOG", "EnvironmentSettings")
        return self

    def with_built_in_database_name(self, built_in_database_name: str) -> EnvironmentSettings:
        return self.with_built_in_catalog_name(built_in_database_name)

    def build(self) -> EnvironmentSettings:
        return self

    # PyFlink has had no other planner since 1.14
    use_blink_planner = build


def _in_mode(mode: str, settings: EnvironmentSettings | None) -> EnvironmentSettings:
    made = EnvironmentSettings() if settings is None else settings
    made._configuration.set_string("execution.runtime-mode", mode)
    return made


class TableConfig:
    """The configuration of the environment, by keys. Those that begin with ``table.`` and have no effect are named when
    a job starts."""

    def __init__(self, env: StreamExecutionEnvironment | None = None) -> None:
        self._env = env or StreamExecutionEnvironment.get_execution_environment()

    @classmethod
    def get_default(cls) -> TableConfig:
        return cls()

    def set(self, key: str, value: str) -> TableConfig:
        """Set a value. Raises ConfigurationError if the key is unknown or the value cannot be read."""
        if key == tables.LOCAL_TIME_ZONE.key:
            _check_zone(value, f"the value of {key}")
        self.add_configuration(Configuration().set_string(key, value))
        return self

    def get(self, key: str, default_value: str) -> str:
        return self._env._configuration.get_string(key, default_value)

    def get_configuration(self) -> Configuration:
        return self._env._configuration

    def add_configuration(self, configuration: Configuration) -> None:
        self._env.configure(configuration)

    def set_local_timezone(self, timezone_id: str) -> None:
        """Set ``table.local-time-zone``, such as ``Europe/Berlin``. Raises ArgumentValueError for what is none."""
        self.set(tables.LOCAL_TIME_ZONE.key, timezone_id)

    def get_local_timezone(self) -> str:
        """The time zone that was set, or ``default``, which is that of the machine."""
        return self.get(tables.LOCAL_TIME_ZONE.key, "default")

    def set_idle_state_retention(self, duration: timedelta) -> None:
        """Set ``table.exec.state.ttl``: after this time without a change the state of a group is removed."""
        check_instance(duration, timedelta, "the time is", "set_idle_state_retention()", "such as timedelta(hours=1)")
        self.set(tables.STATE_TTL.key, f"{duration // timedelta(milliseconds=1)} ms")

    def get_idle_state_retention(self) -> timedelta:
        return timedelta(milliseconds=self._env._configuration.get(tables.STATE_TTL).to_millis())

    def get_sql_dialect(self) -> int:
        return SqlDialect.DEFAULT

    def set_sql_dialect(self, sql_dialect: int) -> None:
        if sql_dialect != SqlDialect.DEFAULT:
            raise refusal("Hive", "set_sql_dialect()")

    def set_python_executable(self, python_exec: str) -> None:
        self._env.set_python_executable(python_exec)

    def get_python_executable(self) -> str:
        return self.get("python.executable", "")

    def set_max_generated_code_length(self, max_generated_code_length: int) -> None:
        warn_without_effect("set_max_generated_code_length()", "no code is generated")

    def get_max_generated_code_length(self) -> int:
        return 4_000

    @property
    def _zone(self) -> str:
        zone = self.get_local_timezone()
        return zone if zone != "default" else _zone_of_machine(os.environ.get("TZ", ""))


def _check_zone(zone_id: str, where: str) -> None:
    zone = re.sub(r"^(?:UTC|GMT)?(?=[+-])", "", zone_id) if isinstance(zone_id, str) else ""
    try:
        known = bool(re.fullmatch(r"Z|[+-](?:0?\d|1[0-8])(?::?[0-5]\d)?", zone)) or ZoneInfo(zone) is not None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = zone == "default"
    if not known:
        what, hint = f"{zone_id!r} is no time zone", "such as 'Europe/Berlin', 'UTC' or 'GMT-08:00'"
        raise ArgumentValueError(what, where=where, expected="the name of a zone or an offset", hint=hint)


@lru_cache(maxsize=8)
def _zone_of_machine(given: str) -> str:
    """The name of the time zone of this machine: that of TZ, or else that of its clock; UTC if it has no name."""
    linked = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    for zone in filter(None, (given.lstrip(":"), linked)):
        try:
            return "UTC" if zone == "Etc/UTC" else ZoneInfo(zone).key
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return "UTC"


supply_names(__name__)
