"""When a task may be scheduled, by its inputs. Kept for programs that name it; a level waits for all of them."""

from __future__ import annotations

from enum import Enum

__all__ = ["InputDependencyConstraint"]


class InputDependencyConstraint(Enum):
    ANY = 0
    ALL = 1
