"""A driver as the session process sees it: an address that is asked for its jobs once a second at most, and to which
requests are forwarded.

Rule: a driver that does not answer costs nobody anything but those who ask for its own jobs. It is asked for its list
in a thread of its own, for which nobody waits longer than `LIST_S`; once it is known to be late nobody waits for it at
all. One that has been silent for `SILENT_S` is not asked for its jobs until it answers again.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flinkish.common.configuration import Configuration
from flinkish.common.options import rest
from flinkish.errors import message_of
from flinkish.rest.access import default_token_file, given_token, is_loopback
from flinkish.rest.api import Answer
from flinkish.rest.client import tls_context

Json = dict[str, Any]

#: Seconds that a list of jobs waits for a driver, between two such questions, and after which it counts as silent.
LIST_S, FRESH_S, SILENT_S = 1.0, 1.0, 5.0
#: Seconds that a forwarded request may take, and the most of them at a time for one driver.
FORWARD_S, MOST_FORWARDED = 10.0, 12
#: The most bytes of an answer of a driver.
_MAX_ANSWER = 64 << 20
#: The form of the names of machines, as the names of files have them.
_HOST = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,252}")
_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})")
_NUMBERS = ("start-time", "end-time", "duration", "last-modification")
#: The headers of requests and of answers that are passed on.
_OF_REQUEST, _OF_ANSWER = ("content-type", "if-none-match"), ("etag", "allow")


def address_of(url: str) -> tuple[str, str, int]:
    """Scheme, name and port of the address of a driver.

    Raises:
        ValueError: it is no address of the form that drivers have.

    >>> address_of("http://[::1]:8081")
    ('http', '::1', 8081)
    """
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError("it is no address of a driver")
    return found[1], found[2].strip("[]"), int(found[3])


def is_job(line: Any) -> bool:
    """Whether a line of a list of jobs has what clients need."""
    if not isinstance(line, dict) or not isinstance(line.get("tasks"), dict):
        return False
    texts = all(isinstance(line.get(name), str) for name in ("jid", "name", "state"))
    return texts and all(isinstance(line.get(name), int) for name in _NUMBERS)


class DriverError(Exception):
    """A driver has not answered; the text is a sentence for whoever has asked.

    Attributes:
        code: the status code for whoever has asked. 503 has Flink's client ask again, the others do not.
        is_gone: nobody listens at its address.
    """

    def __init__(self, sentence: str, code: HTTPStatus = HTTPStatus.BAD_GATEWAY, is_gone: bool = False) -> None:
        super().__init__(sentence)
        self.code = code
        self.is_gone = is_gone


class Tokens:
    """Finds the tokens of drivers, and how to speak to those that have HTTPS.

    Args:
        configuration: that of the session process: drivers may share its file of a token, and its certificate.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._given = configuration.get(rest.TOKEN_FILE)
        self._certificates = configuration.get(rest.SSL_KEYSTORE)

    def of(self, url: str, host: str) -> str | None:
        """The token of a driver; None: there is none that this process knows.

        Args:
            host: the name of the machine of the driver, as its job directory has it.
        """
        _, name, port = address_of(url)
        files = []
        # the token of a machine goes to that machine alone
        if _HOST.fullmatch(host) and (is_loopback(name) or name.lower() == host.lower()):
            files.append(default_token_file(port, host))
        if self._given:
            files.append(Path(self._given).expanduser())
        return next((given_token(file) for file in files if file.exists()), None)

    def connection(self, url: str, timeout_s: float) -> http.client.HTTPConnection:
        """A connection to a driver, which is not made yet."""
        scheme, name, port = address_of(url)
        if scheme == "http":
            return http.client.HTTPConnection(name, port, timeout=timeout_s)
        # drivers of this machine may have certificates of their own
        context = tls_context(self._certificates, name, trusts_machine=True)
        return http.client.HTTPSConnection(name, port, timeout=timeout_s, context=context)


