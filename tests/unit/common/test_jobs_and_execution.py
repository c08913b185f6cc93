"""The faces of jobs, restart strategies and the execution config."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import CancelledError, ThreadPoolExecutor
from datetime import timedelta
from io import BytesIO

import pytest

import flinkish.common
from flinkish.common import (
    CompletableFuture,
    Configuration,
    ExecutionConfig,
    InputDependencyConstraint,
    JobClient,
    JobExecutionResult,
    JobID,
    JobStatus,
    RestartStrategies,
    TypeSerializer,
)
from flinkish.common.serializer import VoidNamespaceSerializer
from tests.support.rows import hold, refuses

PYFLINKS_NAMES = """Configuration ConfigOption ConfigOptions ExecutionConfig TypeInformation TypeSerializer Types
SerializationSchema DeserializationSchema SimpleStringSchema Encoder CompletableFuture InputDependencyConstraint
JobClient JobExecutionResult JobID JobStatus RestartStrategies RestartStrategyConfiguration Row RowKind ByteArraySchema
WatermarkStrategy Duration Instant Time AssignerWithPeriodicWatermarksWrapper""".split()


def test_the_public_names_are_pyflinks():
    assert sorted(flinkish.common.__all__) == sorted(PYFLINKS_NAMES)
    assert all(hasattr(flinkish.common, name) for name in PYFLINKS_NAMES)


def test_importing_common_and_formats_loads_no_heavy_package():
    code = (
        "import sys, flinkish.common, flinkish.common.config_file, flinkish.formats.json, flinkish.formats.csv;"
        "print([name for name in ('pyarrow', 'pandas', 'pyspark', 'numpy', 'yaml') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_future_gives_its_result_failure_or_cancellation():
    assert CompletableFuture.completed(3).result() == 3
    failed = CompletableFuture.failed(KeyError("x"))
    assert failed.done() and isinstance(failed.exception(), KeyError)
    with pytest.raises(KeyError):
        failed.result()
    pending = CompletableFuture()
    assert not pending.done() and pending.exception() is None
    assert pending.cancel() and pending.cancelled() and pending.done()
    with pytest.raises(CancelledError):
        pending.result()
    future = CompletableFuture()
    assert future.complete(1), "once"
    assert not future.complete(2) and not future.complete_exceptionally(ValueError())
    assert future.result() == 1
    with ThreadPoolExecutor(1) as pool:
        assert CompletableFuture(pool.submit(lambda: "a" * 32), JobID).result() == JobID("a" * 32)


def test_job_ids_are_values_of_32_hexadecimal_digits():
    first = JobID()
    assert JobID.from_hex_string(str(first)) == first
    assert hash(JobID(str(first).upper())) == hash(first)
    assert first != JobID()


def test_which_states_are_terminal_and_what_a_constraint_is():
    final = {status for status in JobStatus if status.is_globally_terminal_state()}
    assert final == {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}
    assert {status for status in JobStatus if status.is_terminal_state()} == final | {JobStatus.SUSPENDED}
    assert [item.value for item in InputDependencyConstraint] == [0, 1]


def test_an_execution_result_tells_id_runtime_and_accumulators():
    job_id = JobID()
    result = JobExecutionResult(job_id, 1_234, {"n": 5})
    assert (result.get_job_id(), result.get_net_runtime()) == (job_id, 1_234)
    assert result.get_accumulator_result("n") == 5 and result.get_accumulator_result("m") is None
    assert result.get_all_accumulator_results() == {"n": 5}
    assert f"Job with JobID {job_id} has finished.\nJob Runtime: 1234 ms" in str(result)
    assert repr(result) == f"<result of job {job_id}: 1,234 ms, accumulators {{'n': 5}}>"


def test_restart_strategies_say_their_configuration():
    fixed = RestartStrategies.fixed_delay_restart(3, timedelta(seconds=10))
    assert fixed == RestartStrategies.fixed_delay_restart(3, 10_000)
    assert fixed.get_restart_attempts() == 3
    assert fixed.get_delay_between_attempts_interval() == timedelta(seconds=10)
    assert fixed.to_configuration().to_dict() == {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 s",
    }
    rate = RestartStrategies.failure_rate_restart(2, 60_000, 500)
    assert rate.get_failure_interval() == timedelta(minutes=1) and rate.get_max_failure_rate() == 2
    rate.to_configuration().validate()
    assert RestartStrategies.no_restart().to_configuration().to_dict() == {"restart-strategy.type": "none"}
    assert RestartStrategies.fall_back_restart().to_configuration().to_dict() == {}
    assert "3 restart attempts" in fixed.get_description()


def test_the_execution_config_is_a_view_of_a_configuration():
    configuration = Configuration.from_dict({"parallelism.default": "2"})
    config = ExecutionConfig(configuration)
    assert config.get_parallelism() == 2
    config.set_parallelism(4).set_auto_watermark_interval(50).enable_object_reuse()
    config.set_global_job_parameters({"a": 1, "b": "x,y"})
    assert configuration.to_dict() == {
        "parallelism.default": "4",
        "pipeline.auto-watermark-interval": "50 ms",
        "pipeline.object-reuse": "true",
        "pipeline.global-job-parameters": "a:1,b:'x,y'",
    }
    assert config.get_global_job_parameters() == {"a": "1", "b": "x,y"}
    configuration.validate()


def test_the_defaults_of_the_execution_config_are_flinks():
    config = ExecutionConfig()
    assert (config.get_parallelism(), config.get_max_parallelism()) == (-1, -1)
    assert config.get_auto_watermark_interval() == 200
    assert config.get_task_cancellation_interval() == 30_000
    assert config.get_task_cancellation_timeout() == 180_000
    assert config.get_latency_tracking_interval() == 0
    assert config.is_closure_cleaner_enabled() and not config.is_object_reuse_enabled()
    assert config.has_auto_generated_uids_enabled() and not config.has_generic_types_disabled()


@pytest.mark.parametrize(
    "switch", ["closure_cleaner", "force_kryo", "generic_types", "auto_generated_uids", "force_avro", "object_reuse"]
)
def test_each_switch_goes_both_ways(switch):
    reader = {"generic_types": "has_generic_types_disabled", "auto_generated_uids": "has_auto_generated_uids_enabled"}
    config = ExecutionConfig()
    getattr(config, f"enable_{switch}")()
    enabled = getattr(config, reader.get(switch, f"is_{switch}_enabled"))()
    getattr(config, f"disable_{switch}")()
    assert getattr(config, reader.get(switch, f"is_{switch}_enabled"))() is not enabled


def test_what_makes_no_sense_is_refused():
    config = ExecutionConfig()
    rows = [
        (lambda: config.set_parallelism(0), ValueError, "expected 1"),
        (lambda: config.set_max_parallelism(40_000), ValueError, "expected 1"),
        (lambda: config.set_auto_watermark_interval(-1), ValueError, "0 or more"),
        (lambda: JobClient(), TypeError, "abstract"),
        (lambda: JobID("job-1"), ValueError, "32 hexadecimal digits"),
        (lambda: RestartStrategies.fixed_delay_restart(3, "10 s"), TypeError, "delay_between_attempts_interval"),
    ]
    hold(refuses, rows)
    assert config.set_parallelism(3).set_parallelism(-2).get_parallelism() == 3
    assert config.set_parallelism(ExecutionConfig.PARALLELISM_DEFAULT).get_parallelism() == -1


class LengthSerializer(TypeSerializer[str]):
    def serialize(self, element: str, stream: BytesIO) -> None:
        stream.write(len(element).to_bytes(2, "big") + element.encode())

    def deserialize(self, stream: BytesIO) -> str:
        return stream.read(int.from_bytes(stream.read(2), "big")).decode()


def test_serializers_of_one_class_are_equal_and_read_what_they_write():
    assert LengthSerializer() == LengthSerializer() and hash(LengthSerializer()) == hash(LengthSerializer())
    assert LengthSerializer() != VoidNamespaceSerializer()
    assert LengthSerializer().from_bytes(LengthSerializer().to_bytes("abc")) == "abc"
    assert VoidNamespaceSerializer().to_bytes(b"x") == b""


def test_execution_configs_with_the_same_settings_are_equal():
    first, second = ExecutionConfig(), ExecutionConfig()
    assert first == second and hash(first) == hash(second)
    assert first.set_parallelism(12) != second
    assert first == second.set_parallelism(12) and hash(first) == hash(second)
    assert first != Configuration().set_integer("parallelism.default", 12)
