"""Savepoints: writes them, describes them, compares them with a program, and restores jobs from them."""
