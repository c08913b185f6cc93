"""Asks a REST API: a client in the standard library alone, which is imported in milliseconds.

Rule: the token is sent to the address that the caller names, and nowhere else: no redirection is followed, no proxy is
asked. Every request has a time limit, and every answer a size.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    FinalOperationError,
    FlinkishError,
    OperationError,
    message_of,
)
from flinkish.rest.access import is_loopback

#: Seconds that a driver may be silent.
TIMEOUT_S = 10.0
#: The most bytes of an answer.
_MAX_ANSWER = 512 << 20


class RestClient:
    """A client of the REST API at one address.

    Args:
        url: where it is: ``http://host:8081``, ``https://host/prefix``, or ``host:8081`` without a scheme.
        token: the driver's token; None: none is sent.
        certificates: a PEM file with the certificates that are trusted beside HTTPS; None: those of the machine, or of
            the environment variable ``SSL_CERT_FILE``.
        timeout_s: how long the other side may be silent, in seconds.

    Raises:
        ConfigurationError: the address has none of these forms, or the file cannot be used.
    """

    def __init__(
        self, url: str, token: str | None = None, certificates: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if host is None or parts.scheme not in ("http", "https") or parts.query or parts.username is not None:
            raise ConfigurationError(
                f"'{url[:200]}' is no address of a REST API", expected="host:port, or a URL such as https://host:8081"
            )
        self.host, self.port = host, port or (443 if parts.scheme == "https" else 80)
        #: the address, with its scheme
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._prefix = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"accept": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._tls = tls_context(certificates, host) if parts.scheme == "https" else None

    def get(self, path: str, /, **query: str) -> Any:
        """The JSON at a path.

        Raises:
            ConnectionFailedError: nobody answers there, or something that is no REST API.
            ConfigurationError: the token is missing or wrong, or the request is.
            FinalOperationError: there is no such thing.
            OperationError: it cannot be answered.
        """
        return self._json("GET", path, query)

    def text(self, path: str) -> str:
        """The text at a path; raises as `get` does."""
        return self._asked("GET", path, {}, None).decode("utf-8", "replace")

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON of the answer to a request that changes something; raises as `get` does."""
        return self._json(method, path, {}, None if body is None else json.dumps(body).encode())

    def _json(self, method: str, path: str, query: Mapping[str, str], body: bytes | None = None) -> Any:
        answer = self._asked(method, path, query, body)
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise self._no_api("the answer is no JSON") from None

    def _asked(self, method: str, path: str, query: Mapping[str, str], body: bytes | None) -> bytes:
        target = f"{self._prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {**self._headers, **({} if body is None else {"content-type": "application/json"})}
        if self._tls is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=self._timeout_s)
        else:
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=self._timeout_s, context=self._tls)
        try:
            connection.request(method, target, body, headers)
            answered = connection.getresponse()
            content = answered.read(_MAX_ANSWER + 1)
        except ssl.SSLCertVerificationError as error:
            raise ConnectionFailedError(
                f"the certificate of {self.url} is not trusted: {error.verify_message}",
                hint="name a PEM file with its certificate, or that of its authority, by --ca or SSL_CERT_FILE",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._no_api(message_of(error) or type(error).__name__) from error
        finally:
            connection.close()
        if len(content) > _MAX_ANSWER:
            raise self._no_api(f"the answer has more than {_MAX_ANSWER:,} bytes")
        if answered.length:
            raise self._no_api("the answer was broken off")
        if answered.status >= 300:
            raise self._refusal(answered.status, content)
        return content

    def _no_api(self, why: str) -> ConnectionFailedError:
        return ConnectionFailedError(f"no REST API answers at {self.url}: {why}")

    def _refusal(self, code: int, content: bytes) -> FlinkishError:
        try:
            sentence = str(json.loads(content)["errors"][0])
        except (ValueError, RecursionError, LookupError, TypeError):
            return self._no_api(f"HTTP status {code}")
        if code == 401:
            return ConfigurationError(
                f"the driver's token is missing or wrong at {self.url}",
                expected="the token in the file that the driver has named in its first line",
                hint="name that file by --token-file, or set FLINK_REST_CLIENT_HEADERS as for Flink's command line",
            )
        if code in (502, 503, 504):
            # who forwards requests says that the other side is away
            return ConnectionFailedError(sentence)
        if code in (400, 403, 405, 413):
            return ConfigurationError(sentence)
        return FinalOperationError(sentence) if code == 404 else OperationError(sentence)


def token_in(file: Path) -> str | None:
    """The token in a file; None: there is none that this user can read."""
    try:
        with file.open("rb") as opened:
            words = opened.read(4096).decode("ascii").split()
    except (OSError, ValueError):
        return None
    return words[0] if len(words) == 1 else None


def tls_context(certificates: str | None, host: str, trusts_machine: bool = False) -> ssl.SSLContext:
    """How to speak HTTPS with a host.

    Args:
        certificates: as for `RestClient`.
        trusts_machine: whether any certificate is accepted of a process of this machine.

    Raises:
        ConfigurationError: the certificates cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=certificates)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the certificates cannot be used: {message_of(error)}", where=certificates or "", expected="a PEM file"
        ) from error
    # a certificate seldom names this machine by its loopback address, and nobody stands in between
    context.check_hostname = not is_loopback(host)
    if trusts_machine and is_loopback(host):
        context.verify_mode = ssl.CERT_NONE
    return context
