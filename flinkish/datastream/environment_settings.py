"""The settings of an environment. Each of them is a key of its configuration."""

from __future__ import annotations

import os
from typing import Any, ClassVar, NoReturn, TypeVar

from flinkish.common.arguments import check_instance
from flinkish.common.configuration import Configuration, JavaConfiguration
from flinkish.common.execution_config import ExecutionConfig
from flinkish.common.no_effect import no_java_object
from flinkish.common.options import checkpointing, core, execution, state
from flinkish.common.options import python as python_options
from flinkish.common.restart_strategy import RestartStrategyConfiguration
from flinkish.common.time import Duration
from flinkish.datastream.checkpoint_config import CheckpointConfig
from flinkish.datastream.checkpointing_mode import CheckpointingMode
from flinkish.datastream.execution_mode import RuntimeExecutionMode
from flinkish.datastream.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend, StateBackend
from flinkish.datastream.time_characteristic import TimeCharacteristic
from flinkish.errors import ArgumentTypeError, ArgumentValueError
from flinkish.graph.stream_graph import MAX_PARALLELISM_LIMIT

__all__ = ["EnvironmentSettings", "get_j_env_configuration"]

E = TypeVar("E", bound="EnvironmentSettings")


class JavaEnvironment:
    """Stands for the environment of Java's Flink, of which only the configuration is here
    (`get_j_env_configuration`). Everything else raises UnsupportedOperationError."""

    def __init__(self, configuration: JavaConfiguration) -> None:
        self._configuration = configuration

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        no_java_object(f"StreamExecutionEnvironment._j_stream_execution_environment.{name}")


def get_j_env_configuration(j_env: JavaEnvironment) -> JavaConfiguration:
    """The configuration of an environment, for programs of PyFlink that set keys in this way.

    Example::

        config = Configuration(j_configuration=get_j_env_configuration(env._j_stream_execution_environment))
        config.set_string("pipeline.name", "counts")
    """
    return j_env._configuration


