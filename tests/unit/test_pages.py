"""The pages of docs/ form a site without loose ends, and quote only what the code says."""

from __future__ import annotations

import ast
import configparser
import importlib
import os
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

from flinkish.common import options
from tests.support.documented import DOCS
from tests.support.sources import MODULES, nodes_of

ROOT = DOCS.parent
CONFIGURATION = DOCS / "site" / "mkdocs.yml"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))

#: The first cell of a row of a table, and the code in it.
_FIRST_CELL = re.compile(r"^\| (.*?) \|", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built where nothing can be fetched."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(CONFIGURATION), "-d", str(folder)]
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return folder


def test_the_site_has_all_pages_and_loads_nothing_from_elsewhere(site: Path) -> None:
    built = {path.parent.name for path in site.glob("*/index.html")}
    assert {name.removesuffix(".md") for name in PAGES} - {"index"} <= built
    for path in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^>]*", path.read_text()
        )
        assert [tag for tag in loaded if 'rel="canonical"' not in tag] == [], path


def test_no_list_table_or_block_of_code_is_shown_as_text(site: Path) -> None:
    # MkDocs wants an empty line before each of them, GitHub does not
    for path in site.glob("*/index.html"):
        for paragraph in re.findall(r"<p>(.*?)</p>", path.read_text(), re.DOTALL):
            assert not re.search(r"^ *(?:\* |\d\. |\| |```)", paragraph, re.MULTILINE), f"{path}: {paragraph[:300]}"


def test_each_page_is_in_the_navigation() -> None:
    text = CONFIGURATION.read_text()
    named = re.findall(r"\b([\w-]+\.md)$", text.partition("\nnav:\n")[2], re.MULTILINE)
    assert len(named) == len(set(named)) and set(PAGES) <= set(named)


def test_the_start_page_names_each_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "index.md").read_text()))
    assert set(PAGES) - {"index.md"} <= linked, "docs/index.md: a row for each page"


def test_nobody_is_told_to_install_the_name_which_others_can_register() -> None:
    # flinkish is not published: pip would install what a stranger has published by this name
    asked = re.compile(r"flinkish\[|pip install (?:-\S+ )*[\"']?flinkish(?![\w.*-])")
    shown = [ROOT / "README.md", *(ROOT / "jobs").rglob("*"), *DOCS.rglob("*")]
    shown += MODULES
    texts = {path: path.read_text() for path in shown if path.suffix in (".md", ".py", ".ipynb", ".sh", ".yml")}
    assert len(texts) > 400 and [path for path, text in texts.items() if asked.search(text)] == []
    assert all(
        map(asked.search, ("pip install 'flinkish[kafka]'", "pip install flinkish pyspark", "pip install -U flinkish"))
    )
    assert not any(map(asked.search, ("pip install '/path/to/checkout[kafka]'", "pip install flinkish-0.1.0.whl")))


def test_the_start_page_installs_as_the_readme_does() -> None:
    commands = [line for line in (DOCS / "index.md").read_text().splitlines() if line.startswith("pip ")]
    readme = (ROOT / "README.md").read_text().splitlines()
    assert commands
    for command in commands:
        assert any(line == command or line.startswith(command + "  ") for line in readme), command


@pytest.mark.parametrize("page", ["README.md", "jobs/README.md"])
def test_links_of_other_pages_lead_to_files(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(link).exists(), f"{page}: {link}"


@pytest.mark.parametrize("page", PAGES)
def test_each_key_on_a_page_is_a_configuration_key(page: str) -> None:
    for code in _CODE.findall((DOCS / page).read_text()):
        key = re.fullmatch(
            r"(?:-D )?((?:flinkish|execution|pipeline|restart-strategy)(?:\.[a-z0-9-]+)+)(?:[:=].*)?", code
        )
        assert key is None or options.is_known(key[1]) or is_name(key[1]), code


def is_name(text: str) -> bool:
    """Whether a text is the full name of a module, or of something in one."""
    module, _, name = text.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(text))
    except ImportError:
        return False


