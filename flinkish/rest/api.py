"""The REST API without HTTP: what a method, a path, headers and a body are answered.

Rule: an error is ``{"errors": [sentence]}`` and nothing else, as Flink's clients expect. Nobody is shown a stack trace
of ours: what is our fault is a 500, and in the driver's log. No route takes a path of a file to read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from flinkish.errors import (
    FencedError,
    FinalOperationError,
    FlinkishError,
    InternalError,
    OperationError,
    ProgramError,
    RetryableError,
    SavepointError,
    redact,
    shortened,
)
from flinkish.rest.access import Access, LetIn
from flinkish.rest.route import (
    Asked,
    BadRequestError,
    ConflictError,
    Features,
    ForbiddenError,
    NotFoundError,
    Route,
    Status,
    Text,
    UnavailableError,
    UnsupportedError,
)
from flinkish.rest.served_jobs import ServedJobs
from flinkish.rest.views.shapes import finite
from flinkish.runtime.phases import Clock, SystemClock

_LOG = logging.getLogger("flinkish.RestServerEndpoint")

#: The most bytes of a body, the most characters of a path, and the most parameters behind it.
MAX_BODY_BYTES, MAX_PATH, MAX_PARAMETERS = 1 << 20, 2_048, 100

_JSON = "application/json; charset=UTF-8"
_SAFE_HEADERS = (
    ("cache-control", "private, no-cache"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "SAMEORIGIN"),
    ("referrer-policy", "no-referrer"),
)
#: What a segment of a path never holds: it may be used as a name.
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")

#: Class of an error -> status code; the first that fits counts.
_CODES: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (BadRequestError, HTTPStatus.BAD_REQUEST),
    (ConflictError, HTTPStatus.CONFLICT),
    (ForbiddenError, HTTPStatus.FORBIDDEN),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnsupportedError, HTTPStatus.NOT_IMPLEMENTED),
    (InternalError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (FencedError, HTTPStatus.CONFLICT),
    (SavepointError, HTTPStatus.CONFLICT),
    (FinalOperationError, HTTPStatus.NOT_FOUND),
    (OperationError, HTTPStatus.CONFLICT),
    (RetryableError, HTTPStatus.CONFLICT),
    (ProgramError, HTTPStatus.BAD_REQUEST),
)


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    status: int
    body: bytes = b""
    content_type: str = _JSON
    headers: Sequence[tuple[str, str]] = field(default=_SAFE_HEADERS)


def refusal(status: int, sentence: str, *headers: tuple[str, str]) -> Answer:
    """The answer that is an error, with a sentence that says what is wrong."""
    body = json.dumps({"errors": [shortened(sentence)]}).encode()
    return Answer(status, body, headers=(*_SAFE_HEADERS, *headers))


class Files(Protocol):
    """Files that are not of the API: those of the Web UI."""

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        """The answer to a request for a file; None if there is none of that name."""


class Receiver(Protocol):
    """Takes the body of one request, which is too large for the memory, and answers it."""

    def write(self, part: bytes) -> None:
        """Take the next bytes of the body.

        Raises:
            BodyTooLargeError: there are more of them than may be.
        """

    def answer(self) -> Any:
        """What a route returns, or raises; the body is whole."""

    def close(self) -> None:
        """Give up what was taken of a body that has not become whole, or was answered."""


class BodyTooLargeError(Exception):
    """A body has more bytes than may be: 413 with this sentence."""


class Beyond(Protocol):
    """What answers in place of the routes: for jobs of other processes, and for bodies that are files."""

    def answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """The answer to a request; None: the routes answer it. Raises what a route raises.

        Args:
            path: decoded, without ``/v1`` and a slash at its end; no segment of it leads elsewhere.
        """

    def receiver(self, method: str, path: str, headers: Mapping[str, str]) -> Receiver | None:
        """What takes the body of a request; None: it is taken as all others are."""


class Api:
    """Answers requests. Any thread may use it.

    Args:
        jobs: the jobs of the driver.
        routes: all routes.
        access: decides who may ask.
        features: what the configuration allows.
        files: what is shown where no route is; None: nothing.
        clock: gives the time of an answer.
        beyond: what is asked before the routes; None: nothing.
    """

    def __init__(
        self,
        jobs: ServedJobs,
        routes: Iterable[Route],
        access: Access,
        features: Features | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        beyond: Beyond | None = None,
    ) -> None:
        self._jobs = jobs
        self._beyond = beyond
        self._access = access
        self._features = features or Features()
        self._files = files
        self._clock = clock or SystemClock()
        #: number of segments of the path -> the routes with so many
        self._routes: dict[int, list[Route]] = {}
        for route in routes:
            self._routes.setdefault(route.path.count("/"), []).append(route)

    def refused(self, path: str, query: str, headers: Mapping[str, str]) -> Answer | None:
        """What a request is told whose body nobody needs to read; None: it is to be answered.

        Args:
            path: the path as the request has it, with its escapes.
            query: what stands behind the ``?``.
            headers: by their names in lower case.
        """
        found = self._access.check(path, query, headers)
        if found is None:
            return None
        if isinstance(found, LetIn):
            cookie = ("set-cookie", found.cookie)
            # relative, for proxies that put something before the path; a browser keeps what is behind the `#`
            return Answer(HTTPStatus.SEE_OTHER, b"", headers=(*_SAFE_HEADERS, ("location", found.location), cookie))
        if found.code == HTTPStatus.UNAUTHORIZED:
            return refusal(found.code, found.why, ("www-authenticate", "Bearer"))
        return refusal(found.code, found.why)

    def answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer a request; raises nothing. Its arguments are those of `refused`, the method and the whole body."""
        try:
            return self.refused(path, query, headers) or self._answer(method, path, query, headers, body)
        except Exception as error:
            return self._failed(error, method, path)

    def receiver(self, method: str, path: str, headers: Mapping[str, str]) -> Receiver | None:
        """What takes the body of a request that is not refused; None: it is given to `answer` as a whole."""
        segments = _segments(path) if self._beyond is not None else None
        if self._beyond is None or segments is None:
            return None
        return self._beyond.receiver(method, "/" + "/".join(segments), headers)

    def received(self, receiver: Receiver, method: str, path: str) -> Answer:
        """Answer a request whose body was taken by a receiver; raises nothing."""
        try:
            return _answer_of(receiver.answer())
        except Exception as error:
            return self._failed(error, method, path)

    def _failed(self, error: Exception, method: str, path: str) -> Answer:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
        if code is HTTPStatus.INTERNAL_SERVER_ERROR:
            _LOG.error("%s %s could not be answered:", method, redact(path), exc_info=error)
            return refusal(code, "flinkish could not answer this because of an error of its own: see the driver's log.")
        return refusal(code, error.message if isinstance(error, FlinkishError) else redact(str(error)))

    def _answer(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if len(body) > MAX_BODY_BYTES:
            return too_large()
        segments = _segments(path)
        reads = method in ("GET", "HEAD")
        if segments is not None:
            plain = "/" + "/".join(segments)
            elsewhere = None if self._beyond is None else self._beyond.answer(method, plain, query, headers, body)
            if elsewhere is not None:
                return elsewhere
            there = self._routes.get(len(segments), [])
            for route in there:
                if route.method == ("GET" if reads else method):
                    parameters = route.match(plain)
                    if parameters is not None:
                        return self._carried_out(route, parameters, query, headers, b"" if reads else body)
            allowed = sorted({route.method for route in there if route.match(plain) is not None})
            if allowed:
                allow = ("allow", ", ".join(allowed))
                return refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{_shown(plain)} knows no method {method}.", allow)
            found = self._files.answer(plain, headers) if self._files is not None else None
            if found is not None:
                if not reads:
                    allow = ("allow", "GET")
                    return refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{_shown(plain)} knows no method {method}.", allow)
                return found
            malformed = any(route.loose_match(plain) for route in there)
            if malformed:
                raise BadRequestError(f"An id in {_shown(plain)} does not have its form.")
        raise NotFoundError(f"Not found: {_shown(path)}")

    def _carried_out(
        self, route: Route, parameters: Mapping[str, str], query: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        asked = Asked(
            self._jobs,
            self._clock.now_ms(),
            parameters,
            _parameters(query),
            _object(body) if route.takes_json else {},
            self._features,
        )
        value = route.answer(asked)
        if route.method != "GET" or "yarn-cancel" in route.path:
            self._jobs.forget()
        answer = _answer_of(value)
        cached = route.method == "GET" and answer.status == HTTPStatus.OK and not isinstance(value, Text)
        return unless_known(answer, headers) if cached else answer


def _answer_of(value: Any) -> Answer:
    """The answer that is what a route returns."""
    code = HTTPStatus.OK.value
    if isinstance(value, Status):
        code, value = value.code, value.value
    if isinstance(value, Text):
        return Answer(code, value.text.encode("utf-8", "replace"), value.content_type)
    return Answer(code, _encoded(value))


def unless_known(answer: Answer, headers: Mapping[str, str], tag: str = "") -> Answer:
    """The answer with a tag of its content, and without the content if the asker has that already."""
    tag = f'"{tag or hashlib.blake2b(answer.body, digest_size=12).hexdigest()}"'
    tagged = (*answer.headers, ("etag", tag))
    if tag in (known.strip().removeprefix("W/") for known in headers.get("if-none-match", "").split(",")):
        return Answer(HTTPStatus.NOT_MODIFIED, b"", answer.content_type, tagged)
    return Answer(answer.status, answer.body, answer.content_type, tagged)


def too_large() -> Answer:
    """The answer to a body that is too large."""
    return refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"The body has more than {MAX_BODY_BYTES:,} bytes: no job graph or program can be uploaded to a driver, which "
        "runs its own ('flinkish run PROGRAM.py').",
        ("connection", "close"),
    )


def _segments(path: str) -> list[str] | None:
    """The decoded parts of a path without ``/v1`` and a slash at its end; None: there is no such path."""
    if len(path) > MAX_PATH or not path.startswith("/"):
        return None
    try:
        segments = [unquote(segment, errors="strict") for segment in path[1:].split("/")]
    except UnicodeDecodeError:
        return None
    if segments[0] == "v1":
        del segments[0]
    if segments and not segments[-1]:
        del segments[-1]
    if any(segment in ("", ".", "..") or _UNSAFE.search(segment) for segment in segments):
        return None
    return segments or [""]


def _parameters(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS))
    except ValueError as error:
        raise BadRequestError(f"There are more than {MAX_PARAMETERS} parameters.") from error


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; an empty one if there is no body.

    Raises:
        BadRequestError: it is something else.
    """
    if not body.strip():
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError("The body is no JSON.") from error
    if not isinstance(value, dict):
        raise BadRequestError("The body is no JSON object.")
    return value


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(finite(value), separators=(",", ":"), allow_nan=False).encode()


def _shown(path: str) -> str:
    return shortened(path, 200)
