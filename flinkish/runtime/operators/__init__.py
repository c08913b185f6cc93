"""The operators, one per file. A new operator is a new file with a factory, and a unit test that needs no Spark."""
