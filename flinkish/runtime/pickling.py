"""How values are written that only travel between the processes of a running job: plain pickle, protocol 5, which is by
far the fastest. What is stored is written by `flinkish.runtime.stored_pickle`.

Instances of classes that the user's program defines in ``__main__`` cannot be written that way in a worker, where
``__main__`` is another module. The shell around the runtime may install a pickler that can (``use_fallback``); it is
asked only for what plain pickle refuses. Everything written this way is read with ``pickle.loads``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

_fallback: Callable[[Any], bytes] | None = None


def use_fallback(dumps: Callable[[Any], bytes] | None) -> None:
    """Install a pickler for what plain pickle cannot write."""
    global _fallback
    _fallback = dumps


def dumps(value: Any) -> bytes:
    """The bytes of a value. Raises what pickle raises when nobody can write it."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        if _fallback is None:
            raise
        return _fallback(value)
