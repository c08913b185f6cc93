"""Names of PyFlink's that mean nothing here are never silent: they warn once, or fail clearly."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from flinkish.common.execution_mode import ExecutionMode  # type: ignore[import-not-found]

from flinkish.common import (
    Configuration,
    Duration,
    Encoder,
    InputDependencyConstraint,
    RowKind,
    Types,
    WatermarkStrategy,
    no_effect,
)
from flinkish.datastream import (
    CheckpointingMode,
    CustomCheckpointStorage,
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    MemorySize,
    MemoryStateBackend,
    OutputTag,
    PredefinedOptions,
    SlotSharingGroup,
    StreamExecutionEnvironment,
    utils,
)
from flinkish.datastream.connectors.file_system import (
    FileCompactor,
    FileCompactStrategy,
    FileEnumeratorProvider,
    FileSink,
    FileSource,
    FileSplitAssignerProvider,
    StreamFormat,
)
from flinkish.datastream.connectors.jdbc import JdbcExecutionOptions
from flinkish.datastream.formats.orc import OrcBulkWriters
from flinkish.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from flinkish.errors import ProgramError
from tests.support.programs import configuration_of, new_environment, results_of

Environment = StreamExecutionEnvironment
ROW = Types.ROW_NAMED(["a"], [Types.INT()])


@pytest.fixture(autouse=True)
def _nothing_is_reported_yet() -> None:
    no_effect.forget_reports()


SETTINGS: dict[str, Callable[[Environment], Any]] = {
    "execution.buffer-timeout.interval": lambda env: env.set_buffer_timeout(5),
    "execution.buffer-timeout.enabled": lambda env: env.set_buffer_timeout(-1),
    "execution.checkpointing.mode": lambda env: env.enable_checkpointing(1_000, CheckpointingMode.AT_LEAST_ONCE),
    "execution.checkpointing.max-concurrent-checkpoints": lambda env: (
        env.get_checkpoint_config().set_max_concurrent_checkpoints(2)
    ),
    "execution.checkpointing.unaligned.enabled": lambda env: env.get_checkpoint_config().enable_unaligned_checkpoints(),
    "execution.checkpointing.unaligned.forced": lambda env: (
        env.get_checkpoint_config().set_force_unaligned_checkpoints()
    ),
    "execution.checkpointing.aligned-checkpoint-timeout": lambda env: env.get_checkpoint_config().set_alignment_timeout(
        Duration.of_seconds(1)
    ),
    "state.changelog.enabled": lambda env: env.enable_changelog_state_backend(True),
    "pipeline.force-kryo": lambda env: env.get_config().enable_force_kryo(),
    "pipeline.force-avro": lambda env: env.get_config().enable_force_avro(),
    "pipeline.generic-types": lambda env: env.get_config().disable_generic_types(),
    "pipeline.closure-cleaner-level": lambda env: env.get_config().disable_closure_cleaner(),
    "pipeline.object-reuse": lambda env: env.get_config().enable_object_reuse(),
    "execution.checkpointing.snapshot-compression": lambda env: env.get_config().set_use_snapshot_compression(True),
    "metrics.latency.interval": lambda env: env.get_config().set_latency_tracking_interval(5),
    "jobmanager.memory.process.size": lambda env: env.configure(
        Configuration().set_string("jobmanager.memory.process.size", "1g")
    ),
}


@pytest.mark.parametrize("key", SETTINGS)
def test_a_setting_without_effect_is_reported_when_the_job_starts(key: str, caplog: pytest.LogCaptureFixture) -> None:
    env = new_environment()
    SETTINGS[key](env)
    with caplog.at_level(logging.WARNING):
        assert results_of(env.from_collection([1])) == [1]
    (report,) = [record.getMessage() for record in caplog.records if "settings without effect" in record.getMessage()]
    assert f"{key}: " in report


def test_a_job_without_such_settings_reports_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert results_of(new_environment().from_collection([1])) == [1]
    assert "without effect" not in caplog.text


CALLS: dict[str, Callable[[Environment], Any]] = {
    "set_buffer_timeout": lambda env: env.from_collection([1]).set_buffer_timeout(5),
    "cache": lambda env: env.from_collection([1]).cache(),
    "invalidate": lambda env: env.from_collection([1]).cache().invalidate(),
    "the resources of a slot sharing group": lambda env: env.register_slot_sharing_group(
        SlotSharingGroup.builder("io").set_cpu_cores(1).set_task_heap_memory_mb(100).build()
    ),
    "enable_compact": lambda env: FileSink.for_row_format("/out", Encoder.simple_string_encoder()).enable_compact(
        FileCompactStrategy.builder().set_size_threshold(1).build(), FileCompactor.concat_file_compactor()
    ),
    "set_file_enumerator": lambda env: FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), "/in"
    ).set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator()),
    "set_split_assigner": lambda env: FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), "/in"
    ).set_split_assigner(FileSplitAssignerProvider.locality_aware_split_assigner()),
    "with_bucket_check_interval": lambda env: FileSink.for_row_format(
        "/out", Encoder.simple_string_encoder()
    ).with_bucket_check_interval(5),
    "with_batch_interval_ms": lambda env: JdbcExecutionOptions.builder().with_batch_interval_ms(5),
    "set_db_storage_paths": lambda env: EmbeddedRocksDBStateBackend().set_db_storage_paths("/tmp"),
    "set_predefined_options": lambda env: EmbeddedRocksDBStateBackend().set_predefined_options(
        PredefinedOptions.FLASH_SSD_OPTIMIZED
    ),
    "the update_interval of with_watermark_alignment": lambda env: (
        WatermarkStrategy.no_watermarks().with_watermark_alignment("g", Duration.of_seconds(1), Duration.of_seconds(9))
    ),
    "the hadoop_config of ParquetBulkWriters": lambda env: ParquetBulkWriters.for_row_type(ROW, Configuration()),
    "the writer_properties of OrcBulkWriters": lambda env: OrcBulkWriters.for_row_type(ROW, Configuration()),
    "the hadoop_config of OrcBulkWriters": lambda env: OrcBulkWriters.for_row_type(ROW, None, Configuration()),
    "the hadoop_config of ParquetColumnarRowInputFormat": lambda env: ParquetColumnarRowInputFormat(
        ROW, Configuration()
    ),
    "the batch_size of ParquetColumnarRowInputFormat": lambda env: ParquetColumnarRowInputFormat(ROW, batch_size=9),
    "is_case_sensitive=False of ParquetColumnarRowInputFormat": lambda env: ParquetColumnarRowInputFormat(
        ROW, is_case_sensitive=False
    ),
    "set_number_of_transfer_threads": lambda env: EmbeddedRocksDBStateBackend().set_number_of_transfer_threads(2),
    "the savepoint directory of a state backend": lambda env: MemoryStateBackend("/a", "/b"),
    "set_execution_mode": lambda env: env.get_config().set_execution_mode(ExecutionMode.BATCH),
    "set_default_input_dependency_constraint": lambda env: env.get_config().set_default_input_dependency_constraint(
        InputDependencyConstraint.ALL
    ),
    "register_pojo_type": lambda env: env.register_type("org.example.A"),
    "register_kryo_type": lambda env: env.get_config().register_kryo_type("org.example.A"),
    "add_default_kryo_serializer": lambda env: env.add_default_kryo_serializer("org.example.A", "org.example.B"),
    "register_type_with_kryo_serializer": lambda env: env.register_type_with_kryo_serializer("A", "B"),
    "disable_auto_type_registration": lambda env: env.get_config().disable_auto_type_registration(),
}


def test_arguments_that_ask_for_what_happens_anyway_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ParquetBulkWriters.for_row_type(ROW, utc_timestamp=True)
        OrcBulkWriters.for_row_type(ROW)
        ParquetColumnarRowInputFormat(ROW, None, 2048, True, True)
        JdbcExecutionOptions.builder().with_batch_interval_ms(200)
    assert caplog.text == ""


@pytest.mark.parametrize("call", CALLS)
def test_a_call_without_effect_is_reported_once(call: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        CALLS[call](new_environment())
        CALLS[call](new_environment())
    reports = [record.getMessage() for record in caplog.records if "has no effect" in record.getMessage()]
    assert len([report for report in reports if report.startswith(f"{call} has no effect: ")]) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: CustomCheckpointStorage(None),
        lambda: CustomStateBackend(None),
        lambda: EmbeddedRocksDBStateBackend().set_options("org.example.Options"),
        lambda: MemorySize(1).get_java_memory_size(),
        lambda: SlotSharingGroup.builder("a").build().get_java_slot_sharing_group(),
        lambda: OutputTag("a").get_java_output_tag(),
        lambda: RowKind.INSERT.to_j_row_kind(),
        lambda: Types.ROW([Types.INT()]).get_java_type_info(),
        lambda: utils.create_hadoop_configuration(configuration_of(new_environment())),
        lambda: utils.create_java_properties(configuration_of(new_environment())),
        lambda: Configuration.parse_jars_value("a;b", None),
        lambda: utils.convert_to_python_obj(1, Types.INT()),
        lambda: utils.pickled_bytes_to_python_obj(b"", Types.INT()),
    ],
)
def test_what_gives_an_object_of_java_fails_clearly(call: Callable[[], Any]) -> None:
    with pytest.raises(ProgramError, match="there is no Java object"):
        call()
