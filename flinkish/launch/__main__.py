"""``python -m flinkish.launch [--home DIRECTORY] JOB.py [job options] [-- spark options]``: becomes the driver.

Rule: everything that can be found wrong without Spark is found wrong here, in one line and with exit code 2; then the
process is replaced by the program.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from flinkish.errors import ConfigurationError, EnvironmentVersionError, FlinkishError, ProgramError
from flinkish.launch.archive import archive
from flinkish.launch.options import CommandLine, SparkOptions, comma_list, read_properties
from flinkish.launch.packages import resolve

_MERGED = ("--jars", "--packages", "--py-files", "--remote")


class Launch:
    """One start: ``home`` holds ``conf/`` and ``.cache/``; ``environment`` is the launcher's own."""

    def __init__(self, home: Path, line: CommandLine, environment: Mapping[str, str]) -> None:
        self.home = home
        self.line = line
        self.environment = environment
        # a checkout that belongs to someone else is used as it is
        self.cache = home / ".cache" if os.access(home, os.W_OK) else Path.home() / ".cache" / "flinkish"
        self.defaults_file = home / "conf" / "spark-defaults.conf"
        text = self.defaults_file.read_text() if self.defaults_file.exists() else ""
        self.defaults = read_properties(text)

    def master(self) -> str:
        return self.line.spark.either("--master", "spark.master") or self.defaults.get("spark.master", "local[*]")

    def is_local(self) -> bool:
        return self.master().startswith("local")

    def in_cluster_mode(self) -> bool:
        return self.line.spark.either("--deploy-mode", "spark.submit.deployMode") == "cluster"

    def packages(self) -> str:
        """Delta's, and the user's."""
        mine = self.defaults.get("spark.jars.packages")
        return comma_list(mine, self.line.spark.either("--packages", "spark.jars.packages"))

    def spark_arguments(self) -> list[str]:
        """The command line for Spark's ``bin/spark-submit``, without the program."""
        user = self.line.spark
        ours = ["--load-spark-defaults"]  # what a cluster's own spark-defaults.conf says, and ours does not
        if self.defaults and user.value("--properties-file") is None:
            ours += ["--properties-file", str(self.defaults_file)]
        packages, jars = self.packages(), []
        if packages and self.in_cluster_mode():
            ours += ["--packages", packages]
        elif packages and not (self.remote() or "").startswith("sc:"):  # a server elsewhere has its own jars
            jars = resolve(packages, user, self.cache)
        if not self.in_cluster_mode():
            # resolved above: keep Spark from doing it again, aloud
            user = SparkOptions((*user.items, ("--conf", "spark.jars.packages=")))
        jars_list = comma_list(jars, user.either("--jars", "spark.jars"))
        if jars_list:
            ours += ["--jars", jars_list]
        if self.is_local():
            ours += ["--conf", "spark.python.daemon.module=flinkish.launch.daemon"]
        package = Path(__file__).resolve().parents[1]
        zipped = str(archive(package, self.cache))
        ours += ["--py-files", comma_list(zipped, user.either("--py-files", "spark.submit.pyFiles"))]
        return ours + user.without(*_MERGED).tokens()

    def remote(self) -> str | None:
        """The Spark Connect server, if one is named."""
        return self.line.spark.value("--remote") or self.environment.get("SPARK_REMOTE")

    def driver_environment(self, spark_arguments: Sequence[str]) -> dict[str, str]:
        result = dict(self.environment)
        result["PYSPARK_SUBMIT_ARGS"] = shlex.join([*spark_arguments, "pyspark-shell"])
        for name, path in (
            ("FLINKISH_CONF", self.home / "conf" / "flinkish.yaml"),
            ("LOG4J_CONFIGURATION_FILE", self.home / "conf" / "log4j2.properties"),
            ("FLINKISH_SPARK_LOG", self.cache / "spark.log"),
        ):
            if path.exists() or path.parent == self.cache:
                result.setdefault(name, str(path))
        remote = self.remote()
        if remote is not None:
            result["SPARK_REMOTE"] = remote
        if self.is_local():
            # driver and workers share the machine: any other Python than this one can only lack something
            result["PYSPARK_PYTHON"] = result["PYSPARK_DRIVER_PYTHON"] = sys.executable
        return result

    def check(self) -> None:
        """Raises what is wrong already."""
        if not Path(self.line.job).is_file():
            raise ProgramError(
                f"there is no job file '{self.line.job}'",
                expected="the path of a Python program as the first argument, e.g. jobs/click_count.py",
                hint="options of Spark go after `--`, at the end",
            )
        conf = self.environment.get("FLINKISH_CONF")
        if conf is not None and not Path(conf).is_file():
            raise ConfigurationError(
                f"FLINKISH_CONF names '{conf}', which is not a file", expected="a YAML file of Flink's keys"
            )
        self._check_spark_home()

    def _check_spark_home(self) -> None:
        home = self.environment.get("SPARK_HOME")
        ours = ".".join(version("pyspark").split(".")[:2])
        if home and not list(Path(home).glob(f"jars/spark-core_*-{ours}.*.jar")):
            found = [path.stem for path in Path(home).glob("jars/spark-core_*.jar")] or ["no Spark"]
            raise EnvironmentVersionError(
                f"SPARK_HOME={home} holds {found[0]}, but the Python package is pyspark {version('pyspark')}",
                expected=f"Spark {ours}",
                hint="unset SPARK_HOME to use the Spark inside pyspark, or point it at a matching one",
            )

    def run(self) -> NoReturn:
        self.check()
        arguments = self.spark_arguments()
        environment = self.driver_environment(arguments)
        program = [self.line.job, *self.line.job_options]
        if self.in_cluster_mode():
            spark_home = environment.get("SPARK_HOME") or _spark_home_of_pyspark()
            submit = os.path.join(spark_home, "bin", "spark-submit")
            os.execve(submit, [submit, *arguments, *program], environment)
        os.execve(sys.executable, [sys.executable, "-m", "flinkish.launch.driver", *program], environment)


def _spark_home_of_pyspark() -> str:
    import pyspark

    return os.path.dirname(pyspark.__file__)


def main(argv: Sequence[str]) -> int:
    """Does not return if all is well."""
    home = Path.cwd()
    arguments = list(argv)
    if arguments[:1] == ["--home"]:
        home, arguments = Path(arguments[1]), arguments[2:]
    if not arguments:
        print("usage: python -m flinkish.launch JOB.py [job options] [-- spark options]", file=sys.stderr)
        return 2
    try:
        Launch(home, CommandLine.parse(arguments), os.environ).run()
    except FlinkishError as error:
        print(f"flinkish: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
