"""JobExecutionResult: the runtime and the accumulators of a job that has finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flinkish.common.html_text import facts, table
from flinkish.common.job_id import JobID

__all__ = ["JobExecutionResult"]


class JobExecutionResult:
    """The result of a job execution.

    Args:
        job_id: the identifier of the job.
        net_runtime_ms: from when the driver began to run the job to its end, restarts included.
        accumulators: values of the accumulators that functions have registered, by name.
    """

    def __init__(self, job_id: JobID, net_runtime_ms: int, accumulators: Mapping[str, Any] | None = None) -> None:
        self._job_id = job_id
        self._net_runtime_ms = net_runtime_ms
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobID:
        return self._job_id

    def get_net_runtime(self) -> int:
        """The runtime of the job in milliseconds."""
        return self._net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """The value of the accumulator of that name; None if there is none."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        return dict(self._accumulators)

    def __repr__(self) -> str:
        accumulators = f", accumulators {self._accumulators}" if self._accumulators else ""
        return f"<result of job {self._job_id}: {self._net_runtime_ms:,} ms{accumulators}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the id, the runtime and the accumulators."""
        found = {"job": self._job_id, "runtime": f"{self._net_runtime_ms:,} ms"}
        return facts(found) + table(("accumulator", "value"), sorted(self._accumulators.items()))

    def __str__(self) -> str:
        return (
            "Program execution finished\n"
            f"Job with JobID {self._job_id} has finished.\n"
            f"Job Runtime: {self._net_runtime_ms} ms\n"
        ) + "".join(f"Accumulator {name}: {value}\n" for name, value in sorted(self._accumulators.items()))
