"""What all tests share. Nothing here starts a server or Spark: unit tests stay fast."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

from tests.support.processes import python_path

# Child processes of any test (workers, driver scripts) import this checkout, installed or not.
os.environ["PYTHONPATH"] = python_path()

# Tests say which records an epoch reads: a machine that is slow must not make other epochs than one that is fast. Those
# of the sizes of epochs set a target themselves.
os.environ.setdefault("FLINKISH_CONF", str(Path(__file__).parent / "support" / "flinkish.yaml"))

# no test asserts times: how long an example takes says how busy the machine is
settings.register_profile("flinkish", deadline=None)
settings.load_profile("flinkish")
