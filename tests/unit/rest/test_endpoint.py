"""The endpoint of a driver: its settings, its token, and its end."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import pytest

from flinkish.common import Configuration
from flinkish.errors import ConfigurationError
from flinkish.jobdir.fencing import rest_url
from flinkish.jobmanager.requests import ask
from flinkish.rest.endpoint import RestEndpoint, ports_of
from flinkish.rest.route import Route
from tests.support.processes import wait_until
from tests.support.programs import new_environment
from tests.support.rest_drivers import TIMEOUT_S, Driver, fetched
from tests.support.rest_jobs import FakeJobs

pytest.importorskip("uvicorn")

ROUTES = (Route("GET", "/jobs", lambda asked: ["jobs"]),)


def no_jar() -> Path:
    raise AssertionError("nobody has asked for the Web UI")


def started(**settings: str) -> RestEndpoint | None:
    """An endpoint with these settings, whose names have ``_`` for ``.``, and ``__`` for ``-``."""
    named = {name.replace("__", "-").replace("_", "."): value for name, value in settings.items()}
    configuration = Configuration.from_dict({"rest.bind-port": "0", **named})
    return RestEndpoint.started(configuration, FakeJobs(), ROUTES, no_jar)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("settings", "ports"),
    [
        ({}, list(range(8081, 8100))),
        ({"rest.bind-port": "9000"}, [9000]),
        ({"rest.bind-port": "9000-9002, 9100"}, [9000, 9001, 9002, 9100]),
        ({"rest.bind-port": "0"}, [0]),
        ({"rest.port": "8083"}, [8083]),
        ({"rest.port": "8083", "rest.bind-port": "9000"}, [9000]),
    ],
)
def test_the_ports_are_those_of_flinks_settings(settings: dict[str, str], ports: list[int]) -> None:
    assert ports_of(Configuration.from_dict(settings)) == ports


@pytest.mark.parametrize(
    "settings",
    [
        {"rest.bind-port": "http"},
        {"rest.bind-port": "9002-9000"},
        {"rest.bind-port": "70000"},
        {"rest.bind-port": ""},
        {"rest.bind-port": "-1"},
        {"rest.port": "70000"},
    ],
)
def test_what_is_no_port_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="port"):
        ports_of(Configuration.from_dict(settings))


def test_where_the_driver_is_reached_is_one_line_without_the_token(
    capfd: pytest.CaptureFixture[str], home: Path
) -> None:
    endpoint = started()
    assert endpoint is not None and endpoint.token_file is not None
    try:
        token = endpoint.token_file.read_text().strip()
        (line,) = capfd.readouterr().err.splitlines()
        assert re.fullmatch(rf"flinkish: REST API and Web UI at {endpoint.url} \(token: \S+\.token\)", line)
        assert token not in line
        assert endpoint.token_file.is_relative_to(home)
        assert fetched(f"{endpoint.url}/jobs")[0] == 401
        assert fetched(f"{endpoint.url}/jobs", token) == (200, ["jobs"])
    finally:
        endpoint.stop()
    assert not endpoint.token_file.exists(), "it ends with the driver"


def test_two_drivers_have_two_ports_and_two_tokens() -> None:
    first, second = started(), started()
    assert first is not None and second is not None
    try:
        assert first.url != second.url
        assert first.token_file is not None and second.token_file is not None
        other = first.token_file.read_text().strip()
        assert fetched(f"{second.url}/jobs", other)[0] == 401
    finally:
        first.stop()
        second.stop()


def test_a_token_of_the_users_own_is_taken_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-my-own")
    file.chmod(0o600)
    endpoint = started(flinkish_rest_token__file=str(file))
    assert endpoint is not None
    try:
        assert fetched(f"{endpoint.url}/jobs", "a-token-of-my-own")[0] == 200
    finally:
        endpoint.stop()
    assert file.read_text() == "a-token-of-my-own"


class Listening(BaseHTTPRequestHandler):
    """Somebody else's server at another port of this machine, to which a browser sends the cookies of its host."""

    heard: list[str] = []

    def do_GET(self) -> None:
        self.heard.append(self.headers.get("Cookie", ""))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_what_another_port_hears_of_a_browser_is_no_token_and_opens_no_other_server(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-my-own")
    file.chmod(0o600)
    first, second = (started(flinkish_rest_token__file=str(file)) for _ in range(2))
    assert first is not None and second is not None
    listener = HTTPServer(("127.0.0.1", 0), Listening)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    browser = build_opener(HTTPCookieProcessor(), ProxyHandler({}))
    try:
        with suppress(HTTPError):  # it serves no page here
            browser.open(f"{first.url}/?token=a-token-of-my-own")
        assert browser.open(f"{first.url}/jobs").status == 200
        browser.open(f"http://127.0.0.1:{listener.server_port}/")
        (heard,) = Listening.heard
        value = heard.partition("=")[2]
        assert len(value) == 64 and "a-token-of-my-own" not in heard
        assert [fetched(f"{one.url}/jobs", value)[0] for one in (first, second)] == [401, 401]
        assert fetched(f"{second.url}/jobs", headers={"Cookie": heard})[0] == 401
    finally:
        listener.shutdown()
        listener.server_close()
        first.stop()
        second.stop()


def test_without_a_token_only_this_machine_is_listened_to() -> None:
    endpoint = started(flinkish_rest_token="none")
    assert endpoint is not None
    try:
        assert endpoint.token_file is None
        assert fetched(f"{endpoint.url}/jobs") == (200, ["jobs"])
    finally:
        endpoint.stop()
    with pytest.raises(ConfigurationError, match="everybody who reaches 0.0.0.0"):
        started(flinkish_rest_token="none", rest_bind__address="0.0.0.0")


def test_the_name_that_others_know_is_part_of_the_address() -> None:
    endpoint = started(rest_address="proxy.example", rest_bind__address="127.0.0.1")
    assert endpoint is not None
    endpoint.stop()
    assert endpoint.url.startswith("http://proxy.example:")


def test_https_needs_a_certificate() -> None:
    with pytest.raises(ConfigurationError, match="no certificate"):
        started(security_ssl_rest_enabled="true")


@pytest.mark.parametrize("lack", ["uvicorn", "a port", "a home"])
def test_a_driver_that_cannot_serve_says_why_and_goes_on(
    lack: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    settings, holder = {}, None
    if lack == "uvicorn":
        monkeypatch.setattr("flinkish.rest.endpoint.find_spec", lambda name: None)
    elif lack == "a port":
        holder = started()
        assert holder is not None
        settings = {"rest_bind__port": holder.url.rpartition(":")[2]}
        capfd.readouterr()
    else:
        home.write_text("a file")
    assert started(**settings) is None
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("flinkish: no REST API and no Web UI")
    assert {
        "uvicorn": "pip install uvicorn starlette",
        "a port": "rest.bind-port",
        "a home": "flinkish.rest.token-file",
    }[lack] in line
    if holder is not None:
        holder.stop()


def test_jobs_that_pytest_runs_are_not_served(capfd: pytest.CaptureFixture[str]) -> None:
    environment = new_environment()
    environment.from_collection([1]).print()
    environment.execute("not served")
    assert rest_url() is None
    assert "REST" not in capfd.readouterr().err


# ------------------------------------------------------------------ a driver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    started_one = Driver(tmp_path)
    yield started_one
    started_one.process.kill()
    started_one.process.wait()


def test_a_driver_is_found_by_its_address_and_its_token_is_nowhere_else(driver: Driver) -> None:
    (job_id,) = wait_until(driver.running, TIMEOUT_S, "the job")
    owner = json.loads((driver.directory / "owner.json").read_text())
    assert owner["rest"] == driver.url
    described = ask(str(driver.directory), "describe", TIMEOUT_S)
    assert described["driver"]["rest"] == driver.url
    assert driver.token not in json.dumps(described)
    process = Path("/proc", str(driver.process.pid))
    assert driver.token.encode() not in process.joinpath("cmdline").read_bytes()
    assert driver.token.encode() not in process.joinpath("environ").read_bytes()
    assert driver.token not in driver.errors.read_text()
    for file in driver.directory.rglob("*"):
        assert not file.is_file() or driver.token.encode() not in file.read_bytes(), file
    assert [file for file in driver.home.rglob("*") if file.is_file()] == [driver.token_file]
    assert driver.token_file.stat().st_mode & 0o777 == 0o600
    assert driver.asked(f"/jobs/{job_id}")[1]["state"] == "RUNNING"


def test_the_result_of_a_stop_is_waited_for_by_the_process_that_has_ended_its_job(
    driver: Driver, tmp_path: Path
) -> None:
    (job_id,) = wait_until(driver.running, TIMEOUT_S, "the job")
    told = driver.asked(f"/jobs/{job_id}/stop", "POST", {"targetDirectory": str(tmp_path / "sp")})
    assert told[0] == 202
    # nobody asks for the result yet, and the program has come to its end
    assert driver.process.stdout is not None
    assert driver.process.stdout.readline() == "ended\n"
    time.sleep(1)
    assert driver.process.poll() is None
    code, outcome = driver.asked(f"/jobs/{job_id}/savepoints/{told[1]['request-id']}")
    assert (code, outcome["status"]["id"]) == (200, "COMPLETED")
    assert Path(outcome["operation"]["location"]).is_relative_to(tmp_path / "sp")
    driver.process.wait(TIMEOUT_S)
    assert not driver.token_file.exists()
    assert "Traceback" not in driver.errors.read_text()


def test_a_result_that_nobody_fetches_holds_the_process_up_no_longer_than_is_configured(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "rest.linger=1 s")
    (job_id,) = wait_until(driver.running, TIMEOUT_S, "the job")
    assert driver.asked(f"/jobs/{job_id}/stop", "POST", {"targetDirectory": str(tmp_path / "sp")})[0] == 202
    assert driver.process.wait(TIMEOUT_S) in (0, 143)


def test_a_cancellation_is_not_waited_for(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "rest.linger=10 min")
    (job_id,) = wait_until(driver.running, TIMEOUT_S, "the job")
    assert driver.asked(f"/jobs/{job_id}?mode=cancel", "PATCH") == (202, {})
    assert driver.process.wait(TIMEOUT_S) in (0, 143)


def test_all_jobs_of_a_program_are_served_at_one_address(tmp_path: Path) -> None:
    driver = Driver(tmp_path, jobs=2)
    try:
        both = wait_until(lambda: len(found := driver.running()) == 2 and found, TIMEOUT_S, "two jobs")
        assert driver.errors.read_text().count("REST API") == 1
        assert driver.asked(f"/jobs/{both[0]}?mode=cancel", "PATCH") == (202, {})
        wait_until(lambda: driver.running() == both[1:], TIMEOUT_S, "the end of one of them")
    finally:
        driver.process.kill()
        driver.process.wait()
