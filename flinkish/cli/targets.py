"""Finds the job that a command line names: by its directory, its id or the beginning of it, or its name, among the
drivers that this user has started on this machine, at one address, or below a folder of job directories.

Rule: what is ambiguous is refused, with the candidates. A token goes only to the address that its file's name says, or
that the user has named. Nothing here imports what runs jobs: a driver that answers by REST is found in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    FinalOperationError,
    FlinkishError,
)
from flinkish.jobdir import layout
from flinkish.jobdir.layout import Owner
from flinkish.rest.access import default_token_file, is_loopback
from flinkish.rest.client import RestClient, token_in
from flinkish.storage.paths import absolute, local_path
from flinkish.storage.stores import storage_of

#: The environment variable with which Flink's command line sends a token.
FLINKS_HEADERS = "FLINK_REST_CLIENT_HEADERS"

ENDED = ("FINISHED", "CANCELED", "FAILED", "SUSPENDED")
#: How far below a folder job directories are looked for.
_LEVELS = 3
_ID = re.compile("[0-9a-f]{1,32}")


@dataclass(frozen=True)
class Job:
    """A job that was found."""

    #: None: it is not known yet
    id: str | None
    name: str
    #: None: only its driver knows, which does not answer by REST
    status: str | None
    start_ms: int | None = None
    end_ms: int | None = None
    #: None: it has a temporary one, or nobody has looked yet
    directory: str | None = None
    #: where its driver answers; None: by files alone
    client: RestClient | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it is known to have ended."""
        return self.status in ENDED

    def __str__(self) -> str:
        places = (self.directory, None if self.client is None else self.client.url)
        return f"{self.id} '{self.name}' {self.status}, {', '.join(filter(None, places))}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where jobs are looked for."""
    parser.add_argument("-m", "--jobmanager", metavar="HOST:PORT", help="ask the REST API at this address, or URL")
    parser.add_argument("--jobs", metavar="FOLDER", help="look for jobs in the directories below this one, too")
    parser.add_argument("--token-file", metavar="FILE", help="the driver's token; default: the one that it has made")
    parser.add_argument("--ca", metavar="FILE", help="PEM file of the certificates to trust; also: SSL_CERT_FILE")


