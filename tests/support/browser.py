"""A real browser: Chromium without a window, steered by its DevTools protocol over two pipes.

It is the one of this machine (on Debian and Ubuntu the package ``chromium``).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

#: Names of its program.
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe", "--mute-audio"),
)
TIMEOUT_S = 60.0


class BrowserNotFound(Exception):
    """There is no Chromium on this machine."""


class Browser:
    """One page in a browser of its own.

    Example:
        with Browser() as browser:
            browser.open("http://127.0.0.1:8081/")
            browser.wait_for("Available Task Slots")

    Args:
        width: width of the page in pixels.
        height: its height.
    """

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        program = next(filter(None, map(shutil.which, _NAMES)), None)
        if program is None:
            raise BrowserNotFound("there is no Chromium on this machine: install the package chromium")
        self._folder = tempfile.mkdtemp(prefix="flinkish-browser-")
        its_input, self._to = os.pipe()
        self._from, its_output = os.pipe()

        def as_three_and_four() -> None:
            # the numbers that Chromium expects; copies first, for one may be the other's
            copies = os.dup(its_input), os.dup(its_output)
            os.dup2(copies[0], 3)
            os.dup2(copies[1], 4)

        self._process = subprocess.Popen(
            [program, *_OPTIONS, f"--user-data-dir={self._folder}", f"--window-size={width},{height}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=as_three_and_four,
            close_fds=False,
        )
        os.close(its_input)
        os.close(its_output)
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._number = 0
        self._session: str | None = None
        #: what went wrong in the page: exceptions, and requests that were answered by an error
        self.errors: list[str] = []
        #: the texts of dialogs (``confirm``), all of which are accepted
        self.dialogs: list[str] = []
        threading.Thread(target=self._read, name="browser", daemon=True).start()
        page = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, url: str) -> None:
        """Open a page."""
        self._call("Page.navigate", url=url)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page another size, in pixels."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, is_dark: bool = True) -> None:
        """What the system's colours are."""
        value = "dark" if is_dark else "light"
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def evaluate(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page; promises are waited for."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"]["exception"].get("description", found))
        return found["result"].get("value")

    def text(self) -> str:
        """What can be read in the page."""
        return str(self.evaluate("document.body ? document.body.innerText : ''")).replace("\xa0", " ")

    def wait_for(self, text: str) -> str:
        """Wait until the page shows a text; returns all that it shows then."""
        return self.wait_until(lambda shown: text in shown, f"{text!r} in the page")

    def wait_until(self, holds: Callable[[str], bool], what: str) -> str:
        """Wait until what the page shows is right; returns it."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            shown = ""
            # a page that is just being left has no answer
            with suppress(AssertionError):
                shown = self.text()
            if holds(shown):
                return shown
            if time.monotonic() > deadline_s:
                raise AssertionError(f"no {what}; it shows:\n{shown}\nerrors: {self.errors}")
            time.sleep(0.1)

    def click(self, selector: str, text: str = "") -> None:
        """Click on the first element that a selector finds and that has this text, as soon as there is one."""
        script = (
            f"(() => {{ for (const element of document.querySelectorAll({json.dumps(selector)})) "
            f"if (element.innerText.trim().includes({json.dumps(text)}) && element.getClientRects().length) "
            "{ element.click(); return true; } return false; })()"
        )
        deadline_s = time.monotonic() + TIMEOUT_S
        while not self.evaluate(script):
            if time.monotonic() > deadline_s:
                raise AssertionError(f"no {selector} with {text!r} in the page; it shows:\n{self.text()}")
            time.sleep(0.1)

    def screenshot(self, file: Path, whole: bool = True) -> None:
        """Write a picture of the page, as PNG."""
        found = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        with self._changed:
            self._number += 1
            number = self._number
        self._send(number, method, parameters)
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._answers, TIMEOUT_S):
                raise AssertionError(f"the browser does not answer {method}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        found: dict[str, Any] = answer["result"]
        return found

    def _send(self, number: int, method: str, parameters: dict[str, Any]) -> None:
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")

    def _read(self) -> None:
        kept = b""
        while chunk := os.read(self._from, 1 << 16):
            *messages, kept = (kept + chunk).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            with self._changed:
                self._answers[message["id"]] = message
                self._changed.notify_all()
            return
        parameters = message.get("params", {})
        if message["method"] == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif message["method"] == "Network.responseReceived" and parameters["response"]["status"] >= 400:
            self.errors.append(f"{parameters['response']['status']} {parameters['response']['url']}")
        elif message["method"] == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])
            # answers that come later than the dialog's end are nobody's
            with self._changed:
                self._number += 1
            self._send(self._number, "Page.handleJavaScriptDialog", {"accept": True})
