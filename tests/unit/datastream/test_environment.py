"""The environment: configuration, sources, and what execute does to the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flinkish.common import (
    Configuration,
    Duration,
    ExecutionConfig,
    RestartStrategies,
    RestartStrategyConfiguration,
    Row,
    Types,
    WatermarkStrategy,
)
from flinkish.common.dependencies import dependencies_of
from flinkish.connectors.generated import NumberSequenceSource
from flinkish.datastream import (
    CheckpointingMode,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from flinkish.errors import ConfigurationError, ProgramError, TypeMismatchError
from tests.support.functions import AtTimestamp, TimeOf
from tests.support.programs import chains_of, configuration_of, job_of, new_environment, results_of

# --- configuration ------------------------------------------------------------------------------------------------


def test_an_unknown_key_is_refused_with_the_most_similar_one() -> None:
    configuration = Configuration().set_string("paralelism.default", "2")
    with pytest.raises(ConfigurationError, match=r"unknown .* key 'paralelism.default'.*'parallelism.default'"):
        StreamExecutionEnvironment.get_execution_environment(configuration)
    with pytest.raises(ConfigurationError, match="did you mean"):
        new_environment().configure(configuration)


def test_the_program_goes_before_the_file_that_the_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "flinkish.yaml"
    file.write_text("parallelism.default: 3\npipeline.max-parallelism: 12\n")
    monkeypatch.setenv("FLINKISH_CONF", str(file))
    env = StreamExecutionEnvironment.get_execution_environment(Configuration().set_string("parallelism.default", "2"))
    assert (env.get_parallelism(), env.get_max_parallelism()) == (2, 12)


def test_a_wrong_key_in_the_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "flinkish.yaml"
    file.write_text("parallelism.default: many\n")
    monkeypatch.setenv("FLINKISH_CONF", str(file))
    with pytest.raises(ConfigurationError, match="value of the configuration key 'parallelism.default'"):
        StreamExecutionEnvironment.get_execution_environment()


def test_the_given_configuration_is_copied() -> None:
    configuration = Configuration()
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(7)
    assert configuration == Configuration()


def test_setters_give_the_environment_back_and_write_its_configuration() -> None:
    env = new_environment()
    same = (
        env.set_parallelism(2)
        .set_max_parallelism(8)
        .set_runtime_mode(RuntimeExecutionMode.BATCH)
        .set_buffer_timeout(-1)
        .enable_checkpointing(5000, CheckpointingMode.AT_LEAST_ONCE)
        .set_default_savepoint_directory("/savepoints")
        .disable_operator_chaining()
    )
    assert same is env
    assert (env.get_parallelism(), env.get_max_parallelism(), env.get_buffer_timeout()) == (2, 8, -1)
    assert (env.get_checkpoint_interval(), env.get_checkpointing_mode()) == (5000, CheckpointingMode.AT_LEAST_ONCE)
    assert env.get_default_savepoint_directory() == "/savepoints"
    assert not env.is_chaining_enabled()
    assert env.get_config().get_parallelism() == 2
    assert configuration_of(env).to_dict()["execution.runtime-mode"] == "BATCH"


@pytest.mark.parametrize("way", ["environment", "config", "configuration"])
def test_the_parallelism_minus_one_is_the_default_as_in_pyflink(way: str) -> None:
    env = new_environment()
    default = env.get_default_local_parallelism()
    env.set_parallelism(default + 1)
    if way == "environment":
        assert env.set_parallelism(ExecutionConfig.PARALLELISM_DEFAULT) is env
    elif way == "config":
        env.get_config().set_parallelism(-1)
    else:
        env.configure(Configuration().set_integer("parallelism.default", -1))
    assert env.get_parallelism() == default
    assert env.from_collection([1]).map(lambda n: n).set_parallelism(-1).get_name() == "Map"


@pytest.mark.parametrize("call", ["set_parallelism", "set_max_parallelism"])
@pytest.mark.parametrize("number", [0, -3, "2"])
def test_numbers_that_cannot_be_are_refused(call: str, number: Any) -> None:
    with pytest.raises(ProgramError, match="expected a"):
        getattr(new_environment(), call)(number)


def test_checkpoint_settings_are_keys() -> None:
    env = new_environment()
    config = env.get_checkpoint_config()
    assert (config.is_checkpointing_enabled(), config.get_checkpoint_interval()) == (False, -1)
    config.set_checkpoint_interval(1000).set_checkpoint_timeout(2000).set_min_pause_between_checkpoints(3)
    config.set_max_concurrent_checkpoints(2).set_tolerable_checkpoint_failure_number(4)
    config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
    config.enable_unaligned_checkpoints().set_aligned_checkpoint_timeout(Duration.of_seconds(1))
    again = env.get_checkpoint_config()
    assert again.is_checkpointing_enabled() and again.is_unaligned_checkpoints_enabled()
    assert (again.get_checkpoint_timeout(), again.get_min_pause_between_checkpoints()) == (2000, 3)
    assert (again.get_max_concurrent_checkpoints(), again.get_tolerable_checkpoint_failure_number()) == (2, 4)
    assert again.is_externalized_checkpoints_enabled()
    assert again.get_aligned_checkpoint_timeout() == Duration.of_seconds(1)
    with pytest.raises(ProgramError, match="the checkpoint interval is 5 ms.*expected a whole number of at least 10"):
        config.set_checkpoint_interval(5)


def test_a_restart_strategy_is_keys() -> None:
    env = new_environment()
    assert env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 250)) is env
    settings = configuration_of(env).to_dict()
    assert settings["restart-strategy.type"] == "fixed-delay"
    assert settings["restart-strategy.fixed-delay.attempts"] == "3"
    with pytest.raises(TypeError, match="expected one of RestartStrategies"):
        env.set_restart_strategy("none")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "strategy",
    [
        RestartStrategies.no_restart(),
        RestartStrategies.fixed_delay_restart(3, 250),
        RestartStrategies.failure_rate_restart(2, 60_000, 500),
        RestartStrategies.fall_back_restart(),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_a_restart_strategy_is_given_back(strategy: RestartStrategyConfiguration) -> None:
    env = new_environment()
    assert env.get_config().set_restart_strategy(strategy) == env.get_config()
    assert env.get_restart_strategy() == env.get_config().get_restart_strategy() == strategy


def test_the_former_names_of_the_retention_set_it() -> None:
    config = new_environment().get_checkpoint_config()
    assert ExternalizedCheckpointCleanup is ExternalizedCheckpointRetention
    for former in (config.enable_externalized_checkpoints, config.set_externalized_checkpoint_cleanup):
        config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS)
        assert former(ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION) is config
        assert config.get_externalized_checkpoint_cleanup() is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    defaults = new_environment().get_checkpoint_config()
    assert config.DEFAULT_MODE is defaults.get_checkpointing_mode()
    assert defaults.get_checkpoint_timeout() == defaults.DEFAULT_TIMEOUT
    assert defaults.get_min_pause_between_checkpoints() == defaults.DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS
    assert defaults.get_max_concurrent_checkpoints() == defaults.DEFAULT_MAX_CONCURRENT_CHECKPOINTS


@pytest.mark.parametrize(
    "configured",
    [
        {},
        {"restart-strategy": "none"},
        {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "7"},
    ],
)
def test_a_strategy_that_falls_back_restores_the_configured_one(configured: dict[str, str]) -> None:
    def strategy() -> dict[str, str]:
        return {
            key: value for key, value in configuration_of(env).to_dict().items() if key.startswith("restart-strategy")
        }

    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(configured))
    env.set_restart_strategy(RestartStrategies.fall_back_restart())
    assert strategy() == configured
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 250))
    assert strategy() != configured
    assert env.set_restart_strategy(RestartStrategies.fall_back_restart()) is env
    assert strategy() == configured


def test_python_files_of_the_program_follow_those_of_the_configuration() -> None:
    env = new_environment(python__files="a.py, b.zip")
    env.add_python_file("c.py")
    env.add_python_file("a.py")
    assert dependencies_of(configuration_of(env)).python_files == ("a.py", "b.zip", "c.py")


# --- sources ------------------------------------------------------------------------------------------------------


def test_a_value_of_a_collection_that_does_not_fit_is_named_by_its_index() -> None:
    with pytest.raises(TypeMismatchError, match="from_collection, element 1") as error:
        new_environment().from_collection([1, "two", 3], Types.INT())
    assert "'two'" in str(error.value)


def test_values_of_a_typed_collection_are_converted() -> None:
    env = new_environment()
    rows = env.from_collection([("a", 9147483648)], Types.ROW([Types.STRING(), Types.INT()]))
    assert results_of(rows) == [Row(f0="a", f1=557549056)]


def test_a_collection_is_never_parallel() -> None:
    env = new_environment(parallelism=4)
    numbers = env.from_collection([1, 2])
    assert numbers.get_name() == "Collection Source"
    with pytest.raises(ProgramError, match="The parallelism of non parallel operator must be 1.*rebalance"):
        numbers.set_parallelism(2)
    assert numbers.set_parallelism(1) is numbers


def test_a_source_honours_the_strategys_python_assigner() -> None:
    env = new_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(lambda n: n * 1000))
    stream = env.from_source(NumberSequenceSource(1, 2), strategy, "numbers")
    assert results_of(stream.process(AtTimestamp())) == [(1, 1000), (2, 2000)]


def test_a_source_and_its_watermarks_are_one_operator_to_the_program() -> None:
    env = new_environment(parallelism=2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOf(lambda n: n * 1000))
    source = env.from_source(NumberSequenceSource(1, 2), strategy, "numbers")
    source.name("renamed").uid("my-source").set_parallelism(3).disable_chaining()
    source.map(lambda n: n).set_parallelism(3)
    assert chains_of(env) == ["Source: renamed -> Timestamps/Watermarks", "Map"]
    vertex = job_of(env).vertices[0]
    assert (vertex.parallelism, vertex.operators[0].uid, source.get_name()) == (3, "my-source", "renamed")


def test_a_source_without_watermarks_is_one_operator() -> None:
    env = new_environment()
    env.from_source(NumberSequenceSource(1, 2), WatermarkStrategy.no_watermarks(), "numbers").print()
    env.add_source(NumberSequenceSource(1, 2)).print()
    assert chains_of(env) == [
        "Source: numbers -> Sink: Print to Std. Out",
        "Source: Custom Source -> Sink: Print to Std. Out",
    ]


def test_the_records_of_a_source_can_be_given_another_type() -> None:
    env = new_environment()
    source = env.add_source(NumberSequenceSource(43878, 43878), type_info=Types.SHORT())
    assert (source.get_type(), results_of(source)) == (Types.SHORT(), [-21658])


def test_what_is_no_source_or_strategy_is_refused() -> None:
    env = new_environment()
    with pytest.raises(TypeError, match="expected a Source"):
        env.add_source([1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a WatermarkStrategy"):
        env.from_source(NumberSequenceSource(1, 2), None, "numbers")  # type: ignore[arg-type]


# --- execution ----------------------------------------------------------------------------------------------------


def test_execute_begins_a_new_program(capsys: pytest.CaptureFixture[str]) -> None:
    env = new_environment()
    env.from_collection([1]).print("first")
    result = env.execute("one")
    env.from_collection([2]).print("second")
    assert env.execute().get_job_id() != result.get_job_id()
    assert capsys.readouterr().out == "first> 1\nsecond> 2\n"
    with pytest.raises(ProgramError, match="No operators defined"):
        env.execute()


def test_a_stream_of_an_earlier_job_can_be_built_upon() -> None:
    env = new_environment()
    numbers = env.from_collection([1, 2]).map(lambda n: n * 10)
    assert results_of(numbers) == [10, 20]
    assert results_of(numbers.map(lambda n: n + 1)) == [11, 21]


def test_the_same_program_has_the_same_generated_uids_each_time() -> None:
    env = new_environment()
    plans = []
    for _ in range(2):
        env.from_collection([1]).map(lambda n: n).key_by(lambda n: n).sum().print()
        plans.append(env.explain())
        env.close()
    assert plans[0] == plans[1]


def test_the_parallelism_of_an_operator_is_the_environments_when_it_was_added() -> None:
    env = new_environment(parallelism=1)
    first = env.from_collection([1]).map(lambda n: n).name("first")
    env.set_parallelism(3)
    first.map(lambda n: n).name("second")
    assert [vertex.parallelism for vertex in job_of(env).vertices] == [1, 3]


def test_a_failed_job_raises_what_user_code_raised() -> None:
    env = new_environment()
    env.from_collection([0]).map(lambda n: 1 // n)
    with pytest.raises(ProgramError, match="ZeroDivisionError"):
        env.execute()


_PROGRAM = """
import sys
from flinkish.datastream import StreamExecutionEnvironment

