"""Constants that all modules of keyed state share."""

from __future__ import annotations

#: The namespace of state that belongs to no window (Flink's ``VoidNamespace``).
VOID_NAMESPACE: None = None
