"""The session process itself: ``flinkish jobmanager``."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from flinkish.common.config_file import load_yaml
from flinkish.common.configuration import Configuration
from flinkish.common.options import cluster, rest, session
from flinkish.error_display import ExitCode
from flinkish.errors import ConfigurationError, EnvironmentVersionError, OperationError
from flinkish.jobmanager.job.description import DriverDescription
from flinkish.launch.home import Home
from flinkish.launch.web_ui import web_ui_jar
from flinkish.rest.endpoint import RestEndpoint, is_installed
from flinkish.rest.served_jobs import ServedJobs
from flinkish.rest.views.driver import DriverLog
from flinkish.session.archives import Archives
from flinkish.session.children import STATE_FOLDER, Child, Children, RestartPolicy
from flinkish.session.drivers import Driver, Tokens
from flinkish.session.job_folder import JobFolder
from flinkish.session.registry import Registry
from flinkish.session.routes import NoJobs, SessionApi
from flinkish.session.submission import Submission
from flinkish.session.uploads import Uploads
from flinkish.storage.paths import absolute, check_private, is_local, local_path, make_private
from flinkish.storage.stores import storage_errors

#: How many requests are answered at a time: those that wait for a driver must not keep others from being answered.
_THREADS = 32
#: The settings of the session process that its drivers do not get; they have their own.
_OWN_SETTINGS = ("rest.", "web.submit.", "web.upload.", "security.ssl.rest.", "historyserver.", "flinkish.jobmanager.")
#: What the REST API of each driver is set to, whatever a request asks for: it is reached through the session process.
_OF_DRIVERS = {
    rest.ENABLED.key: "true",
    rest.TOKEN.key: "auto",
    rest.TOKEN_FILE.key: "",
    rest.ADDRESS.key: "",
    rest.BIND_ADDRESS.key: "127.0.0.1",
    rest.BIND_PORT.key: "0",
    rest.SSL_ENABLED.key: "false",
}


def configuration_of(settings: Mapping[str, str], environment: Mapping[str, str]) -> Configuration:
    """The configuration of the session process: that of all programs, and above it the settings of its command line.

    Raises:
        ConfigurationError: a key is unknown, or a value or the file cannot be read.
    """
    home = Home(environment)
    found = load_yaml(home.configuration_file) if home.configuration_file else Configuration()
    found.add_all(Configuration.from_dict({**home.settings, **settings}))
    found.validate()
    return found


class SessionProcess:
    """A session process that serves; it ends by `stop`.

    Args:
        folder: the folder of the job directories.
        settings: the settings of the command line.
        environment: the environment variables.

    Raises:
        ConfigurationError: a setting is wrong.
        EnvironmentVersionError: there is no server.
        OperationError: another session process runs in this folder, or no port is free.
    """

    def __init__(self, folder: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        if not is_installed():
            raise EnvironmentVersionError(
                "the session process needs a server of HTTP",
                expected="the packages uvicorn and starlette",
                hint="pip install uvicorn starlette",
            )
        configuration = configuration_of(settings, environment)
        self.folder = local_path(absolute(folder)) or absolute(folder)
        submits = configuration.get(session.SUBMIT_ENABLE)
        if not is_local(self.folder) and submits:
            raise ConfigurationError(
                f"programs cannot be started with job directories in {self.folder}, which is not on this machine",
                where=session.SUBMIT_ENABLE.key,
                expected="a local folder, in which what was started is remembered",
                hint=f"leave out {session.SUBMIT_ENABLE.key}",
            )
        self._lock = _FolderLock(self.folder) if is_local(self.folder) else None
        try:
            self._begin(configuration, settings, environment)
        except BaseException:
            self._unlock()
            raise

    def _begin(self, configuration: Configuration, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        archived = _archive_directories(configuration, self.folder)
        self._children: Children | None = None
        if self._lock is not None:
            shared = {key: text for key, text in settings.items() if not key.startswith(_OWN_SETTINGS)}
            forced = {**_OF_DRIVERS, cluster.ARCHIVE_DIRECTORY.key: archived[0]}
            policy = RestartPolicy.of(configuration)
            self._children = Children(Path(self.folder), shared, policy, environment, forced=forced)
        archives, tokens = Archives(archived), Tokens(configuration)
        registry = Registry(
            JobFolder(self.folder),
            archives,
            lambda url, host: Driver(url, host, tokens),
            self._children or _NoRestarts(),
        )
        submission = None
        if configuration.get(session.SUBMIT_ENABLE) and self._children is not None:
            given = configuration.get(session.UPLOAD_DIRECTORY)
            uploads = Path(given).expanduser() if given else Path(self.folder, STATE_FOLDER, "uploads")
            limit = configuration.get(session.MAX_CONTENT_LENGTH)
            submission = Submission(Uploads(uploads, limit), self._children, registry)
        cancels = configuration.get(rest.CANCEL_ENABLE)
        api = SessionApi(registry, archives, self._children, submission, cancels)
        DriverLog.installed()
        own = NoJobs(DriverDescription(socket.gethostname(), os.getpid()))
        self.endpoint = RestEndpoint(
            configuration, ServedJobs(own), api.routes(), lambda: web_ui_jar(environment), api, _THREADS
        )
        if self._children is not None:
            self._children.on_end = registry.forget
            self._children.watch()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def stop(self) -> str:
        """End, and return a sentence on the drivers, which go on."""
        self.endpoint.stop()
        left = self._children.close() if self._children is not None else 0
        self._unlock()
        return "the session has ended" + (f"; {left} of its drivers {'goes' if left == 1 else 'go'} on" if left else "")


class _FolderLock:
    """Makes a local folder, and what is remembered in it, this process's own.

    Raises:
        FinalOperationError: somebody else can write to the folder.
        OperationError: another session process has it.
    """

    def __init__(self, folder: str) -> None:
        check_private(folder, "the folder of job directories")
        state = os.path.join(folder, STATE_FOLDER)
        with storage_errors("write", folder):
            make_private(folder)
            make_private(state)
            self._file = os.open(os.path.join(state, "session.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(self._file, 100).decode("utf-8", "replace").strip()
            self.close()
            raise OperationError(
                f"another session process{f' ({other})' if other else ''} runs in this folder",
                where=folder,
                expected="one session process for a folder",
                hint="end the other one, or give this one a folder of its own (--jobs)",
            ) from None
        os.ftruncate(self._file, 0)
        os.write(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def close(self) -> None:
        """Give it back."""
        os.close(self._file)


class _NoRestarts:
    """No driver was started here."""

    def status(self, directory: str) -> str | None:
        """Nothing is known."""
        return None

    def without_job(self, directories: Collection[str]) -> Sequence[tuple[Child, str]]:
        """There are no programs."""
        return ()


def _archive_directories(configuration: Configuration, folder: str) -> list[str]:
    """Where archives lie; first that to which drivers write theirs."""
    own = os.path.join(folder, STATE_FOLDER, "archive") if is_local(folder) else None
    written = configuration.get(cluster.ARCHIVE_DIRECTORY) or own
    others = (text.strip() for text in (configuration.get(session.HISTORY_DIRECTORIES) or "").split(","))
    return list(dict.fromkeys(absolute(path) for path in (written, own, *others) if path))


def serve(folder: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> int:
    """Run a session process until SIGTERM or Ctrl-C; returns its exit code.

    Raises:
        FlinkishError: it cannot be started.
    """
    # no Event: a second signal, in the midst of the first one's handler, would wait for its lock for ever
    ended: SimpleQueue[None] = SimpleQueue()
    # from the first moment on
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.put(None))
    process = SessionProcess(folder, settings, environment)
    process.endpoint.announce()
    ended.get()
    _say(process.stop())
    return ExitCode.STOPPED


def _say(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(f"flinkish: {text}\n")
        sys.stderr.flush()