class Driver:
    """One driver. Any thread may use it.

    Args:
        url: where its REST API is.
        host: the name of its machine.
        tokens: finds its token.
        clock_s: gives a time in seconds that never goes back.
    """

    def __init__(self, url: str, host: str, tokens: Tokens, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.url = url
        self.host = host
        self._tokens = tokens
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._busy = threading.BoundedSemaphore(MOST_FORWARDED)
        #: when it was asked for its jobs last, and whether that has ended
        self._begun_s: float | None = None
        self._ended = threading.Event()
        self._ended.set()
        #: what it has said last: its jobs as ``/jobs/overview`` has them, its task managers as ``/taskmanagers``
        self.jobs: tuple[Json, ...] = ()
        self.task_managers: tuple[Json, ...] = ()
        #: why it has not answered when it was asked last; None: it has
        self.failure: DriverError | None = None

    def __repr__(self) -> str:
        return f"<driver at {self.url}>"

    @property
    def is_late(self) -> bool:
        """Whether it has not answered for longer than a list waits."""
        return not self._ended.is_set() and (self.failure is not None or self._waited_s() >= LIST_S)

    @property
    def is_silent(self) -> bool:
        """Whether it has not answered when it was asked last, or not for long."""
        return self.failure is not None or (not self._ended.is_set() and self._waited_s() >= SILENT_S)

    @property
    def is_gone(self) -> bool:
        """Whether nobody listened at its address when it was asked last."""
        return self.failure is not None and self.failure.is_gone

    def _waited_s(self) -> float:
        return 0.0 if self._begun_s is None else self._clock_s() - self._begun_s

    def ask_for_jobs(self) -> None:
        """Begin to ask for its jobs, unless that was done within the last second, or has not ended."""
        with self._lock:
            now_s = self._clock_s()
            if not self._ended.is_set() or (self._begun_s is not None and now_s - self._begun_s < FRESH_S):
                return
            self._begun_s = now_s
            self._ended.clear()
        threading.Thread(target=self._ask_for_jobs, name="flinkish-session-driver", daemon=True).start()

    def wait_for_jobs(self, timeout_s: float) -> None:
        """Wait until it has said which jobs it has, for so long at most; not for one that is known to be late."""
        if not self.is_late:
            self._ended.wait(timeout_s)

    def forget(self) -> None:
        """Have the next list ask anew."""
        with self._lock:
            if self._ended.is_set():
                self._begun_s = None

    def _ask_for_jobs(self) -> None:
        try:
            jobs = self._objects("/jobs/overview", "jobs", is_job)
            self.task_managers = self._objects("/taskmanagers", "taskmanagers", lambda one: isinstance(one["id"], str))
            self.jobs, self.failure = jobs, None
        except DriverError as error:
            self.failure = error
        except Exception as error:
            self.failure = DriverError(f"The driver at {self.url} answers something else: {message_of(error)}")
        finally:
            self._ended.set()

    def _objects(self, path: str, name: str, is_one: Callable[[Any], bool]) -> tuple[Json, ...]:
        answer = self._asked("GET", path, "", {}, b"", FORWARD_S)
        if answer.status != 200:
            raise DriverError(self._refusal(answer))
        return tuple(filter(is_one, json.loads(answer.body)[name]))

    def _refusal(self, answer: Answer) -> str:
        if answer.status == 401:
            return (
                f"The driver at {self.url} does not know the token of this session: name the driver's file of a token "
                f"by {rest.TOKEN_FILE.key}."
            )
        return f"The driver at {self.url} answers with the code {answer.status}."

    def forward(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """What it answers to a request.

        Raises:
            DriverError: it does not answer.
        """
        if self.is_silent:
            raise self.failure or self._silence()
        if not self._busy.acquire(blocking=False):
            busy = f"The driver at {self.url} is being asked too much at a time."
            raise DriverError(busy, HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            return self._asked(method, quote(path), query, headers, body, FORWARD_S)
        finally:
            self._busy.release()

    def _silence(self) -> DriverError:
        return DriverError(f"The driver at {self.url} does not answer in time.", HTTPStatus.GATEWAY_TIMEOUT)

    def _asked(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> Answer:
        sent = {name: headers[name] for name in _OF_REQUEST if name in headers}
        token = self._tokens.of(self.url, self.host)
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        connection = self._tokens.connection(self.url, timeout_s)
        try:
            connection.request(method, path + (f"?{query}" if query else ""), body or None, sent)
            response = connection.getresponse()
            read = response.read(_MAX_ANSWER + 1)
        except TimeoutError as error:
            raise self._silence() from error
        except (OSError, http.client.HTTPException) as error:
            gone = isinstance(error, ConnectionRefusedError)
            sentence = f"The driver at {self.url} cannot be reached: {message_of(error)}."
            raise DriverError(sentence, is_gone=gone) from error
        finally:
            connection.close()
        if len(read) > _MAX_ANSWER:
            raise DriverError(f"The driver at {self.url} answers more than {_MAX_ANSWER:,} bytes.")
        kept = [(name, value) for name in _OF_ANSWER if (value := response.getheader(name)) is not None]
        answer = Answer(response.status, read, response.getheader("content-type") or Answer.content_type)
        return Answer(answer.status, answer.body, answer.content_type, (*answer.headers, *kept))
