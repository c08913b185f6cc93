"""docs/operations.md is true: its blocks, run one after the other in a checkout, do what the page says.

`sh tried` goes to one shell that stops at the first command that fails, where `echo $?   # N` demands the exit code N
of the line before; `sql tried` and `python tried` run in the tests' session, and every SELECT must show a row. `/data`
stands for a temporary directory.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.documented import DOCS, Block, blocks
from tests.support.processes import REPOSITORY

PAGE = DOCS / "operations.md"
BLOCK_TIMEOUT_S = 900
_EXIT_CODE = re.compile(r"^(?P<command>(?:.*\\\n)*.*)\necho \$\?   # (?P<code>\d+)$", re.MULTILINE)


def with_checks(script: str) -> str:
    """The same shell commands; they stop where an exit code is not the one that the page says."""
    check = r"code=0; \g<command> || code=$?\n[ $code = \g<code> ] || { echo exit code $code, not \g<code>; exit 1; }"
    return _EXIT_CODE.sub(check, script)


class Shell:
    """One bash for all blocks: what one exports or starts is there in the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "shell.log"
        command = folder / "bin" / "flinkish"
        command.parent.mkdir()
        program = "import sys; from flinkish.cli import main; sys.exit(main())"
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{program}" "$@"\n')
        command.chmod(0o755)
        environment = {**os.environ, "FLINKISH_PYTHON": sys.executable, "FLINKISH_HOME": str(REPOSITORY)}
        for name in ("SPARK_HOME", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "FLINKISH_CONF"):
            environment.pop(name, None)
        environment["PATH"] = f"{command.parent}{os.pathsep}{environment['PATH']}"
        self._bash = subprocess.Popen(
            ["bash", "-eu", "-o", "pipefail", "-s"],
            stdin=subprocess.PIPE,
            stdout=self._log.open("w"),
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=REPOSITORY,
            text=True,
            start_new_session=True,
        )

    def run(self, block: Block, script: str) -> None:
        """Until the block is done."""
        done = self._folder / f"done-{block.line}"
        commands = self._folder / f"block-{block.line}.sh"
        commands.write_text(f"{with_checks(script)}\ntouch {shlex.quote(str(done))}\n")
        assert self._bash.stdin is not None
        # not as text: drivers must not read the shell's own input
        self._bash.stdin.write(f". {shlex.quote(str(commands))} </dev/null\n")
        self._bash.stdin.flush()
        deadline = time.monotonic() + BLOCK_TIMEOUT_S
        while not done.exists():
            if self._bash.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(errors="replace")[-6_000:]
                pytest.fail(f"{PAGE.name}, block at line {block.line}: exit code {self._bash.poll()}\n{said}")
            time.sleep(0.2)

    def close(self) -> None:
        """Ends all that the blocks have left running."""
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()


def run_sql(spark: SparkSession, block: Block, script: str) -> None:
    for statement in filter(None, map(str.strip, script.split(";"))):
        rows = spark.sql(statement).collect()
        assert rows or not statement.startswith("SELECT"), f"{PAGE.name}, line {block.line}: no rows: {statement}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_the_page_on_operations_says_is_true(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    names: dict[str, Any] = {"spark": spark}
    shell = Shell(tmp_path)
    try:
        for block in blocks(PAGE):
            text = block.text.replace("/data/", f"{data}/")
            if block.file is not None:
                Path(block.file.replace("/data/", f"{data}/")).write_text(text)
            elif block.language == "sh":
                shell.run(block, text)
            elif block.language == "sql":
                run_sql(spark, block, text)
            else:
                exec(compile(text, f"{PAGE.name}:{block.line}", "exec"), names)
    finally:
        shell.close()
