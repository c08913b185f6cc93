"""flinkish as a wheel, without a checkout: in an environment and a folder of its own, however a program is started.

The wheel is built of this checkout. The environment has the suite's other packages, but neither the checkout nor an
installation of it: a test asserts where flinkish comes from.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from tests.support.processes import REPOSITORY

TIMEOUT_S = 500

CLICKS = """
from flinkish.common import Types
from flinkish.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
clicks = env.from_collection([("ann", True), ("bob", False), ("ann", True)]).uid("clicks")
(
    clicks.filter(lambda click: click[1])
    .map(lambda click: (click[0], ONE), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    .key_by(lambda pair: pair[0])
    .sum(1)
    .uid("counts")
    .print()
)
env.execute("clicks")
"""
RESULTS = "1> (ann,1)\n1> (ann,2)\n"

#: What the JVM itself says before any of Spark's settings can be read, and flinkish when it does not know the jars of
#: Delta yet.
UNAVOIDABLE = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "flinkish: resolving ",
    "flinkish: REST API and Web UI at ",
)


@dataclass(frozen=True)
class Installation:
    """``bin``: of the environment; ``folder``: with the programs ``clicks.py`` and ``failing.py`` alone."""

    bin: Path
    folder: Path

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the environment in the folder."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name != "JDK_JAVA_OPTIONS" and not name.startswith(("FLINKISH", "PY", "SPARK"))
        }
        environment |= {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "FLINKISH_PROGRESS": "never"}
        return subprocess.run(
            command,
            env=environment | variables,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel, built and installed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(REPOSITORY)]
    left = {"build", "flinkish.egg-info", "dist"}
    there = left & set(os.listdir(REPOSITORY))
    subprocess.run([*pip, *build], check=True, timeout=TIMEOUT_S)
    assert left & set(os.listdir(REPOSITORY)) == there, "a build leaves nothing in the checkout"
    (wheel,) = folder.glob("flinkish-*.whl")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    # the suite's own path leads to the checkout, where pip would find flinkish installed
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = ["--python", str(python), "install", "--no-deps", "--ignore-installed", str(wheel)]
    subprocess.run([*pip, *install], check=True, timeout=TIMEOUT_S, env=elsewhere, cwd=folder)
    # a folder that a .pth file names has no .pth files of its own: not that of the checkout's editable installation
    packages = Path(sysconfig.get_path("purelib", "posix_prefix", vars={"base": str(environment)}))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    programs = folder / "programs"
    programs.mkdir()
    (programs / "clicks.py").write_text(CLICKS.replace("ONE", "1"))
    (programs / "failing.py").write_text(CLICKS.replace("ONE", "1 // 0"))
    result = Installation(environment / "bin", programs)
    found = result.run("python", "-c", "import flinkish; print(flinkish.__file__)")
    assert found.stdout.strip() == str(packages / "flinkish" / "__init__.py"), found.stderr
    return result


def test_the_wheel_has_all_files_of_the_package(installation: Installation) -> None:
    base = {"base": str(installation.bin.parent)}
    installed = Path(sysconfig.get_path("purelib", "posix_prefix", vars=base)) / "flinkish"
    files = [path for path in (REPOSITORY / "flinkish").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    missing = [str(path) for path in files if not (installed / path.relative_to(REPOSITORY / "flinkish")).exists()]
    assert missing == [], "setup.cfg: options.package_data"


def test_the_examples_come_out_of_the_wheel(installation: Installation) -> None:
    result = installation.run("flinkish", "examples", "copies")
    assert result.returncode == 0, result.stderr
    copies = {path.name: path.read_bytes() for path in (installation.folder / "copies").iterdir()}
    assert copies == {path.name: path.read_bytes() for path in (REPOSITORY / "jobs").glob("*.*")}
    job = ("copies/click_count.py", "--events", "100", "--users", "3")
    counts = installation.run("flinkish", "run", "-D", "execution.target=minicluster", *job)
    assert (counts.returncode, "3 users, 70 clicks of logged-in users" in counts.stdout) == (0, True), counts.stdout


def said(text: str) -> str:
    """Without what cannot be avoided."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(UNAVOIDABLE))


# in the ordinary run: the wheel is whole, and what a program says of itself is alone (test_started_processes.py)
@pytest.mark.slow
def test_below_python_a_program_says_its_results_and_nothing_else(installation: Installation) -> None:
    result = installation.run("python", "clicks.py")
    assert (result.returncode, result.stdout, said(result.stderr)) == (0, RESULTS, "")


@pytest.mark.slow
def test_below_flinkish_run_it_says_the_same_and_gets_the_settings_of_the_command_line(
    installation: Installation,
) -> None:
    text = CLICKS.replace("ONE", "1") + (
        "from pyspark.sql import SparkSession\nspark = SparkSession.getActiveSession()\n"
        "print(spark.sparkContext.master, spark.conf.get('spark.sql.shuffle.partitions'), env.get_max_parallelism())\n"
        "spark.range(3).write.format('delta').save('table')\nprint(spark.read.format('delta').load('table').count())\n"
    )
    (installation.folder / "asking.py").write_text(text)
    spark = ("--", "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=3")
    result = installation.run("flinkish", "run", "-D", "pipeline.max-parallelism=7", "asking.py", *spark)
    assert (result.returncode, result.stdout, said(result.stderr)) == (0, f"{RESULTS}local[1] 3 7\n3\n", "")


@pytest.mark.slow
def test_below_spark_submit_a_program_says_the_same_once_it_has_begun(installation: Installation) -> None:
    import pyspark

    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    result = installation.run(submit, "clicks.py", PYSPARK_PYTHON=str(installation.bin / "python"))
    # what the script says to stderr comes to stdout, too: Spark joins them
    assert (result.returncode, said(result.stdout)) == (0, RESULTS), result.stderr
    assert "StreamExecution" not in result.stderr and "Traceback" not in result.stderr


@pytest.mark.slow
def test_an_error_in_a_function_is_told_in_its_authors_traceback_and_one_line(installation: Installation) -> None:
    result = installation.run("python", "failing.py")
    assert (result.returncode, result.stdout) == (1, "")
    check_told(said(result.stderr))


@pytest.mark.slow
def test_a_notebook_shows_results_and_errors_alike(installation: Installation) -> None:
    clicks, failing = ((installation.folder / name).read_text() for name in ("clicks.py", "failing.py"))
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, (clicks, "env", failing))))
    nbformat.write(notebook, installation.folder / "clicks.ipynb")
    # runs each cell in a kernel, as Jupyter does, and keeps what it puts out
    result = installation.run(
        "python", "-c", "from nbclient.cli import main; main()", "--inplace", "--allow-errors", "clicks.ipynb"
    )
    assert result.returncode == 0, result.stderr
    clicks, shown, failing = (cell.outputs for cell in nbformat.read(installation.folder / "clicks.ipynb", 4).cells)
    (plan,) = (output.data["text/html"] for output in shown if output.output_type == "execute_result")
    assert "<svg " in plan and "Source: Collection Source" in plan
    assert "".join(output.text for output in clicks if output.get("name") == "stdout") == RESULTS
    assert not said("".join(output.text for output in clicks if output.get("name") == "stderr"))
    (error,) = (output for output in failing if output.output_type == "error")
    # a cell is a file of the kernel's, and has no empty line before its first one
    check_told("\n".join(error.traceback), r'\d+\.py", line 9')


def check_told(text: str, place: str = r'failing\.py", line 10') -> None:
    """The traceback of the lambda in ``failing.py``, and one line of flinkish's."""
    lines = [line for line in text.splitlines() if "~^" not in line]
    assert lines[0] == "Traceback (most recent call last):", text
    assert re.search(place + ", in <lambda>$", lines[1]), text
    assert lines[-3:-1] == ["ZeroDivisionError: integer division or modulo by zero", ""], text
    assert lines[-1].startswith("flinkish.errors.UserCodeError: ZeroDivisionError in user code: ")
    where = "operator 'Map' (uid map-3), record ('ann', True), epoch 0]"
    assert f"{where}; nothing of this epoch was committed" in lines[-1]
    # the source line of the lambda may stand between them
    assert len(lines) <= 6, text
