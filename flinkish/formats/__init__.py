"""Formats of records: JSON and CSV between bytes and typed Rows. Imports of flinkish only ``errors`` and ``common``."""
