"""Programs over HTTP: they are uploaded, listed, run and deleted by Flink's routes for jars."""

from __future__ import annotations

import re
import shlex
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flinkish.errors import redact
from flinkish.rest.api import Receiver
from flinkish.rest.route import Asked, BadRequestError, ConflictError, ForbiddenError, Route
from flinkish.session.children import LOG_FILE, Child, Children
from flinkish.session.registry import Json, Registry
from flinkish.session.uploads import Upload, UploadedBody, Uploads, place
from flinkish.storage.paths import make_private
from flinkish.storage.stores import storage_errors

#: Seconds that a submission waits for the job of the program, and between two looks.
SUBMIT_S, _LOOK_S = 120.0, 0.2
#: How many submissions wait at a time, and how much of a driver's log is shown of one that has failed.
_MOST_WAITING, _SHOWN = 4, 4_000
#: The folder of the program in its job directory.
_PROGRAM = "program"
#: The most arguments and settings, and the most characters of all of them.
_MOST, _LONGEST = 1_000, 100_000
_CLAIM_MODES = ("NO_CLAIM", "CLAIM", "LEGACY")
_KEY = re.compile(r"[\w.$-]{1,200}", re.ASCII)


class Submission:
    """Uploads and runs programs. Any thread may use it.

    Args:
        uploads: the folder of the uploads.
        children: starts drivers.
        registry: finds the job of a driver.
        clock_s: gives a time in seconds that never goes back.
    """

    def __init__(
        self, uploads: Uploads, children: Children, registry: Registry, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._uploads = uploads
        self._children = children
        self._registry = registry
        self._clock_s = clock_s
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)

    def receiver(self, headers: Mapping[str, str]) -> Receiver:
        """What takes an upload."""
        return UploadedBody(self._uploads, headers)

    def routes(self) -> tuple[Route, ...]:
        """Flink's routes for jars."""
        return (
            Route("GET", "/jars", self._list),
            Route("DELETE", "/jars/{jar}", self._delete, takes_json=False),
            Route("POST", "/jars/{jar}/run", self._run),
            Route("GET", "/jars/{jar}/plan", self._plan),
            Route("POST", "/jars/{jar}/plan", self._plan, takes_json=False),
        )

    def _list(self, asked: Asked) -> Json:
        files = [
            {"id": one.id, "name": one.name, "uploaded": one.uploaded_ms, "entry": []} for one in self._uploads.all()
        ]
        return {"address": "", "files": files}

    def _delete(self, asked: Asked) -> Json:
        self._uploads.delete(asked.path["jar"])
        return {}

    def _plan(self, asked: Asked) -> Any:
        raise ForbiddenError("The plan of a program is only known to its driver: 'flinkish info PROGRAM.py' shows it.")

    def _run(self, asked: Asked) -> Json:
        upload = self._uploads.get(asked.path["jar"])
        arguments, settings = asked_run(asked.body, asked.query)
        if not self._waiting.acquire(blocking=False):
            raise ConflictError(f"{_MOST_WAITING} programs are being started: submit this one when one of them runs.")
        try:
            child = self._started(upload, arguments, settings, asked.now_ms)
            return {"jobid": self._job_of(child)}
        finally:
            self._waiting.release()

    def _started(self, upload: Upload, arguments: list[str], settings: dict[str, str], now_ms: int) -> Child:
        name = f"{upload.name.rpartition('.')[0][:40]}-{uuid.uuid4().hex[:8]}"
        directory = self._children.folder / name
        try:
            with storage_errors("write", str(directory)):
                make_private(str(directory))
                program = place(upload, directory / _PROGRAM)
            child = Child(name, str(program), arguments, settings, upload.id, now_ms, job_id=uuid.uuid4().hex)
            return self._children.submit(child)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def _job_of(self, child: Child) -> str:
        """The id of the job of a driver that was started just now.

        Raises:
            BadRequestError: it has ended before it had one.
            ConflictError: it has none yet.
        """
        directory = self._children.folder / child.name
        deadline_s = self._clock_s() + SUBMIT_S
        while True:
            now = self._children.get(child.name)
            found = self._registry.job_of(str(directory), child.job_id)
            if found is not None:
                return found
            if now is None or now.has_ended:
                code = "nobody knows which" if now is None or now.code is None else now.code
                raise BadRequestError(
                    f"The program has ended (exit code {code}) without a job. {directory / LOG_FILE} ends with:\n"
                    + tail(directory / LOG_FILE)
                )
            if self._clock_s() >= deadline_s:
                raise ConflictError(
                    f"The program has no job after {SUBMIT_S:g} s, goes on as {child.job_id}: {directory / LOG_FILE}."
                )
            time.sleep(_LOOK_S)


