"""Configuration: typed reading, former names, and the refusal of what no one would read."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from flinkish.common import ConfigOptions, Configuration, Duration, no_effect
from flinkish.common.options import checkpointing, core, execution, flinkish, groups, known_keys, lookup, restart
from flinkish.errors import ConfigurationError


def test_values_set_by_one_type_are_read_by_pyflinks_getters():
    configuration = (
        Configuration()
        .set_string("a", "x")
        .set_integer("b", 2**40)
        .set_boolean("c", True)
        .set_float("d", 0.1)
        .set_bytearray("e", bytearray(b"\x00\xff"))
    )
    assert configuration.get_string("a", "") == "x"
    assert configuration.get_integer("b", 0) == 2**40
    assert configuration.get_boolean("c", False) is True
    assert configuration.get_float("d", 0) == 0.1
    assert configuration.get_bytearray("e", bytearray()) == b"\x00\xff"
    assert configuration.get_integer("absent", 7) == 7
    assert configuration.key_set() == {"a", "b", "c", "d", "e"}
    assert configuration.to_dict()["c"] == "true"


OWN = ConfigOptions.key("k").int_type().default_value(3)
UNREADABLE = "the value of the configuration key 'flinkish.spark.partitions' cannot be read"

FROM_1 = "a number from 1 on"

REFUSED = {
    "a value of another type": (
        lambda: Configuration().set_string("b", "abc").get_integer("b", 0),
        "the value of the configuration key 'b'.*whole number",
    ),
    "a setter of another type": (lambda: Configuration().set_string("b", 1), "set_integer"),
    "an option of ones own": (lambda: OWN.parse(str(2**31)), "32 bits"),
    "no member of an enum": ({"execution.runtime-mode": "batched"}, "expected one of STREAMING, BATCH, AUTOMATIC"),
    "all faulty keys at once": (
        {"state.no.such": "1", "parallelism.default": "two"},
        "'parallelism.default'.*'state.no.such'.*2 faulty keys",
    ),
    "a known key under a prefix that passes through": ({"rest.port": "http"}, "rest.port"),
    **{
        f"{value} Spark partitions": (
            {"flinkish.spark.partitions": value},
            f"{UNREADABLE}.*{said}.*Most Spark tasks",
        )
        for value, said in {"0": FROM_1, "-1": FROM_1, "2.5": "a whole number", "many": "a whole number"}.items()
    },
    # also where Flink has many that nothing reads
    **{
        f"misspelt: {wrong}": ({wrong: "1"}, f"unknown configuration key '{wrong}'.*did you mean '{right}'")
        for wrong, right in {
            "execution.runtime-mod": "execution.runtime-mode",
            "execution.checkpointing.intervall": "execution.checkpointing.interval",
            "taskmanager.memory.manged.size": "taskmanager.memory.managed.size",
            "state.backend.typ": "state.backend.type",
            "restart-strategy.fixed-delay.attempt": "restart-strategy.fixed-delay.attempts",
            "pipeline.max-paralelism": "pipeline.max-parallelism",
            "pipline.name": "pipeline.name",
            "stat.backend.type": "state.backend.type",
            "exection.target": "execution.target",
            "state_backend_type": "state.backend.type",
            "python.archvies": "python.archives",
        }.items()
    },
}


@pytest.mark.parametrize(("refused", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused_with_the_key_and_what_is_expected(refused, words):
    call = refused if callable(refused) else Configuration.from_dict(refused).validate
    with pytest.raises(ConfigurationError, match=f"(?s){words}"):
        call()


def test_options_are_read_with_their_type_and_default():
    configuration = Configuration.from_dict({"flinkish.heartbeat.interval": "2 s", "parallelism.default": 3})
    assert configuration.get(flinkish.HEARTBEAT_INTERVAL) == Duration.of_seconds(2)
    assert configuration.get(core.PARALLELISM) == 3
    assert configuration.get(core.MAX_PARALLELISM) is None
    assert configuration.get(flinkish.STATE_INLINE_SIZE) == 256 * 2**10
    assert Configuration().get(restart.EXPONENTIAL_DELAY_RESET_BACKOFF_THRESHOLD) == Duration.of_hours(1)
    Configuration().get(core.GLOBAL_JOB_PARAMETERS)["a"] = "b"
    assert Configuration().get(core.GLOBAL_JOB_PARAMETERS) == {}, "defaults are not shared"


def test_a_value_set_by_option_reads_back():
    configuration = Configuration()
    values = [
        (core.GLOBAL_JOB_PARAMETERS, {"url": "http://x", "empty": ""}),
        (core.JARS, ["a.jar", "b.jar"]),
        (core.JARS, ["a;b.jar", "it's.jar"]),
        (checkpointing.INTERVAL, Duration.of_millis(1_500)),
        (core.OBJECT_REUSE, True),
        (restart.EXPONENTIAL_DELAY_JITTER_FACTOR, 0.25),
    ]
    for option, value in values:
        assert configuration.set(option, value).get(option) == value


def test_former_names_are_read_and_the_present_one_wins():
    configuration = Configuration.from_dict({"state.checkpoints.dir": "/old", "execution.buffer-timeout": "5"})
    assert configuration.get(checkpointing.DIRECTORY) == "/old"
    assert configuration.get(execution.BUFFER_TIMEOUT).to_millis() == 5
    configuration.set_string("execution.checkpointing.dir", "/new")
    assert configuration.get(checkpointing.DIRECTORY) == "/new"
    configuration.validate()
    configuration.set(checkpointing.DIRECTORY, "/third")
    assert not configuration.contains_key("state.checkpoints.dir")
    renamed = {
        "execution.savepoint.path": "execution.state-recovery.path",
        "state.backend": "state.backend.type",
        "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
        "restart-strategy": "restart-strategy.type",
    }
    assert [lookup(former) for former in renamed] == [lookup(present) for present in renamed.values()]


def test_enums_are_read_in_any_case_and_with_either_dash():
    assert Configuration.from_dict({"execution.runtime-mode": "batch"}).get(execution.RUNTIME_MODE) == "BATCH"
    mode = Configuration.from_dict({"execution.checkpointing.mode": "exactly-once"}).get(checkpointing.MODE)
    assert mode == "EXACTLY_ONCE"


@pytest.mark.parametrize("key", ["my.company.key", "kafka.brokers", "debug"])
def test_a_key_in_a_namespace_of_the_programs_own_is_warned_of_once(key, caplog):
    no_effect.forget_reports()
    configuration = Configuration.from_dict({key: "1"})
    configuration.validate()
    configuration.validate()
    assert [record.getMessage() for record in caplog.records] == [
        f"the configuration key '{key}' has no effect: neither flinkish nor Flink nor Spark has it; the program itself "
        "can read it"
    ]
    assert not configuration.without_effect()


FLINKS_KEYS = Path(__file__).with_name("flink_2_1_keys.txt").read_text().split()


def test_each_key_of_flink_has_an_effect_or_a_reason_why_it_has_none():
    assert len(FLINKS_KEYS) > 900
    others = Configuration.from_dict({key: "1" for key in FLINKS_KEYS if lookup(key) is None})
    others.validate()
    assert others.without_effect().keys() == others.key_set()


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("state.backend.rocksdb.localdir", "keyed state lies in the memory of the Python workers and in files"),
        ("state.backend.rocksdb.memory.managed", "see taskmanager.memory.managed.size"),
        ("kubernetes.cluster-id", "Spark takes the place of Flink's cluster"),
        ("metrics.reporter.prom.factory.class", "metrics are in the description of the job"),
        ("s3.access-key", "spark.hadoop.fs"),
        ("env.java.opts.all", "spark.executor.extraJavaOptions"),
        ("table.optimizer.agg-phase-strategy", "queries have no such setting here"),
        ("rest.flamegraph.cleanup-interval", "Spark takes the place of Flink's cluster"),
    ],
)
def test_the_reason_says_what_takes_the_place_of_a_key(key, why):
    configuration = Configuration.from_dict({key: "1"})
    configuration.validate()
    assert why in configuration.without_effect()[key]


def test_keys_of_others_pass_through():
    keys = ["spark.sql.shuffle.partitions", "s3.endpoint", "taskmanager.memory.segment-size"]
    Configuration.from_dict(dict.fromkeys(keys, "x")).validate()


def test_copies_are_independent_and_those_with_the_same_texts_are_equal_however_they_were_set():
    first = Configuration().set_string("a", "1")
    second = copy.deepcopy(first).set_string("a", "2")
    assert first != second
    for same in (Configuration(first), Configuration().set_integer("a", 1)):
        assert first == same and hash(first) == hash(same)
    assert Configuration().add_all(first, "p.").to_dict() == {"p.a": "1"}
    assert first.remove_config("a") and not first.remove_config("a")


def test_each_registered_option_has_a_meaning_and_a_default_that_reads_back():
    assert len(known_keys()) > 90
    for options in groups().values():
        for option in options:
            assert option.description, option.key
            if option.default is not None:
                assert option.parse(option.format(option.default)) == option.default, option.key


def test_options_of_ones_own_are_built_as_in_pyflink():
    assert OWN.parse("5") == 5
    assert ConfigOptions.key("k").string_type().no_default_value().default is None


def test_a_configuration_is_shown_and_given_as_a_dictionary_as_pyflink_does_without_secrets():
    configuration = Configuration().set_string("k1", "v1").set_integer("k2", 1).set_float("k3", 1.2)
    configuration.set_boolean("k4", True)
    assert str(configuration) == "{k1=v1, k2=1, k3=1.2, k4=true}"
    assert configuration.to_dict() == {"k1": "v1", "k2": "1", "k3": "1.2", "k4": "true"}
    target: dict[str, object] = {}
    configuration.set_bytearray("k5", bytearray([1, 2, 3])).add_all_to_dict(target)
    assert target == {"k1": "v1", "k2": 1, "k3": 1.2, "k4": True, "k5": bytearray([1, 2, 3])}
    assert [type(value) for value in target.values()] == [str, int, float, bool, bytearray]
    secret = Configuration().set_string("my.Password", "pssst").set_string("user", "me")
    assert str(secret) == "{my.Password=******, user=me}"
    assert "pssst" not in repr(secret) and secret.to_dict()["my.Password"] == "pssst"


def test_settings_that_change_nothing_are_found_but_for_those_that_hold_anyway():
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.mode": "exactly-once",
            "execution.buffer-timeout": "5 ms",
            "taskmanager.memory.segment-size": "1 gb",
            "parallelism.default": 2,
        }
    )
    assert configuration.without_effect() == {
        "execution.buffer-timeout": "the end of an epoch flushes all buffers",
        "taskmanager.memory.segment-size": "Spark takes the place of Flink's cluster",
    }
    configuration.set_string("execution.checkpointing.mode", "AT_LEAST_ONCE")
    assert "exactly-once" in configuration.without_effect()["execution.checkpointing.mode"]
