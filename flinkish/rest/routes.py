"""All routes of the REST API: views of the jobs, and what is asked of them."""

from __future__ import annotations

from flinkish.rest import state
from flinkish.rest.operations import OPERATIONS
from flinkish.rest.route import Route
from flinkish.rest.views import ROUTES as VIEWS

ROUTES: tuple[Route, ...] = (*VIEWS, *state.ROUTES, *OPERATIONS)
