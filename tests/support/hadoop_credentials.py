"""Stores of Hadoop's credential providers, as the command ``hadoop credential create`` makes them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.ivy import java_executable, pyspark_jars_folder


def credential_store(path: Path, secrets: Mapping[str, str]) -> str:
    """Makes a store with these secrets in a file; returns its URI, for ``hadoop.security.credential.provider.path``."""
    uri = f"localjceks://file{path}"
    for name, value in secrets.items():
        shell = ["org.apache.hadoop.security.alias.CredentialShell", "create", name, "-value", value, "-provider", uri]
        command = [java_executable(), "-cp", f"{pyspark_jars_folder()}/*", *shell]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return uri
