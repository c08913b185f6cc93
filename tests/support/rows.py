"""Tables of hundreds of rows as one test: a row of its own costs pytest more than most of them take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def hold(check: Callable[..., None], rows: Iterable[tuple[Any, ...]]) -> None:
    """Calls a check for each row; fails with all rows that do not pass it, and why."""
    failed = []
    for row in rows:
        try:
            check(*row)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{', '.join(map(ascii, row))}: {type(error).__name__}: {error}")
    assert not failed, "\n".join([f"{len(failed)} rows:", *failed])


def refuses(call: Callable[[], object], error: type[Exception], words: str) -> None:
    """The check of a table of refusals: the call raises this error, with these words; "": with any."""
    with pytest.raises(error, match=words or None):
        call()
