"""When a task may be scheduled, depending on its inputs. Kept for programs that name it; tasks wait for all inputs."""

from __future__ import annotations

from enum import Enum

__all__ = ["InputDependencyConstraint"]


class InputDependencyConstraint(Enum):
    ANY = 0
    ALL = 1
