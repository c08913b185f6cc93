"""What docs/docker/ names is there: files, extras, commands and options."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from flinkish.examples.options import parse
from flinkish.launch.options import CommandLine
from tests.support.documented import DOCS

ROOT = DOCS.parent
FOLDER = DOCS / "docker"


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile: (name, text)."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in text.splitlines() if line]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of the compose file."""
    services: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    return services


def copied(instructions: list[tuple[str, str]]) -> list[str]:
    return [source for name, text in instructions if name == "COPY" for source in shlex.split(text)[:-1]]


def test_the_image_is_made_of_files_of_the_checkout(instructions: list[tuple[str, str]]) -> None:
    assert {"flinkish", "jobs", "setup.cfg"} <= set(copied(instructions))
    for path in copied(instructions):
        assert (ROOT / path).exists(), path


def test_docker_gets_what_the_image_is_made_of_and_nothing_else(instructions: list[tuple[str, str]]) -> None:
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert lines[1] == "*" and {line[1:] for line in lines if line[0] == "!"} == set(copied(instructions))


def test_the_image_has_spark_and_clients_as_extras_of_the_package(instructions: list[tuple[str, str]]) -> None:
    package = configparser.ConfigParser()
    package.read(ROOT / "setup.cfg")
    (extras,) = re.findall(r"pip install .*\.\[([\w,-]+)\]", "\n".join(text for _, text in instructions))
    required = [package["options"]["install_requires"]]
    required += [package["options.extras_require"][extra] for extra in extras.split(",")]
    names = {re.split(r"\W", line)[0] for text in required for line in text.split()}
    assert {"pyspark", "confluent", "psycopg"} <= names


def test_the_image_runs_commands_of_flinkish(instructions: list[tuple[str, str]]) -> None:
    from flinkish.cli import main

    (entry,) = (json.loads(text) for name, text in instructions if name == "ENTRYPOINT")
    runs = [text.partition("||")[0] for name, text in instructions if name == "RUN"]
    commands = [entry, *(shlex.split(text) for text in runs if text.startswith("flinkish"))]
    assert [command[1] for command in commands] == ["run", "prepare"]
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([*command[1:], "--help"])
        assert ended.value.code == 0


def test_the_services_wait_for_others_that_are_there(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for other, wait in service.get("depends_on", {}).items():
            assert other in services, name
            assert wait["condition"] != "service_healthy" or "healthcheck" in services[other], f"{name}: {other}"
        build = service.get("build")
        if build is not None:
            context = (FOLDER / build["context"]).resolve()
            assert (context, (context / build["dockerfile"]).exists()) == (ROOT, True)


def test_the_job_understands_its_command(services: dict[str, Any], instructions: list[tuple[str, str]]) -> None:
    line = CommandLine.parse(services["click-count"]["command"])
    assert (ROOT / line.job).exists() and Path(line.job).parts[0] in copied(instructions)
    options = parse("click-count", "Clicks per user.", line.job_options)
    assert not options.embedded and options.database.url == "postgresql://postgres/clicks"
    assert options.configuration.to_dict()["flinkish.job.dir"].startswith("/data/")
    assert line.spark.value("--master") == "local[2]"
    servers = {host for host in re.findall(r"//(\w+)/|(\w+):9092", " ".join(line.job_options)) for host in host if host}
    assert servers <= set(services)


def test_the_producer_is_in_the_image(services: dict[str, Any], instructions: list[tuple[str, str]]) -> None:
    program = services["producer"]["entrypoint"][1]
    assert f"docs/docker/{program}" in copied(instructions)
