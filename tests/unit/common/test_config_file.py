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
    with pytest.raises(EnvironmentVersionError, match="pip install pyyaml"):
        parse_yaml(NESTED)


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
    items = parse_yaml("pipeline:\n  jars: ['a;b.jar', '[c].jar']\n").get(core.JARS)
    assert items == ["a;b.jar", "[c].jar"], "an item may hold what separates items"
    assert parse_yaml("# nothing\n").to_dict() == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "occurs twice"),
        ("a:\n  b: 1\na.b: 2\n", "occurs twice"),
        ("- a\n- b\n", "where|conf|YAML"),
        ("a: [1\n", "where|conf|YAML"),
        ("just text", "where|conf|YAML"),
    ],
)
def test_a_key_that_occurs_twice_and_what_is_no_mapping_are_refused(text, said):
    with pytest.raises(ConfigurationError, match=said):
        parse_yaml(text)


def test_a_file_is_read_and_an_absent_one_is_named(tmp_path):
    file = tmp_path / "flinkish.yaml"
    file.write_text("parallelism.default: 3\n")
    assert load_yaml(file).to_dict() == {"parallelism.default": "3"}
    with pytest.raises(ConfigurationError, match="nowhere.yaml"):
        load_yaml(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0c", "\x1c"], ids=ascii)
def test_a_value_is_no_other_line(end):
    text = f"pipeline.name: a{end}flinkish.rest.token: none\nparallelism.default: 2\n"
    assert parse_yaml(text).to_dict() == {
        "pipeline.name": f"a{end}flinkish.rest.token: none",
        "parallelism.default": "2",
    }