class Finder:
    """Finds jobs. ``skipped`` has what could not be asked, in sentences.

    Args:
        arguments: the parsed options of `add_options`.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._jobmanager: str | None = arguments.jobmanager
        self._folder: str | None = arguments.jobs
        self._token_file: str | None = arguments.token_file
        self._certificates: str | None = arguments.ca
        self.skipped: list[str] = []

    def find(self, named: str | None) -> Job:
        """The job of this name.

        Args:
            named: its directory, its id or the beginning of it, or its name; None: the only one at the address.

        Raises:
            ConfigurationError: no job is named, or several are.
            OperationError: there is no such job.
        """
        if self._jobmanager is not None:
            return self._only(self._jobs_at(self._client(self._jobmanager)), named)
        if named is None:
            raise ConfigurationError("no job is named", expected="its directory, id or name, or -m HOST:PORT")
        if _is_job_directory(named):
            return self.of_directory(named)
        try:
            return self._only(self.all(), named)
        except FinalOperationError:
            if "/" not in named:
                raise
            return Job(None, posixpath.basename(named), None, directory=absolute(named))

    def all(self) -> list[Job]:
        """All jobs that are found, each of them once."""
        found: dict[str, Job] = {}
        directories: list[Job] = []
        if self._jobmanager is not None:
            answers = [self._jobs_at(self._client(self._jobmanager))]
        else:
            answers = [jobs for port in _announced() if (jobs := self._jobs_of(port)) is not None]
            if self._folder is not None:
                directories = [self.of_directory(path) for path in _directories_below(self._folder, _LEVELS)]
        for job in (*(job for jobs in answers for job in jobs), *directories):
            key = job.id or str(job.directory)
            # a job goes on under its id in another driver while one that it has left may still tell of it
            if key not in found or (found[key].has_ended and not job.has_ended):
                found[key] = job
        return list(found.values())

    def client(self) -> RestClient | None:
        """A client of the address that the command line names; None: it names none."""
        return None if self._jobmanager is None else self._client(self._jobmanager)

    def of_directory(self, path: str) -> Job:
        """The job of a directory: with its driver, if that answers by REST and says that it runs the job there.

        Raises:
            OperationError: a file of the directory is damaged.
        """
        path = absolute(path)
        owner, written = Owner.read(path), layout.Job.read(path)
        status = None
        if owner is not None and owner.released:
            status = "SUSPENDED" if owner.ended is None else owner.ended.status
        job_id, name = (None, "") if written is None else (written.job_id, written.name)
        unknown = Job(job_id, name or posixpath.basename(path), status, directory=path)
        client = None if owner is None or owner.released else self._client_of(owner)
        if client is None:
            return unknown
        try:
            jobs = sorted(self._jobs_at(client), key=lambda job: (job.id != unknown.id, job.has_ended))
            return next(filter(lambda job: _same(job.directory, path), map(with_directory, jobs)), unknown)
        except FlinkishError as error:
            if not isinstance(error.__cause__, ConnectionRefusedError):
                self.skipped.append(error.message)
            return unknown

    def _client_of(self, owner: Owner) -> RestClient | None:
        """A client of the driver that owns a directory; None: it is not reached from here."""
        url, host = owner.rest, owner.host
        if url is None:
            return None
        try:
            plain = RestClient(url)
        except ConfigurationError:
            return None
        loopback = is_loopback(plain.host)
        if loopback and host != socket.gethostname():
            return None
        # the token of a machine goes to that machine alone
        hosts = [host] if loopback or plain.host == host.lower() else []
        return RestClient(url, self._token(hosts, plain.port), self._certificates)

    def _client(self, address: str) -> RestClient:
        plain = RestClient(address)
        hosts = [plain.host]
        if is_loopback(plain.host) or plain.host == socket.gethostname():
            hosts.append(socket.gethostname())
        return RestClient(address, self._token(hosts, plain.port), self._certificates)

    def _token(self, hosts: Iterable[str], port: int) -> str | None:
        if self._token_file is not None:
            token = token_in(Path(self._token_file))
            if token is None:
                raise ConfigurationError("there is no token that can be read", where=self._token_file)
            return token
        folder = default_token_file(port).parent
        for host in hosts:
            if "/" not in host and (token := token_in(folder / f"{host}-{port}.token")) is not None:
                return token
        return _flinks_token(os.environ.get(FLINKS_HEADERS, ""))

    def _jobs_of(self, port: int) -> list[Job] | None:
        """The jobs of the driver at a port of this machine; None: none answers there."""
        token = self._token([socket.gethostname()], port)
        for scheme in ("http", "https"):
            try:
                return self._jobs_at(RestClient(f"{scheme}://127.0.0.1:{port}", token, self._certificates))
            except ConnectionFailedError as error:
                # that of a killed driver; who does not speak HTTP may speak HTTPS
                if isinstance(error.__cause__, ConnectionRefusedError):
                    return None
                refused = error.message
            except FlinkishError as error:
                refused = error.message
                break
        self.skipped.append(refused)
        return None

    def _jobs_at(self, client: RestClient) -> list[Job]:
        overview = client.get("/jobs/overview")
        try:
            return [
                Job(
                    str(job["jid"]),
                    str(job["name"]),
                    str(job["state"]),
                    int(job["start-time"]),
                    int(job["end-time"]) if int(job["end-time"]) >= 0 else None,
                    client=client,
                )
                for job in overview["jobs"]
            ]
        except (LookupError, TypeError, ValueError):
            raise ConnectionFailedError(f"no REST API of Flink's answers at {client.url}") from None

    def _only(self, jobs: list[Job], named: str | None) -> Job:
        """The one job that is named; those that are at work come before those that have ended."""
        if named is not None and "/" in named:
            jobs = list(map(with_directory, jobs))
        found = [job for job in jobs if named is None or _is_named(job, named)]
        exact = [job for job in found if job.id == named]
        at_work = [job for job in found if not job.has_ended]
        found = exact or at_work or found
        if len(found) == 1:
            return found[0]
        if not found:
            said = "".join(f"; {sentence}" for sentence in self.skipped)
            raise FinalOperationError(
                "no job is there" if named is None else f"no job '{named}' is found{said}",
                expected="the directory of a job, or the id or the name of one whose driver this user runs here",
                hint="'flinkish list -a' shows them; name another address by -m, or a folder by --jobs",
            )
        candidates = "; ".join(str(with_directory(job)) for job in found)
        raise ConfigurationError(
            f"{'several jobs are there' if named is None else f'{named!r} names several jobs'}: {candidates}",
            expected="one of their ids or directories",
        )


def with_directory(job: Job) -> Job:
    """The job with its directory, for which its driver is asked."""
    if job.client is None or job.directory is not None:
        return job
    with suppress(FlinkishError, LookupError, TypeError):
        found = job.client.get(f"/jobs/{job.id}/description", subtasks="none")
        return replace(job, directory=found["job"]["directory"])
    return job


def _is_named(job: Job, named: str) -> bool:
    if job.name == named or (_ID.fullmatch(named) is not None and (job.id or "").startswith(named)):
        return True
    return "/" in named and _same(job.directory, absolute(named))


def _flinks_token(headers: str) -> str | None:
    """The token in headers as Flink's command line takes them, one in a line."""
    for line in headers.split("\n"):
        name, _, value = line.partition(":")
        words = value.split()
        if name.strip().lower() == "authorization" and len(words) == 2 and words[0].lower() == "bearer":
            return words[1]
    return None


def _announced() -> list[int]:
    """The ports at which drivers of this user on this machine have announced themselves."""
    folder, prefix = default_token_file(0).parent, f"{socket.gethostname()}-"
    names = [file.stem.removeprefix(prefix) for file in folder.glob("*.token") if file.name.startswith(prefix)]
    return sorted(int(name) for name in names if name.isdecimal() and len(name) <= 5)


def _is_job_directory(path: str) -> bool:
    with suppress(FlinkishError, OSError):
        return any(kind.read(absolute(path)) is not None for kind in (Owner, layout.Job))
    return "/" in path


def _directories_below(folder: str, levels: int) -> Iterator[str]:
    """The job directories in a folder and below it, those of further jobs of a program after its first one."""
    if _is_job_directory(folder):
        yield folder
        folder, levels = posixpath.join(folder, "jobs"), 1
    if levels:
        for entry in sorted(storage_of(folder).list(folder)):
            if entry.is_directory:
                yield from _directories_below(posixpath.join(folder, entry.name), levels - 1)


def _same(one: str | None, other: str) -> bool:
    """Whether two paths lead to the same directory."""
    if one is None:
        return False
    here, there = local_path(one), local_path(other)
    return one == other if here is None or there is None else os.path.realpath(here) == os.path.realpath(there)
