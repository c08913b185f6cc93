"""What the tests of the minicluster share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flinkish.runtime.phases import set_hook


@pytest.fixture(autouse=True)
def _no_hook() -> Iterator[None]:
    """No hook of a test is called in the next one."""
    yield
    set_hook(None)
