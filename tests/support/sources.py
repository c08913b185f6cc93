"""The source of flinkish, parsed once in a process for all tests that look at it."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

import flinkish

PACKAGE = Path(flinkish.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """The path of a module from the package."""
    return str(path.relative_to(PACKAGE))


@cache
def trees() -> dict[Path, ast.Module]:
    """The trees of all modules. They are shared: nobody changes them."""
    # half of the time would be the collector's, which looks at the half million nodes again and again, and later too
    collecting = gc.isenabled()
    gc.disable()
    try:
        return {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the tree of a module, as `ast.walk` gives them."""
    return tuple(ast.walk(trees()[path]))
