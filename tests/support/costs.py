"""Which test files take longest: with processes that take files, the longest ones must not come last.

``python -m tests.support.costs run.xml`` writes the list anew, from what ``./run-tests.sh --junitxml=run.xml`` has
measured.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

# File name -> seconds of the whole file in an ordinary run, from ten seconds on.
COSTS = Path(__file__).with_name("costs.json")
LEAST_S = 10.0
#: One for each process: meanwhile `tests.support.prepare` makes what integration tests wait for.
BEFORE = 3


def read_costs() -> dict[str, float]:
    """The listed files by their names; a file that moves to another folder keeps its cost."""
    costs: dict[str, float] = json.loads(COSTS.read_text())
    return costs


def longest_first(paths: Iterable[Path]) -> list[Path]:
    """The longest files that need neither server nor Spark, `BEFORE` of them; then integration files, as they wait for
    both; then all others. Each of the three by cost.

    Files of one cost stay in their order.
    """
    costs = read_costs()
    by_cost = sorted(paths, key=lambda path: -costs.get(path.name, 0.0))
    before = [path for path in by_cost if "integration" not in path.parts and path.name in costs][:BEFORE]
    return sorted(by_cost, key=lambda path: (path not in before, "integration" not in path.parts))


def sort_items(items: list[Any]) -> None:
    """Sorts pytest's items by `longest_first`, in place; the tests of a file stay in their order."""
    places = {path: place for place, path in enumerate(longest_first(dict.fromkeys(item.path for item in items)))}
    items.sort(key=lambda item: places[item.path])


def measured(report: Path) -> dict[str, float]:
    """The seconds of each file of a report in JUnit's form, the longest first; of two files of one name the longer."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        # a class of tests follows the module
        parts = case.get("classname", "").split(".")
        module = ".".join(part for part in parts if not part[:1].isupper())
        seconds[module] += float(case.get("time", 0))
    files: dict[str, float] = {}
    for module, total in sorted(seconds.items(), key=lambda item: -item[1]):
        if total >= LEAST_S:
            files.setdefault(f"{module.rpartition('.')[2]}.py", round(total))
    return files


def main(arguments: list[str]) -> None:
    """Writes the list from the report that is named."""
    COSTS.write_text(json.dumps(measured(Path(arguments[0])), indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
