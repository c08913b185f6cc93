"""The producer of docs/docker/ writes what the main job reads, on a real broker."""

from __future__ import annotations

import subprocess
import sys

from flinkish.examples.clicks import clicks_of, kafka_clicks
from flinkish.minicluster import MiniCluster
from flinkish.runtime.phases import ManualClock
from flinkish.testing import TestingSink
from tests.support.documented import DOCS
from tests.support.kafka_broker import KafkaBroker
from tests.unit.minicluster.programs import environment, job_of


def test_the_producer_of_the_compose_file_writes_the_clicks_of_the_examples(kafka: KafkaBroker) -> None:
    kafka.create_topic("composed")
    program = [sys.executable, str(DOCS / "docker" / "produce_clicks.py"), "--topic", "composed"]
    options = ["--bootstrap-servers", kafka.bootstrap_servers, "--events", "7", "--per-second", "1000"]
    subprocess.run([*program, *options], check=True, timeout=60)
    env, sink = environment(1), TestingSink()
    env.add_source(kafka_clicks(kafka.bootstrap_servers, "composed", bounded=True)).sink_to(sink)
    MiniCluster(job_of(env), ManualClock()).run()
    assert sink.values == clicks_of(range(7), users=1_000)
