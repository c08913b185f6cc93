"""A driver is asked by HTTP, with its own token and nothing of the asker's; whatever it answers, or does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flinkish.common.configuration import Configuration
from flinkish.rest.access import default_token_file
from flinkish.session.drivers import MOST_FORWARDED, SILENT_S, Driver, DriverError, Tokens
from tests.support.processes import free_ports, wait_until
from tests.unit.session.folders import JOB, line

TIMEOUT_S = 30.0
MANAGER = {"id": "host:driver"}


class Served:
    """A server that answers as a test says. ``asked`` has the paths and headers of all requests."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {
            "/jobs/overview": (200, json.dumps({"jobs": [line(JOB)]}).encode()),
            "/taskmanagers": (200, json.dumps({"taskmanagers": [MANAGER]}).encode()),
        }
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.go = threading.Event()
        self.go.set()
        served = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): text for name, text in self.headers.items()}
                served.asked.append((self.command, self.path, headers, body))
                served.go.wait(TIMEOUT_S)
                code, content = served.answers.get(self.path.partition("?")[0], (404, b'{"errors":["no"]}'))
                self.send_response(code)
                for name, text in (("etag", '"1"'), ("set-cookie", "a=b"), ("location", "http://evil"), ("x-own", "1")):
                    self.send_header(name, text)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = _answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.go.set()
    served.server.shutdown()
    served.server.server_close()


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def driver_at(url: str, host: str = "host", clock_s: Callable[[], float] = lambda: 0.0, **settings: str) -> Driver:
    return Driver(url, host, Tokens(Configuration.from_dict(settings)), clock_s)


