"""All routes of the REST API."""

from __future__ import annotations

from flinkish.rest.operations import OPERATIONS
from flinkish.rest.route import Route

ROUTES: tuple[Route, ...] = OPERATIONS
