"""Writes the clicks of flinkish's examples to a topic of Kafka, as JSON objects, without end or up to a number."""

from __future__ import annotations

import argparse
import itertools
import json
import time

from confluent_kafka import Producer

from flinkish.examples.clicks import clicks_of

USERS = 1_000


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--per-second", type=int, default=200, metavar="N", help="clicks (default: %(default)s)")
    parser.add_argument("--events", type=int, metavar="N", help="clicks, then end; default: no end")
    options = parser.parse_args()
    producer = Producer({"bootstrap.servers": options.bootstrap_servers, "enable.idempotence": True})
    begun = time.monotonic()
    for number in itertools.count() if options.events is None else range(options.events):
        (click,) = clicks_of([number], USERS)
        producer.produce(options.topic, json.dumps(click.as_dict()))
        producer.poll(0)
        time.sleep(max(0.0, begun + number / options.per_second - time.monotonic()))
    producer.flush()


if __name__ == "__main__":
    main()
