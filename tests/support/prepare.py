"""Gets what tests need once per machine: jars and archives of classes. ``python -m tests.support.prepare``

Whatever is not there when a test needs it, the test gets itself, and waits for it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.support.class_archive import make_archives
from tests.support.ivy import resolve_jars
from tests.support.kafka_broker import KAFKA_JARS
from tests.support.spark_jars import spark_jars


def main() -> None:
    """Downloads Kafka while the archives are made, which need Delta's jars."""
    spark_jars()
    with ThreadPoolExecutor() as pool:
        kafka = pool.submit(resolve_jars, KAFKA_JARS)
        make_archives()
        kafka.result()


if __name__ == "__main__":
    main()
