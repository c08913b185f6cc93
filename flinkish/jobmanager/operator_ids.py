"""The ids that Flink gives to operators and vertices with a uid: MurmurHash3 of the uid, 128 bits for x64, seed 0
(StreamGraphHasherV2). The algorithm is Austin Appleby's, which is in the public domain.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def operator_id(uid: str) -> str:
    """Flink's OperatorID of an operator with this uid, as 32 hexadecimal digits; that of the first operator of a chain
    is the JobVertexID of the chain.

    >>> operator_id("")
    '00000000000000000000000000000000'
    """
    data = uid.encode("utf-8", "replace")
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for begin in range(0, whole, 16):
        h1 ^= _mixed(data[begin : begin + 8], _C1, 31, _C2)
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mixed(data[begin + 8 : begin + 16], _C2, 33, _C1)
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    h1 ^= _mixed(data[whole : whole + 8], _C1, 31, _C2)
    h2 ^= _mixed(data[whole + 8 :], _C2, 33, _C1)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finished(h1), _finished(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (h1.to_bytes(8, "little") + h2.to_bytes(8, "little")).hex()


def _mixed(part: bytes, first: int, rotation: int, second: int) -> int:
    value = int.from_bytes(part, "little") * first & _MASK
    return _rotated(value, rotation) * second & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
