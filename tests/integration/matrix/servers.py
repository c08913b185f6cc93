"""The servers that all cells of the matrix share."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.kafka_broker import KafkaBroker
from tests.support.postgres import PostgresServer


@dataclass(frozen=True)
class Servers:
    """Both are running."""

    kafka: KafkaBroker
    postgres: PostgresServer
