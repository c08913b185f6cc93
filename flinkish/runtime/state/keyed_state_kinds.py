"""Words that all parts of keyed state share."""

from __future__ import annotations

#: The namespace of state that belongs to no window.
VOID_NAMESPACE: None = None
