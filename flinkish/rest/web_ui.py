"""Flink's own Web UI, unmodified, out of the jar in which Flink publishes it.

Rule: only what the jar lists below ``web/`` is served, by its exact name. Without the jar there is one page, which says
how to get it.
"""

from __future__ import annotations

import html
import logging
import mimetypes
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from flinkish.errors import FlinkishError, message_of
from flinkish.rest.api import Answer, unless_known

_LOG = logging.getLogger("flinkish.RestServerEndpoint")

_FOLDER, _INDEX = "web/", "index.html"
#: The most bytes of a file that is served.
_MAX_BYTES = 32 << 20
_TYPES = {
    ".js": "text/javascript; charset=UTF-8",
    ".css": "text/css; charset=UTF-8",
    ".html": "text/html; charset=UTF-8",
}


class WebUi:
    """The files of the Web UI.

    Args:
        jar: gets the jar, which may take its time; called in a thread of its own when the page is asked for first. It
            raises a FlinkishError if it cannot; then it is called again for who asks some time later.
        clock_s: gives a time in seconds that never goes back.
    """

    #: Seconds after which a jar that could not be got is tried for again.
    AGAIN_S = 60.0

    def __init__(self, jar: Callable[[], Path], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._jar = jar
        self._clock_s = clock_s
        self._lock = threading.Lock()
        #: when the jar was asked for last; None: it was not
        self._begun_s: float | None = None
        self._failure: str | None = None
        self._files: zipfile.ZipFile | None = None
        #: path -> its entry in the jar
        self._entries: dict[str, zipfile.ZipInfo] = {}

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        """The answer to a request for a file; None if there is none of that name."""
        name = path.removeprefix("/") or _INDEX
        if name == _INDEX:
            self._begin()
        with self._lock:
            files, entry = self._files, self._entries.get(name)
        if files is None or entry is None:
            return self._page() if name == _INDEX else None
        body = files.read(entry) if entry.file_size <= _MAX_BYTES else b""
        return unless_known(Answer(200, body, _type_of(name)), headers, f"{entry.CRC:08x}-{entry.file_size:x}")

    def _begin(self) -> None:
        with self._lock:
            now_s = self._clock_s()
            again = self._failure is not None and self._begun_s is not None and now_s - self._begun_s >= self.AGAIN_S
            if self._begun_s is not None and not again:
                return
            self._begun_s, self._failure = now_s, None
        threading.Thread(target=self._open, name="flinkish-web-ui", daemon=True).start()

    def _open(self) -> None:
        try:
            files = zipfile.ZipFile(self._jar())
            entries = {
                entry.filename.removeprefix(_FOLDER): entry
                for entry in files.infolist()
                if entry.filename.startswith(_FOLDER) and not entry.is_dir()
            }
            if _INDEX not in entries:
                raise ValueError("the jar holds no Web UI")
        except Exception as error:
            told = error.message if isinstance(error, FlinkishError) else message_of(error)
            _LOG.info("there is no Web UI: %s", told)
            with self._lock:
                self._failure = told
            return
        with self._lock:
            self._files, self._entries = files, entries

    def _page(self) -> Answer:
        """The page in place of the Web UI, which comes back until this is decided."""
        with self._lock:
            failure = self._failure
        if failure is None:
            # a "refresh" loads nothing where the address has a `#`, as those of the Web UI have
            head = "<script>setTimeout(() => location.reload(), 2000)</script>"
            text = "<p>Flink's Web UI is being got from Maven (org.apache.flink:flink-runtime-web, once).</p>"
        else:
            head = ""
            text = (
                f"<p>Flink's Web UI is not here: {html.escape(failure)}</p><p>Get the jar "
                "<code>org.apache.flink:flink-runtime-web:2.3.0</code> from Maven, and start the program with "
                "<code>-D flinkish.rest.web-ui-jar=FILE</code>; or load this page again after a minute, if Maven can "
                "be reached by then. "
                'The API works without it: <a href="jobs/overview">jobs/overview</a>.</p>'
            )
        page = f"<!DOCTYPE html><html><head><title>flinkish</title>{head}</head><body>{text}</body></html>\n"
        return Answer(200, page.encode(), _TYPES[".html"])


def _type_of(name: str) -> str:
    suffix = Path(name).suffix
    return _TYPES.get(suffix) or mimetypes.types_map.get(suffix) or "application/octet-stream"
