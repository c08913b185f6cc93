"""Golden files: what a release has stored, byte by byte. Each later one reads it (docs/formats.md)."""
