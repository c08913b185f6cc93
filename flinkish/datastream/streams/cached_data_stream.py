"""CachedDataStream: what ``cache()`` gives.

Rule upheld here: it has the records of the stream that it was made of, in every job that reads it. Flink keeps them
after the first job as an optimization, and computes them again when they are lost; here each job computes them.
"""

from __future__ import annotations

from typing import Any, NoReturn

from flinkish.common.no_effect import warn_without_effect
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.data_stream import DataStream


class CachedDataStream(DataStream):
    """A stream that several jobs of one environment read. It is no operator's output: settings raise as in PyFlink."""

    def __init__(self, *stream: Any) -> None:
        super().__init__(*stream)
        warn_without_effect("cache", "each job that reads the stream computes it again; write it to files to keep it")

    def invalidate(self) -> None:
        """Forget what is kept: nothing is."""
        warn_without_effect("invalidate", "nothing is kept between jobs")

    def get_name(self) -> NoReturn:
        raise Exception("Get name of CachedDataStream is not supported.")

    def name(self, name: str) -> NoReturn:
        raise Exception("Set name for CachedDataStream is not supported.")

    def uid(self, uid: str) -> NoReturn:
        raise Exception("Set uid for CachedDataStream is not supported.")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        raise Exception("Set uid hash for CachedDataStream is not supported.")

    def set_parallelism(self, parallelism: int) -> NoReturn:
        raise Exception("Set parallelism for CachedDataStream is not supported.")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        raise Exception("Set max parallelism for CachedDataStream is not supported.")

    def force_non_parallel(self) -> NoReturn:
        raise Exception("Set force non-parallel for CachedDataStream is not supported.")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        raise Exception("Set buffer timeout for CachedDataStream is not supported.")

    def start_new_chain(self) -> NoReturn:
        raise Exception("Start new chain for CachedDataStream is not supported.")

    def disable_chaining(self) -> NoReturn:
        raise Exception("Disable chaining for CachedDataStream is not supported.")

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> NoReturn:
        raise Exception("Setting slot sharing group for CachedDataStream is not supported.")
