"""The two commands of the checkout, run on a copy of it; stubs stand for old Pythons, old Javas and Spark."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

#: What run-tests.sh runs, before the options of its parts.
PYTEST = "-m pytest -n 4 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder --durations=10"
#: And before that in a fresh checkout.
COLLECT = "-m pytest -q --collect-only"

REPORT = """
import json, os, sys
names = ("PYSPARK_SUBMIT_ARGS", "FLINKISH_CONF", "PYSPARK_PYTHON", "LOG4J_CONFIGURATION_FILE", "SPARK_REMOTE")
print(json.dumps({"argv": sys.argv[1:], **{name: os.environ.get(name) for name in names}}))
"""

STUB_PYTHON = """#!/bin/sh
case "$*" in
-) echo no ;;
-c*) echo 3.11.9 ;;
"-I -m venv"*) for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;
"-I -m pip --version") ;;
"-I -m pip"*) echo pip >>"$STUB_LOG"; exit "${STUB_PIP_CODE:-0}" ;;
"-m tests.support.prepare") ;;
"-m ruff"*) echo "$*" >>"$STUB_LOG"; exit "${STUB_RUFF_CODE:-0}" ;;
"-m mypy"*) echo "$*" >>"$STUB_LOG"; echo "types"; exit "${STUB_MYPY_CODE:-0}" ;;
"-m pytest"*) echo "$*" >>"$STUB_LOG"; echo "1 passed"; exit "${STUB_PYTEST_CODE:-0}" ;;
*) exec "$REAL_PYTHON" "$@" ;;
esac
"""


class Checkout:
    """A copy of what the scripts need, with a Java 17 stub first on the PATH and no packages to resolve."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "checkout"
        self.bin = directory / "bin"
        self.log = directory / "stub.log"
        self.path.mkdir()
        self.bin.mkdir()
        for name in ("spark-submit.sh", "run-tests.sh", "setup.cfg", "pyproject.toml"):
            shutil.copy(CHECKOUT / name, self.path)
        shutil.copytree(CHECKOUT / "conf", self.path / "conf")
        ignored = shutil.ignore_patterns("__pycache__")
        for package in ("", "launch"):
            (self.path / "flinkish" / package).mkdir(exist_ok=True)
        for name in ("__init__.py", "errors.py", "error_display.py", "interpreter.py"):
            shutil.copy(CHECKOUT / "flinkish" / name, self.path / "flinkish")
        shutil.copytree(CHECKOUT / "flinkish/launch", self.path / "flinkish/launch", ignore=ignored, dirs_exist_ok=True)
        defaults = self.path / "flinkish/launch/spark-defaults.conf"
        lines = defaults.read_text().splitlines(keepends=True)
        defaults.write_text("".join(line for line in lines if not line.startswith("spark.jars.packages")))
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("FLINKISH", "PYSPARK", "SPARK"))
            },
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "FLINKISH_PYTHON": sys.executable,
            "REAL_PYTHON": sys.executable,
            "STUB_LOG": str(self.log),
        }
        self.environment.pop("JAVA_HOME", None)
        self.java("17.0.11")

    def executable(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def java(self, version: str) -> None:
        first = "Picked up JAVA_TOOL_OPTIONS: -Dx=1"
        self.executable(self.bin / "java", f"#!/bin/sh\necho '{first}' >&2\necho 'openjdk version \"{version}\"' >&2\n")

    def python(self, text: str) -> None:
        """Makes `text` the python3 of the PATH."""
        self.executable(self.bin / "python3", text)
        del self.environment["FLINKISH_PYTHON"]

    def job(self, text: str) -> str:
        path = self.path / "job.py"
        path.write_text(text)
        return str(path)

    def stub_spark_home(self) -> Path:
        """A Spark whose spark-submit writes its arguments down and fails."""
        import pyspark

        home = self.path.parent / "spark"
        script = '#!/bin/sh\nfor argument; do printf "%s\\n" "$argument"; done >"$STUB_LOG"\nexit 9\n'
        self.executable(home / "bin/spark-submit", script)
        (home / "jars").mkdir()
        (home / f"jars/spark-core_2.13-{pyspark.__version__}.jar").touch()
        self.environment["SPARK_HOME"] = str(home)
        return home

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.path / script), *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )

    def submit(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("spark-submit.sh", *arguments, **environment)

    def report(self, *arguments: str, **environment: str) -> dict[str, str]:
        """What a job sees that is started with these arguments."""
        result = self.submit(self.job(REPORT), *arguments, **environment)
        assert result.returncode == 0, result.stderr
        seen: dict[str, str] = json.loads(result.stdout)
        return seen


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def follows(options: Sequence[str], name: str) -> str:
    """The value of the last option of that name."""
    return options[len(options) - 1 - options[::-1].index(name) + 1]


def test_a_python_that_is_too_old_is_refused_with_what_was_found_and_what_to_do(checkout: Checkout) -> None:
    checkout.python("#!/bin/sh\necho 3.9.18\n")
    for script in ("spark-submit.sh", "run-tests.sh"):
        result = checkout.run(script, "job.py")
        assert result.returncode == 1
        assert f"Python is too old: found 3.9.18 ({checkout.bin}/python3), expected 3.10 or later" in result.stderr
        assert "FLINKISH_PYTHON=" in result.stderr
        assert not (checkout.path / ".venv").exists()


def test_a_python_that_does_not_exist_is_refused_by_name(checkout: Checkout) -> None:
    result = checkout.submit("job.py", FLINKISH_PYTHON="/nowhere/python3")
    assert result.returncode == 1
    assert "'/nowhere/python3' is not a command; expected Python 3.10 or later" in result.stderr


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16"])
def test_a_java_that_is_too_old_is_refused_with_what_was_found_and_what_to_do(checkout: Checkout, version: str) -> None:
    checkout.java(version)
    result = checkout.submit(checkout.job(REPORT))
    assert result.returncode == 1
    assert f"Java is too old: found {version} ({checkout.bin}/java), expected 17 or later" in result.stderr
    assert "JAVA_HOME" in result.stderr


@pytest.mark.parametrize("version", ["17", "21.0.3", "25-ea"])
def test_java_17_and_later_are_accepted(checkout: Checkout, version: str) -> None:
    checkout.java(version)
    assert checkout.submit(checkout.job(REPORT)).returncode == 0


def test_the_java_of_java_home_is_the_one_that_counts(checkout: Checkout) -> None:
    result = checkout.submit("job.py", JAVA_HOME="/nowhere")
    assert result.returncode == 1
    assert "no Java: '/nowhere/bin/java' is not a command; expected Java 17 or later" in result.stderr


def test_the_exit_code_is_the_jobs(checkout: Checkout) -> None:
    assert checkout.submit(checkout.job("raise SystemExit(37)")).returncode == 37


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_job_which_ends_as_it_likes(checkout: Checkout, number: signal.Signals) -> None:
    job = checkout.job(
        f"import signal, sys\nsignal.signal({int(number)}, lambda *_: (print('ended in order'), sys.exit(5)))\n"
        "print('ready', flush=True)\nwhile True: signal.pause()\n"
    )
    command = [str(checkout.path / "spark-submit.sh"), job]
    with subprocess.Popen(command, env=checkout.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "ended in order\n"
    assert process.returncode == 5


@pytest.mark.parametrize(
    ("program", "code"),
    [
        # the other errors: tests/unit/test_exit_codes.py
        ("import flinkish.errors as e; raise e.UserCodeError('wrong', user_traceback='')", 1),
        ("import flinkish.errors as e; raise e.OperationError('the disk is full')", 75),
        ("raise KeyboardInterrupt", 130),
        ("this is no Python", 1),
        ("import sys; sys.exit()", 0),
    ],
)
def test_a_supervisor_sees_by_the_exit_code_what_a_failure_asks_for(
    checkout: Checkout, program: str, code: int
) -> None:
    result = checkout.submit(checkout.job(f"print('here')\n\n{program}\n"))
    assert result.returncode == code
    assert "driver.py" not in result.stderr
    assert ('job.py", line 3' in result.stderr) == (code != 0)


def test_a_job_is_what_python_would_run(checkout: Checkout) -> None:
    (checkout.path / "beside.py").write_text("NAME = 'beside'\n")
    job = checkout.job(
        "from __future__ import annotations\n"
        "import beside, pickle, sys, __main__\n"
        "class Click: pass\n"
        "assert __main__.Click is Click and __name__ == '__main__'\n"
        "assert type(pickle.loads(pickle.dumps(Click()))) is Click\n"
        "print(sys.argv[1:], sys.argv[0] == __file__, sys.path[0] in __file__)\n"
        "import atexit; atexit.register(lambda: print(__main__.Click.__name__))\n"
    )
    result = checkout.submit(job, "--x", "1")
    assert result.stdout.splitlines() == ["['--x', '1'] True True", "Click"], result.stderr


def test_options_before_the_dashes_are_the_jobs_and_those_after_are_sparks(checkout: Checkout) -> None:
    seen = checkout.report("--users", "a b", "-x", "--", "--master", "local[3]", "--conf", "spark.a=b c", "--verbose")
    assert seen["argv"] == ["--users", "a b", "-x"]
    options = shlex.split(seen["PYSPARK_SUBMIT_ARGS"])
    assert follows(options, "--master") == "local[3]"
    assert "spark.a=b c" in options
    assert options[-1] == "pyspark-shell"


def test_the_settings_of_the_deployment_are_between_the_defaults_and_the_users(checkout: Checkout) -> None:
    own = checkout.path / "conf/spark-defaults.conf"
    settings = ("spark.master=local[*]", "spark.ui.enabled=false", "spark.ui.enabled=true")
    options = shlex.split(checkout.report()["PYSPARK_SUBMIT_ARGS"])
    assert "--properties-file" not in options, "there is nothing in it"
    assert [setting in options for setting in settings] == [True, True, False]
    own.write_text("spark.master spark://host:7077\n")
    options = shlex.split(checkout.report("--", "--conf", "spark.ui.enabled=true")["PYSPARK_SUBMIT_ARGS"])
    assert follows(options, "--properties-file") == str(own)
    # an option would win over the file
    assert [setting in options for setting in settings] == [False, True, True]
    assert options.index(settings[1]) < options.index(settings[2])
    options = shlex.split(checkout.report("--", "--properties-file", str(own))["PYSPARK_SUBMIT_ARGS"])
    assert options.count("--properties-file") == 1 and settings[0] not in options


def test_the_job_gets_the_configuration_and_the_python_of_the_checkout(checkout: Checkout) -> None:
    seen = checkout.report()
    assert seen["FLINKISH_CONF"] == str(checkout.path / "conf/flinkish.yaml")
    assert seen["LOG4J_CONFIGURATION_FILE"] == str(checkout.path / "flinkish/launch/log4j2.properties")
    (checkout.path / "conf/log4j2.properties").touch()
    assert checkout.report()["LOG4J_CONFIGURATION_FILE"] == str(checkout.path / "conf/log4j2.properties")
    assert seen["PYSPARK_PYTHON"] == sys.executable


def test_the_workers_of_a_cluster_run_the_drivers_python_unless_another_one_is_named(checkout: Checkout) -> None:
    assert checkout.report("--", "--master", "spark://host:7077")["PYSPARK_PYTHON"] == sys.executable
    assert checkout.report("--", "--conf=spark.master=yarn", PYSPARK_PYTHON="python3")["PYSPARK_PYTHON"] == "python3"


def test_a_spark_connect_server_is_handed_over_in_the_environment(checkout: Checkout) -> None:
    seen = checkout.report("--", "--remote", "sc://host")
    assert seen["SPARK_REMOTE"] == "sc://host"
    assert "--remote" not in shlex.split(seen["PYSPARK_SUBMIT_ARGS"])


def test_flinkish_is_shipped_as_an_archive_next_to_the_users_own_files(checkout: Checkout) -> None:
    archives = [
        follows(shlex.split(checkout.report(*extra)["PYSPARK_SUBMIT_ARGS"]), "--py-files")
        for extra in ((), ("--", "--py-files", "mine.zip"))
    ]
    assert archives[1] == archives[0] + ",mine.zip"
    with zipfile.ZipFile(archives[0]) as zipped:
        assert {"flinkish/__init__.py", "flinkish/launch/options.py"} <= set(zipped.namelist())


def test_spark_gets_the_options_when_the_job_asks_for_a_session(checkout: Checkout) -> None:
    checkout.stub_spark_home()
    job = checkout.job("from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate()\n")
    assert checkout.submit(job, "--", "--master", "local[1]").returncode == 1
    options = checkout.log.read_text().splitlines()
    assert follows(options, "--master") == "local[1]"
    assert options[-1] == "pyspark-shell"


def test_cluster_mode_hands_the_job_itself_to_spark_submit(checkout: Checkout) -> None:
    checkout.stub_spark_home()
    job = checkout.job("")
    spark = ("--deploy-mode", "cluster", "--queue", "jobs")
    assert checkout.submit(job, "--x", "y", "--", *spark).returncode == 9
    options = checkout.log.read_text().splitlines()
    assert options[-3:] == [job, "--x", "y"]
    assert follows(options, "--queue") == "jobs"


def test_a_spark_home_of_another_version_is_refused(checkout: Checkout) -> None:
    jars = checkout.stub_spark_home() / "jars"
    next(jars.iterdir()).rename(jars / "spark-core_2.13-3.5.1.jar")
    result = checkout.submit(checkout.job(""))
    assert result.returncode == 2
    assert "holds spark-core_2.13-3.5.1, but the Python package is pyspark" in result.stderr


def test_a_job_that_is_not_there_is_named(checkout: Checkout) -> None:
    result = checkout.submit("jobs/nothing.py")
    assert result.returncode == 2
    assert "there is no job file 'jobs/nothing.py'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_configuration_that_is_not_there_is_named(checkout: Checkout) -> None:
    result = checkout.submit(checkout.job(""), FLINKISH_CONF="/nowhere.yaml")
    assert result.returncode == 2
    assert "FLINKISH_CONF names '/nowhere.yaml', which is not a file" in result.stderr


def test_the_directories_that_cd_searches_do_not_lead_elsewhere(checkout: Checkout) -> None:
    elsewhere = checkout.path.parent / "elsewhere"
    (elsewhere / "checkout").mkdir(parents=True)
    result = subprocess.run(
        ["bash", "checkout/spark-submit.sh", checkout.job(REPORT)],
        env={**checkout.environment, "CDPATH": f"{elsewhere}:."},
        cwd=checkout.path.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["FLINKISH_CONF"] == str(checkout.path / "conf/flinkish.yaml")


def test_no_module_of_the_current_directory_is_imported(checkout: Checkout) -> None:
    hostile = checkout.path.parent / "hostile"
    hostile.mkdir()
    for name in ("flinkish", "importlib", "os", "pip", "re", "runpy", "typing", "venv"):
        (hostile / f"{name}.py").write_text("open('imported', 'a').write(__name__ + ' ')\nraise ImportError\n")
    command = [str(checkout.path / "spark-submit.sh"), checkout.job(REPORT)]
    result = subprocess.run(command, env=checkout.environment, cwd=hostile, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert not (hostile / "imported").exists()


def test_without_a_job_the_usage_is_shown(checkout: Checkout) -> None:
    assert checkout.submit().returncode == 2
    help_text = checkout.submit("--help")
    assert help_text.returncode == 0
    assert "usage: ./spark-submit.sh JOB.py [job options] [-- spark-submit options]" in help_text.stdout


def test_a_python_without_pyspark_gets_a_virtual_environment_once(checkout: Checkout) -> None:
    checkout.python(STUB_PYTHON)
    job = checkout.job(REPORT)
    for _ in range(2):
        assert checkout.submit(job).returncode == 0
    assert checkout.log.read_text() == "pip\n"
    with (checkout.path / "setup.cfg").open("a") as file:
        file.write("\n# another requirement\n")
    assert checkout.submit(job).returncode == 0
    assert checkout.log.read_text() == "pip\npip\n"


def test_an_installation_that_failed_is_reported_and_taken_up_again(checkout: Checkout) -> None:
    checkout.python(STUB_PYTHON)
    failed = checkout.submit(checkout.job(REPORT), STUB_PIP_CODE="1")
    assert failed.returncode == 1
    assert "pip could not install flinkish[jdbc,kafka,spark,yaml]" in failed.stderr
    assert checkout.submit(checkout.job(REPORT)).returncode == 0


@pytest.mark.parametrize(
    ("ruff", "mypy", "tests", "expected"),
    [("0", "0", "0", 0), ("1", "0", "0", 1), ("0", "1", "0", 1), ("0", "0", "3", 3), ("1", "1", "3", 3)],
)
def test_all_checks_run_and_any_failure_is_the_commands(
    checkout: Checkout, ruff: str, mypy: str, tests: str, expected: int
) -> None:
    checkout.python(STUB_PYTHON)
    result = checkout.run("run-tests.sh", STUB_RUFF_CODE=ruff, STUB_MYPY_CODE=mypy, STUB_PYTEST_CODE=tests)
    assert result.returncode == expected
    steps = checkout.log.read_text().splitlines()
    beside = ["ruff check .", "ruff format --check .", "mypy --strict flinkish tests/support"]
    assert steps[0] == "pip"
    assert sorted(steps[1:]) == sorted([*(f"-m {check}" for check in beside), COLLECT, PYTEST])
    # they are told behind the tests, whose last line ends the output if there is nothing to tell
    told = result.stdout.partition("1 passed\n")[2]
    failed = [check for check, code in zip(beside, (ruff, ruff, mypy)) if code != "0"]
    assert [line for line in told.splitlines() if "FAILED" in line] == [
        f"== FAILED beside the tests: '{check}'" for check in failed
    ]
    assert bool(told) is bool(failed)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--unit", "tests/unit -x"),
        ("--slow", "-m slow -x"),
        (
            "--nightly",
            "-m (nightly or hypothesis) and not slow and not platforms -o timeout=7200 -o faulthandler_timeout=7320 -x",
        ),
        ("--platforms", "tests/platforms -m platforms -n 0 -x"),
    ],
)
def test_a_part_of_the_tests_is_chosen_by_an_option(checkout: Checkout, option: str, expected: str) -> None:
    checkout.python(STUB_PYTHON)
    checkout.run("run-tests.sh", option, "-x")
    assert f"{PYTEST} {expected}" in checkout.log.read_text().splitlines()


@pytest.mark.parametrize("spark", ["4.0", "4.1"])
def test_the_tests_of_another_spark_have_an_environment_of_their_own(checkout: Checkout, spark: str) -> None:
    checkout.python(STUB_PYTHON)
    result = checkout.run("run-tests.sh", "--spark", spark, "-x")
    assert f"flinkish[connect,spark{spark.replace('.', '')},test-tools] and what it needs into .venv-{spark} " in (
        result.stderr
    )
    assert not (checkout.path / ".venv").exists()
    folders = " ".join(f"tests/integration/{name}" for name in ("engine", "exactness", "damage", "trouble"))
    commands = ["pip", COLLECT, f"{PYTEST} {folders} -m not slow and not platforms -x"]
    assert checkout.log.read_text().splitlines() == commands


def test_a_spark_that_the_tests_do_not_know_is_refused(checkout: Checkout) -> None:
    result = checkout.run("run-tests.sh", "--spark", "3.5")
    assert result.returncode == 1
    assert "no tests for Spark '3.5'; expected --spark 4.0 or --spark 4.1" in result.stderr


def test_ci_runs_the_one_test_command_and_nothing_else() -> None:
    commands = [line for line in (CHECKOUT / ".ci/run").read_text().splitlines() if not line.startswith("#")]
    assert commands == ['cd "$(dirname "$0")/.." && exec ./run-tests.sh']
