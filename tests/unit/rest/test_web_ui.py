"""Flink's Web UI comes out of its jar, and nothing else does."""

from __future__ import annotations

import json
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from flinkish.errors import ConnectionFailedError
from flinkish.rest.api import Answer, Api
from flinkish.rest.route import Route
from flinkish.rest.web_ui import WebUi
from tests.support.processes import wait_until
from tests.support.rest_jobs import KNOWN, FakeJobs, api_of, ask

TIMEOUT_S = 20


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    file = tmp_path / "ui.jar"
    with zipfile.ZipFile(file, "w") as written:
        written.writestr("web/", "")
        written.writestr("web/index.html", "<html>Flink</html>")
        written.writestr("web/main.123.js", "start()")
        written.writestr("web/manifest.json", "{}")
        written.writestr("web/assets/icon.svg", "<svg/>")
        written.writestr("web/font.woff2", b"\x00\x01")
        written.writestr("web/../outside.txt", "outside")
        written.writestr("META-INF/MANIFEST.MF", "secret")
    return file


def api_with(jar: Callable[[], Path]) -> Api:
    return api_of(FakeJobs(), [Route("GET", "/jobs", lambda asked: [])], files=WebUi(jar))


def shown(api: Api, path: str = "/", wanted: str = "Flink</html>") -> Answer:
    """The page, once it holds a text."""
    wait_until(lambda: wanted.encode() in ask(api, "GET", path).body, TIMEOUT_S, "the page")
    return ask(api, "GET", path)


def test_the_files_are_served_by_their_names(jar: Path) -> None:
    api = api_with(lambda: jar)
    assert shown(api).content_type == "text/html; charset=UTF-8"
    assert ask(api, "GET", "/index.html").body == b"<html>Flink</html>"
    script = ask(api, "GET", "/main.123.js")
    assert (script.status, script.body, script.content_type) == (200, b"start()", "text/javascript; charset=UTF-8")
    assert ask(api, "GET", "/assets/icon.svg").content_type == "image/svg+xml"
    assert ask(api, "GET", "/font.woff2").status == 200
    assert ask(api, "GET", "/jobs").body == b"[]", "routes come first"


@pytest.mark.parametrize(
    "path",
    [
        "/META-INF/MANIFEST.MF",
        "/../META-INF/MANIFEST.MF",
        "/%2e%2e/META-INF/MANIFEST.MF",
        "/..%2FMETA-INF%2FMANIFEST.MF",
        "/../outside.txt",
        "/assets",
        "/assets/",
        "/web/index.html",
        "/INDEX.HTML",
        "/etc/passwd",
    ],
)
def test_nothing_else_is_served(jar: Path, path: str) -> None:
    api = api_with(lambda: jar)
    shown(api)
    assert ask(api, "GET", path).status == 404


def test_a_file_that_the_browser_has_is_not_sent_again(jar: Path) -> None:
    api = api_with(lambda: jar)
    tag = dict(shown(api).headers)["etag"]
    again = ask(api, "GET", "/", headers={**KNOWN, "if-none-match": tag})
    assert (again.status, again.body) == (304, b"")


def test_files_are_only_read(jar: Path) -> None:
    api = api_with(lambda: jar)
    shown(api)
    assert ask(api, "POST", "/index.html").status == 405
    assert ask(api, "GET", "/index.html", headers={"host": "localhost"}).status == 401
    assert ask(api, "GET", "/manifest.json", headers={"host": "localhost"}).body == b"{}", "browsers send no cookie"
    assert ask(api, "GET", "/v1/manifest.json", headers={"host": "localhost"}).status == 401


def test_while_the_jar_is_got_a_page_says_so_and_it_is_got_once(jar: Path) -> None:
    asked, go = [], threading.Event()

    def get() -> Path:
        asked.append(1)
        go.wait(TIMEOUT_S)
        return jar

    api = api_with(get)
    for _ in range(3):
        page = ask(api, "GET", "/")
        assert page.status == 200
        assert b"being got" in page.body
        assert b"location.reload()" in page.body, "it comes back at /#/overview, too"
    assert ask(api, "GET", "/main.123.js").status == 404
    go.set()
    shown(api)
    assert asked == [1]


def test_nothing_is_got_unless_the_page_is_asked_for(jar: Path) -> None:
    def get() -> Path:
        raise AssertionError("nobody has asked")

    api = api_with(get)
    assert ask(api, "GET", "/jobs").status == 200
    assert ask(api, "GET", "/main.123.js").status == 404
    assert json.loads(ask(api, "GET", "/nothing").body)["errors"]


def test_a_jar_that_could_not_be_got_is_tried_for_again_a_minute_later(jar: Path) -> None:
    now_s, there = [0.0], [False]

    def get() -> Path:
        if not there[0]:
            raise ConnectionFailedError("Maven is away")
        return jar

    api = api_of(FakeJobs(), [], files=WebUi(get, lambda: now_s[0]))
    shown(api, wanted="Maven is away")
    there[0] = True
    now_s[0] = WebUi.AGAIN_S - 1
    assert b"Maven is away" in ask(api, "GET", "/").body
    now_s[0] = WebUi.AGAIN_S
    shown(api)


@pytest.mark.parametrize("how", ["cannot be got", "is no jar", "is another jar", "is not there"])
def test_without_the_jar_a_page_says_how_to_get_it(tmp_path: Path, how: str) -> None:
    file = tmp_path / "other.jar"
    if how == "is no jar":
        file.write_text("text")
    elif how == "is another jar":
        with zipfile.ZipFile(file, "w") as written:
            written.writestr("a.class", "")

    def get() -> Path:
        if how == "cannot be got":
            raise ConnectionFailedError("Maven is <away>")
        return file

    api = api_with(get)
    page = shown(api, wanted="flinkish.rest.web-ui-jar")
    assert page.status == 200
    assert b"flink-runtime-web:2.3.0" in page.body
    assert b"<away>" not in page.body
