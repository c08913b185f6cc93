"""What holds without a checkout, and what a deployment says above it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import flinkish
from flinkish.common.config_file import load_yaml, parse_yaml
from flinkish.common.options import lookup
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.launch.home import Home, default_spark_settings
from flinkish.launch.options import read_properties

CONF = Path(__file__).resolve().parents[3] / "conf"
PACKAGE = Path(flinkish.__file__).parent


def test_without_a_home_the_defaults_of_the_package_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home({})
    assert (home.configuration_file, home.own_spark_settings) == (None, None)
    assert home.logging_file == str(PACKAGE / "launch" / "log4j2.properties")
    assert home.spark_log == tmp_path / ".cache" / "flinkish" / "spark.log"
    assert default_spark_settings()["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"


def test_a_home_says_what_it_has_files_for(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    home = Home({"FLINKISH_HOME": str(tmp_path)})
    assert (home.configuration_file, home.own_spark_settings) == (None, None)
    assert home.cache == tmp_path / ".cache"
    for name in ("flinkish.yaml", "spark-defaults.conf", "log4j2.properties"):
        (tmp_path / "conf" / name).touch()
    found = (home.configuration_file, str(home.own_spark_settings), home.logging_file)
    assert found == tuple(
        str(tmp_path / "conf" / name) for name in ("flinkish.yaml", "spark-defaults.conf", "log4j2.properties")
    )
    named = Home({"FLINKISH_HOME": str(tmp_path), "FLINKISH_CONF": "/other.yaml"})
    assert named.configuration_file == "/other.yaml"


def test_plain_python_reads_the_configuration_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "flinkish.yaml").write_text("parallelism.default: 7\n")
    monkeypatch.delenv("FLINKISH_CONF", raising=False)
    monkeypatch.setenv("FLINKISH_HOME", str(tmp_path))
    assert StreamExecutionEnvironment.get_execution_environment().get_parallelism() == 7


def test_the_checkouts_files_repeat_no_default() -> None:
    assert not read_properties((CONF / "spark-defaults.conf").read_text()).keys() & default_spark_settings().keys()
    for key, text in load_yaml(CONF / "flinkish.yaml").to_dict().items():
        option = lookup(key)
        assert option is not None and option.default is None, f"{key}: {text}"


def test_the_defaults_that_the_checkouts_file_names_are_those_of_the_options() -> None:
    text = (CONF / "flinkish.yaml").read_text()
    named = re.findall(r"^# (\S+\.\S+):(.*)$", text, re.MULTILINE)
    assert len(named) == 9
    for key, value in named:
        option = lookup(key)
        assert option is not None
        if value.strip():
            assert parse_yaml(f"{key}:{value}").get(option) == option.default, key
        else:
            assert option.default is None, key


def test_a_relative_home_is_the_same_for_commands_that_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "flinkish.yaml").touch()
    monkeypatch.chdir(tmp_path)
    home = Home({"FLINKISH_HOME": "."})
    assert home.cache == tmp_path / ".cache"
    assert home.configuration_file == str(tmp_path / "conf" / "flinkish.yaml")
