"""Each run of a job decides as the pure decision does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.shadow import shadowed


@pytest.fixture(autouse=True)
def _shadow() -> Iterator[None]:
    with shadowed():
        yield
