"""How much Hypothesis tries: a little in each commit, much in a nightly run.

``HYPOTHESIS_PROFILE`` names the profile, `COMMIT` unless it is set; ``./run-tests.sh --nightly`` sets `NIGHTLY`.
"""

from __future__ import annotations

import os

from hypothesis import settings

COMMIT, NIGHTLY = "commit", "nightly"

# The examples of a property that says nothing of its own, by profile.
EXAMPLES = {COMMIT: 15, NIGHTLY: 300}

# A property whose ``examples(n)`` have this n gets just the examples of the profile.
_USUAL = 50


def load_profile() -> None:
    """Registers both profiles and loads the one that the environment names.

    No test asserts times: how long an example takes says how busy the machine is. Each run draws other examples.
    """
    for name, count in EXAMPLES.items():
        settings.register_profile(name, deadline=None, max_examples=count)
    settings.load_profile(_name())


def examples(n: int) -> int:
    """The ``max_examples`` of a property: the profile's own for 50, and in proportion to it, at least 2, for another n.

    A property over whole programs asks for few, one over single values for many.
    """
    return max(2, round(n * EXAMPLES[_name()] / _USUAL))


def _name() -> str:
    name = os.environ.get("HYPOTHESIS_PROFILE", COMMIT)
    if name not in EXAMPLES:
        raise ValueError(f"HYPOTHESIS_PROFILE is {name!r}; expected one of {', '.join(EXAMPLES)}")
    return name