def test_what_one_writes_here_instead_exists() -> None:
    rows = re.findall(r"^\| .*? \| (.*) \|$", (DOCS / "from-structured-streaming.md").read_text(), re.MULTILINE)
    classes = {
        name for row in rows for code in _CODE.findall(row) for name in re.findall(r"^[A-Z][a-z]+[A-Z]\w+", code)
    }
    sources = "\n".join(path.read_text() for path in MODULES)
    assert "KeyedProcessFunction" in classes
    assert [name for name in classes if not re.search(rf"^class {name}\b", sources, re.MULTILINE)] == []


@cache
def said() -> list[str]:
    """All texts of the package and of the scripts, each with a line break where a value is filled in."""
    texts = [(ROOT / name).read_text() for name in ("spark-submit.sh", "run-tests.sh", "conf/environment.sh")]
    texts = [re.sub(r"\$(\w+|\{[^}]*\}|\([^)]*\))", "\n", text) for text in texts]
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "\n" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(re.sub(r"%(?:\.\d+)?[sdrfg]", "\n", node.value))
    return texts


def messages() -> list[str]:
    """What docs/troubleshooting.md quotes in the first column of its tables."""
    tables = (DOCS / "troubleshooting.md").read_text().partition("\n## ")[2]
    return [code for cell in _FIRST_CELL.findall(tables) for code in _CODE.findall(cell)]


def test_a_message_on_the_page_of_troubles_is_one_of_the_code() -> None:
    assert [message for message in messages() if not any(says(text, message) for text in said())] == []


@pytest.mark.parametrize(
    ("message", "is_said"),
    [
        ("the topic '…' does not exist", True),
        ("the topic '…'", True),
        ("does not exist '…' the topic", False),
        ("the topic 'clicks' does not exist", False),
        ("the topic '…' exists", False),
    ],
)
def test_a_quoted_message_must_be_that_of_the_code(message: str, is_said: bool) -> None:
    assert says("the topic '\n' does not exist", message) == is_said


def test_the_page_of_troubles_quotes_messages() -> None:
    assert len(messages()) > 60


def says(text: str, message: str) -> bool:
    """Whether a text of the code holds a message, in which `…` stands for what is filled in."""
    end = 0
    for part in message.split("…"):
        start = text.find(part, end)
        if start < 0:
            return False
        end = start + len(part)
    return True


def test_each_test_that_stands_beside_a_promise_exists() -> None:
    for path, name in re.findall(r"`(tests/[\w/.]+?)(?:::(\w+))?`", (DOCS / "security.md").read_text()):
        file = ROOT / path
        assert file.exists(), path
        assert not name or f"def {name}(" in file.read_text(), f"{path}::{name}"


_LICENCES = re.compile(r"^\|([^|]*)\| (`[^|]+`) \| ([\w.-]+) \|$", re.MULTILINE)

#: What the metadata of packages call a licence, if they do not use its short name
_CALLED = {"Apache-2.0": "Apache Software License", "BSD-3-Clause": "BSD License", "MIT": "MIT License"}


def test_the_readme_has_the_licence_of_each_package_that_pip_installs_with_flinkish() -> None:
    table = _LICENCES.findall((ROOT / "README.md").read_text().partition("\n## License\n")[2])
    licences = {package: licence for _, packages, licence in table for package in _CODE.findall(packages)}
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = {name: text for name, text in setup["options.extras_require"].items() if not name.startswith("test")}
    needed = "\n".join([setup["options"]["install_requires"], *extras.values()])
    assert set(re.findall(r"^[\w-]+", needed, re.MULTILINE)) == set(licences)
    assert {name for name, text in extras.items() if text} == {name for row in table for name in _CODE.findall(row[0])}
    for package, licence in licences.items():
        try:
            found = metadata(package)
        except PackageNotFoundError:  # an extra that nobody needs in order to run the tests
            continue
        said = [found.get("License-Expression"), found.get("License"), *(found.get_all("Classifier") or [])]
        text = "\n".join(line for line in said if line and ("License" in line or "::" not in line))
        # hdfs-native says nothing
        assert not text or licence in text or _CALLED[licence] in text, (package, text)
