"""PyFlink's options of the JDBC sink: how to connect, and how to execute statements."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from flinkish.common.no_effect import warn_without_effect
from flinkish.errors import ArgumentTypeError, ConfigurationError, redact


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """Where the database is, and who connects. The password never appears in ``repr``.

    >>> JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:/tmp/x.db").build().get_db_url()
    'jdbc:sqlite:/tmp/x.db'
    """

    url: str
    driver_name: str | None = None
    user_name: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"JdbcConnectionOptions(url={redact(self.url)!r}, user_name={self.user_name!r})"

    def get_db_url(self) -> str:
        return self.url

    def get_driver_name(self) -> str | None:
        """The driver name that was given; without effect and kept for PyFlink, since the URL decides the driver."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        return self.user_name

    def get_password(self) -> str | None:
        return self.password

    class JdbcConnectionOptionsBuilder:
        """Builder of :class:`JdbcConnectionOptions`."""

        def __init__(self) -> None:
            self._url: str | None = None
            self._driver_name: str | None = None
            self._user_name: str | None = None
            self._password: str | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """One of ``jdbc:postgresql://host:port/db?...``, ``jdbc:mysql://...``, ``jdbc:mariadb://...``, the same
            without ``jdbc:``, ``jdbc:sqlite:/path`` and ``sqlite:///path``."""
            self._url = url
            return self

        def with_driver_name(self, driver_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            self._driver_name = driver_name
            return self

        def with_user_name(self, user_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            self._user_name = user_name
            return self

        def with_password(self, password: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            self._password = password
            return self

        def build(self) -> JdbcConnectionOptions:
            """The options.

            Raises:
                ConfigurationError: no URL was given.
            """
            if not self._url:
                raise ConfigurationError(
                    "no database URL",
                    where="JdbcConnectionOptions",
                    expected="jdbc:postgresql://host/database",
                    hint="call with_url(...)",
                )
            return JdbcConnectionOptions(self._url, self._driver_name, self._user_name, self._password)


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """How rows are sent to the database.

    ``batch_size``: rows per round trip; 0 or less: all rows of a subtask and epoch. It has an effect for
    ``JdbcSink.sink`` into servers only. ``max_retries``: how often the transaction of an epoch is retried
    after a lost connection, or after a conflict in which the database chose it as the victim. ``batch_interval_ms`` is
    kept for PyFlink and has no effect: rows become visible with their epoch, never earlier.
    """

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3

    def get_batch_interval_ms(self) -> int:
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        return self.batch_size

    def get_max_retries(self) -> int:
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> JdbcExecutionOptions.Builder:
        return JdbcExecutionOptions.Builder()

    class Builder:
        """Builder of :class:`JdbcExecutionOptions`."""

        def __init__(self) -> None:
            self._batch_interval_ms = 0
            self._batch_size = 5000
            self._max_retries = 3

        def with_batch_size(self, size: int) -> JdbcExecutionOptions.Builder:
            """Set the rows per round trip; 0 or less: all rows of a subtask and epoch. It has an effect for
            ``JdbcSink.sink`` into servers only: an upsert sends all rows in one go, and SQLite has no round trips."""
            self._batch_size = _whole(size, "the batch size")
            return self

        def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptions.Builder:
            if _whole(interval_ms, "the batch interval"):
                warn_without_effect("with_batch_interval_ms", "rows become visible with their epoch", logging.DEBUG)
            self._batch_interval_ms = interval_ms
            return self

        def with_max_retries(self, max_retries: int) -> JdbcExecutionOptions.Builder:
            self._max_retries = _whole(max_retries, "the number of retries")
            return self

        def build(self) -> JdbcExecutionOptions:
            """The options.

            Raises:
                ConfigurationError: a negative number of retries.
            """
            if self._max_retries < 0:
                raise ConfigurationError(
                    f"max_retries={self._max_retries}",
                    where="JdbcExecutionOptions",
                    expected="max_retries >= 0",
                    hint="leave it out for 3",
                )
            return JdbcExecutionOptions(self._batch_interval_ms, self._batch_size, self._max_retries)


def _whole(value: int, what: str) -> int:
    if not isinstance(value, int):
        raise ArgumentTypeError(
            f"{what} is {value!r}", where="JdbcExecutionOptions", expected="a whole number", hint="give an int"
        )
    return value
