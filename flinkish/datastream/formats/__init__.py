"""The formats of records and files, at PyFlink's module paths."""
