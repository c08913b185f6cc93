"""Which Spark a driver starts, and with which PySpark its Python processes run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark

from flinkish.launch.home import home_without_zip, spark_home
from flinkish.launch.options import SparkOptions
from flinkish.launch.spark_command import SparkCommand

INSTALLED = Path(pyspark.__file__).parent


def test_the_folder_has_the_installed_spark_and_no_zip_of_pyspark(tmp_path: Path) -> None:
    home = Path(home_without_zip(tmp_path, {}))
    assert home.parent == tmp_path
    assert (home / "bin" / "spark-submit").samefile(INSTALLED / "bin" / "spark-submit")
    assert (home / "jars").samefile(INSTALLED / "jars")
    assert (INSTALLED / "python" / "lib" / "pyspark.zip").exists() and not (home / "python").exists()
    assert home_without_zip(tmp_path, {}) == str(home), "it is made once"


def test_a_spark_that_the_environment_names_is_left_alone(tmp_path: Path) -> None:
    assert spark_home({"SPARK_HOME": "/opt/spark"}) == home_without_zip(tmp_path, {"SPARK_HOME": "/opt/spark"})
    assert not list(tmp_path.iterdir())


def test_without_links_it_is_the_installed_spark(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert home_without_zip(tmp_path / "file", {}) == spark_home({}) == str(INSTALLED)


def test_only_a_driver_that_is_the_only_executor_gets_the_folder(tmp_path: Path) -> None:
    environment = {"FLINKISH_HOME": str(tmp_path)}

    def home(*options: tuple[str, str]) -> str | None:
        return SparkCommand(environment, SparkOptions(options)).jvm_environment([]).get("SPARK_HOME")

    links = home_without_zip(tmp_path / ".cache", {})
    assert home() == home(("--master", "local[2]")) == links
    assert home(("--master", "local-cluster[2,1,1024]")) is None
    assert home(("--master", "spark://host:7077")) is None


def test_two_starts_at_once_make_one_folder(tmp_path: Path) -> None:
    call = f"home_without_zip(Path({str(tmp_path)!r}), {{}})"
    program = f"from pathlib import Path; from flinkish.launch.home import home_without_zip; print({call})"
    started = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({process.communicate()[0] for process in started}) == 1
    assert all((path / "jars").exists() for path in tmp_path.iterdir())
