"""Re-exports the JSON formats at PyFlink's module path."""

from __future__ import annotations

from flinkish.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]
