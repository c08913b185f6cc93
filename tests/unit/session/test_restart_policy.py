"""Which drivers are started again, and after which time."""

from __future__ import annotations

import pytest

from flinkish.common.configuration import Configuration
from flinkish.session.children import RestartPolicy

POLICY = RestartPolicy(attempts=5, initial_ms=1_000, max_ms=6_000, reset_ms=60_000)

#: Exit code, restarts in a row, lifetime in ms -> delay in ms; None: no restart.
CASES: list[tuple[str, int | None, int, int, int | None]] = [
    ("it has come to its end", 0, 0, 100, None),
    ("it would fail again", 1, 0, 100, None),
    ("its command line is wrong", 2, 0, 100, None),
    ("another driver has the job", 77, 0, 100, None),
    ("a second Ctrl-C", 130, 0, 100, None),
    ("stopped, or cancelled", 143, 0, 100, None),
    ("a code of the program's own", 11, 0, 100, None),
    ("it may get further", 75, 0, 100, 1_000),
    ("killed by the system", 137, 0, 100, 1_000),
    ("a crash", 139, 0, 100, 1_000),
    ("the machine went dark", None, 0, 100, 1_000),
    ("the second time", 75, 1, 100, 2_000),
    ("the third time", 75, 2, 100, 4_000),
    ("no longer than the longest delay", 75, 3, 100, 6_000),
    ("the last time", 75, 4, 100, 6_000),
    ("once too often", 75, 5, 100, None),
    ("once too often, but it has lived long", 75, 5, 60_000, 1_000),
]


@pytest.mark.parametrize(
    ("code", "restarts", "lived_ms", "delay_ms"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_driver_is_started_again_by_its_exit_code(
    code: int | None, restarts: int, lived_ms: int, delay_ms: int | None
) -> None:
    assert POLICY.delay_ms(code, restarts, lived_ms) == delay_ms


def test_the_policy_is_that_of_the_configuration() -> None:
    keys = {"attempts": "3", "initial-backoff": "2 s", "max-backoff": "10 s", "reset-backoff-threshold": "1 min"}
    given = Configuration.from_dict({f"flinkish.jobmanager.restart.{key}": text for key, text in keys.items()})
    assert RestartPolicy.of(given) == RestartPolicy(3, 2_000, 10_000, 60_000)
    assert RestartPolicy.of(Configuration()) == RestartPolicy()
