"""What the state of a job holds as of its latest checkpoint: its states, or the entries of one of them.

Rule: a driver does not read state itself, since that may take its time and its memory: a process of its own does, one
at a time, with limits. It is given nothing but what a command line takes (`flinkish.cli.state`).
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import Any

from flinkish.interpreter import FLINKISH, ROOT, python_command
from flinkish.rest.route import Asked, BadRequestError, ConflictError, NotFoundError, Route
from flinkish.rest.views.shapes import Json, job_of

#: Seconds that the process has.
LIMIT_S = 60.0
#: The most entries, and the most bytes of the answer.
MAX_ENTRIES, MAX_BYTES = 20, 1 << 20
#: The most characters of a name or a key.
_MAX_TEXT = 1_000

_reading = threading.Lock()


def state(asked: Asked) -> Json:
    """``/jobs/:id/state``: the states of the latest checkpoint; with ``uid`` and ``state`` the first entries of that
    state, with ``key`` those of that key."""
    latest = job_of(asked).checkpoints.latest_completed
    if latest is None or not latest.path:
        raise NotFoundError("The job has no checkpoint yet: its state can be seen once it has one.")
    names = {name: asked.query[name] for name in ("uid", "state", "key") if asked.query.get(name)}
    if any(len(text) > _MAX_TEXT or not text.isprintable() for text in names.values()):
        raise BadRequestError(f"A uid, a state and a key are printable texts of at most {_MAX_TEXT:,} characters.")
    if "uid" in names and "state" in names:
        words = ["query", *(f"--{name}={text}" for name, text in names.items()), f"--limit={MAX_ENTRIES}"]
    elif names:
        raise BadRequestError("A uid goes with a state, and a key with both.")
    else:
        words = ["list"]
    if not _reading.acquire(blocking=False):
        raise ConflictError("State is being read for somebody else: ask again in a moment.")
    try:
        return {"checkpoint": latest.id, "path": latest.path, **_read([*words, "--json", "--", latest.path])}
    finally:
        _reading.release()


def _read(words: list[str]) -> dict[str, Any]:
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        python_command(FLINKISH, "state", *words),
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    over = threading.Timer(LIMIT_S, process.kill)
    over.start()
    assert process.stdout is not None and process.stderr is not None
    try:
        answer = process.stdout.read(MAX_BYTES + 1)
        if len(answer) > MAX_BYTES:
            raise ConflictError(f"The entries have more than {MAX_BYTES:,} bytes: use flinkish state query.")
        said = process.stderr.read(MAX_BYTES).decode(errors="replace").strip()
        code = process.wait()
    finally:
        over.cancel()
        process.kill()
        process.communicate()
    if code == 0:
        found: dict[str, Any] = json.loads(answer)
        return found
    if code < 0:
        raise ConflictError(f"The state could not be read within {LIMIT_S:g} s: use flinkish state query.")
    raise ConflictError(said.split("\n")[-1].removeprefix("flinkish: ") if said else "The state cannot be read.")


ROUTES: tuple[Route, ...] = (Route("GET", "/jobs/{job}/state", state),)
