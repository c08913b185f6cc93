"""The pages for those who change flinkish name what is there: classes, files, the version."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

import flinkish
from tests.support.documented import DOCS

ROOT = DOCS.parent
PACKAGE = Path(flinkish.__file__).parent

_CODE = re.compile(r"`([^`]+)`")

#: What the pages name that is Spark's.
SPARKS = {"GroupState"}


#: A module on the page on the architecture: its path from the package or the checkout, or its name beside its folder.
_MODULE = re.compile(r"`([\w./-]+\.py)(?:: [\w.]+)?`")
_FOLDER = re.compile(r"`([\w./-]+)/`")

#: So many modules a reader keeps in mind.
MOST_MODULES = 6


@pytest.fixture(scope="module")
def defined() -> set[str]:
    """The names of all classes, functions and modules of the package."""
    files = list(PACKAGE.rglob("*.py"))
    found = {name for path in files for name in re.findall(r"^(?:class|def) (\w+)", path.read_text(), re.MULTILINE)}
    return found | {path.stem for path in files}


def named_classes(page: str) -> set[str]:
    """The classes that a page of docs/ names."""
    return {code for code in _CODE.findall((DOCS / page).read_text()) if re.fullmatch(r"[A-Z]\w*[a-z]\w*", code)}


@pytest.mark.parametrize(("page", "at_least"), [("glossary.md", 60), ("decisions.md", 30)])
def test_each_class_that_a_page_names_exists(page: str, at_least: int, defined: set[str]) -> None:
    named = named_classes(page) - SPARKS
    assert len(named) > at_least
    assert named - defined == set()


def test_each_decision_says_why_what_it_costs_and_where_it_stands(defined: set[str]) -> None:
    decisions = re.split(r"^## \d+\. ", (DOCS / "decisions.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(decisions) == 11
    for decision in decisions:
        parts = re.findall(r"^\*\*([\w ]+)\.\*\* ", decision, re.MULTILINE)
        assert parts == ["Question", "Decided", "Why", "Considered", "Price", "In the code"], decision[:40]
        names = _CODE.findall(decision.partition("**In the code.**")[2])
        assert names and set(names) <= defined, decision[:40]


@pytest.mark.parametrize("page", ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_these_pages_lead_to_files_and_headings(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#([\w-]+))?\)", (ROOT / page).read_text())
    assert links
    for file, anchor in links:
        headings = re.findall(r"^#+ (.*)$", (ROOT / file).read_text(), re.MULTILINE)
        assert not anchor or anchor in map(anchor_of, headings), f"{page}: {file}#{anchor}"


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")


def test_files_that_the_page_for_contributors_names_are_there() -> None:
    named = re.findall(r"(?:\./|\b)([\w./-]+\.(?:py|sh|cfg|yaml))\b", (ROOT / "CONTRIBUTING.md").read_text())
    assert "run-tests.sh" in named and [name for name in named if not (ROOT / name).exists()] == []


def test_the_one_test_that_contributors_are_told_to_run_exists() -> None:
    found = re.search(r"-m pytest (\S+) -k (\w+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert found is not None
    assert re.search(rf"^def test_\w*{found[2]}", (ROOT / found[1]).read_text(), re.MULTILINE)


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    first = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert flinkish.__version__ in first[1]


def test_the_package_names_the_pythons_that_the_readme_names() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    classified = set(re.findall(r"Python :: (3\.\d+)$", setup["metadata"]["classifiers"], re.MULTILINE))
    row = re.search(r"^\| Python \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert row is not None
    assert classified == set(re.findall(r"3\.\d+", row[1]))


def paragraphs(text: str) -> list[str]:
    """The blocks between blank lines of a page; each row of a table is one of its own."""
    blocks = re.split(r"\n\s*\n", text)
    return [part for block in blocks for part in (block.splitlines() if block.startswith("|") else [block])]


def found_modules(paragraph: str) -> dict[str, set[Path]]:
    """The modules and tests that a paragraph names, each with the files that it can stand for: a name without a folder
    is in one of the folders that the paragraph names, with or without a file in them."""
    names = _MODULE.findall(paragraph)
    folders = set(_FOLDER.findall(paragraph)) | {str(Path(name).parent) for name in names if "/" in name}
    found = {}
    for name in names:
        ways = [name] if "/" in name else [name, *(f"{folder}/{name}" for folder in folders)]
        found[name] = {start / way for start in (PACKAGE, ROOT) for way in ways if (start / way).is_file()}
    return found


def too_many(paragraph: str) -> set[Path]:
    """The modules of a paragraph, if it names more than a reader keeps in mind."""
    files = set().union(*found_modules(paragraph).values())
    modules = {file for file in files if file.is_relative_to(PACKAGE)}
    return modules if len(modules) > MOST_MODULES else set()


def test_the_page_on_the_architecture_names_each_module_by_its_folder() -> None:
    parts = paragraphs((DOCS / "architecture.md").read_text())
    found = [(name, files) for part in parts for name, files in found_modules(part).items()]
    assert len(found) > 150
    assert [name for name, files in found if len(files) != 1] == []


def test_no_paragraph_on_the_architecture_names_more_modules_than_one_keeps_in_mind() -> None:
    parts = paragraphs((DOCS / "architecture.md").read_text())
    assert len(parts) > 100 and {part[:60]: sorted(map(str, too_many(part))) for part in parts if too_many(part)} == {}


_SIX = "`runtime/exchange/`: `buffer.py`, `gate.py`, `keys.py`, `valve.py`, `writer.py`, `hashes.py`"


@pytest.mark.parametrize(
    ("text", "too_long"),
    [
        (_SIX, False),
        (f"{_SIX}, again `gate.py: InputGate`, and `tests/unit/test_cli.py`", False),
        (f"{_SIX}, `errors.py`", True),
        (f"{_SIX},\n`partitioners.py`", True),
        (f"{_SIX}\n\n`errors.py`", False),
        (f"| {_SIX} |\n| `errors.py` |", False),
        (f"* {_SIX}\n* `errors.py`", True),
    ],
)
def test_a_paragraph_ends_at_a_blank_line_and_a_row_at_its_end(text: str, too_long: bool) -> None:
    assert any(map(too_many, paragraphs(text))) == too_long


def test_the_floors_have_each_folder_of_the_package_and_of_the_runtime() -> None:
    floors = (DOCS / "architecture.md").read_text().partition("\n## Floors\n")[2].partition("\n## ")[0]
    folders = {path.parent for start in (PACKAGE, PACKAGE / "runtime") for path in start.glob("*/__init__.py")}
    assert {str(folder.relative_to(PACKAGE)) for folder in folders} - set(_FOLDER.findall(floors)) == set()


def test_each_question_on_the_architecture_names_a_test() -> None:
    table = (DOCS / "architecture.md").read_text().partition("\n## Where to look\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+\?) \| (.+) \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) > 15
    assert [question for question, _, tests in rows if not re.fullmatch(r"(`tests/[\w/]+\.py`(, )?)+", tests)] == []
