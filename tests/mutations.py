"""Faults that are put into the engine, one at a time, to see that the ordinary run of the tests finds them.

    python -m tests.mutations [--only N ...]

Each fault breaks a rule that a test of a nightly run asserts as well (tests/NIGHTLY.md), so it shows that what stays
notices what was left to the night. The tests that are meant to notice run in a copy of the checkout, as the ordinary
run would run them, until one fails. What none of them notices, the ordinary run does not find: exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Mutation:
    """One fault: in a file of the engine, a text that occurs once is replaced by another one."""

    file: str
    before: str
    after: str
    #: names of the test modules that are meant to notice
    tests: tuple[str, ...]


def _of(file: str, before: str, after: str, *tests: str) -> Mutation:
    return Mutation(file, before, after, tests)


MUTATIONS = (
    # what a restore takes over
    _of(
        "checkpoint/claim.py",
        "if completed < retained:\n        return None",
        "if completed >= 0:\n        return None",
        "test_claim",
        "test_minicluster_jobs",
    ),
    _of("checkpoint/claim.py", "delete_savepoint(Savepoint.open(path, whole=False))", "pass", "test_claim"),
    _of(
        "checkpoint/claim.py",
        "absolute(settings.savepoint) == absolute(path)",
        "settings.savepoint == path",
        "test_restored_directory",
        "test_claim",
    ),
    _of(
        "checkpoint/claim.py",
        "for vertex in job.vertices if vertex.head.uid in watermarks}",
        "for vertex in job.vertices[:1] if vertex.head.uid in watermarks}",
        "test_restored_directory",
    ),
    _of(
        "checkpoint/compatibility.py",
        "wanted is not None and wanted.kind != stored.kind",
        "False",
        "test_compatibility",
    ),
    _of("checkpoint/compatibility.py", "if stored.bad_rows:", "if False:", "test_compatibility"),
    _of(
        "checkpoint/compatibility.py",
        "if dropped and not self.allow_non_restored_state:",
        "if False:",
        "test_compatibility",
        "test_minicluster_jobs",
    ),
    # what the directory decides
    _of(
        "jobdir/directory.py",
        "if bool(before) != bool(now):",
        "if False:",
        "test_job_directory_structure",
        "test_job_directory",
        "test_minicluster_jobs",
    ),
    _of(
        "jobdir/directory.py",
        "if end is None or not end.done:\n            return end\n        now",
        "if end is not None or True:\n            return end\n        now",
        "test_job_directory_structure",
    ),
    _of(
        "jobdir/structure.py",
        'if one.name != "operators"',
        'if one.name not in ("operators", "max_parallelism")',
        "test_job_directory_structure",
    ),
    _of(
        "jobdir/structure.py",
        "found.extend(f\"sink '{uid}' is gone\" for uid in gone)",
        "pass",
        "test_job_directory_structure",
    ),
    _of(
        "jobdir/directory.py",
        "if liveness is Liveness.ALIVE:\n            owner = self.read",
        "if False:\n            owner = self.read",
        "test_job_directory",
        "test_ownership",
        "test_minicluster_jobs",
        "test_bad_programs",
    ),
    _of(
        "jobdir/directory.py",
        "if owner is not None and owner.token != self._token:\n            raise",
        "if False:\n            raise",
        "test_job_directory",
        "test_fencing",
        "test_ownership",
    ),
    # requests and ends
    _of(
        "jobmanager/requests.py",
        "if request.expires_ms < now_ms:",
        "if False:",
        "test_requests",
    ),
    _of(
        "jobmanager/requests.py",
        "drain=request.drain,",
        "drain=False,",
        "test_requests",
        "test_operations_of_jobs",
    ),
    _of(
        "jobmanager/kept_run.py",
        "if why is Refusal.TOO_LATE:\n            raise self._too_late()",
        "pass",
        "test_client",
    ),
    _of("jobmanager/kept_run.py", "if why is Refusal.RESTARTING:", "if False:", "test_client", "test_restarts_of_jobs"),
    _of(
        "jobmanager/job_run.py",
        "if end is JobStatus.CANCELED:\n            self.machine.try_to",
        "if True:\n            self.machine.try_to",
        "test_life_of_a_run",
        "test_client",
    ),
    # restarts
    _of("jobmanager/restart.py", "if not failure.retryable:", "if False:", "test_restart_strategies"),
    _of("jobmanager/restart.py", "if failure.needs_new_driver:", "if False:", "test_restart_strategies"),
    _of(
        "jobmanager/restart.py",
        'kind = "none" if checkpoint_interval_ms(configuration) is None else "exponential-delay"',
        'kind = "none"',
        "test_restart_strategies",
        "test_restarts_of_jobs",
    ),
    # checkpoints
    _of(
        "checkpoint/coordinator.py",
        "if failures <= self._settings.tolerable_failures:",
        "if True:",
        "test_checkpoint_coordinator",
        "test_minicluster_jobs",
    ),
    _of(
        "checkpoint/coordinator.py",
        "lowest[uid] = min(watermark_ms, lowest.get(uid, watermark_ms))",
        "lowest[uid] = watermark_ms",
        "test_checkpoint_coordinator",
    ),
    _of(
        "checkpoint/coordinator.py",
        "self._end(number, CheckpointState.FAILED, path=None, failure_reason=reason)",
        "self._end(number, CheckpointState.FAILED, failure_reason=reason)",
        "test_checkpoint_coordinator",
    ),
    _of(
        "runtime/epoch/changelog_files.py",
        'if not path.endswith(f"-{_digest(data)}{_SUFFIX}"):',
        "if False:",
        "test_changelog_files",
    ),
    # keys, watermarks, timers
    _of(
        "runtime/exchange/stable_hash.py",
        "if isinstance(key, Decimal) and key.is_nan() or key != key:",
        "if False:",
        "test_stable_hash",
    ),
    _of(
        "runtime/exchange/stable_hash.py",
        "return _combine(*sorted(map(_mix, map(raw_hash, key))))",
        "return _combine(*map(_mix, map(raw_hash, key)))",
        "test_stable_hash",
        "test_typed_keys",
    ),
    _of(
        "runtime/exchange/valve.py",
        "return MAX_WATERMARK_MS if self._inputs else self.combined_ms",
        "return self.combined_ms",
        "test_watermark_valve",
    ),
    _of(
        "runtime/exchange/valve.py",
        "if self._at_end:\n            return MAX_WATERMARK_MS - 1",
        "if self._at_end:\n            return MAX_WATERMARK_MS",
        "test_watermark_valve",
    ),
    _of(
        "runtime/exchange/gate.py",
        "return progress.idle or self._now_ms - progress.last_active_ms >= timeout",
        "return progress.idle",
        "test_input_gate",
        "test_watermarks",
    ),
    _of(
        "runtime/operators/window/contents.py",
        "return self._event_time and self.cleanup_ms(window) <= watermark_ms",
        "return False",
        "test_windows",
        "test_window_contents",
        "test_every_operator",
    ),
    _of(
        "runtime/operators/window/contents.py",
        "timestamp_ms + self._allowed_lateness_ms <= watermark_ms",
        "timestamp_ms + self._allowed_lateness_ms < watermark_ms",
        "test_windows",
        "test_window_contents",
        "test_every_operator",
        "test_window_operator",
    ),
    _of(
        "runtime/state/timer_queue.py",
        "if in_files:\n            timers.deleted",
        "if False:\n            timers.deleted",
        "test_timer_queue",
        "test_timers_in_files",
        "test_timer_files",
        "test_every_operator",
    ),
    # state that expires
    _of(
        "runtime/state/ttl.py",
        "return value if self._policy.return_expired else None\n        if",
        "return value\n        if",
        "test_ttl",
        "test_ttl_like_in_memory",
    ),
    _of(
        "runtime/state/ttl.py",
        "if self._policy.renew_on_read or accessed_ms is None:\n            self._times.update(self._policy.now_ms())",
        "if accessed_ms is None:\n            self._times.update(self._policy.now_ms())",
        "test_ttl",
        "test_ttl_like_in_memory",
    ),
    # the steps of an epoch
    _of(
        "runtime/epoch/steps.py",
        "return self._commit(prepared, tuple(map(TaskReport.decode, prepared.reports)))",
        "pass",
        "test_prepared_epoch",
        "test_failures",
        "test_every_operator",
        "test_prepared_epochs",
    ),
    _of(
        "runtime/epoch/steps.py",
        "return bool(over) and all(len(ended) == job.vertex(vertex).parallelism for vertex, ended in over.items())",
        "return bool(over) and all(ended for ended in over.values())",
        "test_ends_of_epochs",
        "test_bounded_jobs",
        "test_available_now",
    ),
    _of(
        "runtime/epoch/steps.py",
        "self._keep_totals(prepared.epoch, totals)\n",
        "",
        "test_accumulators",
        "test_minicluster_jobs",
        "test_failing_records",
        "test_savepoints",
        "test_fallback",
    ),
    _of(
        "runtime/epoch/steps.py",
        "if any(task.commit_requested for task in tasks):",
        "if False:",
        "test_request_commit",
        "test_ends_of_epochs",
    ),
    # placement
    _of(
        "runtime/exchange/keys.py",
        "first = -(-subtask * max_parallelism // parallelism)",
        "first = subtask * max_parallelism // parallelism",
        "test_partitioners",
        "test_typed_keys",
    ),
)


def find(mutation: Mutation, checkout: Path) -> str:
    """The name of the test that notices the fault in this copy of the checkout; "": none does."""
    path = checkout / "flinkish" / mutation.file
    text = path.read_text()
    if text.count(mutation.before) != 1:
        raise ValueError(f"{mutation.file} has {text.count(mutation.before)} times: {mutation.before}")
    modules = [str(path) for name in mutation.tests for path in sorted((checkout / "tests").rglob(f"{name}.py"))]
    # what needs no Spark comes first
    modules.sort(key=lambda name: "/integration/" in name)
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    path.write_text(text.replace(mutation.before, mutation.after))
    try:
        for module in modules:
            command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-o", "timeout=120", module]
            try:
                done = subprocess.run(
                    command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=600, check=False
                )
            except subprocess.TimeoutExpired:
                return f"{Path(module).name}: does not end"
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))]
            if done.returncode == 1 and failed:
                return failed[0].partition(" - ")[0].rpartition("/")[2]
    finally:
        path.write_text(text)
    return ""


def main() -> int:
    """Try the faults, a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", metavar="N", help="these faults alone, counted from 1")
    numbers = parser.parse_args().only or range(1, len(MUTATIONS) + 1)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "spark-warehouse", ".mypy_cache")
        shutil.copytree(ROOT, checkout, ignore=ignored, symlinks=True)
        for number in numbers:
            mutation = MUTATIONS[number - 1]
            found = find(mutation, checkout)
            missed += not found
            print(f"{number:3} {mutation.file}: {found or 'NOT FOUND'}", flush=True)
    print(f"{len(list(numbers)) - missed} of {len(list(numbers))} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
