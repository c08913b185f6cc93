"""Flink's hash functions of whole numbers, which PyFlink has in its window module. Results are signed 32-bit
numbers."""

from __future__ import annotations

_LONG = (1 << 64) - 1


def long_to_int_with_bit_mixing(x: int) -> int:
    """A hash of a 64-bit number: each bit of it influences about half of the bits of the result.

    >>> long_to_int_with_bit_mixing(-7046029254386353131)
    2065550767
    """
    mixed = x & _LONG
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _LONG
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _LONG
    return _signed(mixed ^ (mixed >> 31))


def mod_inverse(x: int) -> int:
    """The number that gives 1 modulo 2**32 when it is multiplied with ``x``.

    >>> mod_inverse(3)
    -1431655765

    Raises:
        ValueError: ``x`` is even, and so has no inverse.
    """
    return _signed(pow(x, -1, 1 << 32))


def _signed(x: int) -> int:
    return (x + (1 << 31)) % (1 << 32) - (1 << 31)
