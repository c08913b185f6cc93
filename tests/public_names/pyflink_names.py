"""The lists of PyFlink's public names, as Python objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LIST = Path(__file__).with_name("pyflink_2_3.txt")
#: What 1.15 to 1.20 have and 2.3 does not.
FORMER_LIST = Path(__file__).with_name("pyflink_1_x.txt")


@dataclass
class ListedClass:
    """A class of PyFlink: its name within its module (``Outer.Inner``), its bases in the list and its own names."""

    name: str
    bases: list[str]
    members: list[str] = field(default_factory=list)


@dataclass
class ListedModule:
    """A module of PyFlink. ``imported`` are the names that it takes from others, its type variables and constants."""

    name: str
    imported: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    classes: list[ListedClass] = field(default_factory=list)

    @property
    def here(self) -> str:
        """The module of flinkish in the same place."""
        return "flinkish" + self.name.removeprefix("pyflink")


def read_list(text: str) -> list[ListedModule]:
    """Parse the list. See its first lines for the form.

    >>> read_list("pyflink.a\\n    A(B)\\n        f g")[0].classes
    [ListedClass(name='A', bases=['B'], members=['f', 'g'])]
    """
    modules: list[ListedModule] = []
    target: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        if not line.startswith(" "):
            modules.append(ListedModule(words[0]))
        elif line.startswith(" " * 8):
            target.extend(words)
        elif words[0] in ("import", "var"):
            target = modules[-1].imported
            target.extend(words[1:])
        elif words[0] == "def":
            modules[-1].functions.append(words[1])
        else:
            name, _, bases = line.strip().rstrip(")").partition("(")
            modules[-1].classes.append(ListedClass(name, [base.strip() for base in bases.split(",") if base]))
            target = modules[-1].classes[-1].members
    return modules
