"""A job directory per test."""

from __future__ import annotations

from tests.integration.bad_input.conftest import job

__all__ = ["job"]
