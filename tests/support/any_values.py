"""Strategies for texts and integers that Python has and that UTF-8, JSON or a text of digits has not."""

from __future__ import annotations

from hypothesis import strategies as st

#: Halves of surrogate pairs: the third text holds both halves, the last one is the character that they would make.
HALVES = st.sampled_from(["\ud83d", "a\ude00", "\ud83d" + "\ude00", "\U0001f600"])
ANY_TEXTS = st.text(st.characters(), max_size=4) | HALVES
#: Integers around the smallest limit of digits that a process may set, around Python's own, and beyond.
LONG_INTEGERS = st.builds(
    lambda digits, sign, less: sign * (10**digits - less),
    st.sampled_from([640, 4300, 5000]),
    st.sampled_from([1, -1]),
    st.sampled_from([0, 1]),
)
ANY_INTEGERS = st.integers() | LONG_INTEGERS
