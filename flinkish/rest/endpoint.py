"""The REST endpoint of a driver: reads its settings, makes the token, and serves the driver's jobs until its end.

Rule: a driver without it is as good as one with it. What keeps it from starting is one line on the standard error,
unless the configuration itself is wrong.
"""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from flinkish.common.configuration import Configuration
from flinkish.common.options import rest, session
from flinkish.errors import ConfigurationError, FlinkishError, OperationError, message_of
from flinkish.rest.access import Access, default_token_file, given_token, is_loopback, made_token
from flinkish.rest.api import Api, Beyond
from flinkish.rest.own_page import OwnPage
from flinkish.rest.route import Features, Jobs, Route
from flinkish.rest.served_jobs import ServedJobs
from flinkish.rest.web_ui import WebUi

if TYPE_CHECKING:
    from flinkish.rest.server import Tls

#: The modules that a server needs, which are none of the core's.
_NEEDED = ("uvicorn", "starlette")
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
#: Seconds between two looks at whether all results were fetched.
_LOOK_S = 0.05


def is_installed() -> bool:
    """Whether there is what a server needs."""
    return all(find_spec(name) is not None for name in _NEEDED)


def ports_of(configuration: Configuration) -> list[int]:
    """The ports on which the endpoint may listen, in their order.

    Raises:
        ConfigurationError: the setting is no list of ports and of ranges of ports.
    """
    if not configuration.contains(rest.BIND_PORT) and configuration.contains(rest.PORT):
        return [_port(str(configuration.get(rest.PORT)), rest.PORT.key)]
    text = configuration.get(rest.BIND_PORT)
    found: list[int] = []
    for part in text.split(","):
        match = _PORTS.fullmatch(part.strip())
        if match is None:
            raise _no_ports(text)
        first = _port(match[1], rest.BIND_PORT.key)
        last = first if match[2] is None else _port(match[2], rest.BIND_PORT.key)
        if last < first:
            raise _no_ports(text)
        found += range(first, last + 1)
    return found


def _port(text: str, key: str) -> int:
    if int(text) > 65_535:
        raise ConfigurationError(f"there is no port {text}", where=key, expected="a number from 0 to 65535")
    return int(text)


def _no_ports(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"'{text[:100]}' is no list of ports", where=rest.BIND_PORT.key, expected="8081, 8081-8099 or 8081-8099,9000"
    )


