"""The classes of a main script reach a worker: those that its functions use are the same objects there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.processes import python_path

_COMMON = """
import dataclasses, enum, pickle, sys, threading
from pathlib import Path
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings
from flinkish.runtime.stored.classes import ProgramClasses
from flinkish.runtime.stored.pickles import dumps, loads
from flinkish.spark.worker import DeployedClasses, Deployment, deploy

folder = Path(sys.argv[1])
"""

DRIVER = (
    _COMMON
    + """
class Colour(enum.Enum):
    RED = 1

@dataclasses.dataclass(frozen=True)
class Money:
    units: int
    colour: Colour = Colour.RED

    class Cents:
        pass

class OnlyInOldState:
    pass

LOCK, LARGE = threading.Lock(), b"x" * 1_000_000

class CannotTravel:
    def lock(self):
        return LOCK

class DragsDataAlong:
    def data(self):
        return LARGE

def make():
    return Money(3), Money.Cents()

if __name__ == "__main__":
    classes = ProgramClasses.of_this_process()
    settings = JobSettings(configuration={"make": make})
    deployment = deploy(JobDescriptor("id", "name", (), (), settings, classes=classes), 1)
    (folder / "blob").write_bytes(deployment.blob)
    (folder / "classes").write_bytes(DeployedClasses.of(classes).blob)
    (folder / "stored").write_bytes(dumps((*make(), Colour.RED, OnlyInOldState()), 2, classes))
"""
)

WORKER = (
    _COMMON
    + """
job = Deployment("id", 0, 1, (folder / "blob").read_bytes())._load()
assert sorted(job.classes.main) == ["Colour", "Money", "OnlyInOldState"], job.classes.main
made, cents = job.settings.configuration["make"]()
money, more, red, old = loads((folder / "stored").read_bytes(), 2, "a value", "", job.classes)
assert money == made and type(money) is type(made), (money, made)
assert type(more) is type(cents) and type(more).__qualname__ == "Money.Cents"
assert red is made.colour is type(made).colour
assert dumps((money, more, red, old), 2, job.classes) == (folder / "stored").read_bytes()
deployed = DeployedClasses((folder / "classes").read_bytes())
assert deployed.classes() is deployed.classes()
assert sorted(deployed.classes().main) == ["Colour", "Money", "OnlyInOldState"]
print("all is well")
"""
)


def test_a_worker_stores_and_reads_objects_of_the_drivers_main_script(tmp_path: Path) -> None:
    for seed, (name, source) in enumerate((("driver", DRIVER), ("worker", WORKER))):
        script = tmp_path / f"{name}.py"
        script.write_text(source)
        env = {**os.environ, "PYTHONPATH": python_path(), "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path)], env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == "all is well\n"
    assert len((tmp_path / "blob").read_bytes()) < 100_000
