"""CSV, at PyFlink's module path."""

from __future__ import annotations

from flinkish.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]
