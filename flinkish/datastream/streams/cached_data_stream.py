"""CachedDataStream: the stream that ``cache()`` gives.

Rule upheld here: every job that reads the cached stream gets the records of the original stream. Flink keeps them after
the first job as an optimization, and computes them again if they are lost; here each job computes them.
"""

from __future__ import annotations

from typing import Any, NoReturn

from flinkish.common.no_effect import warn_without_effect
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.data_stream import DataStream
from flinkish.datastream.streams.operator_stream import unsupported


class CachedDataStream(DataStream):
    """A stream that several jobs of one environment can read. Since it is not the output of an operator, setting an
    operator's name, uid or parallelism on it raises UnsupportedOperationError, as in PyFlink."""

    def __init__(self, *stream: Any) -> None:
        super().__init__(*stream)
        warn_without_effect("cache", "each job that reads the stream computes it again; write it to files to keep it")

    def invalidate(self) -> None:
        """Discard the cached records. It has no effect, and a warning says so: nothing is kept between jobs."""
        warn_without_effect("invalidate", "nothing is kept between jobs")

    def get_name(self) -> NoReturn:
        self._refuse("Get name of CachedDataStream", "get_name")

    def name(self, name: str) -> NoReturn:
        self._refuse("Set name for CachedDataStream", "name")

    def uid(self, uid: str) -> NoReturn:
        self._refuse("Set uid for CachedDataStream", "uid")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        self._refuse("Set uid hash for CachedDataStream", "set_uid_hash")

    def set_parallelism(self, parallelism: int) -> NoReturn:
        self._refuse("Set parallelism for CachedDataStream", "set_parallelism")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        self._refuse("Set max parallelism for CachedDataStream", "set_max_parallelism")

    def force_non_parallel(self) -> NoReturn:
        self._refuse("Set force non-parallel for CachedDataStream", "force_non_parallel")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        self._refuse("Set buffer timeout for CachedDataStream", "set_buffer_timeout")

    def start_new_chain(self) -> NoReturn:
        self._refuse("Start new chain for CachedDataStream", "start_new_chain")

    def disable_chaining(self) -> NoReturn:
        self._refuse("Disable chaining for CachedDataStream", "disable_chaining")

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> NoReturn:
        self._refuse("Setting slot sharing group for CachedDataStream", "slot_sharing_group")

    def _refuse(self, what: str, method: str) -> NoReturn:
        raise unsupported(self, what, method, "call it on the operator before cache()")
