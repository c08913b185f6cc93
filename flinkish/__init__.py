"""flinkish runs Flink DataStream programs, written in Python, on Spark Structured Streaming."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__version__ = "0.1.0"


class _ModulesOfPyFlink:
    """Finds the modules of PyFlink that are no files here, after all other finders: `flinkish.common.no_effect` says
    which there are and what their names do."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("flinkish."):
            return None
        from flinkish.common.no_effect import module_of_pyflink

        return module_of_pyflink(name)


sys.meta_path.append(_ModulesOfPyFlink)
