"""The records of `benchmarks.keyed_state`: first every key once, then keys drawn at random. A record is (user, 1).

Rule of this file: what record number n holds depends on n and the number of keys alone, so every engine is given the
same records, an epoch that runs again too, and what the sums must be is known.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: The share of the keys that an epoch of the load brings.
LOAD_EPOCHS = 10


def key_numbers(first: int, stop: int, keys: int, step: int = 1) -> npt.NDArray[np.int64]:
    """The numbers of the keys of the records ``first``, ``first + step``, ... before ``stop``.

    Records below ``keys`` bring every key once; those after them are drawn by the splitmix64 generator.
    """
    indices = np.arange(first, stop, step, dtype=np.uint64)
    mixed = indices * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    drawn: npt.NDArray[np.int64] = np.where(indices < keys, indices, mixed % np.uint64(keys)).astype(np.int64)
    return drawn


def user_names(numbers: npt.NDArray[np.int64]) -> list[str]:
    """The keys themselves."""
    return [f"user-{number}" for number in numbers.tolist()]


def sums_at(records: int, epoch_records: int, keys: int) -> int:
    """What the last running sums per user add up to in an epoch of records that ends with record ``records - 1``.

    Every user of the epoch counts once, with the number of its records until then.
    """
    seen = np.bincount(key_numbers(0, records, keys), minlength=keys)
    in_epoch = np.unique(key_numbers(records - epoch_records, records, keys))
    return int(seen[in_epoch].sum())
