"""An S3 server in a thread of this process (moto): no Java, no network but the loopback interface, and a list of the
requests that it has answered.

It proves what a program does, not what the latency, the throttling and the permissions of AWS do to it.
"""

from __future__ import annotations

import json
import threading
from types import TracebackType

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

KEY, SECRET, REGION = "flinkish", "not-a-secret", "us-east-1"


class S3Server:
    """A server on a free port of 127.0.0.1. ``requests`` are those that it has answered, such as ``PUT /jobs/a``."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        requests = self.requests

        class Handler(WSGIRequestHandler):
            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                requests.append(f"{self.command} {self.path.partition('?')[0]}")

        application = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._server.server_port

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """The settings of Hadoop for this server."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": REGION,
            "fs.s3a.access.key": KEY,
            "fs.s3a.secret.key": SECRET,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
        }

    @property
    def settings(self) -> str:
        """The value of the environment variable with flinkish's settings of S3."""
        return self.settings_at(self.endpoint)

    def settings_at(self, endpoint: str) -> str:
        """The same for clients that reach the server by another URL, such as that of a proxy."""
        properties = {**self.properties, "fs.s3a.endpoint": endpoint}
        return json.dumps({"": {name.removeprefix("fs.s3a."): value for name, value in properties.items()}})

    def create_bucket(self, name: str) -> None:
        """Create a bucket."""
        access = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
        boto3.client("s3", endpoint_url=self.endpoint, **access).create_bucket(Bucket=name)

    def __enter__(self) -> S3Server:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
