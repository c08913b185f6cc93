"""A real S3 server as a child process: no root, no containers, Java only.

``python -m tests.platforms.s3_server PORT`` starts one by hand, until Ctrl-C, and prints what clients need.

The server is s3proxy with its data in memory. Its PUT with ``If-None-Match: *`` is atomic, and its listings are
consistent at once, as those of AWS; it ignores the condition of a CopyObject. It proves what a program does, not what
AWS's latency, throttling and permissions do to it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from pyarrow.fs import S3FileSystem

from tests.platforms.hadoop_cluster import hadoop_version
from tests.support.ivy import Coordinate, JarSet, java_executable, resolve_jars
from tests.support.processes import ProcessGroup, free_ports
from tests.support.spark_jars import shipped_modules

S3_JARS = JarSet(
    "s3proxy",
    (
        Coordinate("org.gaul", "s3proxy", "4.1.0"),
        # newer than the version that s3proxy names, with which its other jars do not work
        Coordinate("com.fasterxml.jackson.core", "jackson-annotations", "2.21"),
    ),
)
START_TIMEOUT_S = 300
_LOGGING = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss} %level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


def hadoop_aws_jars() -> list[Path]:
    """Returns the jars with which Spark reads and writes ``s3a://``, in the version of its Hadoop, without those that
    are among Spark's own. The SDK of AWS alone has 650 MB.

    Raises:
        JarsNotResolved: they are neither in the cache nor to be had.
    """
    coordinate = Coordinate("org.apache.hadoop", "hadoop-aws", hadoop_version())
    return resolve_jars(JarSet("hadoop-aws", (coordinate,), excluded_modules=shipped_modules()))


class S3Server:
    """An S3 server on a free port of 127.0.0.1, with 1 GB of heap; its data ends with it.

    Args:
        port: the port to listen at; 0 takes a free one.

    Example:
        with S3Server() as server, CountingProxy(server.port) as proxy:
            server.create_bucket("jobs")
            submit(settings=server.spark_settings(proxy.endpoint))
    """

    KEY, SECRET, REGION = "flinkish", "flinkish-secret", "us-east-1"

    def __init__(self, port: int = 0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flinkish-s3-"))
        self.port = port or free_ports(1)[0]
        self._process: ProcessGroup | None = None

    @property
    def endpoint(self) -> str:
        """The URL of the server for clients."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the server and returns when it answers.

        Raises:
            JarsNotResolved: its jars are neither in the cache nor to be had.
            FileNotFoundError: there is no Java.
        """
        jars = resolve_jars(S3_JARS)
        settings = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.KEY,
            "s3proxy.credential": self.SECRET,
            "jclouds.provider": "transient-nio2",
        }
        properties, logging = self.folder / "s3proxy.conf", self.folder / "logback.xml"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        logging.write_text(_LOGGING)
        java = [java_executable(), "-Xmx1g", "-XX:+UseSerialGC", f"-Dlogback.configurationFile={logging}"]
        start = ["-cp", ":".join(map(str, jars)), "org.gaul.s3proxy.Main", "--properties", str(properties)]
        self._process = ProcessGroup([*java, *start], self.folder / "server.log")
        self._process.wait_for(self._answers, START_TIMEOUT_S, "an answer from the S3 server")

    def stop(self) -> None:
        """Kills the server, with all that it holds."""
        if self._process is not None:
            self._process.kill()
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def file_system(self) -> S3FileSystem:
        """Returns pyarrow's file system of the server, which may create buckets."""
        return S3FileSystem(
            access_key=self.KEY,
            secret_key=self.SECRET,
            region=self.REGION,
            endpoint_override=self.endpoint,
            allow_bucket_creation=True,
        )

    def create_bucket(self, name: str) -> None:
        """Creates a bucket; one that exists is no error."""
        self.file_system().create_dir(name)

    def spark_settings(self, endpoint: str | None = None) -> dict[str, str]:
        """Returns Spark's settings for ``s3a://``; without an endpoint, the server's own (and no proxy's)."""
        settings = {
            "endpoint": endpoint or self.endpoint,
            "endpoint.region": self.REGION,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": self.KEY,
            "secret.key": self.SECRET,
        }
        return {f"spark.hadoop.fs.s3a.{key}": value for key, value in settings.items()}

    def _answers(self) -> bool:
        try:
            with urlopen(self.endpoint, timeout=5):
                return True
        except HTTPError:
            return True  # it refuses a request without a signature
        except OSError:
            return False

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


def main() -> None:
    """Starts a server at the port of the command line, and waits for Ctrl-C."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.platforms.s3_server PORT")
    with S3Server(int(sys.argv[1])) as server:
        print("\n".join(f"{key} {value}" for key, value in server.spark_settings().items()), flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
