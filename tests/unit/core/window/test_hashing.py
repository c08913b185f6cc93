"""Flink's hashes of whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkish.datastream.window import long_to_int_with_bit_mixing, mod_inverse


@given(st.integers(-(2**63), 2**63 - 1))
def test_inverses_are_ones_of_32_bits(x: int) -> None:
    if x % 2 == 0:
        with pytest.raises(ValueError, match="not invertible"):
            mod_inverse(x)
    else:
        assert -(2**31) <= mod_inverse(x) < 2**31
        assert mod_inverse(x) * x % 2**32 == 1


@pytest.mark.parametrize(
    ("state", "mixed"),
    # what the generator splitmix64 gives first of all from the seed 0, and then, by its authors' own listing
    [(0x9E3779B97F4A7C15, 0xE220A8397B1DCDAF), (0x3C6EF372FE94F82A, 0x6E789E6AA1B965F4), (0, 0)],
)
def test_bits_are_mixed_as_by_splitmix64(state: int, mixed: int) -> None:
    for x in (state, state - (1 << 64)):
        assert long_to_int_with_bit_mixing(x) % 2**32 == mixed % 2**32
        assert -(2**31) <= long_to_int_with_bit_mixing(x) < 2**31
