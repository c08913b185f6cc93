"""Who owns a job directory, as its file owner.json says, and whether that driver is alive.

Rule: clocks of different machines are never compared. A process of this machine is alive if the operating system knows
it; one of another machine is alive if it renews its claim while it is watched, for as long as it has not been silent
already by the clock of the storage. The earlier attempts of an application master of YARN have ended when it starts. A
wrong guess is a nuisance, never harmful: what keeps a driver from writing is the fencing table (`fencing.py`).
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

#: Seconds between two renewals of a driver's claim.
RENEW_S = 10.0

#: An owner on another machine that does not renew its claim while it is watched for so many seconds is taken for dead.
SILENCE_S = 35.0

_POLL_S = 0.25

#: The environment variable with the id of the container of YARN in which a process runs, and its form: the application,
#: the number of the attempt, the container of the attempt.
_CONTAINER = "CONTAINER_ID"
_CONTAINER_FORM = re.compile(r"(container_(?:e\d+_)?\d+_\d+)_(\d+)_\d+")


class Life(Enum):
    """What can be known of whether an owner is alive."""

    GONE = "gave the directory back, or its process has ended"
    ALIVE = "is alive"
    SILENT = "is on another machine"


def entry(token: str, fencing_token: int, renewals: int, remote: bool = False) -> dict[str, Any]:
    """The content of owner.json for this process. ``remote``: its queries run in a Spark server, and outlive it."""
    return {
        "token": token,
        "fencing_token": fencing_token,
        "host": socket.gethostname(),
        "machine": machine(),
        "pid": os.getpid(),
        "started": process_start(os.getpid()),
        "renewals": renewals,
        "remote": remote,
        "container": os.environ.get(_CONTAINER, ""),
        "renewed_s": time.time(),
    }


#: Tokens of owners in this process that gave their directory back, whether that could be written there or not.
_given_back: set[str] = set()


def given_back(token: str) -> None:
    """Remember that the owner with this token, in this process, has given its directory back."""
    _given_back.add(token)


def was_here(token: str) -> bool:
    """Whether the owner with this token was in this process, and has given its directory back."""
    return token in _given_back


def life_of(owner: dict[str, Any] | None) -> Life:
    """What is known of an owner without waiting. ``owner``: the content of owner.json; None: there is none."""
    if owner is None or owner.get("released") or owner["token"] in _given_back:
        return Life.GONE
    if owner["host"] != socket.gethostname() or owner.get("machine", machine()) != machine():
        return Life.SILENT
    there = process_start(int(owner["pid"])) == owner.get("started") is not None
    return Life.ALIVE if there else Life.GONE


def is_earlier_attempt(owner: dict[str, Any] | None) -> bool:
    """Whether an owner was an earlier attempt of the application of YARN that this process is an attempt of: YARN
    starts the next one when the earlier one has ended."""
    theirs = _CONTAINER_FORM.fullmatch(str((owner or {}).get("container", "")))
    ours = _CONTAINER_FORM.fullmatch(os.environ.get(_CONTAINER, ""))
    return theirs is not None and ours is not None and theirs[1] == ours[1] and int(theirs[2]) < int(ours[2])


def leaves_nothing_behind(owner: dict[str, Any] | None) -> bool:
    """Whether no query of an owner that is GONE can still run: one in a Spark server outlives its driver."""
    return owner is None or bool(owner.get("released")) or not owner.get("remote")


def watch(read: Callable[[], dict[str, Any] | None], silence_s: float = SILENCE_S) -> Life:
    """Watch an owner on another machine until it renews its claim (ALIVE) or gives the directory back (GONE); SILENT if
    it does neither for ``silence_s`` seconds. ``read``: returns the content of owner.json."""
    first = read()
    deadline = time.monotonic() + silence_s
    while True:
        now = read()
        life = life_of(now)
        if life is not Life.SILENT:
            return life
        if _mark(now) != _mark(first):
            return Life.ALIVE
        if time.monotonic() >= deadline:
            return Life.SILENT
        time.sleep(min(_POLL_S, silence_s))


def _mark(owner: dict[str, Any] | None) -> Any:
    return None if owner is None else (owner["token"], owner.get("renewals"), owner.get("renewed_s"))


def machine() -> str:
    """Names the scope in which process ids are unique: a boot of a host, and a container (pid namespace); "" if that is
    not known. Host names are not enough, as a container that is started anew has the old one's."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def process_start(pid: int) -> str | None:
    """When a process of this machine was started, in clock ticks since the boot, so that a reused pid is not mistaken
    for it; None if there is no such process, or it has ended and is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return _process_exists(pid)
    return None if fields[0] == "Z" else fields[19]


def _process_exists(pid: int) -> str | None:
    """All that can be told without /proc: "unknown" if the pid is in use, otherwise None."""
    if os.path.isdir("/proc/self"):
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return "unknown"
    return "unknown"
