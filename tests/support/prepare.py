"""Gets what tests need once per machine: jars, the archive of classes, and MariaDB. ``python -m tests.support.prepare``

Whatever is not there when a test needs it, the test gets itself, and waits for it.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.support.class_archive import make_archive
from tests.support.flink_jars import FLINK
from tests.support.ivy import resolve_jars
from tests.support.kafka_broker import KAFKA_JARS
from tests.support.mariadb import mariadb_root
from tests.support.spark_jars import spark_jars


def main() -> None:
    """Downloads Kafka, Flink and MariaDB while the archive is made, which needs Delta's jars."""
    spark_jars()
    with ThreadPoolExecutor() as pool:
        downloads: list[Future[Any]] = [pool.submit(resolve_jars, jars) for jars in (KAFKA_JARS, FLINK)]
        downloads.append(pool.submit(mariadb_root))
        make_archive()
        for download in downloads:
            download.result()


if __name__ == "__main__":
    main()