def asked_run(body: Mapping[str, Any], query: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The arguments of a program and its settings, as a request asks for them; its body counts before its query.

    Raises:
        BadRequestError: a field does not have its form, or asks for what there is not.
    """

    def given(name: str, in_query: str) -> Any:
        value = body.get(name)
        return query.get(in_query) if value is None else value

    if given("entryClass", "entry-class"):
        raise BadRequestError(
            "A Python program has no entry class: it runs from its first line. Leave the field empty."
        )
    arguments = body.get("programArgsList")
    if arguments is None:
        text = given("programArgs", "program-args")
        try:
            arguments = (
                shlex.split(_text("programArgs", text))
                if text
                else [*filter(None, query.get("programArg", "").split(","))]
            )
        except ValueError as error:
            raise BadRequestError(f"The field 'programArgs' cannot be split: {error}.") from error
    if not isinstance(arguments, list) or not all(isinstance(one, str) and "\0" not in one for one in arguments):
        raise BadRequestError("The field 'programArgsList' is no list of texts.")
    settings = _settings(body.get("flinkConfiguration"))
    parallelism = given("parallelism", "parallelism")
    if parallelism not in (None, ""):
        if not re.fullmatch("[1-9][0-9]{0,4}", str(parallelism), re.ASCII):
            raise BadRequestError("The parallelism is no number from 1 on.")
        settings["parallelism.default"] = str(parallelism)
    savepoint = given("savepointPath", "savepointPath")
    if savepoint:
        settings["execution.state-recovery.path"] = _text("savepointPath", savepoint)
    if str(given("allowNonRestoredState", "allowNonRestoredState")).lower() == "true":
        settings["execution.state-recovery.ignore-unclaimed-state"] = "true"
    mode = given("claimMode", "claimMode") or given("restoreMode", "restoreMode")
    if mode:
        if mode not in _CLAIM_MODES:
            raise BadRequestError(f"The claim mode is none of {', '.join(_CLAIM_MODES)}.")
        settings["execution.state-recovery.claim-mode"] = str(mode)
    texts = [*arguments, *settings, *settings.values()]
    if len(texts) > _MOST or sum(map(len, texts)) > _LONGEST:
        raise BadRequestError(
            f"There are more than {_MOST:,} arguments and settings, or {_LONGEST:,} characters of them."
        )
    return arguments, settings


def _settings(given: Any) -> dict[str, str]:
    pairs = given if given is not None else {}
    if not isinstance(pairs, dict):
        raise BadRequestError("The field 'flinkConfiguration' is no object of texts.")
    for key, value in pairs.items():
        if not _KEY.fullmatch(key) or not isinstance(value, (str, int, float)) or "\n" in str(value):
            raise BadRequestError("The field 'flinkConfiguration' is no object of texts.")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in pairs.items()}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST or "\0" in value or "\n" in value:
        raise BadRequestError(f"The field '{name}' is no text of one line.")
    return value


def tail(log: Path) -> str:
    """The last lines of a log, without what may be a secret."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _SHOWN))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return redact("\n".join(lines[1:] if size > _SHOWN else lines))