class RestEndpoint:
    """A REST endpoint that is served. Made by `started`."""

    def __init__(
        self,
        configuration: Configuration,
        jobs: ServedJobs,
        routes: Iterable[Route],
        web_ui_jar: Callable[[], Path],
        beyond: Beyond | None = None,
        threads: int | None = None,
    ) -> None:
        from flinkish.rest.server import THREADS, RestServer, listening

        address = configuration.get(rest.BIND_ADDRESS)
        open_to_all = configuration.get(rest.TOKEN) == "none"
        if open_to_all and not is_loopback(address):
            raise ConfigurationError(
                f"everybody who reaches {address} could steer the driver's jobs",
                where=rest.TOKEN.key,
                expected="'none' on a loopback address only",
                hint=f"leave out {rest.TOKEN.key}, or {rest.BIND_ADDRESS.key}",
            )
        tls = _tls_of(configuration)
        opened = listening(address, ports_of(configuration))
        try:
            port = opened.getsockname()[1]
            named = configuration.get(rest.ADDRESS)
            local = is_loopback(address)
            host = named or (address if local or not _is_wildcard(address) else socket.gethostname())
            scheme = "http" if tls is None else "https"
            #: where the endpoint is reached
            self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
            #: the file of the token; None: no token is asked for
            self.token_file, token, self._made = _token_of(configuration, port, open_to_all)
            names = {
                name for name in (named, None if local else socket.gethostname(), None if local else address) if name
            }
            access = Access(token, sorted(names), not local, tls is not None, self.token_file, self.url)
            # a driver runs its own program alone
            submits = beyond is not None and configuration.get(session.SUBMIT_ENABLE)
            features = Features(submits, configuration.get(rest.CANCEL_ENABLE))
            jar = configuration.get(rest.WEB_UI_JAR)
            files = OwnPage(WebUi(web_ui_jar if jar is None else lambda: Path(jar)))
            self._jobs = jobs
            api = Api(jobs, routes, access, features, files, beyond=beyond)
            self._server = RestServer(api, opened, tls, threads or THREADS)
            self._server.start()
        except BaseException:
            opened.close()
            raise
        self._linger_s = configuration.get(rest.LINGER).to_millis() / 1000

    @staticmethod
    def started(
        configuration: Configuration, jobs: Jobs, routes: Iterable[Route], web_ui_jar: Callable[[], Path]
    ) -> RestEndpoint | None:
        """Start to serve, and say where in one line on the standard error; None if that cannot be done, which another
        line says.

        Args:
            configuration: the configuration of the program.
            jobs: the jobs of the driver.
            routes: all routes.
            web_ui_jar: gets the jar of Flink's Web UI, which may take its time.

        Raises:
            ConfigurationError: a setting is wrong.
        """
        if not is_installed():
            _say("no REST API and no Web UI: they need two more packages: pip install uvicorn starlette")
            return None
        try:
            endpoint = RestEndpoint(configuration, ServedJobs(jobs), routes, web_ui_jar)
        except ConfigurationError:
            raise
        except (FlinkishError, OSError) as error:
            told = error.message if isinstance(error, FlinkishError) else message_of(error)
            _say(f"no REST API and no Web UI: {told}")
            return None
        endpoint.announce()
        return endpoint

    def announce(self) -> None:
        """Say where the endpoint is, in one line on the standard error."""
        token = f" (token: {self.token_file})" if self.token_file is not None else ""
        _say(f"REST API and Web UI at {self.url}{token}")

    def linger(self) -> None:
        """Wait until the results of what was asked by REST were fetched by those who ask for them, but not for long:
        the program has ended."""
        deadline_s = time.monotonic() + self._linger_s
        while self._jobs.operations.unfetched(self._linger_s) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """End the server, and delete the token if it was made for it."""
        self._server.stop()
        if self._made is not None and self.token_file is not None:
            with suppress(OSError):
                if self.token_file.read_text().strip() == self._made:
                    self.token_file.unlink()


def _token_of(configuration: Configuration, port: int, open_to_all: bool) -> tuple[Path | None, str | None, str | None]:
    """The file of the token, the token, and once more the token if it goes with this driver."""
    if open_to_all:
        return None, None, None
    given = configuration.get(rest.TOKEN_FILE)
    if given:
        file = Path(given).expanduser()
        return file, given_token(file), None
    try:
        file = default_token_file(port)
        token = made_token(file)
    except (OSError, RuntimeError) as error:
        raise OperationError(
            f"the token cannot be written below this user's home: {message_of(error)}",
            hint=f"name another file by {rest.TOKEN_FILE.key}",
        ) from error
    return file, token, token


def _tls_of(configuration: Configuration) -> Tls | None:
    from flinkish.rest.server import Tls

    if not configuration.get(rest.SSL_ENABLED):
        return None
    file = configuration.get(rest.SSL_KEYSTORE)
    if file is None:
        raise ConfigurationError(
            "there is no certificate for HTTPS",
            where=rest.SSL_ENABLED.key,
            expected=f"{rest.SSL_KEYSTORE.key}: a PEM file with a private key and its certificates",
        )
    tls = Tls(file, configuration.get(rest.SSL_KEY_PASSWORD))
    tls.check()
    return tls


def _is_wildcard(address: str) -> bool:
    return address in ("0.0.0.0", "::")


def _say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"flinkish: {text}\n")
        sys.stderr.flush()
