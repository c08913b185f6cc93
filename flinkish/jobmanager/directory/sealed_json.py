"""JSON that carries its own digest, so that a file of which one byte has changed is never believed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

_SEAL = "digest"


def sealed(value: dict[str, Any]) -> bytes:
    """The text of a file."""
    # as it will be read: tuples are lists then, and all keys are texts
    value = json.loads(json.dumps(value))
    return json.dumps({**value, _SEAL: _digest(value)}, indent=1).encode()


def unsealed(data: bytes) -> dict[str, Any]:
    """What the file says. Text without a digest is taken as it is: people write such.

    Raises:
        ValueError: it says something else than what was written; with the reason.
    """
    if not data.strip():
        raise ValueError("it is empty")
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    digest = value.pop(_SEAL, None)
    if digest is not None and digest != _digest(value):
        raise ValueError("its content does not fit its digest")
    return value


def _digest(value: dict[str, Any]) -> str:
    content = {key: entry for key, entry in value.items() if key != _SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
