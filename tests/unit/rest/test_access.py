"""Who may ask a driver: the token, the host, the page, and the file of the token."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from flinkish.errors import ConfigurationError
from flinkish.rest.access import Access, LetIn, Refused, given_token, made_token
from tests.support.rest_jobs import HOST, KNOWN, TOKEN

LOCAL = Access(TOKEN)
OPEN = Access(None)
#: of the same token, which a file holds for several drivers
AT_ANOTHER_PORT = Access(TOKEN, server="http://localhost:9999")
ELSEWHERE = Access(TOKEN, ["driver.example"], any_address=True)
COOKIE = "=".join(LOCAL.cookie)


def code_of(access: Access, headers: Mapping[str, str], path: str = "/jobs", query: str = "") -> int | str | None:
    """The status code of a refusal; "cookie" for who is let in with one; None for who is answered."""
    found = access.check(path, query, headers)
    return found.code if isinstance(found, Refused) else "cookie" if isinstance(found, LetIn) else None


ROWS = [
    ("the token as a header", LOCAL, {**KNOWN}, None),
    ("the scheme in any case", LOCAL, {"host": HOST, "authorization": f"bearer {TOKEN}"}, None),
    ("no token", LOCAL, {"host": HOST}, 401),
    ("a wrong token", LOCAL, {"host": HOST, "authorization": f"Bearer {TOKEN}x"}, 401),
    ("the beginning of the token", LOCAL, {"host": HOST, "authorization": f"Bearer {TOKEN[:-1]}"}, 401),
    ("a token that is no ASCII", LOCAL, {"host": HOST, "authorization": "Bearer \xfc\x80"}, 401),
    ("another scheme", LOCAL, {"host": HOST, "authorization": f"Basic {TOKEN}"}, 401),
    ("two headers", LOCAL, {"host": HOST, "authorization": f"Bearer {TOKEN}, Bearer {TOKEN}"}, 401),
    ("the cookie", LOCAL, {"host": HOST, "cookie": f"a=b; {COOKIE}"}, None),
    ("a wrong cookie", LOCAL, {"host": HOST, "cookie": f"{LOCAL.cookie[0]}=no"}, 401),
    ("the token as a cookie", LOCAL, {"host": HOST, "cookie": f"{LOCAL.cookie[0]}={TOKEN}"}, 401),
    ("the cookie as a token", LOCAL, {"host": HOST, "authorization": f"Bearer {LOCAL.cookie[1]}"}, 401),
    ("the cookie of another driver", LOCAL, {"host": HOST, "cookie": f"flinkish-0={LOCAL.cookie[1]}"}, 401),
    ("the cookie of another token", LOCAL, {"host": HOST, "cookie": "=".join(Access("x" * 32).cookie)}, 401),
    ("the cookie of another server", LOCAL, {"host": HOST, "cookie": "=".join(AT_ANOTHER_PORT.cookie)}, 401),
    ("its value by our name", LOCAL, {"host": HOST, "cookie": f"{LOCAL.cookie[0]}={AT_ANOTHER_PORT.cookie[1]}"}, 401),
    ("a wrong header beside the cookie", LOCAL, {"host": HOST, "cookie": COOKIE, "authorization": "Bearer no"}, 401),
    ("the cookie, from a page of ours", LOCAL, {"host": HOST, "cookie": COOKIE, "sec-fetch-site": "same-origin"}, None),
    ("the cookie, from the user", LOCAL, {"host": HOST, "cookie": COOKIE, "sec-fetch-site": "none"}, None),
    ("the cookie, from another port", LOCAL, {"host": HOST, "cookie": COOKIE, "sec-fetch-site": "same-site"}, 403),
    ("the cookie, from elsewhere", LOCAL, {"host": HOST, "cookie": COOKIE, "sec-fetch-site": "cross-site"}, 403),
    ("an address of the loopback", LOCAL, {**KNOWN, "host": "127.0.0.1:8081"}, None),
    ("another one", LOCAL, {**KNOWN, "host": "127.3.2.1"}, None),
    ("that of IPv6", LOCAL, {**KNOWN, "host": "[::1]:8081"}, None),
    ("no host", LOCAL, {"authorization": f"Bearer {TOKEN}"}, 403),
    ("a foreign host", LOCAL, {**KNOWN, "host": "evil.example"}, 403),
    ("one that begins as ours", LOCAL, {**KNOWN, "host": "localhost.evil.example"}, 403),
    ("one with a user", LOCAL, {**KNOWN, "host": "localhost@evil.example"}, 403),
    ("a foreign address", LOCAL, {**KNOWN, "host": "10.0.0.1"}, 403),
    ("a host that is none", LOCAL, {**KNOWN, "host": "local host"}, 403),
    ("two hosts", LOCAL, {**KNOWN, "host": "localhost, localhost"}, 403),
    ("our origin", LOCAL, {**KNOWN, "origin": f"http://{HOST}"}, None),
    ("another port of ours", LOCAL, {**KNOWN, "origin": "http://localhost:3000"}, 403),
    ("a foreign origin", LOCAL, {**KNOWN, "origin": "http://evil.example"}, 403),
    ("an origin that is hidden", LOCAL, {**KNOWN, "origin": "null"}, 403),
    ("an origin that is none", LOCAL, {**KNOWN, "origin": "http://[::1"}, 403),
    ("no token is asked for", OPEN, {"host": HOST}, None),
    ("but a host of ours", OPEN, {"host": "evil.example"}, 403),
    ("and no page of others", OPEN, {"host": HOST, "sec-fetch-site": "cross-site"}, 403),
    ("nor their origin", OPEN, {"host": HOST, "origin": "http://evil.example"}, 403),
    ("the name of the driver", ELSEWHERE, {**KNOWN, "host": "Driver.Example:443"}, None),
    ("an address of it", ELSEWHERE, {**KNOWN, "host": "10.0.0.1:8081"}, None),
    ("another name", ELSEWHERE, {**KNOWN, "host": "evil.example"}, 403),
    ("the origin of its proxy", ELSEWHERE, {**KNOWN, "origin": "https://driver.example"}, None),
    ("a foreign origin there", ELSEWHERE, {**KNOWN, "origin": "https://evil.example"}, 403),
]


@pytest.mark.parametrize(("access", "headers", "code"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_request_is_judged_by_its_head(access: Access, headers: dict[str, str], code: int | None) -> None:
    assert code_of(access, headers) == code


def test_a_browser_gets_a_cookie_for_the_token_and_no_script_sees_it() -> None:
    found = LOCAL.check("/", f"token={TOKEN}", {"host": HOST})
    assert isinstance(found, LetIn)
    assert found.cookie == f"{COOKIE}; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize(
    ("path", "query", "code"),
    [
        ("/", f"token={TOKEN}", "cookie"),
        ("/", "token=wrong", 401),
        ("/", "token=", 401),
        ("/jobs", f"token={TOKEN}", 401),
        ("/v1/", f"token={TOKEN}", 401),
    ],
)
def test_the_token_in_an_address_is_taken_on_the_first_page_alone(path: str, query: str, code: int | str) -> None:
    assert code_of(LOCAL, {"host": HOST}, path, query) == code


def test_a_link_from_another_page_leads_to_the_first_page_alone() -> None:
    link = {"host": HOST, "cookie": COOKIE, "sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"}
    assert code_of(LOCAL, link, "/") is None
    assert code_of(LOCAL, link, "/jobs/x/yarn-cancel") == 403


@pytest.mark.parametrize(
    ("headers", "path", "code"),
    [
        ({}, "/manifest.json", None),
        ({"sec-fetch-site": "same-origin"}, "/manifest.json", None),
        ({"sec-fetch-site": "cross-site"}, "/manifest.json", 403),
        ({"host": "evil.example"}, "/manifest.json", 403),
        ({}, "/assets/manifest.json", 401),
        ({}, "/manifest.json/x", 401),
    ],
)
def test_the_manifest_of_the_web_ui_is_for_pages_of_ours_without_a_cookie(
    headers: dict[str, str], path: str, code: int | None
) -> None:
    assert code_of(LOCAL, {"host": HOST, **headers}, path) == code


def test_the_cookie_of_a_server_with_https_is_sent_to_nobody_else() -> None:
    found = Access(TOKEN, secure=True).check("/", f"token={TOKEN}", {"host": HOST})
    assert isinstance(found, LetIn)
    assert found.cookie.endswith("; Secure")


def test_neither_the_name_of_the_cookie_nor_the_text_of_the_object_tells_the_token() -> None:
    assert TOKEN not in "".join(LOCAL.cookie) + repr(LOCAL)


# ------------------------------------------------------------------ the file


def test_a_token_is_in_a_file_that_this_user_alone_reads(tmp_path: Path) -> None:
    file = tmp_path / "made" / "here.token"
    token = made_token(file)
    assert len(token) >= 40
    assert file.read_text().strip() == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert made_token(file) != token, "each driver makes its own"
    assert os.listdir(file.parent) == ["here.token"]


def test_a_token_that_somebody_has_made_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-my-own\n")
    file.chmod(0o400)
    assert given_token(file) == "a-token-of-my-own"
    assert given_token(tmp_path / "new") == (tmp_path / "new").read_text().strip()


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("a-token-of-my-own", 0o644, "others than this user"),
        ("a-token-of-my-own", 0o620, "others than this user"),
        ("short", 0o600, "no token"),
        ("", 0o600, "no token"),
        ("two words of a token", 0o600, "no token"),
        ("x" * 2000, 0o600, "no token"),
    ],
)
def test_a_file_that_is_no_secret_is_refused(tmp_path: Path, text: str, mode: int, why: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=why) as refused:
        given_token(file)
    assert not text or text not in str(refused.value)


def test_a_pipe_is_no_file_of_a_token(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token", 0o600)
    with pytest.raises(ConfigurationError, match="no file"):
        given_token(tmp_path / "token")
