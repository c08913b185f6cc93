"""What flinkish knows of the installed Spark before it imports it, and what it says where there is none."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from flinkish.errors import EnvironmentVersionError
from flinkish.launch import spark_version
from flinkish.launch.home import default_spark_settings
from flinkish.launch.spark_version import check_pyarrow, file_manager_of, fits_spark

CHECKOUT = Path(__file__).resolve().parents[3]

ASK = """
import sys
from flinkish.errors import FlinkishError
from flinkish.launch.spark_version import spark_version
try:
    print(spark_version())
except FlinkishError as error:
    print(type(error).__name__, error)
assert "pyspark" not in sys.modules
"""


def installed(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    monkeypatch.setattr(spark_version, "pyspark_version", lambda: version)


def run_python(code: str, *options: str, path: str = "", **environment: str) -> str:
    variables = {"PYTHONPATH": f"{CHECKOUT}:{path}", "PATH": "/usr/bin:/bin", **environment}
    command = [sys.executable, *options, "-c", code]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('__version__: str = "4.0.2"\n', "(4, 0)"),
        ("__version__ = '4.1.0+amzn.1'\n", "(4, 1)"),
        ('__version__: str = "3.5.6"\n', "EnvironmentVersionError PySpark 3.5.6 is too old"),
    ],
)
def test_the_version_is_that_of_the_files_that_would_be_imported(
    tmp_path: Path, zipped: bool, text: str, answer: str
) -> None:
    files = {"pyspark/__init__.py": "raise ImportError\n", "pyspark/version.py": f"# Apache\n{text}"}
    path = tmp_path / "pyspark.zip" if zipped else tmp_path
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    else:
        (tmp_path / "pyspark").mkdir()
        for name, content in files.items():
            (tmp_path / name).write_text(content)
    # -S: without the packages that are installed here
    assert run_python(ASK, "-S", path=str(path)).startswith(answer)


@pytest.mark.parametrize("home", ["", "/usr/lib/spark"])
def test_without_pyspark_the_error_says_what_to_install(home: str) -> None:
    answer = run_python(ASK, "-S", **({"SPARK_HOME": home} if home else {}))
    assert "PySpark is not installed" in answer and "pip install 'pyspark>=4.2,<4.3' delta-spark==4.4.0" in answer
    assert ("/usr/lib/spark/python" in answer) is bool(home)


PROGRAM = """
import sys
sys.modules["pyspark"] = None  # as if it were not installed
from flinkish.common import Configuration
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import FlinkishError
for target in ("minicluster", None):
    configuration = Configuration()
    if target:
        configuration.set_string("execution.target", target)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.from_collection([1, 2]).map(lambda one: one + 1).print()
    try:
        env.execute("job")
    except FlinkishError as error:
        print(error)
"""


def test_without_pyspark_programs_run_in_the_minicluster_and_execute_says_what_spark_needs() -> None:
    answer = run_python(PROGRAM)
    assert re.findall(r"(?m)^(?:\d> )?(\d)$", answer) == ["2", "3"]
    assert answer.splitlines()[-1].startswith("PySpark is not installed, and programs run on Spark")
    assert "pip install 'pyspark>=4.2,<4.3' delta-spark==4.4.0" in answer


@pytest.mark.parametrize(
    ("pyspark", "package"),
    [
        ("4.0.2", "io.delta:delta-spark_4.0_2.13:"),
        ("4.1.4", "io.delta:delta-spark_4.1_2.13:"),
        ("4.2.1", "io.delta:delta-spark_4.2_2.13:"),
        ("4.3.0", None),
        (None, None),
    ],
)
def test_each_spark_has_its_package_of_delta_and_a_spark_without_one_has_none(
    monkeypatch: pytest.MonkeyPatch, pyspark: str | None, package: str | None
) -> None:
    installed(monkeypatch, pyspark)
    found = default_spark_settings().get("spark.jars.packages")
    assert found is None if package is None else found is not None and found.startswith(package)


@pytest.mark.parametrize(
    ("jar", "spark", "fits"),
    [
        ("file:/x/delta-spark_4.2_2.13-4.4.0.jar", "4.2.1", True),
        ("file:/x/delta-spark_4.2_2.13-4.4.0.jar", "4.3.0", False),
        ("/usr/lib/spark/jars/delta-spark_2.13-4.0.1.jar", "4.0.2-amzn-0", True),
        ("/databricks/jars/spark--delta.jar", "4.3.0", True),
    ],
)
def test_deltas_jar_fits_unless_its_name_says_another_spark(jar: str, spark: str, fits: bool) -> None:
    assert fits_spark(jar, spark) is fits


@pytest.mark.parametrize(
    ("pyspark", "pyarrow", "works"),
    [
        ("4.0.2", "26.0.1", False),
        ("4.0.4", "27.0.0", False),
        ("4.1.3", "26.0.0", False),
        ("4.0.2", "25.0.1", True),
        ("4.0.5", "26.0.1", True),
        ("4.1.4", "26.0.1", True),
        ("4.2.0", "26.0.1", True),
    ],
)
def test_a_pyarrow_with_which_keyed_state_fails_is_refused(
    monkeypatch: pytest.MonkeyPatch, pyspark: str, pyarrow: str, works: bool
) -> None:
    installed(monkeypatch, pyspark)
    if works:
        check_pyarrow(pyarrow)
        return
    with pytest.raises(EnvironmentVersionError, match=rf"PySpark {pyspark} does not work with pyarrow {pyarrow}"):
        check_pyarrow(pyarrow)


def test_spark_4_1_has_moved_the_class_of_checkpoint_files() -> None:
    assert file_manager_of("4.0.2") != file_manager_of("4.1.0") == file_manager_of("4.2.0")


def extras() -> dict[str, list[Requirement]]:
    """Extra -> its requirements; "": what the wheel always requires."""
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    texts = {"": setup["options"]["install_requires"], **setup["options.extras_require"]}
    return {name: [Requirement(line) for line in text.splitlines() if line.strip()] for name, text in texts.items()}


def test_the_wheel_requires_nothing_that_a_platform_has_of_its_own() -> None:
    assert {requirement.name for requirement in extras()[""]} == {"pandas", "pyarrow"}


def test_the_extra_spark_names_a_pyspark_that_its_delta_accepts() -> None:
    (wanted,) = [one for one in extras()["spark"] if one.name == "pyspark"]
    (accepted,) = [one for one in map(Requirement, requires("delta-spark") or ()) if one.name == "pyspark"]
    both = wanted.specifier & accepted.specifier
    assert any(both.contains(f"4.2.{patch}") for patch in range(10)), both
