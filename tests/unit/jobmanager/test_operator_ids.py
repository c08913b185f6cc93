"""Operators have the ids that Flink gives them."""

from __future__ import annotations

import pytest

from flinkish.jobmanager.operator_ids import operator_id


@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        # from recordings of Flink 2.3, or from its Guava (Hashing.murmur3_128(0))
        ("src", "f362c87ffabe89c8a91fa7d0a523ba6c"),
        ("count", "b71731f1c0df9c3076c4a455334d0ad6"),
        ("win", "1fda57489fc99cc8f66c9108fd52ccef"),
        ("", "00000000000000000000000000000000"),
        ("x" * 40, "614c91ddc1430749e2bf9e929d097b6b"),
        ("ü-ß", "e0da077048dae8db47e30277d82987a4"),
    ],
)
def test_an_operator_has_flinks_id(uid: str, expected: str) -> None:
    assert operator_id(uid) == expected
