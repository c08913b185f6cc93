"""User code that fails at chosen records, once each, in whatever process."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

from tests.integration.exactness.events import ON_TIME, SOURCES
from tests.integration.exactness.model import ALL, events_of, golden

PLACES = ("source", "sessions", "timer", "windows", "totals", "rows")


class Mishap(Exception):
    """The failure of a test's user code."""


@dataclass(frozen=True)
class Mishaps:
    """``planned``: "place id" of the records at which to fail; ``folder``: remembers which have happened."""

    folder: str = ""
    planned: frozenset[str] = frozenset()

    def pass_by(self, place: str, identity: str) -> None:
        """Called by the functions for each record. Raises Mishap the first time that a planned one comes by."""
        if not self.planned:
            return
        name = f"{place} {identity}"
        if name in self.planned and self._first_time(name):
            raise Mishap(f"mishap at {name}")

    def _first_time(self, name: str) -> bool:
        mark = Path(self.folder) / ("mishap " + name.replace("/", "_"))
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def happened(self) -> int:
        """How many have happened."""
        return len(list(Path(self.folder).glob("mishap *")))


def random_mishaps(folder: Path, count: int, seed: int) -> Mishaps:
    """Some in each kind of user code, at random records of all the input."""
    dice = random.Random(seed)
    outputs = golden()
    events = events_of(ALL)
    candidates = {
        "source": [e.id for e in events],
        "sessions": [e.id for e in events],
        "timer": [o.id.removeprefix("closed/") for o in outputs if o.id.startswith("closed/")],
        "windows": [o.id for o in outputs if "#" in o.id],
        # the first firing of a key is reduced with nothing
        "totals": [o.id for o in outputs if "#" in o.id and o.number > 1],
        "rows": [e.id for e in events if e.kind == ON_TIME and e.source == SOURCES[1]],
    }
    planned = [f"{place} {dice.choice(candidates[place])}" for place in (PLACES * count)[: 2 * count]]
    chosen = list(dict.fromkeys(planned))[:count]
    return Mishaps(str(folder), frozenset(chosen))
