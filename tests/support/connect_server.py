"""A Spark Connect server as a process of its own, with this checkout on its Python path and Delta among its jars."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from flinkish.launch.spark_command import ONE_JVM
from tests.support.processes import ProcessGroup, free_ports, python_path
from tests.support.spark_session import home_of_sessions, session_settings

START_TIMEOUT_S = 120
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def start_connect_server(folder: Path, master: str = "local[2]") -> tuple[ProcessGroup, str]:
    """Starts a server on a free port of 127.0.0.1; returns it and the URL for ``SparkSession.builder.remote``.

    Executors of another master run the ``python3`` of their own PATH, and know nothing of this checkout.
    """
    (port,) = free_ports(1)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        **session_settings(folder, ONE_JVM.fullmatch(master) is not None),
        "spark.master": master,
        "spark.log.level": "WARN",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
    }
    del settings["spark.executorEnv.PYTHONPATH"]
    properties = folder / "server.conf"
    properties.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    home = Path(home_of_sessions())
    options = ["--class", _CLASS, "--properties-file", str(properties), "spark-internal"]
    command = [str(home / "bin" / "spark-submit"), *options]
    python = Path(sys.executable)
    environment = {
        "PYSPARK_PYTHON": str(python) if master.startswith("local") else "python3",
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": python_path(),
        "SPARK_HOME": str(home),
    }
    server = ProcessGroup(command, folder / "server.log", env={**os.environ, **environment})
    server.wait_for(lambda: _answers(port), START_TIMEOUT_S, "a server on its port")
    return server, f"sc://127.0.0.1:{port}"


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
