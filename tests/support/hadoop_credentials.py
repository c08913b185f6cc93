"""Stores of Hadoop's credential providers, as the command ``hadoop credential create`` makes them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.ivy import java_executable, pyspark_jars_folder

_COMMAND = "org.apache.hadoop.security.alias.CredentialShell"


def credential_store(path: Path, secrets: Mapping[str, str], spark: SparkSession | None = None) -> str:
    """Makes a store with these secrets in a file; returns its URI, for ``hadoop.security.credential.provider.path``.
    With ``spark`` in the JVM of that session, otherwise in one of its own for each secret."""
    uri = f"localjceks://file{path}"
    for name, value in secrets.items():
        arguments = ["create", name, "-value", value, "-provider", uri]
        if spark is not None:
            _run_in(spark, arguments)
            continue
        command = [java_executable(), "-cp", f"{pyspark_jars_folder()}/*", _COMMAND, *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return uri


def _run_in(spark: SparkSession, arguments: Sequence[str]) -> None:
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop
    given = context._gateway.new_array(context._jvm.java.lang.String, len(arguments))
    for number, argument in enumerate(arguments):
        given[number] = argument
    command = hadoop.security.alias.CredentialShell()
    assert hadoop.util.ToolRunner.run(hadoop.conf.Configuration(), command, given) == 0
