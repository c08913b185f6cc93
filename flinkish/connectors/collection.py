"""``from_collection``: the values travel with the job; tick ``n`` is the n-th slice of ``max_records`` values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.core.source import GeneratedBatch, GeneratedSource


class CollectionSource(GeneratedSource):
    """A bounded source over values that the program itself holds. One split, in the order of the collection.

    >>> CollectionSource([1, 2, 3]).read(0, 1, 2)
    GeneratedBatch(values=[3], timestamps=None, finished=True)
    """

    def __init__(self, values: Iterable[Any], type_info: TypeInformation | None = None) -> None:
        self._values = list(values)
        self._type_info = type_info or Types.PICKLED_BYTE_ARRAY()

    @property
    def bounded(self) -> bool:
        return True

    @property
    def produced_type(self) -> TypeInformation:
        return self._type_info

    @property
    def size(self) -> int | None:
        return len(self._values)

    @property
    def splits(self) -> int:
        return 1

    def read(self, split: int, tick: int, max_records: int) -> GeneratedBatch:
        end = (tick + 1) * max_records
        return GeneratedBatch(self._values[tick * max_records : end], None, end >= len(self._values))
