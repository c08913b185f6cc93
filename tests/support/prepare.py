"""Gets what tests need once per machine: jars, archives of classes, and MariaDB. ``python -m tests.support.prepare``

Whatever is not there when a test needs it, the test gets itself, and waits for it.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from tests.support.class_archive import make_archives
from tests.support.ivy import resolve_jars
from tests.support.kafka_broker import KAFKA_JARS
from tests.support.mariadb import mariadb_root
from tests.support.spark_jars import spark_jars


def main() -> None:
    """Downloads Kafka and MariaDB while the archives are made, which need Delta's jars."""
    spark_jars()
    with ThreadPoolExecutor() as pool:
        downloads: list[Future[object]] = [pool.submit(resolve_jars, KAFKA_JARS), pool.submit(mariadb_root)]
        make_archives()
        for download in downloads:
            download.result()


if __name__ == "__main__":
    main()
