"""The records of `benchmarks.keyed_state`: every key once, then keys drawn at random. A record is (user, 1).

Rule of this file: record number n depends only on n and the number of keys. So every engine gets the same records, also
when an epoch runs again, and the expected sums are known.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: Number of epochs of the initial load, each with the same share of the keys.
LOAD_EPOCHS = 10


def key_numbers(first: int, stop: int, keys: int, step: int = 1) -> npt.NDArray[np.int64]:
    """The numbers of the keys of the records ``first``, ``first + step``, ... before ``stop``.

    The records below ``keys`` hold every key once; later ones are drawn by the splitmix64 generator.
    """
    indices = np.arange(first, stop, step, dtype=np.uint64)
    mixed = indices * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    drawn: npt.NDArray[np.int64] = np.where(indices < keys, indices, mixed % np.uint64(keys)).astype(np.int64)
    return drawn


def user_names(numbers: npt.NDArray[np.int64]) -> list[str]:
    """The keys with these numbers."""
    return [f"user-{number}" for number in numbers.tolist()]


def sums_at(records: int, epoch_records: int, keys: int) -> int:
    """The total of the last running sums per user in an epoch whose last record is number ``records - 1``.

    Every user of the epoch counts once, with the number of its records so far.
    """
    seen = np.bincount(key_numbers(0, records, keys), minlength=keys)
    in_epoch = np.unique(key_numbers(records - epoch_records, records, keys))
    return int(seen[in_epoch].sum())
