"""What all tests share. Nothing here starts a server or Spark: unit tests stay fast."""

from __future__ import annotations

import os

from hypothesis import settings

from tests.support.processes import python_path

# Child processes of any test (workers, driver scripts) import this checkout, installed or not.
os.environ["PYTHONPATH"] = python_path()

# no test asserts times: how long an example takes says how busy the machine is
settings.register_profile("flinkish", deadline=None)
settings.load_profile("flinkish")
