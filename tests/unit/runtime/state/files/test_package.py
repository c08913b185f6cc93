"""What the package costs whoever does not use it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "flinkish.runtime.state.files",
        "flinkish.runtime.state.files.references",
        "flinkish.runtime.exchange.stable_hash",
    ],
)
def test_importing_it_imports_neither_numpy_nor_pyarrow(module: str) -> None:
    code = f"import sys, {module}; sys.exit(', '.join(sorted({{'numpy', 'pyarrow'}} & set(sys.modules))) or 0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