def write_token(file: Path, token: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(token)
    file.chmod(0o600)
    return file


def test_a_request_is_passed_on_with_the_drivers_token_and_nothing_of_the_askers(served: Served) -> None:
    write_token(default_token_file(served.port, "host"), "the-drivers-own-token")
    served.answers["/a b"] = served.answers["/a%20b"] = (409, b'{"errors":["no"]}')
    headers = {
        "authorization": "Bearer of-the-session",
        "cookie": "flinkish-1=of-the-session",
        "origin": "http://localhost",
        "host": "localhost:1",
        "content-type": "application/json",
        "if-none-match": '"7"',
    }
    answer = driver_at(served.url).forward("POST", "/a b", "c=d", headers, b"{}")
    ((method, path, sent, body),) = served.asked
    assert (method, path, body) == ("POST", "/a%20b?c=d", b"{}")
    assert sent["authorization"] == "Bearer the-drivers-own-token" and sent["host"] == f"127.0.0.1:{served.port}"
    assert (sent["content-type"], sent["if-none-match"]) == ("application/json", '"7"')
    assert not {"cookie", "origin"} & set(sent)
    assert (answer.status, answer.body) == (409, b'{"errors":["no"]}')
    told = dict(answer.headers)
    assert told["etag"] == '"1"' and not {"set-cookie", "location", "x-own"} & set(told)


#: The host of the driver, whether the session has a token file of its own -> which token is sent.
SENT: list[tuple[str, str, bool, str | None]] = [
    ("its own", "host", False, "Bearer the-drivers-own-token"),
    ("its own rather than the shared one", "host", True, "Bearer the-drivers-own-token"),
    ("of another machine only the shared one", "another", True, "Bearer the-token-of-all-drivers"),
    ("none", "another", False, None),
    ("none of another file", "../rest/host", False, None),
]


@pytest.mark.parametrize(("host", "shared", "sent"), [case[1:] for case in SENT], ids=[case[0] for case in SENT])
def test_a_driver_gets_its_own_token_or_the_one_of_the_configuration(
    host: str, shared: bool, sent: str | None, served: Served, tmp_path: Path
) -> None:
    write_token(default_token_file(served.port, "host"), "the-drivers-own-token")
    file = write_token(tmp_path / "shared.token", "the-token-of-all-drivers")
    settings = {"flinkish.rest.token-file": str(file)} if shared else {}
    driver_at(served.url, host, **settings).forward("GET", "/x", "", {}, b"")
    assert served.asked[0][2].get("authorization") == sent


def listed(driver: Driver) -> tuple[Any, ...]:
    driver.ask_for_jobs()
    driver.wait_for_jobs(TIMEOUT_S)
    return driver.jobs


def test_a_driver_says_which_jobs_it_has(served: Served) -> None:
    driver = driver_at(served.url)
    assert [one["jid"] for one in listed(driver)] == [JOB] and driver.task_managers == (MANAGER,)
    assert not driver.is_late and not driver.is_silent


#: Code and body of the answer to the question for its jobs.
STRANGE: list[tuple[str, int, bytes, str]] = [
    ("no token", 401, b'{"errors":["who are you"]}', "does not know the token of this session"),
    ("an error", 500, b"{}", "the code 500"),
    ("a redirect", 303, b"", "the code 303"),
    ("no JSON", 200, b"<html>", "answers something else"),
    ("other JSON", 200, b"[]", "answers something else"),
    ("a list of something else", 200, b'{"jobs": 1}', "answers something else"),
]


@pytest.mark.parametrize(
    ("code", "body", "sentence"), [case[1:] for case in STRANGE], ids=[case[0] for case in STRANGE]
)
def test_a_driver_that_answers_something_else_keeps_its_jobs_and_is_not_asked_for_them(
    code: int, body: bytes, sentence: str, served: Served
) -> None:
    now_s = [0.0]
    driver = driver_at(served.url, clock_s=lambda: now_s[0])
    assert len(listed(driver)) == 1
    served.answers["/jobs/overview"] = code, body
    now_s[0] = 1.0
    assert len(listed(driver)) == 1 and driver.is_silent
    with pytest.raises(DriverError, match=sentence):
        driver.forward("GET", "/x", "", {}, b"")


def test_lines_that_clients_could_not_read_are_left_out(served: Served) -> None:
    lines = [line(JOB), {**line(JOB), "end-time": None}, {"jid": JOB}, "x", None, {**line(JOB), "tasks": []}]
    served.answers["/jobs/overview"] = 200, json.dumps({"jobs": lines}).encode()
    assert listed(driver_at(served.url)) == (line(JOB),)


def test_a_driver_that_hangs_is_asked_once_and_waited_for_once(served: Served) -> None:
    now_s = [0.0]
    driver = driver_at(served.url, clock_s=lambda: now_s[0])
    served.go.clear()
    driver.ask_for_jobs()
    wait_until(lambda: served.asked, TIMEOUT_S, "the question")
    assert not driver.is_late
    now_s[0] = 1.0
    driver.ask_for_jobs()
    driver.wait_for_jobs(TIMEOUT_S)  # at once: it is late
    assert driver.is_late and not driver.is_silent and len(served.asked) == 1
    now_s[0] = SILENT_S
    assert driver.is_silent
    with pytest.raises(DriverError, match="does not answer in time") as caught:
        driver.forward("GET", "/x", "", {}, b"")
    assert caught.value.code == 504 and len(served.asked) == 1
    served.go.set()
    wait_until(lambda: not driver.is_silent and driver.jobs, TIMEOUT_S, "the answer")


def test_more_than_some_requests_at_a_time_are_refused(served: Served) -> None:
    driver = driver_at(served.url)
    served.go.clear()
    threads = [threading.Thread(target=driver.forward, args=("GET", "/x", "", {}, b"")) for _ in range(MOST_FORWARDED)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(served.asked) == len(threads), TIMEOUT_S, "all of them")
    with pytest.raises(DriverError, match="too much at a time") as caught:
        driver.forward("GET", "/x", "", {}, b"")
    assert caught.value.code == 503
    served.go.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert driver.forward("GET", "/jobs/overview", "", {}, b"").status == 200


def test_nobody_at_an_address_is_a_driver_that_has_gone() -> None:
    driver = driver_at(f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(DriverError, match="cannot be reached") as caught:
        driver.forward("GET", "/x", "", {}, b"")
    assert caught.value.is_gone
    listed(driver)
    assert driver.is_gone and driver.is_silent
