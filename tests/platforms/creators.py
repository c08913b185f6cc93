"""Has eight threads create the same object of S3 at once, ten times, and prints for each how many have created it.

``python -m tests.platforms.creators [key=value ...]`` with Spark's settings.
"""

from __future__ import annotations

import sys
import threading
import uuid

from flinkish.common import Configuration
from flinkish.spark.session import get_session
from flinkish.storage.stores import storage_of

THREADS, OBJECTS = 8, 10


def main() -> None:
    """Creates the objects."""
    configuration = Configuration()
    for setting in sys.argv[1:]:
        configuration.set_string(*setting.split("=", 1))
    get_session(configuration, "creators")
    for _ in range(OBJECTS):
        path, begin = f"s3a://jobs/created/{uuid.uuid4().hex}", threading.Barrier(THREADS)
        created: list[int] = []

        def create(number: int, path: str = path, begin: threading.Barrier = begin, done: list[int] = created) -> None:
            begin.wait()
            try:
                storage_of(path).create(path, f"content of {number}".encode())
            except FileExistsError:
                return
            done.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        by_all = [number for number in created if storage_of(path).read(path) == f"content of {number}".encode()]
        print(f"created by {len(created)}" if by_all == created else f"lost {path}", flush=True)


if __name__ == "__main__":
    main()
