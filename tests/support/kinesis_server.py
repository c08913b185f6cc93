"""Kinesis and Firehose in a thread of this process (moto), with what moto does unlike AWS put right: records stay in a
shard that was split or merged, an iterator at the end of such a shard is None, and sequence numbers are long and
sparse."""

from __future__ import annotations

import functools
from collections import OrderedDict
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import boto3
from moto.core import DEFAULT_ACCOUNT_ID
from moto.kinesis import kinesis_backends, models

from tests.support.s3_server import KEY, REGION, SECRET, S3Server

#: of AWS's size
_FIRST = 49590338271490256608559692538361571095921575989136588898
_STEP = 604462909807314587353111


def _like_aws() -> None:
    """Change moto's classes, once."""
    if getattr(models, "like_aws", False):
        return
    models.like_aws = True
    put_at = models.Shard.put_record

    @functools.wraps(put_at)
    def put_record(shard: Any, partition_key: str, data: str, explicit_hash_key: str) -> str:
        last = shard.get_max_sequence_number() or getattr(shard, "first", _FIRST)
        number = last + _STEP * (1 + len(shard.records) % 3)
        shard.records[number] = models.Record(partition_key, data, number, explicit_hash_key)
        return str(number)

    models.Shard.put_record = put_record
    for name in ("split_shard", "merge_shards"):
        changed = getattr(models.Stream, name)

        @functools.wraps(changed)
        def keeping_records(stream: Any, *arguments: Any, changed: Any = changed) -> None:
            kept = {shard.shard_id: shard.records for shard in stream.shards.values()}
            for shard in stream.shards.values():
                shard.records = OrderedDict()
            changed(stream, *arguments)
            for shard_id, records in kept.items():
                stream.shards[shard_id].records = records

        setattr(models.Stream, name, keeping_records)
    read = models.KinesisBackend.get_records

    @functools.wraps(read)
    def get_records(backend: Any, stream_arn: Any, shard_iterator: str, limit: Any) -> Any:
        iterator, records, behind = read(backend, stream_arn, shard_iterator, limit)
        stream, shard, last = models.decompose_shard_iterator(iterator)
        found = backend.describe_stream(stream_arn=None, stream_name=stream).get_shard(shard)
        at_end = not found.is_open and int(last) >= found.get_max_sequence_number()
        return (None if at_end else iterator), records, behind

    models.KinesisBackend.get_records = get_records


class KinesisServer(AbstractContextManager["KinesisServer"]):
    """A server on a free port of 127.0.0.1. ``requests`` are the operations that it has answered."""

    def __init__(self) -> None:
        _like_aws()
        self._server = S3Server()

    @property
    def properties(self) -> dict[str, str]:
        """The properties of Flink's connector for this server."""
        return {
            "aws.region": REGION,
            "aws.endpoint": self._server.endpoint,
            "aws.credentials.provider": "BASIC",
            "aws.credentials.provider.basic.accesskeyid": KEY,
            "aws.credentials.provider.basic.secretkey": SECRET,
        }

    def client(self, service: str = "kinesis") -> Any:
        """A client of boto3."""
        access = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
        return boto3.client(service, endpoint_url=self._server.endpoint, **access)

    def trim(self, stream: str) -> None:
        """Delete all records of a stream, as its retention does; sequence numbers go on."""
        for shard in kinesis_backends[DEFAULT_ACCOUNT_ID][REGION].streams[stream].shards.values():
            shard.first = shard.get_max_sequence_number() or getattr(shard, "first", _FIRST)
            shard.records = OrderedDict()

    def __enter__(self) -> KinesisServer:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)
