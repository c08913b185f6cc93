"""A real MariaDB as a child process, as root or not: the server of this machine, or that of Debian's packages, which
are downloaded once and unpacked into the cache of the tests.

It keeps its data and its port over `stop` and `start`, so a test can take the database away for a while.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import closing
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import pymysql
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.ivy import cache_folder, lock
from tests.support.processes import ProcessGroup, free_ports

PACKAGE = "mariadb-server-core"
START_TIMEOUT_S = 30
DOWNLOAD_TIMEOUT_S = 300
USER = "tester"
#: No fsync: what a killed server has written is still in the system's cache, and no test pulls the plug.
_SETTINGS = (
    "--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M",
    "--max-allowed-packet=2M", "--skip-name-resolve", "--bind-address=127.0.0.1",
)  # fmt: skip


class MariadbNotFound(AssertionError):
    """There is no MariaDB here, and none can be downloaded."""


class MariadbServer:
    """A server on a free port of 127.0.0.1 whose user `tester` needs no password. With `secured` it takes TLS, with a
    certificate of its own for the name `localhost`.

    Example:
        with MariadbServer() as server:
            uri = server.create_database()
            server.query(uri, "select 1")
    """

    def __init__(self, secured: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flinkish-mariadb-"))
        (self.port,) = free_ports(1)
        self._root = mariadb_root()
        self.certificate = self.folder / "certificate.pem" if secured else None
        self._process: ProcessGroup | None = None
        self._numbers = count(1)

    @property
    def running(self) -> bool:
        """Whether the server's process is there."""
        return self._process is not None and self._process.running

    def uri(self, database: str = "mysql") -> str:
        """Returns the URL of a database, the same after every start."""
        return f"mysql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Starts the server on the data that it has, and returns once it answers."""
        if self.running:
            return
        if not (self.folder / "data").exists():
            self._bootstrap()
        command = self._command(f"--port={self.port}", f"--init-file={self.folder / 'users.sql'}")
        self._process = ProcessGroup(command, self.folder / "server.log", self._environment())
        self._process.wait_for(self._answers, START_TIMEOUT_S, "an answer from MariaDB")

    def stop(self) -> None:
        """Shuts the server down in order, its connections broken off; its data stays for the next `start`."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Kills the server -9; what was committed is there after the next `start`."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def create_database(self) -> str:
        """Returns the URL of a new, empty database."""
        name = f"test_{next(self._numbers)}"
        self.query(self.uri(), f"create database {name} character set utf8mb4")
        return self.uri(name)

    def query(self, uri: str, statement: str, parameters: tuple[Any, ...] | None = None) -> list[tuple[Any, ...]]:
        """Runs one statement, committed at once, and returns its rows (none for statements without a result)."""
        with closing(self.connect(uri)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def connect(self, uri: str) -> Any:
        """Returns a connection that commits each statement at once."""
        name, user = urlsplit(uri).path[1:], urlsplit(uri).username
        # without TLS, since PyMySQL would read all certificates of this machine first
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=user, database=name, autocommit=True, ssl_disabled=True
        )

    def __enter__(self) -> MariadbServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # its data goes with it: nothing is left to shut down in order
        shutil.rmtree(self.folder, ignore_errors=True)

    def _bootstrap(self) -> None:
        """Makes the server's own tables, as `mariadb-install-db` does."""
        (self.folder / "data").mkdir()
        if self.certificate is not None:
            _make_certificate(self.certificate, self.folder / "key.pem")
        (self.folder / "users.sql").write_text(
            f"CREATE USER IF NOT EXISTS {USER}@127.0.0.1;\nGRANT ALL ON *.* TO {USER}@127.0.0.1 WITH GRANT OPTION;\n"
        )
        scripts = ["create database mysql;", "use mysql;"]
        for part in ("system_tables", "system_tables_data"):
            (script,) = self._shared().glob(f"m*_{part}.sql")
            scripts.append(script.read_text())
        done = subprocess.run(
            self._command("--bootstrap"), input="\n".join(scripts), env={**os.environ, **self._environment()},
            capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4_000:]

    def _shared(self) -> Path:
        return next(self._root.glob("usr/share/m*/m*_system_tables.sql")).parent

    def _command(self, *arguments: str) -> list[str]:
        files = {
            "datadir": self.folder / "data", "socket": self.folder / "socket", "pid-file": self.folder / "pid",
            "lc-messages-dir": self._shared(), "character-sets-dir": self._shared() / "charsets",
        }  # fmt: skip
        if self.certificate is not None:
            files |= {"ssl-cert": self.certificate, "ssl-key": self.folder / "key.pem"}
        given = [f"--{name}={path}" for name, path in files.items()]
        server = str(self._root / "usr/sbin/mariadbd")
        return [server, "--no-defaults", f"--user={getpass.getuser()}", *given, *_SETTINGS, *arguments]

    def _environment(self) -> dict[str, str]:
        libraries = ":".join(str(path) for path in self._root.glob("usr/lib/*-linux-gnu*"))
        return {} if self._root == Path("/") else {"LD_LIBRARY_PATH": libraries}

    def _answers(self) -> bool:
        try:
            return self.query(self.uri(), "select 1") == [(1,)]
        except pymysql.err.OperationalError:
            return False


