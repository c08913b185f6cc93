"""The contract of assigners whose windows may merge. Semantics: Flink's ``MergingWindowAssigner``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from flinkish.core.window.assigner import T, WindowAssigner
from flinkish.core.window.window import W, Window

W2 = TypeVar("W2", bound=Window)


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Gives each element a window of its own, mostly, and says which windows of a key become one.

    The trigger of such windows must be able to merge (``can_merge``).
    """

    class MergeCallback(ABC, Generic[W2]):
        """Takes in what `merge_windows` decides."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """These windows become ``merge_result``, which may be one of them."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """``windows``: those of a key that are open, the window of a new element behind them. Calls
        ``callback.merge`` for each set of windows that become one; no window may be in two of them."""
