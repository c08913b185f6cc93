"""Pickles values that only travel between the processes of a running job: plain pickle, protocol 5, which is by far the
fastest. Stored values are written by `flinkish.runtime.stored_pickle` instead.

In a worker, plain pickle cannot write instances of classes that the user's program defines in ``__main__``, because
``__main__`` is another module there. The code that embeds the runtime may install a pickler that can
(``use_fallback``); it is used only for values that plain pickle refuses. Everything written this way is read with
``pickle.loads``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

_fallback: Callable[[Any], bytes] | None = None


def use_fallback(dumps: Callable[[Any], bytes] | None) -> None:
    """Install a pickler for values that plain pickle cannot write, or remove it with None."""
    global _fallback
    _fallback = dumps


def dumps(value: Any) -> bytes:
    """Pickle a value. If neither pickler can write it, the error of the last one tried propagates."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        if _fallback is None:
            raise
        return _fallback(value)
