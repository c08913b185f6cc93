"""State backends, checkpoint storages and slot sharing groups, in the configuration and in plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkish.common import Configuration
from flinkish.common.options import checkpointing, state
from flinkish.datastream import (
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    FsStateBackend,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    MemorySize,
    MemoryStateBackend,
    RocksDBStateBackend,
    SlotSharingGroup,
    StateBackend,
)
from flinkish.datastream.environment_settings import EnvironmentSettings
from flinkish.datastream.time_characteristic import TimeCharacteristic
from flinkish.errors import ProgramError
from tests.support.programs import chains_of, configuration_of, new_environment, results_of


@pytest.fixture(autouse=True)
def no_default_of_the_process() -> Iterator[None]:
    yield
    EnvironmentSettings._default_local_parallelism = None


def test_a_state_backend_is_a_value_of_the_configuration() -> None:
    env = new_environment()
    assert isinstance(env.get_state_backend(), HashMapStateBackend)
    env.set_state_backend(EmbeddedRocksDBStateBackend(True))
    assert configuration_of(env).get(state.BACKEND) == "rocksdb"
    assert configuration_of(env).get(checkpointing.INCREMENTAL) is True
    backend = env.get_state_backend()
    assert isinstance(backend, EmbeddedRocksDBStateBackend)
    assert backend.is_incremental_checkpoints_enabled()
    env.set_state_backend(HashMapStateBackend())
    assert configuration_of(env).get(state.BACKEND) == "hashmap"
    with pytest.raises(TypeError, match="expected a StateBackend"):
        env.set_state_backend("rocksdb")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("backend", "kind", "directory", "shown"),
    [
        (MemoryStateBackend(), "hashmap", None, "MemoryStateBackend(None)"),
        (MemoryStateBackend("/data/a", max_state_size=7), "hashmap", "/data/a", "MemoryStateBackend('/data/a')"),
        (FsStateBackend("/data/b", None, 9, 512), "hashmap", "/data/b", "FsStateBackend('/data/b')"),
        (RocksDBStateBackend("/data/c", True), "rocksdb", "/data/c", "RocksDBStateBackend('/data/c')"),
        (
            RocksDBStateBackend(checkpoint_stream_backend=FsStateBackend("/data/d")),
            "rocksdb",
            "/data/d",
            "RocksDBStateBackend('/data/d')",
        ),
    ],
)
def test_a_state_backend_of_1_x_says_where_checkpoints_are_stored(
    backend: StateBackend, kind: str, directory: str | None, shown: str
) -> None:
    env = new_environment()
    env.set_state_backend(backend)
    assert configuration_of(env).get(state.BACKEND) == kind
    assert configuration_of(env).get(checkpointing.DIRECTORY) == directory
    assert configuration_of(env).contains(checkpointing.INCREMENTAL) == (shown == "RocksDBStateBackend('/data/c')")
    assert repr(backend) == shown


def test_a_state_backend_of_1_x_gives_back_its_settings_and_needs_its_directory() -> None:
    memory, files = MemoryStateBackend(max_state_size=7), FsStateBackend("/data", None, 9, 512, False)
    assert (memory.get_max_state_size(), memory.is_using_asynchronous_snapshots()) == (7, True)
    assert (files.get_checkpoint_path(), files.get_min_file_size_threshold()) == ("/data", 9)
    assert (files.get_write_buffer_size(), files.is_using_asynchronous_snapshots()) == (512, False)
    rocks = RocksDBStateBackend(checkpoint_stream_backend=files)
    assert rocks.get_checkpoint_backend() is files
    rocks.set_number_of_transfering_threads(2)
    assert rocks.get_number_of_transfering_threads() == 2
    with pytest.raises(ValueError, match="must not be None"):
        RocksDBStateBackend()


def test_a_checkpoint_storage_is_the_directory_of_the_checkpoints() -> None:
    checkpoints = new_environment().get_checkpoint_config()
    assert isinstance(checkpoints.get_checkpoint_storage(), JobManagerCheckpointStorage)
    checkpoints.set_checkpoint_storage(FileSystemCheckpointStorage("/data/checkpoints"))
    storage = checkpoints.get_checkpoint_storage()
    assert isinstance(storage, FileSystemCheckpointStorage)
    assert storage.get_checkpoint_path() == "/data/checkpoints"
    # as Flink's Path shows it
    assert FileSystemCheckpointStorage("file://var/checkpoints/").get_checkpoint_path() == "file://var/checkpoints"
    assert JobManagerCheckpointStorage("s3://b//c/").get_checkpoint_path() == "s3://b/c"
    assert FsStateBackend("file://var/checkpoints/").get_checkpoint_path() == "file://var/checkpoints"
    rocks = RocksDBStateBackend("file://var/checkpoints/")
    rocks.set_db_storage_paths("file://var/db_storage_dir1/", "/db_storage_dir2")
    assert rocks.get_db_storage_paths() == ["/db_storage_dir1", "/db_storage_dir2"]
    assert (storage.get_min_file_size_threshold(), storage.get_write_buffer_size()) == (20_480, 4_096)
    checkpoints.set_checkpoint_storage(JobManagerCheckpointStorage())
    assert isinstance(checkpoints.get_checkpoint_storage(), JobManagerCheckpointStorage)
    with pytest.raises(ValueError, match="must not be None"):
        FileSystemCheckpointStorage()
    with pytest.raises(ValueError, match="1048577"):
        FileSystemCheckpointStorage("/data", 1024 * 1024 + 1)


def test_failed_checkpoints_are_tolerated_or_not() -> None:
    checkpoints = new_environment().get_checkpoint_config()
    assert checkpoints.is_fail_on_checkpointing_errors()
    checkpoints.set_fail_on_checkpointing_errors(False)
    assert not checkpoints.is_fail_on_checkpointing_errors()
    assert checkpoints.get_tolerable_checkpoint_failure_number() == 2**31 - 1
    checkpoints.set_fail_on_checkpointing_errors(True)
    assert checkpoints.get_tolerable_checkpoint_failure_number() == 0


def test_the_default_local_parallelism_is_that_of_environments_which_set_none() -> None:
    env = new_environment()
    configuration_of(env).remove_config("parallelism.default")
    env.set_default_local_parallelism(7)
    assert (env.get_default_local_parallelism(), env.get_parallelism()) == (7, 7)
    assert new_environment(parallelism=2).get_parallelism() == 2
    with pytest.raises(ProgramError, match="at least 1"):
        env.set_default_local_parallelism(0)


def test_processing_time_switches_periodic_watermarks_off() -> None:
    env = new_environment()
    assert env.get_stream_time_characteristic() is TimeCharacteristic.EventTime
    env.set_stream_time_characteristic(TimeCharacteristic.ProcessingTime)
    assert env.get_stream_time_characteristic() is TimeCharacteristic.ProcessingTime
    assert env.get_config().get_auto_watermark_interval() == 0


def test_lines_of_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert results_of(new_environment().read_text_file(str(tmp_path))) == ["one", "two"]


def test_operators_of_another_max_parallelism_are_chained_unless_it_is_switched_off() -> None:
    for chained in (True, False):
        env = new_environment()
        configuration = Configuration().set_boolean(
            "pipeline.operator-chaining.chain-operators-with-different-max-parallelism", chained
        )
        env.configure(configuration)
        assert env.is_chaining_of_operators_with_different_max_parallelism_enabled() is chained
        stream = env.from_collection([1]).map(lambda n: n).name("a").set_max_parallelism(64)
        stream.map(lambda n: n).name("b").set_max_parallelism(32)
        assert any("a -> b" in chain for chain in chains_of(env)) is chained


# --- slot sharing groups ------------------------------------------------------------------------------------------


def group() -> SlotSharingGroup:
    return (
        SlotSharingGroup.builder("io")
        .set_cpu_cores(2)
        .set_task_heap_memory_mb(100)
        .set_task_off_heap_memory(MemorySize.of_mebi_bytes(10))
        .set_managed_memory_mb(20)
        .set_external_resource("gpu", 1)
        .build()
    )


def test_a_slot_sharing_group_has_the_resources_that_it_was_built_with() -> None:
    built = group()
    assert (built.get_name(), built.get_cpu_cores(), built.get_external_resources()) == ("io", 2.0, {"gpu": 1.0})
    assert built.get_task_heap_memory() == MemorySize(100 * 1024 * 1024)
    assert built.get_task_off_heap_memory() == MemorySize.of_mebi_bytes(10)
    assert built.get_managed_memory() == MemorySize.of_mebi_bytes(20)
    assert built == group()
    assert SlotSharingGroup.builder("plain").build().get_cpu_cores() is None


def test_resources_without_cores_or_heap_are_refused() -> None:
    with pytest.raises(ProgramError, match="not complete .*'io'.*CPU cores and task heap memory"):
        SlotSharingGroup.builder("io").set_managed_memory_mb(1).build()
    with pytest.raises(ProgramError, match="0 CPU cores"):
        SlotSharingGroup.builder("io").set_cpu_cores(0)


def test_memory_sizes_are_compared_and_converted() -> None:
    size = MemorySize(3 << 40)
    assert (size.get_tebi_bytes(), size.get_gibi_bytes(), size.get_mebi_bytes()) == (3, 3 << 10, 3 << 20)
    assert (size.get_kibi_bytes(), size.get_bytes()) == (3 << 30, 3 << 40)
    assert MemorySize(1) < MemorySize(2)
    assert str(MemorySize(5)) == "5 bytes"


def test_plans_show_groups_their_resources_and_descriptions() -> None:
    env = new_environment()
    stream = env.from_collection([1]).uid("numbers").map(lambda n: n).uid("calls")
    stream.slot_sharing_group(group()).set_description("calls the service").print().uid("shown")
    plan = env.explain()
    assert "Map (calls): calls the service" in plan
    assert "default: numbers\n" in plan
    resources = (
        "cpu cores 2.0, task heap 104857600 bytes, task off-heap 10485760 bytes, managed 20971520 bytes, gpu 1.0"
    )
    assert f"io ({resources}): calls, shown" in plan
    assert "Slot sharing groups" not in new_env_plan()


def new_env_plan() -> str:
    env = new_environment()
    env.from_collection([1]).print()
    return env.explain()


def test_a_cached_stream_has_the_same_records_in_every_job() -> None:
    env = new_environment()
    cached = env.from_collection([1, 2, 3]).map(lambda n: n * n).cache()
    assert results_of(cached.map(lambda n: n + 1)) == [2, 5, 10]
    assert results_of(cached.filter(lambda n: n > 1)) == [4, 9]
    cached.invalidate()
    assert results_of(cached) == [1, 4, 9]
    for call in (lambda: cached.name("x"), lambda: cached.set_parallelism(2), cached.disable_chaining):
        with pytest.raises(Exception, match="CachedDataStream is not supported"):
            call()
