"""A real HDFS and YARN as one child process: no root, no containers, Java only.

``python -m tests.platforms.hadoop_cluster FOLDER`` starts one by hand, until Ctrl-C; then
``export HADOOP_CONF_DIR=FOLDER/conf`` is all that a client needs.

A container's working directory has 170 characters and more, as on the nodes of real clusters. HDFS is empty at each
start. YARN has one node with 8 GB and 8 cores, and starts an application master twice.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil  # type: ignore[import-untyped]

from tests.support.ivy import Coordinate, JarSet, java_executable, pyspark_jars_folder, resolve_jars
from tests.support.processes import ProcessGroup, runs_java, wait_until

START_TIMEOUT_S = 600
_SOURCE = Path(__file__).with_name("StartHadoop.java")
_LOGGING = """log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss} %p %c{2}: %m%n
"""
_OPENED = ("java.base/java.lang=ALL-UNNAMED", "java.base/java.net=ALL-UNNAMED")


def hadoop_version() -> str:
    """Returns the version of the Hadoop inside the installed PySpark."""
    (jar,) = pyspark_jars_folder().glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def hadoop_jars() -> JarSet:
    """Returns the jars of the servers, in the version of PySpark's Hadoop."""
    parts = ("hadoop-client-minicluster", "hadoop-client-api", "hadoop-client-runtime")
    return JarSet(
        "hadoop",
        (
            *(Coordinate("org.apache.hadoop", part, hadoop_version()) for part in parts),
            # the servers use them, and the artifact hadoop-client-minicluster does not name them
            Coordinate("org.mockito", "mockito-core", "4.11.0"),
            Coordinate("org.junit.jupiter", "junit-jupiter-api", "5.12.2"),
            Coordinate("org.assertj", "assertj-core", "3.27.3"),
            Coordinate("org.bouncycastle", "bcpkix-jdk18on", "1.79"),
            Coordinate("org.slf4j", "slf4j-reload4j", "1.7.36"),
        ),
    )


class HadoopCluster:
    """HDFS and YARN on free ports of this machine, with 1 GB of heap together.

    Args:
        folder: for their data, logs and configuration; without one, a temporary folder that ends with the cluster.

    Example:
        with HadoopCluster() as hadoop:
            submit("--master", "yarn", env=hadoop.environment)
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._is_temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="flinkish-hadoop-")) if folder is None else folder.resolve()
        self._process: ProcessGroup | None = None

    @property
    def conf(self) -> Path:
        """The folder with the configuration of clients, for HADOOP_CONF_DIR."""
        return self.folder / "conf"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which Spark, and Hadoop's clients, use this cluster."""
        return {"HADOOP_CONF_DIR": str(self.conf)}

    @property
    def uri(self) -> str:
        """The URI of HDFS, without a slash at its end."""
        return self._setting("core-site.xml", "fs.defaultFS")

    def start(self) -> None:
        """Starts the servers, and returns when HDFS answers and YARN's node has registered.

        Raises:
            JarsNotResolved: the jars of Hadoop are neither in the cache nor to be had.
            FileNotFoundError: there is no Java.
        """
        jars = resolve_jars(hadoop_jars())
        self.folder.mkdir(parents=True, exist_ok=True)
        for left_over in ("conf", "hdfs", "target"):
            shutil.rmtree(self.folder / left_over, ignore_errors=True)
        (self.folder / "log4j.properties").write_text(_LOGGING)
        class_path = os.pathsep.join(map(str, (self.folder, *jars)))
        opened = [word for package in _OPENED for word in ("--add-opens", package)]
        java = [java_executable(), "-Xmx1g", "-XX:+UseSerialGC", *opened, "-cp", class_path]
        # MiniYARNCluster puts its logs and the directories of containers into `target` of the directory it runs in
        command = ["env", "-C", str(self.folder), *java, str(_SOURCE), str(self.folder)]
        self._process = ProcessGroup(command, self.folder / "servers.log")
        self._process.wait_for_line("^READY$", START_TIMEOUT_S)

    def stop(self) -> None:
        """Kills the servers and whatever containers still run; only a temporary folder is removed."""
        if self._process is not None:
            self._process.kill()
            self._process = None
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def applications(self) -> list[dict[str, Any]]:
        """Returns what the ResourceManager says of all applications, the newest last: of each its `id`, `state`,
        `finalStatus`, `diagnostics` and so on."""
        answer = self._ask("cluster/apps")["apps"] or {"app": []}
        return sorted(answer["app"], key=lambda each: int(each["startedTime"]))

    def application(self, identifier: str) -> dict[str, Any]:
        """Returns what the ResourceManager says of the application with that id."""
        return dict(self._ask(f"cluster/apps/{identifier}")["app"])

    def wait_for_end(self, identifier: str, timeout_s: float) -> dict[str, Any]:
        """Returns what the ResourceManager says of an application once it has ended."""
        ended = {"FINISHED", "FAILED", "KILLED"}
        wait_until(lambda: self.application(identifier)["state"] in ended, timeout_s, f"the end of {identifier}")
        return self.application(identifier)

    def attempts(self, application: str) -> list[dict[str, Any]]:
        """Returns what the ResourceManager says of the attempts of the application with that id, in their order."""
        found = self._ask(f"cluster/apps/{application}/appattempts")["appAttempts"]["appAttempt"]
        return sorted(found, key=lambda each: int(each["id"]))

    def containers(self, application: str) -> list[psutil.Process]:
        """Returns the Java processes of an application that run now: its application master and executors."""
        if self._process is None:
            return []
        return [each for each in self._process.jvms() if _is_of(each, application)]

    def executors(self, application: str) -> list[psutil.Process]:
        """Returns the executors of an application that run now."""
        return [each for each in self.containers(application) if runs_java(each, "CoarseGrainedExecutorBackend")]

    def application_master(self, application: str) -> psutil.Process | None:
        """Returns the process of the application master; in cluster mode the driver's JVM."""
        masters = (each for each in self.containers(application) if runs_java(each, "ApplicationMaster"))
        return next(masters, None)

    def logs(self, application: str) -> str:
        """Returns what the containers of an application have printed, for the messages of failed tests."""
        files = sorted(self.folder.glob(f"target/**/{application}/container_*/std*"))
        shown = (f"== {file.parent.name}/{file.name}\n{file.read_text(errors='replace')[-20_000:]}" for file in files)
        return "\n".join(shown)

    def _ask(self, path: str) -> Any:
        address = self._setting("yarn-site.xml", "yarn.resourcemanager.webapp.address")
        with urllib.request.urlopen(f"http://{address}/ws/v1/{path}", timeout=30) as answer:
            return json.load(answer)

    def _setting(self, file: str, key: str) -> str:
        for setting in ElementTree.parse(self.conf / file).getroot():
            if setting.findtext("name") == key:
                return setting.findtext("value") or ""
        raise KeyError(f"{self.conf / file} has no setting {key}")

    def __enter__(self) -> HadoopCluster:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


def _is_of(process: psutil.Process, application: str) -> bool:
    try:
        return application in process.environ().get("CONTAINER_ID", "").replace("container_", "application_")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def main() -> None:
    """Starts a cluster in the folder of the command line, and waits for Ctrl-C."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.platforms.hadoop_cluster FOLDER")
    with HadoopCluster(Path(sys.argv[1])) as hadoop:
        print(f"HDFS {hadoop.uri}, user {getpass.getuser()}\nexport HADOOP_CONF_DIR={hadoop.conf}", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
