"""Which modules are the program's, whose classes stored values may be instances of: those beside the main script
and those that were shipped as the program's own, and no libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from flinkish.common.configuration import Configuration
from flinkish.common.dependencies import dependencies_of, staged_folders, staging_folder
from flinkish.runtime.stored.classes import ProgramClasses, ProgramPlaces, files_here
from tests.support.processes import python_path

#: Imports what it can of the modules below, and prints which of them are the program's.
SCRIPT = """
import importlib, os, sys
from flinkish.runtime.stored.classes import ProgramClasses
project = os.environ["PROJECT"]
sys.path += [f"{project}/sub", f"{project}/.hidden", f"{project}/venv/site-packages", f"{project}/app.pex"]
sys.path += [os.path.dirname(project) + "/elsewhere"]
def found(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
names = [name for name in os.environ["NAMES"].split() if found(name) is not None]
modules = ProgramClasses.of_this_process().modules
print(*(name if name in modules else f"-{name}" for name in names))
"""

#: Module -> where it lies
MODULES = {
    "beside": "project/beside.py",
    "package": "project/package/__init__.py",
    "package.model": "project/package/model.py",
    "package.deep.model": "project/package/deep/model.py",
    "added": "project/sub/added.py",
    "hidden": "project/.hidden/hidden.py",
    "installed": "project/venv/site-packages/installed.py",
    "pexed": "project/app.pex",
    "on_path_below": "project/libs/on_path_below.py",
    "on_path": "libs/on_path.py",
    "elsewhere": "elsewhere/elsewhere.py",
}

#: What is the program's (all else that could be imported is a library), however the program is started
BESIDE = "beside package package.model package.deep.model added"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    for module, place in MODULES.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if place.endswith(".pex"):
            with zipfile.ZipFile(path, "w") as packed:
                packed.writestr(f"{module}.py", "")
        else:
            path.write_text("")
    (folder / "project" / "main.py").write_text(SCRIPT)
    (folder / "project" / "package" / "job.py").write_text(SCRIPT)
    (folder / "project" / "package" / "__main__.py").write_text(SCRIPT)
    (folder / "link.py").symlink_to(folder / "project" / "main.py")
    return folder / "project"


def programs_own(project: Path, *command: str, cwd: Path | None = None, path: tuple[str, ...] = ()) -> list[str]:
    """The modules that a process takes for the program's, and the others with a minus before them."""
    entries = (f"{project}/libs", f"{project.parent}/libs", *path, python_path())
    env = {**os.environ, "PROJECT": str(project), "NAMES": " ".join(MODULES), "PYTHONPATH": os.pathsep.join(entries)}
    done = subprocess.run(
        [sys.executable, *command], env=env, cwd=cwd or project, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


LIBRARIES = "-hidden -installed -pexed -on_path_below -on_path -elsewhere".split()


@pytest.mark.parametrize(
    "command",
    [
        ("main.py",),
        ("../link.py",),
        ("-m", "main"),
        ("-m", "package"),
        ("-m", "package.job"),
        ("-c", SCRIPT),
        ("-m", "timeit", "-n1", "-r1", f"exec({SCRIPT!r}, {{}})"),
    ],
    ids=lambda command: " ".join(command)[:14],
)
def test_what_lies_beside_the_main_script_is_the_programs_and_libraries_are_not(
    project: Path, command: tuple[str, ...]
) -> None:
    assert programs_own(project, *command)[: len(MODULES)] == BESIDE.split() + LIBRARIES


def test_the_folder_of_the_main_script_is_the_programs_also_on_the_python_path(project: Path) -> None:
    own = programs_own(project, "main.py", path=(str(project), "."))
    assert own == BESIDE.split() + LIBRARIES


def test_the_current_folder_is_not_the_programs_where_there_is_a_main_script(project: Path) -> None:
    own = programs_own(project, "project/sub/../main.py", cwd=project.parent, path=(str(project.parent / "elsewhere"),))
    assert own == BESIDE.split() + LIBRARIES


def module_at(path: Path) -> ModuleType:
    module = ModuleType("__main__")
    module.__file__ = str(path)
    return module


def test_a_tool_that_runs_a_program_is_not_the_program(tmp_path: Path) -> None:
    """Where pytest or a notebook's kernel is the main script, the program is in the current folder."""
    tool = Path(sysconfig.get_path("scripts")) / "pytest"
    places = ProgramPlaces.of_this_process(module_at(tool), ())
    assert os.path.realpath(".") in places.folders and str(tool.parent) not in places.folders
    assert __name__ in ProgramClasses.of_this_process().modules


def test_the_folder_above_the_programs_is_the_programs_if_the_program_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above, jobs = tmp_path / "project", tmp_path / "project" / "jobs"
    jobs.mkdir(parents=True)
    (above / "model.py").touch()
    main = module_at(jobs / "main.py")
    for on_path, own in ([], False), ([str(above)], True):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path, *on_path])
            assert ProgramPlaces.of_this_process(main, ()).has(f"{above}/model.py") is own
            patch.setenv("PYTHONPATH", str(above))
            assert ProgramPlaces.of_this_process(main, ()).has(f"{above}/model.py") is False


def test_what_was_shipped_as_the_programs_own_is_its_own_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "single.py").touch()
    for name in ("folder/inside.py", "folder/venv/site-packages/other.py", "archive/deep/inside.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("zipped.zip", "archived.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            packed.writestr("inside.py", "")
    configuration = Configuration()
    files = ",".join(f"{tmp_path}/{name}" for name in ("single.py", "folder", "zipped.zip"))
    configuration.set_string("python.files", files)
    configuration.set_string("python.archives", f"{tmp_path}/archive,{tmp_path}/archived.zip#there")
    shipped = files_here(dependencies_of(configuration)).here
    places = ProgramPlaces.of_this_process(module_at(Path("/nowhere/main.py")), shipped)
    own = ("single.py", "folder/inside.py", "zipped.zip/inside.py", "archive/deep/inside.py", "archived.zip/inside.py")
    assert all(places.has(f"{tmp_path}/{name}") for name in own)
    assert not places.has(f"{tmp_path}/folder/venv/site-packages/other.py")
    assert not places.has(f"{tmp_path}/other.py")
    copies = [path for folder in staged_folders() for path in Path(os.path.realpath(folder)).glob("module-*/single.py")]
    assert copies and all(places.has(str(copy)) for copy in copies)


def test_installed_requirements_are_libraries_even_below_the_current_folder() -> None:
    folder = Path(os.path.realpath(staging_folder())) / "requirements-test"
    folder.mkdir(exist_ok=True)
    (folder / "required.py").touch()
    places = ProgramPlaces.of_this_process(module_at(folder.parents[1] / "main.py"), ())
    assert not places.has(f"{folder}/required.py")
