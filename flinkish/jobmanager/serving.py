"""Serves the jobs of this process by REST: one endpoint for all of them, from the first submission to the end of the
process.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from flinkish.common.configuration import Configuration
from flinkish.common.options import rest
from flinkish.jobdir.fencing import announce_rest
from flinkish.jobmanager.client import JobManager

if TYPE_CHECKING:
    from flinkish.rest.endpoint import RestEndpoint

#: What pytest sets while a test runs; the processes that the test starts have it as well.
_OF_PYTEST = "PYTEST_CURRENT_TEST"

_lock = threading.Lock()
_begun = False


def serve(configuration: Configuration) -> None:
    """Begin to serve the jobs of this process, unless that has been done, or the configuration forbids it.

    Raises:
        ConfigurationError: a setting of the endpoint is wrong.
    """
    global _begun
    if not _is_wanted(configuration):
        return
    with _lock:
        if _begun:
            return
        # imported where it is used: most tests serve nothing
        from flinkish.rest.endpoint import RestEndpoint
        from flinkish.rest.routes import ROUTES
        from flinkish.rest.views.driver import DriverLog

        DriverLog.installed()
        endpoint = RestEndpoint.started(configuration, JobManager.get(), ROUTES, _web_ui_jar)
        _begun = True
    if endpoint is not None:
        announce_rest(endpoint.url)
        # looked at now: Python forgets the file when it has run it
        atexit.register(_end, endpoint, os.getpid(), is_program=hasattr(sys.modules.get("__main__"), "__file__"))


def _is_wanted(configuration: Configuration) -> bool:
    return configuration.get(rest.ENABLED) and (configuration.contains(rest.ENABLED) or _OF_PYTEST not in os.environ)


def _end(endpoint: RestEndpoint, pid: int, is_program: bool) -> None:
    """End with the process ``pid``, and none that it has forked, once its jobs have ended. Who sits before a prompt or
    a notebook, which is no program, is not held up: they have seen the end of the jobs."""
    if os.getpid() != pid:
        return
    if is_program and not hasattr(sys, "ps1"):
        endpoint.linger()
    endpoint.stop()


def _web_ui_jar() -> Path:
    from flinkish.launch.web_ui import web_ui_jar

    return web_ui_jar(os.environ)
