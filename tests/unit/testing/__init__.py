"""Tests of flinkish.testing."""
