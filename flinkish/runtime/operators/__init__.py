"""The operators, one a file. A new one is a new file with a factory and a pure unit test."""
