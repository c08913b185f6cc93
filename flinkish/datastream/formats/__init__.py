"""Formats, at PyFlink's module paths."""
