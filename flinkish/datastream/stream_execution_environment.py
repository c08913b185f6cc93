"""StreamExecutionEnvironment: the entry point of a program, which makes its sources and executes it.

Rule upheld here: there is one configuration. It consists of the file that FLINKISH_CONF names and of the program's own
settings, which win over the file. Every setter writes to it, and unknown keys are refused at once.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from flinkish import error_display
from flinkish.common import dependencies
from flinkish.common.arguments import check_instance
from flinkish.common.config_file import load_yaml
from flinkish.common.configuration import Configuration
from flinkish.common.html_text import folded, paragraph
from flinkish.common.io import InputFormat
from flinkish.common.job_client import JobClient
from flinkish.common.job_execution_result import JobExecutionResult
from flinkish.common.logger_levels import configure_loggers
from flinkish.common.no_effect import supply_names, warn_without_effect
from flinkish.common.options import core, execution, flinkish
from flinkish.common.options import python as python_options
from flinkish.common.typeinfo import TypeInformation
from flinkish.common.typeinfo.types import declared_type
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.connectors.generated import CollectionSource
from flinkish.core.source import Source
from flinkish.datastream.environment_settings import EnvironmentSettings
from flinkish.datastream.program import Program
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.data_stream import DataStream, DeclaredType, watermarks_factory
from flinkish.errors import ArgumentTypeError, FlinkishError, ProgramError, TypeMismatchError
from flinkish.graph.drawing import drawing_of, svg
from flinkish.graph.explain import explain, plan_json
from flinkish.graph.stream_graph import StreamGraph, StreamNode, Tap
from flinkish.launch.home import Home
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.operators.map_batches import ConvertFactory
from flinkish.runtime.operators.source_and_sink import SourceOperatorFactory
from flinkish.runtime.stored.classes import checked_alias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flinkish.jobmanager.client import RunClient

__all__ = ["StreamExecutionEnvironment"]

supply_names(__name__, "datastream.functions", "common", "datastream")

_LOG = logging.getLogger("flinkish.JobManager")

DEFAULT_JOB_NAME = "Flink Streaming Job"


class StreamExecutionEnvironment(EnvironmentSettings):
    """The context of one program: its settings, its sources, and ``execute``.

    Example::

        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1, 2, 3]).map(lambda n: n * n).print()
        env.execute("squares")
    """

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self._program = Program()
        #: the jobs of parts of the program that nothing has waited for
        self._parts: list[RunClient] = []
        #: the settings without effect that are reported
        self._reported: set[str] = set()

    def __reduce__(self) -> NoReturn:
        """An environment does not travel with a function that captures it, or one of its streams, as in PyFlink."""
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """A new environment. Its settings are those of the file that FLINKISH_CONF names (or of ``conf/flinkish.yaml``
        in FLINKISH_HOME), above them those of the command line (``-D``), and above both those of ``configuration``.

        Raises:
            ConfigurationError: a key is unknown, or a value or the file cannot be read.
        """
        error_display.install()
        home = Home(os.environ)
        merged = load_yaml(home.configuration_file) if home.configuration_file else Configuration()
        merged.add_all(Configuration.from_dict(home.settings))
        if configuration is not None:
            merged.add_all(configuration)
        merged.validate()
        env = StreamExecutionEnvironment(merged)
        if hasattr(sys.modules["__main__"], "__file__"):
            # a program, and no notebook: when its environment is gone, at the latest at the end of the process
            weakref.finalize(env, env._program.say_if_not_executed)
        return env

    # --- sources ------------------------------------------------------------------------------------------------

    def from_collection(self, collection: Iterable[Any], type_info: DeclaredType = None) -> DataStream:
        """A stream of the values of a collection, in their order. The source always has the parallelism 1.

        Args:
            collection: the values; they are read at once.
            type_info: the type of the values; None: any Python object.

        Raises:
            TypeMismatchError: a value does not fit ``type_info``; the message says which.
        """
        declared = declared_type(type_info)
        values = list(collection)
        convert = declared.batch_converter("from_collection")
        try:
            values = values if convert is None else convert(values)
        except TypeMismatchError as error:
            error.where = error.where.replace("from_collection", f"from_collection, element {error.position}", 1)
            raise
        source = CollectionSource(values, declared)
        node = self._add_source(source, "Collection Source", None, parallelism=1, parallelism_changeable=False)
        return DataStream(self, [Tap(node)], declared, [node])

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: DeclaredType = None,
    ) -> DataStream:
        """A stream of the records of a source, with a watermark generator for each split.

        Unlike in PyFlink, a Python TimestampAssigner of the strategy is honoured here: records get their event time,
        and no ``assign_timestamps_and_watermarks`` is needed.

        Args:
            source: the source; builders give it when ``build()`` is called.
            watermark_strategy: the strategy; ``WatermarkStrategy.no_watermarks()`` for none.
            source_name: the name of the source in plans, without the prefix ``Source: ``.
            type_info: the type that the records are converted to; None: the type that the source produces.

        Example::

            strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
            clicks = env.from_source(kafka_source, strategy.with_timestamp_assigner(ClickTime()), "clicks")
        """
        watermarks = watermarks_factory(watermark_strategy, of_source=True)
        node = self._add_source(source, source_name, type_info)
        operators = [node]
        if watermarks.extract_timestamp is not None or watermarks.makes_watermarks:
            operators.append(
                self._add_node(
                    "Timestamps/Watermarks",
                    watermarks,
                    node.output_type,
                    [[Tap(node)]],
                    parallelism=node.parallelism,
                    part_of_source=True,
                )
            )
        return DataStream(self, [Tap(operators[-1])], node.output_type, operators)

    def add_source(
        self, source_func: Source, source_name: str = "Custom Source", type_info: DeclaredType = None
    ) -> DataStream:
        """A stream of the records of a source, without watermarks."""
        return self.from_source(source_func, WatermarkStrategy.no_watermarks(), source_name, type_info)

    def from_spark(self, df: DataFrame, name: str = "Spark DataFrame") -> DataStream:
        """A stream of the rows of a streaming DataFrame, which must belong to the same Spark session. The schema of the
        DataFrame gives the type of the records. Not in PyFlink."""
        from flinkish.connectors.spark import SparkSource

        return self.add_source(SparkSource(df), name)

    def create_input(self, input_format: InputFormat, type_info: DeclaredType = None) -> DataStream:
        """A stream of the records of an input format, such as `AvroInputFormat`."""
        check_instance(
            input_format, InputFormat, "the input format is", "create_input()", "such as AvroInputFormat(path, schema)"
        )
        source = input_format._source()
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Input Format Source", type_info)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream:
        """A stream of the lines of a file, or of all files of a directory, as in PyFlink 1.x."""
        from flinkish.connectors.file_system.source import FileSource

        source = FileSource.text(file_path, charset=charset_name)
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Read Text File Source")

    # --- execution ----------------------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the job until it ends. The program is then empty: the next ``execute`` runs only the operators that are
        added after it.

        SIGTERM and SIGINT end the job after the running epoch (if this is the main thread), and then the program:
        SystemExit with the code 143 is raised, so nothing behind this call runs as if the job had finished. A second
        SIGINT raises KeyboardInterrupt.

        If all that was left of the program runs already, as inserts into tables, it waits for them.

        Raises:
            ProgramError: the program is wrong, or user code failed (UserCodeError).
            FlinkishError: the job failed for another reason; the class says who must act.
        """
        from flinkish.jobmanager.signals import running, stop_on_signals

        parts, self._parts = self._parts, []
        # around both: a signal may come between the submission and the wait
        with stop_on_signals(running):
            clients = parts if parts and self._program.empty else [self._submit(job_name)]
            return [client.get_job_execution_result().result() for client in clients][-1]

    def execute_async(self, job_name: str = DEFAULT_JOB_NAME) -> JobClient:
        """Start the job without waiting for its end. The program is then empty, as after ``execute``.

        SIGTERM and SIGINT end all jobs of the program while it waits for the result of one of them
        (``get_job_execution_result().result()``), as they do in ``execute``.
        """
        return self._submit(job_name)

    def get_execution_plan(self) -> str:
        """The plan of the program so far in Flink's JSON form, with the operators that PyFlink puts behind ``key_by``.
        The program is not changed. Behind ``execute`` it is the plan of the job that was executed; PyFlink raises an
        error there."""
        self._program.is_explained = True
        return plan_json(self.get_stream_graph(or_submitted=True), of_pyflink=True)

    def explain(self) -> str:
        """The plan of the program so far as a table for people; behind ``execute`` that of the job that was executed.
        The program is not changed. Not in PyFlink."""
        self._program.is_explained = True
        return explain(self.get_stream_graph(or_submitted=True), chaining=self.is_chaining_enabled())

    def get_stream_graph(self, *, or_submitted: bool = False) -> StreamGraph:
        """A checked copy of the program so far, as ``execute`` submits it; the program is not changed. Not in PyFlink,
        but in Java's Flink. ``or_submitted``: behind ``execute``, that of the job that was executed.

        Raises:
            ProgramError: the program is wrong, or empty.
        """
        graph = self._program.stream_graph(self._configuration, self.get_parallelism(), or_submitted=or_submitted)
        graph.follows_slots = not self._has_parallelism()
        graph.check()
        return graph

    def __repr__(self) -> str:
        settings = f"parallelism {self.get_parallelism()}, {self._configuration.get(execution.RUNTIME_MODE)}"
        return f"<{type(self).__name__}: {self._program.size} operators to be executed; {settings}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the job graph, and the plan as a table."""
        try:
            return paragraph(repr(self)) + self._drawn() + folded("plan", self.explain())
        except FlinkishError as error:
            # such as a program that has no operators yet
            return paragraph(repr(self)) + paragraph(error)

    def _drawn(self) -> str:
        """The job graph of the program so far, as SVG. Raises what `get_stream_graph` raises."""
        self._program.is_explained = True
        return svg(drawing_of(self.get_stream_graph(or_submitted=True), self.is_chaining_enabled()))

    def close(self) -> None:
        """Discard the operators that have not been executed. Jobs that were started go on."""
        self._program.clear()

    # --- files of the workers -----------------------------------------------------------------------------------

    def add_python_file(self, file_path: str) -> None:
        """Ship a Python file, a zipped package or a directory to the workers, so that user functions can import its
        modules."""
        dependencies.add_python_file(self._configuration, file_path)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Install the packages of a requirements.txt for the workers.

        The packages are installed once, in the driver, and shipped, so that all workers have the same versions. If
        ``requirements_cache_dir`` names a folder with the packages, nothing is downloaded.
        """
        dependencies.set_python_requirements(self._configuration, requirements_file_path, requirements_cache_dir)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive (zip, tar) or a directory to the workers. User functions find it unpacked under a relative
        path: below ``target_dir``, or else below the name of the archive. The functions of such a job run in a working
        directory of their own."""
        dependencies.add_python_archive(self._configuration, archive_path, target_dir)

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python interpreter of the workers, a path on each node. Call it before the Spark session of the
        program begins."""
        self._configuration.set(python_options.EXECUTABLE, python_exec)

    def add_jars(self, *jars_path: str) -> None:
        """Add jars, given by their paths, to those that Spark gets. Those of Flink's connectors and formats are not
        needed, and left out: they need not even exist."""
        self._configuration.set(core.JARS, [*self._configuration.get(core.JARS), *jars_path])

    def add_classpaths(self, *classpaths: str) -> None:
        """Add jars, given by URLs such as ``file:///a.jar``, to the class path. Raises ProgramError for a URL without a
        protocol."""
        without = [url for url in classpaths if "://" not in url and not url.startswith("file:")]
        if without:
            raise ProgramError(
                f"the class path {without[0]!r}",
                where="StreamExecutionEnvironment.add_classpaths()",
                expected="a URL with a protocol, such as file:///a.jar",
                hint="put file:// before an absolute path",
            )
        self._configuration.set(core.CLASSPATHS, [*self._configuration.get(core.CLASSPATHS), *classpaths])

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Ship a file or a directory to the workers, where user functions find it with
        ``runtime_context.get_distributed_cache().get_file(name)``. Raises ConfigurationError if the name is taken."""
        dependencies.add_cached_file(self._configuration, dependencies.CachedFile(name, file_path, executable))

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> StreamExecutionEnvironment:
        """Register the resources of a slot sharing group. Plans show them, but they have no effect, and a warning says
        so: Spark assigns resources to executors."""
        check_instance(
            slot_sharing_group,
            SlotSharingGroup,
            "the slot sharing group is",
            "register_slot_sharing_group()",
            "SlotSharingGroup.builder(name)...build() makes one",
        )
        resources = slot_sharing_group._resources()
        if resources:
            warn_without_effect(
                "the resources of a slot sharing group", "Spark gives resources by executor: see spark.executor.*"
            )
        self._program.slot_sharing_groups[slot_sharing_group.get_name()] = resources
        return self

    def register_state_migration(self, uid: str, state_name: str, function: Callable[[Any], Any]) -> None:
        """Convert each value of a state while it is restored from a savepoint, e.g. because its type has changed. Has
        no effect if nothing is restored. Not in PyFlink.

        Example::

            env.register_state_migration("counts", "n", lambda n: (n, 0))

        Args:
            uid: the uid of the operator that has the state.
            state_name: the name in the state's descriptor.
            function: old value -> new value, which must always be the same for the same old value. For list state it
                takes and returns the whole list, for map state the value of each map key, for aggregating state the
                accumulator.

        Raises:
            ArgumentTypeError: ``function`` is not callable.
        """
        if not callable(function):
            raise ArgumentTypeError(
                f"the migration is {function!r}",
                where="register_state_migration()",
                expected="a function",
                hint="write lambda old: new",
            )
        self._program.migrations[(uid, state_name)] = function

    def register_class_alias(self, old: str | type, new: type) -> None:
        """Restore stored instances of an earlier class as instances of another class: the class was renamed or moved to
        another module, or the program was a script and is imported now. Not in PyFlink.

        Example::

            env.register_class_alias("__main__.Cart", shop.model.Cart)

        Args:
            old: the name under which the class was stored, ``module.QualifiedName``, or the class itself. The name of
                a class in the main script or notebook is ``__main__.QualifiedName``.
            new: the class that takes its place. Values that are stored from now on have its name.

        Raises:
            ArgumentTypeError: ``old`` is not such a name, or ``new`` is not a class.
            ProgramError: ``new`` is defined inside a function.
        """
        name, target = checked_alias(old, new)
        self._program.class_aliases[name] = target

    # --- the inside ---------------------------------------------------------------------------------------------

    def _submit(self, job_name: str | None) -> RunClient:
        from flinkish.jobmanager.submission import submit

        configure_loggers(self._configuration.to_dict())
        self._warn_of_settings_without_effect()
        graph = self.get_stream_graph()
        self._program.clear(submitted=True)
        return submit(
            graph,
            Configuration(self._configuration),
            job_name or self._configuration.get(core.NAME) or DEFAULT_JOB_NAME,
            chaining=self.is_chaining_enabled(),
        )

    def _execute_part(self, sinks: Sequence[StreamNode], job_name: str) -> RunClient:
        """Start a job of these sinks and of what they read. The rest of the program is left to the next `execute`."""
        rest, self._program = self._program, self._program.part(sinks)
        try:
            client = self._submit(self._configuration.get(core.NAME) or job_name)
        finally:
            self._program = rest
        self._parts.append(client)
        return client

    @contextmanager
    def _apart(self, roots: Sequence[StreamNode] = ()) -> Iterator[None]:
        """In the context the program consists of these operators, of those before them and of those that are added. It
        is a job of its own, which keeps nothing in the directory of the program's job and begins with no savepoint. The
        program is as before afterwards."""
        rest, settings = self._program, self._configuration
        rest.is_explained = True
        self._program, self._configuration = rest.with_roots(roots), Configuration(settings)
        for option in (flinkish.JOB_DIR, execution.STATE_RECOVERY_PATH):
            self._configuration.remove_config(option.key)
        try:
            yield
        finally:
            self._program, self._configuration = rest, settings

    def _warn_of_settings_without_effect(self) -> None:
        found = {key: why for key, why in self._configuration.without_effect().items() if key not in self._reported}
        self._reported.update(found)
        if found:
            _LOG.warning("settings without effect: %s", "; ".join(f"{key}: {why}" for key, why in found.items()))

    def _add_source(self, source: Source, name: str, type_info: DeclaredType, **settings: Any) -> StreamNode:
        check_instance(
            source,
            Source,
            "the source is",
            f"from_source() or add_source() of '{name}'",
            "builders give their source when build() is called, as KafkaSource.builder()...build() does",
        )
        factory: OperatorFactory = SourceOperatorFactory()
        output_type = source.produced_type
        if type_info is not None and declared_type(type_info) != output_type:
            output_type = declared_type(type_info)
            factory = ConvertFactory(output_type.batch_converter(f"records of source '{name}'"))
        return self._add_node(f"Source: {name}", factory, output_type, [], source=source, **settings)

    def _add_node(
        self,
        name: str,
        factory: OperatorFactory,
        output_type: TypeInformation,
        inputs: Sequence[Sequence[Tap]],
        **settings: Any,
    ) -> StreamNode:
        """Add an operator to the program, on behalf of a stream. Unless the settings say otherwise, it gets the
        parallelism that the environment has at this moment, as in Flink; if it has none yet, that of the submission."""
        if settings.get("parallelism") is None and self._has_parallelism():
            settings["parallelism"] = self.get_parallelism()
        return self._program.add(name, factory, output_type, inputs, **settings)
