"""Operators on columns: what tables are computed with. Rows never import this room."""
