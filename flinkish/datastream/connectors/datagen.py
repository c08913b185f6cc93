"""Re-exports DataGeneratorSource, a source of generated records."""

from __future__ import annotations

from flinkish.connectors.generated import DataGeneratorSource

__all__ = ["DataGeneratorSource"]
