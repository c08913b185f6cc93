"""A process that holds functions open, as a Python worker of Spark does.

    python holding_worker.py QUERY VERSION FOLDER WHAT

It writes what happens to files of ``FOLDER``: ``ready``, ``closed-<name>`` when a function is closed (in the thread
that has opened it), ``cancelled`` when its call was interrupted. WHAT: ``idle``, ``works``, ``works-for-another``,
``ends``, ``close-raises``, ``close-hangs``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from flinkish.runtime.task.open_functions import WORKER, AttemptFiles, TaskCancelled


def main(query: str, version: str, folder: Path, what: str) -> None:
    """Hold two functions, of two attempts, and do ``what``."""

    def close(name: str) -> None:
        if what == "close-raises" and name == version:
            raise ValueError("it cannot be closed")
        if what == "close-hangs" and name == version:
            (folder / "hangs").touch()
            time.sleep(600)
        assert threading.current_thread() is threading.main_thread()
        (folder / f"closed-{name}").touch()
        WORKER.release(name)

    for name in (version, "9-00000000"):
        WORKER.hold(name, AttemptFiles(query, name), lambda name=name: close(name), timeout_s=1.0)  # type: ignore[misc]
    (folder / "ready").write_text(str(os.getpid()))
    if what == "ends":
        os._exit(0)
    try:
        if what.startswith("works"):
            with WORKER.at_work("9-00000000" if what == "works-for-another" else version):
                (folder / "at-work").touch()
                while not (folder / "go-on").exists():
                    time.sleep(0.05 if what == "works-for-another" else 600)
        while True:
            time.sleep(600)
    except TaskCancelled:
        (folder / "cancelled").touch()
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
