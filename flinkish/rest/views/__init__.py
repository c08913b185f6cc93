"""The views: pure functions from the descriptions of jobs to the JSON of Flink's monitoring REST API, as GET routes.

Rule: a view computes nothing that another view would compute too, and asks nobody but the jobs and, for its log and
threads, this process. Routes without parameters come before those of which one of them could be a parameter.
"""

from __future__ import annotations

from flinkish.rest.route import Route
from flinkish.rest.views import checkpoints, cluster, description, jobs, metrics, prometheus, vertices

#: All views; of two that match a path, the one with the fewer parameters stands first.
ROUTES: tuple[Route, ...] = tuple(
    sorted(
        (
            *cluster.ROUTES,
            *jobs.ROUTES,
            *description.ROUTES,
            *vertices.ROUTES,
            *checkpoints.ROUTES,
            *metrics.ROUTES,
            *prometheus.ROUTES,
        ),
        key=lambda route: route.path.count("{"),
    )
)
