"""ExecutionConfig: typed setters over a Configuration.

Rule upheld here: nothing is kept beside the configuration; each setter writes one key and each getter reads it, so a
job behaves the same whether it is configured by call, by file or by command line.
"""

from __future__ import annotations

from enum import Enum

from flinkish.common.config_options import ConfigOption
from flinkish.common.configuration import Configuration
from flinkish.common.input_dependency_constraint import InputDependencyConstraint
from flinkish.common.no_effect import supply_names, warn_without_effect
from flinkish.common.options import checkpointing, cluster, core
from flinkish.common.restart_strategy import RestartStrategyConfiguration, strategy_of
from flinkish.common.time import Duration
from flinkish.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["ExecutionConfig", "ExecutionMode"]

supply_names(__name__, "common")


class ExecutionMode(Enum):
    """How data is exchanged between tasks, in PyFlink 1.x. It has no effect here: tasks exchange data by epochs."""

    PIPELINED = 0
    PIPELINED_FORCED = 1
    BATCH = 2
    BATCH_FORCED = 3


class ExecutionConfig:
    """The settings of how a program is executed. All intervals are in milliseconds.

    Settings of Java's serializers (Kryo, Avro, POJOs, the closure cleaner) are stored and returned, so that ported
    programs run, but have no effect.

    >>> ExecutionConfig().set_parallelism(4).get_parallelism()
    4
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(
        self, configuration: Configuration | None = None, configured_restart_strategy: Configuration | None = None
    ) -> None:
        self._configuration = Configuration() if configuration is None else configuration
        #: the keys that a fallback restart strategy restores
        self._configured_restart_strategy = configured_restart_strategy or Configuration()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._configuration == other._configuration

    def __hash__(self) -> int:
        """The hash of the current settings: as in PyFlink, do not change an instance that is a key of a dictionary."""
        return hash(self._configuration)

    def _set(self, option: ConfigOption[bool], value: bool) -> ExecutionConfig:
        self._configuration.set(option, value)
        return self

    def _set_millis(self, option: ConfigOption[Duration], interval: int) -> ExecutionConfig:
        if interval < 0:
            raise ArgumentValueError(
                f"the interval for '{option.key}' is {interval} ms",
                where="ExecutionConfig",
                expected="0 or more",
                hint="it is a number of milliseconds",
            )
        self._configuration.set(option, Duration.of_millis(interval))
        return self

    # --- parallelism --------------------------------------------------------------------------------------------

    def get_parallelism(self) -> int:
        """The parallelism of operators that set none, or PARALLELISM_DEFAULT (-1) if the engine decides."""
        parallelism = self._configuration.get(core.PARALLELISM)
        return self.PARALLELISM_DEFAULT if parallelism is None else parallelism

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the parallelism to 1 or more; PARALLELISM_DEFAULT unsets it and PARALLELISM_UNKNOWN changes nothing.

        Raises:
            ValueError: any other number.
        """
        if parallelism == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config(core.PARALLELISM.key)
        elif parallelism != self.PARALLELISM_UNKNOWN:
            if parallelism < 1:
                raise ArgumentValueError(
                    f"the parallelism is {parallelism}",
                    where="ExecutionConfig.set_parallelism()",
                    expected="1 or more",
                    hint="ExecutionConfig.PARALLELISM_DEFAULT unsets it",
                )
            self._configuration.set(core.PARALLELISM, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups, or -1 if the engine decides."""
        max_parallelism = self._configuration.get(core.MAX_PARALLELISM)
        return -1 if max_parallelism is None else max_parallelism

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups: from 1 to 32,768, Flink's limit.

        Raises:
            ValueError: any other number.
        """
        if not 1 <= max_parallelism <= 32_768:
            raise ArgumentValueError(
                f"the max parallelism is {max_parallelism}",
                where="ExecutionConfig.set_max_parallelism()",
                expected="1 to 32768",
                hint="leave it out: it follows from the parallelism then",
            )
        self._configuration.set(core.MAX_PARALLELISM, max_parallelism)
        return self

    # --- intervals ----------------------------------------------------------------------------------------------

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Set how often watermarks are emitted, in ms; 0 switches periodic emission off.

        Raises:
            ValueError: the interval is negative.
        """
        return self._set_millis(core.AUTO_WATERMARK_INTERVAL, interval)

    def get_auto_watermark_interval(self) -> int:
        return self._configuration.get(core.AUTO_WATERMARK_INTERVAL).to_millis()

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        return self._set_millis(cluster.LATENCY_INTERVAL, interval)

    def get_latency_tracking_interval(self) -> int:
        return self._configuration.get(cluster.LATENCY_INTERVAL).to_millis()

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        return self._set_millis(core.TASK_CANCELLATION_INTERVAL, interval)

    def get_task_cancellation_interval(self) -> int:
        return self._configuration.get(core.TASK_CANCELLATION_INTERVAL).to_millis()

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        return self._set_millis(core.TASK_CANCELLATION_TIMEOUT, timeout)

    def get_task_cancellation_timeout(self) -> int:
        return self._configuration.get(core.TASK_CANCELLATION_TIMEOUT).to_millis()

    # --- switches -----------------------------------------------------------------------------------------------

    def enable_object_reuse(self) -> ExecutionConfig:
        return self._set(core.OBJECT_REUSE, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        return self._set(core.OBJECT_REUSE, False)

    def is_object_reuse_enabled(self) -> bool:
        return self._configuration.get(core.OBJECT_REUSE)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        return self._set(core.AUTO_GENERATE_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Require a uid from every operator: safest for jobs that are restored from savepoints."""
        return self._set(core.AUTO_GENERATE_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        return self._configuration.get(core.AUTO_GENERATE_UIDS)

    def enable_generic_types(self) -> ExecutionConfig:
        return self._set(core.GENERIC_TYPES, True)

    def disable_generic_types(self) -> ExecutionConfig:
        return self._set(core.GENERIC_TYPES, False)

    def has_generic_types_disabled(self) -> bool:
        return not self._configuration.get(core.GENERIC_TYPES)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        return self._set(checkpointing.SNAPSHOT_COMPRESSION, use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        return self._configuration.get(checkpointing.SNAPSHOT_COMPRESSION)

    def set_global_job_parameters(self, global_job_parameters_dict: dict[str, object]) -> ExecutionConfig:
        """Set the parameters that every function can read; keys and values become strings."""
        texts = {str(key): str(value) for key, value in global_job_parameters_dict.items()}
        self._configuration.set(core.GLOBAL_JOB_PARAMETERS, texts)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        return self._configuration.get(core.GLOBAL_JOB_PARAMETERS)

    # --- Java's serializers: kept, without effect ---------------------------------------------------------------

    def enable_closure_cleaner(self) -> ExecutionConfig:
        self._configuration.set(core.CLOSURE_CLEANER_LEVEL, "RECURSIVE")
        return self

    def disable_closure_cleaner(self) -> ExecutionConfig:
        self._configuration.set(core.CLOSURE_CLEANER_LEVEL, "NONE")
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        return self._configuration.get(core.CLOSURE_CLEANER_LEVEL) != "NONE"

    def enable_force_kryo(self) -> ExecutionConfig:
        return self._set(core.FORCE_KRYO, True)

    def disable_force_kryo(self) -> ExecutionConfig:
        return self._set(core.FORCE_KRYO, False)

    def is_force_kryo_enabled(self) -> bool:
        return self._configuration.get(core.FORCE_KRYO)

    def enable_force_avro(self) -> ExecutionConfig:
        return self._set(core.FORCE_AVRO, True)

    def disable_force_avro(self) -> ExecutionConfig:
        return self._set(core.FORCE_AVRO, False)

    def is_force_avro_enabled(self) -> bool:
        return self._configuration.get(core.FORCE_AVRO)

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Always empty: there is no Kryo here."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Always empty: there is no Kryo here."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Always empty: there are no POJOs here."""
        return []

    # --- of PyFlink 1.x -----------------------------------------------------------------------------------------

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> ExecutionConfig:
        """Set the restart strategy, which decides what happens when the job fails: writes the keys that begin with
        ``restart-strategy``. A fallback strategy restores what is configured."""
        if not isinstance(restart_strategy_configuration, RestartStrategyConfiguration):
            raise ArgumentTypeError(
                f"the restart strategy is {restart_strategy_configuration!r}",
                where="set_restart_strategy()",
                expected="one of RestartStrategies",
                hint="such as RestartStrategies.fixed_delay_restart(3, 10_000)",
            )
        for key in [key for key in self._configuration.key_set() if key.startswith("restart-strategy")]:
            self._configuration.remove_config(key)
        self._configuration.add_all(self._configured_restart_strategy)
        self._configuration.add_all(restart_strategy_configuration.to_configuration())
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """The restart strategy that is configured; a fallback strategy if there is none, or one that PyFlink 1.x has no
        class for."""
        return strategy_of(self._configuration)

    def set_execution_mode(self, execution_mode: ExecutionMode) -> ExecutionConfig:
        """Has no effect, and a warning says so: see ``StreamExecutionEnvironment.set_runtime_mode``."""
        warn_without_effect("set_execution_mode", "tasks exchange data by epochs; see env.set_runtime_mode()")
        return self

    def get_execution_mode(self) -> ExecutionMode:
        """Always PIPELINED, Flink's default."""
        return ExecutionMode.PIPELINED

    def set_default_input_dependency_constraint(
        self, input_dependency_constraint: InputDependencyConstraint
    ) -> ExecutionConfig:
        """Has no effect, and a warning says so: tasks run when all of their input is there."""
        warn_without_effect("set_default_input_dependency_constraint", "tasks run when all of their input is there")
        return self

    def get_default_input_dependency_constraint(self) -> InputDependencyConstraint:
        """Always ANY, Flink's default."""
        return InputDependencyConstraint.ANY

    def add_default_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> ExecutionConfig:
        return self._without_java("add_default_kryo_serializer")

    def register_type_with_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> ExecutionConfig:
        return self._without_java("register_type_with_kryo_serializer")

    def register_pojo_type(self, type_class_name: str) -> ExecutionConfig:
        return self._without_java("register_pojo_type")

    def register_kryo_type(self, type_class_name: str) -> ExecutionConfig:
        return self._without_java("register_kryo_type")

    def get_registered_types_with_kryo_serializer_classes(self) -> dict[str, str]:
        """Always empty: there is no Kryo here."""
        return {}

    def disable_auto_type_registration(self) -> ExecutionConfig:
        return self._without_java("disable_auto_type_registration")

    def is_auto_type_registration_disabled(self) -> bool:
        """Always False: there is no registration of Java types."""
        return False

    def _without_java(self, call: str) -> ExecutionConfig:
        warn_without_effect(call, "there are no serializers of Java here")
        return self
