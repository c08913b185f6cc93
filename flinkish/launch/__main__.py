"""The launcher: ``python -m flinkish.launch JOB.py [job options] [-- spark options]`` becomes the driver.

Rule: every fault that can be found without Spark is reported here, in one line and with exit code 2; if there is none,
the program replaces this process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from flinkish.errors import ConfigurationError, EnvironmentVersionError, FlinkishError, ProgramError
from flinkish.interpreter import python_command
from flinkish.launch.driver import VARIABLE as REPLAY
from flinkish.launch.home import spark_home
from flinkish.launch.options import CommandLine
from flinkish.launch.spark_command import SparkCommand, own_python
from flinkish.launch.spark_version import pyspark_version, spark_version

_TARGET = "execution.target"


class Launch:
    """One start of a program.

    Args:
        line: the command line.
        environment: the environment variables of the launcher.
        runs: whether the program's jobs are to run; False: Spark is not looked for.
    """

    def __init__(self, line: CommandLine, environment: Mapping[str, str], runs: bool = True) -> None:
        self.line = line
        self._runs = runs
        self.environment = environment
        self.command = SparkCommand(environment, line.spark)

    def driver_environment(self, spark_arguments: list[str]) -> dict[str, str]:
        """The environment variables of the program's process, whose JVM is started with these Spark options; with none
        they are those of a program that is started by ``python``."""
        result = {**self.environment, **(self.command.jvm_environment(spark_arguments) if spark_arguments else {})}
        configuration = self.command.home.configuration_file
        if configuration is not None:
            result["FLINKISH_CONF"] = configuration
        remote = self.command.remote()
        if remote is not None:
            result["SPARK_REMOTE"] = remote
        if self.command.is_local():
            result |= own_python()
        modules = [*self.command.python_path(), *filter(None, [result.get("PYTHONPATH")])]
        return {**result, "PYTHONPATH": os.pathsep.join(modules)} if modules else result

    def check(self) -> None:
        """Check what can be checked without Spark.

        Raises:
            ProgramError: the job file does not exist.
            ConfigurationError: FLINKISH_CONF does not name a file, or a replay was to run in a cluster.
            EnvironmentVersionError: there is no PySpark, or SPARK_HOME holds another version of Spark.
        """
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
        if self.command.in_cluster_mode() and REPLAY in self.environment:
            raise ConfigurationError(
                "a replay runs in a driver on this machine, and shows what it finds there",
                where="deploy mode cluster",
                expected="deploy mode client",
                hint="add `-- --master 'local[1]' --deploy-mode client`",
            )
        if self.needs_spark():
            self._check_spark_home()

    def _check_spark_home(self) -> None:
        home = self.environment.get("SPARK_HOME")
        ours = ".".join(map(str, spark_version()))
        if home and not list(Path(home).glob(f"jars/spark-core_*-{ours}.*.jar")):
            found = [path.stem for path in Path(home).glob("jars/spark-core_*.jar")] or ["no Spark"]
            raise EnvironmentVersionError(
                f"SPARK_HOME={home} holds {found[0]}, but the Python package is pyspark {pyspark_version()}",
                expected=f"Spark {ours}",
                hint="unset SPARK_HOME to use the Spark inside pyspark, or point it at a matching one",
            )

    def needs_spark(self) -> bool:
        """Whether Spark is looked for at the start. A program that the command line sends to the minicluster runs where
        there is neither Java nor any jar."""
        in_minicluster = self.command.home.settings.get(_TARGET) == "minicluster"
        return self._runs and (not in_minicluster or bool(self.line.spark.items))

    def run(self) -> NoReturn:
        self.check()
        arguments = self.command.arguments() if self.needs_spark() else []
        environment = self.driver_environment(arguments)
        if self.command.in_cluster_mode():
            submit = os.path.join(spark_home(environment), "bin", "spark-submit")
            os.execve(submit, [submit, *arguments, self.line.job, *self.line.job_options], environment)
        # Python itself would end with 1 if it came before its first line; `flinkish.launch.driver` lets it in
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        words = self.words()
        os.execve(words[0], words, environment)

    def words(self) -> list[str]:
        """The command of the program's process, on this machine."""
        code = "from flinkish.launch.driver import main\nmain()"
        return python_command(code, self.line.job, *self.line.job_options)


def main(argv: Sequence[str]) -> int:
    """Launch the program of the command line. Returns an exit code only if it cannot be started."""
    if not argv:
        print("usage: python -m flinkish.launch JOB.py [job options] [-- spark options]", file=sys.stderr)
        return 2
    try:
        Launch(CommandLine.parse(argv), os.environ).run()
    except FlinkishError as error:
        print(f"flinkish: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