environments = []
for ending in sys.argv[1:]:
    env = StreamExecutionEnvironment.get_execution_environment()
    environments.append(env)
    numbers = env.from_collection([1, 2, 3])
    if ending != "source":
        numbers.map(str).print()
    if ending == "explained":
        env.explain()
    if ending == "closed":
        env.close()
    if ending == "failed":
        raise ValueError("x")
    if ending == "executed":
        env.execute()
"""


_BY_LAUNCHER = ["-m", "flinkish.launch.driver"]


@pytest.mark.parametrize(
    ("command", "endings"),
    [
        ([], ["no execute", "source", "explained", "closed", "executed"]),
        ([], ["source", "explained", "closed", "executed"]),
        (_BY_LAUNCHER, ["no execute"]),
        ([], ["failed"]),
        (_BY_LAUNCHER, ["failed"]),
    ],
)
def test_a_program_that_ends_without_execute_says_so(tmp_path: Path, command: list[str], endings: list[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    variables = {**os.environ, "FLINKISH_SETTINGS": '{"execution.target": "minicluster", "flinkish.progress": "never"}'}
    done = subprocess.run(
        [sys.executable, *command, str(program), *endings], capture_output=True, text=True, timeout=120, env=variables
    )
    assert done.returncode == ("failed" in endings)
    said = [line for line in done.stderr.splitlines() if line.startswith("flinkish: ")]
    assert said == (
        [
            "flinkish: 3 operators, the last of them 'Sink: Print to Std. Out', were added to an environment and never "
            "executed; call env.execute() at the end of the program"
        ]
        if "no execute" in endings
        else []
    )


def mini_environment(**settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in {"execution.target": "minicluster", "flinkish.progress": "never", **settings}.items():
        configuration.set_string(key.replace("__", "."), value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def test_a_look_at_a_stream_changes_neither_the_program_nor_its_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    env = mini_environment(flinkish__job__dir=str(tmp_path / "job"))
    pairs = env.from_collection([("a", 1), ("b", 2), ("a", 3)], Types.TUPLE([Types.STRING(), Types.INT()]))
    sums = pairs.key_by(lambda pair: pair[0]).sum(1)
    sums.print("sum")
    numbers = pairs.map(lambda pair: pair[1])
    before = env.get_execution_plan()
    sums.show()
    pairs.key_by(lambda pair: pair[0]).show(2)
    numbers.show(1)
    said = "(a,1)\n(b,2)\n(a,4)\n" + "(a,1)\n(b,2)\nthe first 2 records; show(20) shows more\n"
    assert capsys.readouterr().out == said + "1\nthe first 1 records; show(10) shows more\n"
    assert not (tmp_path / "job").exists() and configuration_of(env).to_dict()["flinkish.job.dir"] == str(
        tmp_path / "job"
    )
    assert json.loads(env.get_execution_plan()) == json.loads(before)


def test_the_plan_of_a_job_can_still_be_seen_when_it_was_executed() -> None:
    env = mini_environment()
    stream = env.from_collection([1]).map(lambda number: number)
    stream.print()
    before, table = env.get_execution_plan(), env.explain()
    env.execute()
    assert (env.get_execution_plan(), env.explain()) == (before, table)
    stream.filter(lambda number: True).print()
    assert "Filter" in env.explain() and "Filter" not in table
    env.close()
    with pytest.raises(ProgramError, match="No operators"):
        env.get_execution_plan()


def test_a_notebook_shows_what_environments_streams_and_jobs_are() -> None:
    env = mini_environment()
    stream = env.from_collection(["<a>"], Types.STRING()).map(str, Types.STRING()).name("to <text>")
    assert repr(stream) == "<DataStream of String, from to <text>>"
    assert "to &lt;text&gt;" in stream._repr_html_() and "Source: Collection Source" in stream._repr_html_()
    assert repr(env) == "<StreamExecutionEnvironment: 2 operators to be executed; parallelism 2, STREAMING>"
    assert "<pre>Operator " in env._repr_html_() and "<svg " in env._repr_html_()
    client = env.execute_async("of a notebook")
    client.get_job_execution_result().result()
    assert repr(client) == f"<job 'of a notebook' ({client.get_job_id()}): FINISHED>"
    assert "FINISHED" in client._repr_html_() and "&lt;job" in client._repr_html_()
    assert "No operators" in mini_environment()._repr_html_()
