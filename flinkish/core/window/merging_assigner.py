"""The contract of window assigners whose windows may merge. Semantics: Flink's ``MergingWindowAssigner``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from flinkish.core.window.assigner import T, WindowAssigner
from flinkish.core.window.window import W, Window

W2 = TypeVar("W2", bound=Window)


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Assigns windows, mostly one of its own to each element, and says which windows of a key merge into one.

    The trigger of such windows must be able to merge (``can_merge``).
    """

    class MergeCallback(ABC, Generic[W2]):
        """Receives the decisions of `merge_windows`."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Merge these windows into ``merge_result``, which may be one of them."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """Call ``callback.merge`` for each set of windows that merge into one; no window may be in two sets.
        ``windows`` are the open windows of a key, followed by the window of a new element."""
