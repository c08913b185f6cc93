"""Who may ask: a token that each driver makes for itself, the host that a request names, and the page that it is from.

Rule: the token is in a file that this user alone can read. It is in no log, no job directory, no command line and no
description. A browser that was given it gets a cookie instead, since browsers send cookies to all ports of a host. It
is made of the token and of the server, so that it is no token, and is worth nothing at another server.

A page of somebody else that is open in the user's browser can send requests to this machine, too. So a request must
name a host that this driver is known by (a foreign name may have been pointed at this machine), and one that carries
the cookie must come from a page of this driver.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qs, urlsplit

from flinkish.errors import ConfigurationError

#: The least characters of a token that somebody has put into the file.
_SHORTEST = 16
_TOKEN = re.compile(rf"[\x21-\x7e]{{{_SHORTEST},512}}")
_LOOPBACK_NAMES = ("localhost", "ip6-localhost")
#: What a browser says of a request that a page of this server, or the user alone, has made.
_OWN_SITES = ("same-origin", "none")
#: The pages that a link may lead to: Flink's Web UI, and our own.
PAGES = ("/", "/flinkish.html")
#: What browsers ask for without any cookie: a file of Flink's Web UI, which tells nothing of a driver.
_WITHOUT_COOKIE = "/manifest.json"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by an address that no other machine reaches.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host.lower() in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Refused:
    """Why a request is refused, with the status code of that."""

    code: int
    why: str


@dataclass(frozen=True)
class LetIn:
    """A browser that has brought the token along gets this header of a cookie, and begins anew without the token."""

    cookie: str
    #: the page, relative to the path of the request
    location: str = "./"


@dataclass(frozen=True)
class Access:
    """Decides on requests by what their heads say.

    Args:
        token: what a request must know; None: nothing, and only this machine is listened to.
        names: the names by which the driver is known; those of the loopback always are.
        any_address: whether a request may also name an address in figures, which nobody can point elsewhere.
        secure: whether the server speaks HTTPS.
        token_file: where the token is, for messages; None: there is none.
        server: where the server is reached, for which alone its cookie counts.
    """

    token: str | None
    names: Collection[str] = ()
    any_address: bool = False
    secure: bool = False
    token_file: Path | None = field(default=None, compare=False)
    server: str = ""

    def __repr__(self) -> str:
        return f"<access to {', '.join(self.names) or 'this machine'}>"

    @property
    def cookie(self) -> tuple[str, str]:
        """Name and value of the cookie; all drivers of a machine share a browser's cookies, whatever their ports."""
        value = hmac.digest((self.token or "").encode(), f"page of {self.server}".encode(), "sha256").hex()
        return f"flinkish-{hashlib.sha256(value.encode()).hexdigest()[:12]}", value

    def check(self, path: str, query: str, headers: Mapping[str, str]) -> Refused | LetIn | None:
        """Whether a request is answered (None), and what it is told otherwise.

        Args:
            path: as the request names it.
            query: what stands behind the ``?``.
            headers: by their names in lower case.
        """
        host = headers.get("host", "")
        if not self._is_known(host):
            # imported where it is used: who asks a driver imports this module in milliseconds
            from flinkish.common.options import rest

            return Refused(
                403,
                f"This driver is not known as the host {_shown(host)}: use the address that it has printed, or set "
                f"{rest.ADDRESS.key} to the name by which it is reached.",
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            return Refused(403, f"Pages of {_shown(origin)} may not ask this driver.")
        if self.token is None or path == _WITHOUT_COOKIE:
            return self._refused_page(path, headers)
        bearer = headers.get("authorization")
        if bearer is not None:
            scheme, _, given = bearer.strip().partition(" ")
            return None if scheme.lower() == "bearer" and _is_same(given.strip(), self.token) else self._refused()
        if path in PAGES and "token" in query:
            brought = parse_qs(query, max_num_fields=20).get("token", [""])[-1]
            return LetIn(self._cookie(), f".{path}") if _is_same(brought, self.token) else self._refused()
        name, wanted = self.cookie
        if any(_is_same(value, wanted) for value in _cookies(headers.get("cookie", ""), name)):
            return self._refused_page(path, headers)
        return self._refused()

    def _refused_page(self, path: str, headers: Mapping[str, str]) -> Refused | None:
        """A request that a browser makes by itself must come from a page of this driver, or from its user; the first
        page may be reached by a link from anywhere."""
        if headers.get("sec-fetch-site", "none") in _OWN_SITES:
            return None
        if path in PAGES and headers.get("sec-fetch-mode") == "navigate":
            return None
        return Refused(403, "Pages of others may not ask this driver.")

    def _refused(self) -> Refused:
        where = f" It is in {self.token_file} on the driver's machine." if self.token_file is not None else ""
        return Refused(
            401,
            "The driver's token is missing or wrong: send the header 'Authorization: Bearer TOKEN' (Flink's command "
            "line: FLINK_REST_CLIENT_HEADERS='Authorization:Bearer TOKEN'), or open /?token=TOKEN in a browser."
            + where,
        )

    def _cookie(self) -> str:
        # without a path it is for the folder that the browser sees, behind a proxy too
        secure = "; Secure" if self.secure else ""
        return f"{'='.join(self.cookie)}; HttpOnly; SameSite=Strict{secure}"

    def _is_known(self, host: str) -> bool:
        name = _name_of(host)
        if not name:
            return False
        if is_loopback(name) or name.lower() in {known.lower() for known in self.names}:
            return True
        return self.any_address and _is_address(name)

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            there = urlsplit(origin)
            name = there.hostname or ""
        except ValueError:
            return False
        if there.scheme not in ("http", "https") or there.path or there.query:
            return False
        # behind a proxy the host is the driver's, and the origin the proxy's
        return there.netloc.lower() == host.lower() or (
            not is_loopback(name) and name.lower() in {known.lower() for known in self.names}
        )


def _name_of(host: str) -> str:
    """The name in the header Host, without the port; "" if it has none of its form."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", host.strip())
    return "" if found is None else found[1].strip("[]").rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


def _cookies(header: str, name: str) -> list[str]:
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return [value for key, _, value in pairs if key == name]


def _shown(text: str) -> str:
    return repr(text[:100])


# ------------------------------------------------------------------ the file of the token


def default_token_file(port: int, host: str | None = None) -> Path:
    """Where the token of the driver at a port of a machine (default: this one) is, below this user's home."""
    return Path.home() / ".flinkish" / "rest" / f"{host or socket.gethostname()}-{port}.token"


def made_token(file: Path) -> str:
    """Make a token, and write it to a file that this user alone can read; what the file held is replaced.

    Raises:
        OSError: it cannot be written.
    """
    token = secrets.token_urlsafe(32)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor, "w") as written:
            written.write(token + "\n")
        os.replace(unfinished, file)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
    return token


def given_token(file: Path) -> str:
    """The token in a file that somebody has made, or else a new one, which is written there.

    Raises:
        ConfigurationError: others can read the file, or it holds no token.
        OSError: it can be neither read nor written.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return made_token(file)
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            _bad(file, "it is no file")
        if found.st_mode & 0o077 or found.st_uid not in (os.geteuid(), 0):
            _bad(file, "others than this user can read it or write it", f"chmod 600 {file}")
        text = opened.read(4096).decode("utf-8", "replace").strip()
    if not _TOKEN.fullmatch(text):
        _bad(file, "it holds no token")
    return text


def _bad(file: Path, why: str, hint: str = "delete it, and a driver makes it") -> NoReturn:
    from flinkish.common.options import rest

    raise ConfigurationError(
        f"the file of the token cannot be used: {why}",
        where=f"{rest.TOKEN_FILE.key}, {file}",
        expected=f"a file that this user alone can read, with {_SHORTEST} characters or more without blanks",
        hint=hint,
    )