class EnvironmentSettings:
    """Base class of StreamExecutionEnvironment, with its settings. A setting that has an effect is kept in the
    configuration only. Setters return the environment."""

    #: the parallelism of all environments of the process that set none; None: the number of cores
    _default_local_parallelism: ClassVar[int | None] = None

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        #: the keys of the restart strategy that are configured and not set by `set_restart_strategy`
        self._configured_restart_strategy = _restart_strategy_of(configuration)
        self._time_characteristic = TimeCharacteristic.EventTime

    def configure(self, configuration: Configuration) -> None:
        """Take over all entries of a configuration; they win over earlier ones.

        Raises:
            ConfigurationError: a key is unknown, or a value cannot be read.
        """
        configuration.validate()
        self._configuration.add_all(configuration)
        self._configured_restart_strategy.add_all(_restart_strategy_of(configuration))

    def get_config(self) -> ExecutionConfig:
        """The execution settings of this environment. Changes to the result change the environment."""
        return ExecutionConfig(self._configuration, self._configured_restart_strategy)

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The checkpoint settings of this environment. Changes to the result change the environment."""
        return CheckpointConfig(self._configuration)

    # --- parallelism --------------------------------------------------------------------------------------------

    def set_parallelism(self: E, parallelism: int) -> E:
        """Set the parallelism of operators that are added from now on and set none: at least 1 (ArgumentValueError), or
        ``ExecutionConfig.PARALLELISM_DEFAULT`` (-1) for the default."""
        unset = (ExecutionConfig.PARALLELISM_DEFAULT, ExecutionConfig.PARALLELISM_UNKNOWN)
        if not isinstance(parallelism, int) or (parallelism < 1 and parallelism not in unset):
            raise _not_a_parallelism("the parallelism", parallelism)
        self.get_config().set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """The parallelism that was set or configured, else the default local parallelism. Operators that set none get
        the number of the cluster's task slots in the last case, which is known once the job starts."""
        parallelism = self._configuration.get(core.PARALLELISM)
        if parallelism is None or parallelism == ExecutionConfig.PARALLELISM_DEFAULT:
            return self.get_default_local_parallelism()
        return parallelism

    def _has_parallelism(self) -> bool:
        """Whether anybody has set a parallelism."""
        configured = self._configuration.get(core.PARALLELISM)
        return self._default_local_parallelism is not None or configured not in (
            None,
            ExecutionConfig.PARALLELISM_DEFAULT,
        )

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the parallelism of all environments of this process that set none. Raises ArgumentValueError below 1."""
        if not isinstance(parallelism, int) or parallelism < 1:
            raise _not_a_parallelism("the default local parallelism", parallelism)
        EnvironmentSettings._default_local_parallelism = parallelism

    def get_default_local_parallelism(self) -> int:
        """The default local parallelism that was set, else the number of cores that this process may use."""
        if self._default_local_parallelism is not None:
            return self._default_local_parallelism
        # not os.cpu_count(): in a container most of the machine's cores belong to others
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def set_max_parallelism(self: E, max_parallelism: int) -> E:
        """Set the max parallelism, which is the number of key groups, of operators that set none. Raises
        ArgumentValueError unless it is from 1 to 32768."""
        if not isinstance(max_parallelism, int) or not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
            raise ArgumentValueError(
                f"the max parallelism {max_parallelism!r}",
                where="StreamExecutionEnvironment",
                expected=f"a number from 1 to {MAX_PARALLELISM_LIMIT}",
                hint="leave it out: it follows from the parallelism then",
            )
        self.get_config().set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The max parallelism that was set or configured; -1 if none was, and each operator gets a small multiple of
        its parallelism."""
        return self.get_config().get_max_parallelism()

    # --- execution ----------------------------------------------------------------------------------------------

    def set_runtime_mode(self: E, execution_mode: RuntimeExecutionMode) -> E:
        """Set the runtime mode: STREAMING (the default), BATCH (all sources must be bounded, and rolling reduces give
        final results only) or AUTOMATIC (BATCH if all sources are bounded)."""
        check_instance(
            execution_mode,
            RuntimeExecutionMode,
            "the runtime mode is",
            "StreamExecutionEnvironment.set_runtime_mode()",
            "RuntimeExecutionMode.STREAMING is the default",
        )
        self._configuration.set(execution.RUNTIME_MODE, execution_mode.name)
        return self

    def set_buffer_timeout(self: E, timeout_millis: int) -> E:
        """Set how long a buffer may wait to be filled, in ms; -1: until it is full. The setting is only kept: the end
        of an epoch flushes all buffers, so that no buffer ever waits for more records. Raises ArgumentValueError below
        -1."""
        if timeout_millis < -1:
            raise ArgumentValueError(
                f"the buffer timeout {timeout_millis} ms",
                where="StreamExecutionEnvironment.set_buffer_timeout()",
                expected="-1, 0 or more",
                hint="leave it out: it has no effect here",
            )
        self._configuration.set(execution.BUFFER_TIMEOUT_ENABLED, timeout_millis >= 0)
        if timeout_millis >= 0:
            self._configuration.set(execution.BUFFER_TIMEOUT, Duration.of_millis(timeout_millis))
        return self

    def get_buffer_timeout(self) -> int:
        """The buffer timeout in ms; -1 if buffers are to wait until they are full."""
        if not self._configuration.get(execution.BUFFER_TIMEOUT_ENABLED):
            return -1
        return self._configuration.get(execution.BUFFER_TIMEOUT).to_millis()

    def disable_operator_chaining(self: E) -> E:
        """Run each operator in a task of its own."""
        self._configuration.set(core.OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Whether operators that are connected by forward edges share a task."""
        enabled = self._configuration.get(core.OPERATOR_CHAINING)
        return enabled and self._configuration.get(python_options.OPERATOR_CHAINING_ENABLED)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Whether operators may share a task even if their max parallelism differs."""
        return self._configuration.get(core.CHAIN_OPERATORS_WITH_DIFFERENT_MAX_PARALLELISM)

    def set_state_backend(self: E, state_backend: StateBackend) -> E:
        """Set the state backend, which keeps the state between epochs, as in PyFlink 1.x: sets ``state.backend.type``
        and, if the backend says so, ``execution.checkpointing.incremental`` and ``execution.checkpointing.dir``."""
        if not isinstance(state_backend, StateBackend):
            raise ArgumentTypeError(
                f"the state backend is {state_backend!r}",
                where="StreamExecutionEnvironment.set_state_backend()",
                expected="a StateBackend",
                hint="such as HashMapStateBackend() or EmbeddedRocksDBStateBackend()",
            )
        self._configuration.set(state.BACKEND, state_backend._type)
        incremental = state_backend._incremental()
        if incremental is not None:
            self._configuration.set(checkpointing.INCREMENTAL, incremental)
        directory = state_backend._checkpoint_directory()
        if directory is not None:
            self._configuration.set(checkpointing.DIRECTORY, directory)
        return self

    def get_state_backend(self) -> StateBackend:
        """The state backend that is configured, as in PyFlink 1.x."""
        if self._configuration.get(state.BACKEND) != EmbeddedRocksDBStateBackend._type:
            return HashMapStateBackend()
        configured = self._configuration.contains(checkpointing.INCREMENTAL)
        return EmbeddedRocksDBStateBackend(self._configuration.get(checkpointing.INCREMENTAL) if configured else None)

    def enable_changelog_state_backend(self: E, enabled: bool) -> E:
        """Set whether the changelog state backend is used. The setting is only kept: changes of state are written at
        each epoch in any case."""
        self._configuration.set(state.CHANGELOG_ENABLED, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Whether the changelog state backend was enabled or disabled; None if neither was set."""
        is_set = self._configuration.contains(state.CHANGELOG_ENABLED)
        return self._configuration.get(state.CHANGELOG_ENABLED) if is_set else None

    def set_stream_time_characteristic(self: E, characteristic: TimeCharacteristic) -> E:
        """Set the notion of time of the program, as in PyFlink 1.x, where it is deprecated. ProcessingTime switches
        periodic watermarks off, the others set their interval to 200 ms. It has no other effect: operators choose their
        notion of time themselves."""
        if not isinstance(characteristic, TimeCharacteristic):
            raise ArgumentTypeError(
                f"the time characteristic is {characteristic!r}",
                where="StreamExecutionEnvironment.set_stream_time_characteristic()",
                expected="a TimeCharacteristic",
                hint="leave it out: EventTime is the default",
            )
        without = characteristic is TimeCharacteristic.ProcessingTime
        self.get_config().set_auto_watermark_interval(0 if without else 200)
        self._time_characteristic = characteristic
        return self

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """The time characteristic that was set, else EventTime."""
        return self._time_characteristic

    def set_restart_strategy(self: E, restart_strategy: RestartStrategyConfiguration) -> E:
        """Set the restart strategy, which decides what happens when the job fails, as in PyFlink 1.x: writes the keys
        that begin with ``restart-strategy``. A fallback strategy restores what is configured."""
        self.get_config().set_restart_strategy(restart_strategy)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """The restart strategy that is configured, as in PyFlink 1.x; a fallback strategy if there is none, or one that
        PyFlink 1.x has no class for."""
        return self.get_config().get_restart_strategy()

    # --- of PyFlink 1.x: what registers Java classes has no effect, and a warning says so -------------------------

    def add_default_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> None:
        self.get_config().add_default_kryo_serializer(type_class_name, serializer_class_name)

    def register_type_with_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> None:
        self.get_config().register_type_with_kryo_serializer(type_class_name, serializer_class_name)

    def register_type(self, type_class_name: str) -> None:
        self.get_config().register_pojo_type(type_class_name)

    @property
    def _j_stream_execution_environment(self) -> JavaEnvironment:
        """What stands for the environment of Java's Flink, which programs use although its name is private."""
        return JavaEnvironment(JavaConfiguration(self._configuration))

    # --- checkpoints --------------------------------------------------------------------------------------------

    def enable_checkpointing(self: E, interval: int, mode: CheckpointingMode | None = None) -> E:
        """Take a checkpoint every ``interval`` ms, at least 10 (ArgumentValueError). ``mode`` has no effect."""
        checkpoints = self.get_checkpoint_config()
        checkpoints.set_checkpoint_interval(interval)
        if mode is not None:
            checkpoints.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """The time between checkpoints in ms; -1 if no checkpoints are taken."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The checkpointing mode that is configured; it has no effect, since state is exactly-once in either mode."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """The newer name of `get_checkpointing_mode`."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Whether unaligned checkpoints are configured; they have no effect."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Whether forced unaligned checkpoints are configured; they have no effect."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self: E, directory: str) -> E:
        """Set the directory of savepoints that are triggered without one."""
        self._configuration.set(checkpointing.SAVEPOINT_DIRECTORY, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """The directory of savepoints that are triggered without one; None if it is not set."""
        return self._configuration.get(checkpointing.SAVEPOINT_DIRECTORY)


def _restart_strategy_of(configuration: Configuration) -> Configuration:
    entries = configuration.to_dict().items()
    return Configuration.from_dict({key: value for key, value in entries if key.startswith("restart-strategy")})


def _not_a_parallelism(what: str, parallelism: Any) -> ArgumentValueError:
    return ArgumentValueError(
        f"{what} {parallelism!r}",
        where="StreamExecutionEnvironment",
        expected="a parallelism of at least 1",
        hint="leave it out: it is the number of cores then",
    )
