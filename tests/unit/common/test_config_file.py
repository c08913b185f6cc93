"""conf/flinkish.yaml means the same with and without pyyaml."""

from __future__ import annotations

import builtins

import pytest

from flinkish.common.config_file import load_yaml, parse_yaml
from flinkish.common.options import core
from flinkish.errors import ConfigurationError, EnvironmentVersionError

FLAT = """\
# the cluster
parallelism.default: 2   # cores
pipeline.name: "clicks # and more"

spark.app.id: on
jdbc: 'it''s'
url: http://host:80/#top
"""
NESTED = """\
parallelism:
  default: 2
execution:
  checkpointing: {interval: 10 s, mode: EXACTLY_ONCE}
pipeline:
  jars: [a.jar, b.jar]
  global-job-parameters: {user: ann}
"""


@pytest.fixture
def without_yaml(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "yaml":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)


def test_flat_keys_are_read_without_pyyaml(without_yaml):
    assert parse_yaml(FLAT).to_dict() == {
        "parallelism.default": "2",
        "pipeline.name": "clicks # and more",
        "spark.app.id": "on",
        "jdbc": "it's",
        "url": "http://host:80/#top",
    }


def test_a_yaml_parser_reads_the_flat_file_alike():
    yaml = pytest.importorskip("yaml")
    assert yaml.load(FLAT, Loader=yaml.BaseLoader) == parse_yaml(FLAT).to_dict()


def test_nested_keys_lists_and_maps_are_read():
    configuration = parse_yaml(NESTED)
    assert configuration.to_dict() == {
        "parallelism.default": "2",
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "pipeline.jars": "a.jar;b.jar",
        "pipeline.global-job-parameters": "user:ann",
    }
    configuration.validate()


def test_an_item_of_a_list_may_hold_what_separates_items():
    configuration = parse_yaml("pipeline:\n  jars: ['a;b.jar', '[c].jar']\n")
    assert configuration.get(core.JARS) == ["a;b.jar", "[c].jar"]


def test_nested_keys_without_pyyaml_name_the_package(without_yaml):
    with pytest.raises(EnvironmentVersionError, match="pip install pyyaml"):
        parse_yaml(NESTED)


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "a:\n  b: 1\na.b: 2\n"])
def test_a_key_that_occurs_twice_is_refused(text):
    with pytest.raises(ConfigurationError, match="occurs twice"):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1\n", "just text"])
def test_what_is_no_mapping_is_refused(text):
    with pytest.raises(ConfigurationError, match="where|conf|YAML"):
        parse_yaml(text)


def test_a_file_is_read_and_an_absent_one_is_named(tmp_path):
    file = tmp_path / "flinkish.yaml"
    file.write_text("parallelism.default: 3\n")
    assert load_yaml(file).to_dict() == {"parallelism.default": "3"}
    with pytest.raises(ConfigurationError, match="nowhere.yaml"):
        load_yaml(tmp_path / "nowhere.yaml")


def test_an_empty_file_is_an_empty_configuration():
    assert parse_yaml("# nothing\n").to_dict() == {}
