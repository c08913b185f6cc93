"""The Web UI of Flink, unmodified, and the page of our own, in a real browser."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from flinkish.errors import FlinkishError
from flinkish.jobmanager.job.description import JobDescription
from flinkish.launch.web_ui import web_ui_jar
from flinkish.rest.own_page import OwnPage
from flinkish.rest.routes import ROUTES
from flinkish.rest.server import RestServer, listening
from flinkish.rest.web_ui import WebUi
from tests.support import described_jobs as jobs
from tests.support.browser import Browser, BrowserNotFound
from tests.support.ivy import Coordinate, JarSet, JarsNotResolved, resolve_jars
from tests.support.processes import wait_until
from tests.support.rest_drivers import TIMEOUT_S, Driver
from tests.support.rest_jobs import TOKEN, FakeJobs, api_of

#: The Web UI alone: what it is made for in Java is left out.
_NOT_NEEDED = (
    *("flink-annotations", "flink-clients", "flink-core", "flink-core-api", "flink-java", "flink-runtime"),
    *("flink-rpc-core", "flink-rpc-akka-loader", "flink-streaming-java", "flink-shaded-netty", "flink-shaded-guava"),
    *("flink-shaded-jackson", "flink-shaded-force-shading", "jsr305", "slf4j-api", "flink-optimizer"),
)
UI_OF_1 = JarSet("flink-web", (Coordinate("org.apache.flink", "flink-runtime-web", "1.20.3"),), _NOT_NEEDED)

#: What a page asks for that is not there in Flink.
_HARMLESS = ("/favicon.ico",)


@contextmanager
def opened(width: int = 1280) -> Iterator[Browser]:
    try:
        browser = Browser(width)
    except BrowserNotFound as error:
        pytest.skip(str(error))
    with browser:
        yield browser


def faults(browser: Browser) -> list[str]:
    return [error for error in browser.errors if not error.endswith(_HARMLESS)]


def jar_of_2() -> Path:
    try:
        return web_ui_jar({})
    except FlinkishError as error:
        pytest.skip(f"Flink's Web UI cannot be had: {error}")


def jar_of_1() -> Path:
    try:
        found = resolve_jars(UI_OF_1)
    except JarsNotResolved as error:
        pytest.skip(f"Flink's Web UI cannot be had: {error}")
    return next(jar for jar in found if jar.name.startswith("flink-runtime-web") or has_pages(jar))


def has_pages(jar: Path) -> bool:
    with zipfile.ZipFile(jar) as file:
        return "web/index.html" in file.namelist()


#: Page of a job in Flink's Web UI -> what it shows.
PAGES_OF_JOB = {
    "overview": ("Records Received", "Source: numbers -> Map -> Filter -> Sink: Print to Std. Out", "Cancel Job"),
    "timeline": ("Vertex TimeLine",),
    "exceptions": ("Root Exception", "No Root Exception"),
    "checkpoints": ("Checkpoint Counts", "Latest Savepoint"),
    "configuration": ("Execution Configuration", "Job parallelism"),
}
#: Page of the driver -> what it shows.
PAGES_OF_DRIVER = {
    "task-manager": ("Data Port", "Free Slots"),
    "job-manager/config": ("execution.target", "minicluster"),
    "job-manager/logs": ("flinkish",),
    "job/running": ("clicks 0",),
}


@pytest.mark.parametrize("jar", [jar_of_2, pytest.param(jar_of_1, marks=pytest.mark.nightly)])
def test_flinks_web_ui_shows_a_running_job_and_cancels_it(jar: Callable[[], Path], tmp_path: Path) -> None:
    with opened() as browser:
        driver = Driver(tmp_path, f"flinkish.rest.web-ui-jar={jar()}", "rest.linger=1 s")
        try:
            (job_id,) = wait_until(driver.running, TIMEOUT_S, "the job")
            browser.open(f"{driver.url}/?token={driver.token}")
            browser.wait_for("Available Task Slots")
            of_job = {f"job/running/{job_id}/{page}": texts for page, texts in PAGES_OF_JOB.items()}
            for page, texts in {**PAGES_OF_DRIVER, **of_job}.items():
                browser.open(f"{driver.url}/#/{page}")
                for text in texts:
                    browser.wait_for(text)
            assert faults(browser) == []
            assert driver.token not in browser.evaluate("location.href + document.cookie")
            browser.click("a, button, span", "Cancel Job")
            browser.click(".ant-popover button, .ant-popconfirm button", "Yes")
            assert driver.process.wait(TIMEOUT_S) in (0, 143)
        finally:
            driver.process.kill()
            driver.process.wait()


def test_flinks_web_ui_shows_the_task_managers_with_their_figures() -> None:
    with opened() as browser, served(jobs.managed_job(), jar_of_2()) as (url, _):
        ui, _, token = url.partition("flinkish.html")
        browser.open(ui + token)
        browser.wait_for("Available Task Slots")
        browser.open(f"{ui}#/task-manager")
        for text in ("node-1-0", "node-2-2"):
            browser.wait_for(text)
        assert "node-2-1" not in browser.text()
        for page, texts in {
            "metrics": ("young", "1,430", "300 MB", "1.00 GB"),
            "log-list": ("cannot be asked",),
        }.items():
            browser.open(f"{ui}#/task-manager/node-1-0/{page}")
            for text in texts:
                browser.wait_for(text)


@contextmanager
def served(job: JobDescription, jar: Path = Path("nowhere")) -> Iterator[tuple[str, FakeJobs]]:
    socket = listening("127.0.0.1", [0])
    shown = FakeJobs(job)
    server = RestServer(api_of(shown, ROUTES, files=OwnPage(WebUi(lambda: jar))), socket)
    server.start()
    yield f"http://127.0.0.1:{socket.getsockname()[1]}/flinkish.html?token={TOKEN}", shown
    server.stop()


def _traced_job() -> JobDescription:
    return jobs.finished_job(flinkish__trace__lifecycle="true")


#: A job -> what its page shows.
SITUATIONS: dict[Callable[[], JobDescription], tuple[str, ...]] = {
    jobs.beginning_job: ("begins INITIALIZING", "runs for", "Savepoint"),
    jobs.running_job: ("clicks & more RUNNING", "Totals -> Sink: Out", "HASH", "the longest of", "held back by"),
    jobs.restarted_job: ("OSError: the server is away", "restarted after", "FAILING → RESTARTING", "who must act"),
    jobs.finished_job: ("FINISHED", "ran for", "end of input"),
    jobs.managed_job: (
        "node-1-0",
        "300 MiB of 1.0 GiB",
        "180 MiB in 2",
        "LOST",
        "it was killed by SIGKILL",
        "RELEASED",
    ),
    _traced_job: ("Lifecycle of operators", "snapshot_state", "dispose"),
}


def test_the_page_that_waits_for_the_web_ui_comes_back_wherever_it_was_opened(tmp_path: Path) -> None:
    jar, go = tmp_path / "ui.jar", threading.Event()
    with zipfile.ZipFile(jar, "w") as written:
        written.writestr("web/index.html", "<p>Flink is here</p>")
    files = WebUi(lambda: jar if go.wait(TIMEOUT_S) else jar)
    socket = listening("127.0.0.1", [0])
    server = RestServer(api_of(FakeJobs(), ROUTES, files=files), socket)
    server.start()
    try:
        with opened() as browser:
            browser.open(f"http://127.0.0.1:{socket.getsockname()[1]}/?token={TOKEN}#/job/running")
            browser.wait_for("is being got")
            go.set()
            browser.wait_for("Flink is here")
            assert browser.evaluate("location.hash") == "#/job/running"
    finally:
        server.stop()


def test_our_own_page_shows_a_job_in_each_situation_on_wide_and_narrow_screens() -> None:
    with opened() as browser:
        for made, texts in SITUATIONS.items():
            with served(made()) as (url, _):
                for width, is_dark in ((1280, False), (400, True)):
                    browser.resize(width)
                    browser.dark(is_dark)
                    browser.open(url)
                    for text in texts:
                        browser.wait_for(text)
                    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), (made, width)
        assert faults(browser) == []


def test_buttons_of_our_own_page_ask_first_and_then_do_what_they_say() -> None:
    with opened() as browser, served(jobs.running_job()) as (url, shown):
        browser.open(url)
        browser.click("button", "Savepoint")
        browser.wait_for("Savepoint: in progress")
        shown.outcomes[0].complete("/savepoints/savepoint-1")
        browser.wait_for("Savepoint: /savepoints/savepoint-1")
        browser.click("button:not([disabled])", "Cancel")
        browser.wait_for("Cancel: accepted")
        assert [request.kind.value for request in shown.asked] == ["savepoint", "cancel"]
        questions = [
            "Write a savepoint of 'clicks & more'? The job goes on.",
            "Cancel 'clicks & more' without a savepoint?",
        ]
        assert browser.dialogs == questions
        assert faults(browser) == []


def test_state_is_looked_up_by_key(tmp_path: Path) -> None:
    job = jobs.checkpointed_job(tmp_path)
    latest = job.checkpoints.latest_completed
    assert latest is not None
    saved = replace(latest, path=jobs.savepoint_of_job(tmp_path / "savepoints"))
    with (
        opened() as browser,
        served(replace(job, checkpoints=replace(job.checkpoints, latest_completed=saved))) as (
            url,
            _,
        ),
    ):
        browser.open(url)
        browser.click("#lookup button", "Look up")
        browser.wait_for(f"checkpoint {saved.id}")
        browser.evaluate("Object.assign(document.querySelector('#lookup [name=state]'), {value: 'last'})")
        browser.evaluate("Object.assign(document.querySelector('#lookup [name=key]'), {value: 'k3'})")
        browser.click("#lookup button", "Look up")
        browser.wait_for("map key")
        key, value = browser.evaluate("document.querySelector('#found tbody').innerText").split()
        assert (key, value.isdigit()) == ("k3", True)
        assert faults(browser) == []