def _make_certificate(certificate: Path, key_file: Path) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mariadb")])
    now, days = datetime.now(timezone.utc), timedelta(days=9)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - days, now + days)
    for extension in (x509.SubjectAlternativeName([x509.DNSName("localhost")]), x509.BasicConstraints(True, None)):
        builder = builder.add_extension(extension, critical=False)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def mariadb_root() -> Path:
    """Returns the folder below which MariaDB's server is installed, downloaded at the first call only."""
    if Path("/usr/sbin/mariadbd").exists():
        return Path("/")
    folder = cache_folder() / "mariadb"
    with lock(cache_folder() / "mariadb.lock"):
        if not folder.exists():
            unfinished = folder.with_name("mariadb.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _download(unfinished)
            unfinished.rename(folder)
    return folder


def _download(folder: Path) -> None:
    """Unpacks the server, and what it needs of packages that are not installed here, into a new folder."""
    packages = folder / "packages"
    packages.mkdir(parents=True)
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise MariadbNotFound(f"install MariaDB's server as /usr/sbin/mariadbd: there is no apt-get for {PACKAGE} here")
    own: list[str] = []
    said = _apt(["apt-get", "download", PACKAGE], packages)
    if said:
        # lists of packages that are of this download, since those of the machine are the administrator's
        for part in ("lists/partial", "cache/archives/partial"):
            (packages / part).mkdir(parents=True)
        own = ["-o", f"Dir::State::lists={packages}/lists", "-o", f"Dir::Cache={packages}/cache"]
        said = _apt(["apt-get", *own, "update"], packages) or _apt(["apt-get", *own, "download", PACKAGE], packages)
    if said:
        raise MariadbNotFound(
            f"install MariaDB's server as /usr/sbin/mariadbd: {PACKAGE} cannot be downloaded:\n{said}"
        )
    depends = subprocess.run(["apt-cache", *own, "depends", "-i", PACKAGE], capture_output=True, text=True, check=True)
    named = re.findall(r"^ +\|?Depends: ([\w.+-]+)$", depends.stdout, re.MULTILINE)
    missing = [name for name in named if not _is_installed(name)]
    said = _apt(["apt-get", *own, "download", *missing], packages) if missing else ""
    if said:
        raise MariadbNotFound(f"{', '.join(missing)}, which {PACKAGE} needs, cannot be downloaded:\n{said}")
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    shutil.rmtree(packages)


def _apt(command: list[str], folder: Path) -> str:
    """What a command says if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    return (done.stdout + done.stderr)[-2_000:] or "nothing" if done.returncode else ""


def _is_installed(package: str) -> bool:
    state = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", package], capture_output=True, text=True, check=False
    )
    return state.stdout.startswith("ii")
