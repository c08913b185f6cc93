"""JSON that carries its own digest, so that a file whose content has changed is never accepted."""

from __future__ import annotations

import hashlib
import json
from typing import Any

_SEAL = "digest"

#: The first version of the job directory's files that carries a digest.
_SEALED_SINCE = 2


def sealed(value: dict[str, Any]) -> bytes:
    """The content of a file that holds this value and its digest."""
    # the digest covers the value as it will be read: JSON turns tuples into lists, and all keys into strings
    value = json.loads(json.dumps(value))
    return json.dumps({**value, _SEAL: _digest(value)}, indent=1).encode()


def unsealed(data: bytes) -> dict[str, Any]:
    """The value that `sealed` wrote. Files of older versions have no digest and are accepted without one.

    Raises:
        ValueError: the content is not what was written; the message gives the reason.
    """
    if not data.strip():
        raise ValueError("it is empty")
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    digest = value.pop(_SEAL, None)
    version = value.get("version", 0)
    old = digest is None and isinstance(version, int) and version < _SEALED_SINCE
    if not old and digest != _digest(value):
        raise ValueError("its content does not fit its digest")
    return value


def _digest(value: dict[str, Any]) -> str:
    content = {key: entry for key, entry in value.items() if key != _SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
