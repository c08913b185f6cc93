"""What holds without a checkout, and what a deployment says above it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import flinkish
from flinkish.common.config_file import load_yaml, parse_yaml
from flinkish.common.options import lookup
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.errors import ConfigurationError
from flinkish.launch.home import Home, default_spark_settings, s3_settings_of, s3_settings_without_spark
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
    assert len(named) == 10
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


def test_commands_without_spark_find_the_settings_of_s3_that_spark_has(tmp_path: Path) -> None:
    for folder in ("hadoop", "spark/conf", "home/conf"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "hadoop/core-site.xml").write_text(
        "<configuration><property><name>fs.s3a.endpoint</name><value>http://old</value></property>"
        "<property><name>fs.s3a.endpoint.region</name><value>sdk</value></property></configuration>"
    )
    (tmp_path / "spark/conf/spark-defaults.conf").write_text(
        "spark.hadoop.fs.s3a.endpoint http://new\nspark.hadoop.fs.s3a.bucket.a.b.access.key=k\nspark.master yarn\n"
    )
    (tmp_path / "home/conf/spark-defaults.conf").write_text("spark.hadoop.fs.s3a.path.style.access true\n")
    environment = {
        "HADOOP_CONF_DIR": str(tmp_path / "hadoop"),
        "SPARK_HOME": str(tmp_path / "spark"),
        "FLINKISH_HOME": str(tmp_path / "home"),
    }
    expected = {"": {"endpoint": "http://new", "path.style.access": "true"}, "a.b": {"access.key": "k"}}
    assert s3_settings_without_spark(environment) == expected
    assert s3_settings_without_spark({}) == {}


def test_a_bucket_may_differ_in_how_its_endpoint_is_spoken_to() -> None:
    properties = {"fs.s3a.endpoint": "http://minio", "fs.s3a.bucket.a.path.style.access": "true"}
    assert s3_settings_of(properties) == {"": {"endpoint": "http://minio"}, "a": {"path.style.access": "true"}}


def test_a_broken_configuration_of_hadoop_is_named(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(ConfigurationError, match="core-site.xml cannot be read"):
        s3_settings_without_spark({"HADOOP_CONF_DIR": str(tmp_path)})


def test_data_files_of_a_package_in_an_archive_are_copied_out_of_it(tmp_path: Path) -> None:
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("zipped/__init__.py", "zipped/pools.xml"):
            file.writestr(name, "")
    code = (
        "import os; from flinkish.launch.home import data_file; print(os.path.isfile(data_file('zipped', 'pools.xml')))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(archive), *sys.path])}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.split() == ["True"]
