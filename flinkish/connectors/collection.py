"""The source of ``from_collection``: the values are pickled with the job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flinkish.common.detach import all_detached
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.numbered_splits import SAMPLE, NumberedSplitSource, pickled_size


class CollectionSource(NumberedSplitSource):
    """A bounded source over the values of a collection in the program: one split, in the order of the collection.

    >>> CollectionSource([1, 2, 3]).values(0, 1, 3)
    [2, 3]
    """

    #: the values are copied when they are read, and nothing else here can change
    travels_by_reference = True

    def __init__(self, values: Iterable[Any], type_info: TypeInformation | None = None) -> None:
        self._values = list(values)
        self._type_info = type_info or Types.PICKLED_BYTE_ARRAY()

    def first(self, count: int) -> CollectionSource:
        """A source of the first values only."""
        return CollectionSource(self._values[:count], self._type_info)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def produced_type(self) -> TypeInformation:
        return self._type_info

    @property
    def splits(self) -> int:
        return 1

    def size_of(self, split: int) -> int | None:
        return len(self._values)

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        # the collection itself is read again if the epoch is
        return all_detached(self._values[start:stop])

    def bytes_per_record(self, split: int, position: int) -> float:
        return pickled_size(self._values[position : position + SAMPLE])
