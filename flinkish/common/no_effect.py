"""Names of PyFlink's API that have no effect in flinkish, no meaning, or nothing behind them.

Rule upheld here: each call without effect is reported once, and only once per process. (A setting that is a
configuration key is reported when the job is submitted, with all others: `Configuration.without_effect`.) A call whose
result would be a Java object is an error. What flinkish does not have can be imported, since programs import names that
they never use; its use is an error that says what to do instead (`AbsentName`).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from fnmatch import fnmatchcase
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from flinkish.errors import UnsupportedOperationError, redact

_LOG = logging.getLogger("flinkish.JobManager")
_reported: set[str] = set()


def forget_reports() -> None:
    """Report each call and each name anew, as in a new process."""
    _reported.clear()


def warn_without_effect(call: str, why: str, level: int = logging.WARNING) -> None:
    """Log, once per process, that this call has no effect. ``level``: DEBUG if the results are those of Flink."""
    if call not in _reported:
        _reported.add(call)
        _LOG.log(level, "%s has no effect: %s", redact(call), redact(why))


def say_once(text: str) -> None:
    """Log, once per process, a piece of information."""
    if text not in _reported:
        _reported.add(text)
        _LOG.info("%s", text)


def note_not_needed(what: str, why: str) -> None:
    """Log, once per process, as a piece of information, that a part of the program is not needed here."""
    if what not in _reported:
        _reported.add(what)
        _LOG.info("not needed here: %s (%s)", redact(what), why)


def warn_of_hadoop_config(hadoop_config: object | None, owner: str) -> None:
    """Log, once per process, that the Hadoop configuration given to ``owner`` has no effect; None: it was not given."""
    if hadoop_config is not None:
        warn_without_effect(f"the hadoop_config of {owner}", "set spark.hadoop.* instead")


def no_java_object(call: str) -> NoReturn:
    """Raise UnsupportedOperationError: the Java object that the call is about does not exist."""
    raise UnsupportedOperationError(
        f"{call} has no meaning here: there is no Java object",
        where="the Python API",
        expected="a program that uses only the Python API",
        hint=_NO_JAVA,
    )


# --- names with nothing behind them -----------------------------------------------------------------------------

_OWN_CONNECTOR = (
    "{} has no connector here: read it page by page with a PagedSource and write it with a WriterSink (both are in "
    "flinkish.datastream.connectors.base) through its own Python client; or put Kafka between; or let Spark read it, "
    "with env.from_spark(frame)"
)
_PULSAR = _OWN_CONNECTOR.format("Pulsar")
_RABBITMQ = _OWN_CONNECTOR.format("RabbitMQ")
_DYNAMIC_KAFKA = (
    "the cluster of a KafkaSource is fixed: make one KafkaSource for each cluster, with set_topic_pattern() for topics "
    "that come later, and union their streams"
)
_NO_JAVA = (
    "there is no Flink in Java here: call the methods of the Python objects, and set configuration keys with "
    "env.configure(Configuration.from_dict({...}))"
)
_PYFLINK_INSIDE = (
    "it belongs to the inside of PyFlink: use the public classes of flinkish.datastream and flinkish.common"
)
_NO_HOME = "no installation of Flink belongs to flinkish, and the jars of Flink's connectors are not needed"
_TESTING = "it belongs to PyFlink's own tests: test programs and functions with flinkish.testing"
_NOT_IN_TABLES = (
    "tables have no such part here (docs/tables.md lists what there is): write the query with what there is, or with "
    "streams, between t_env.to_data_stream(table) and t_env.from_data_stream(stream)"
)

#: Patterns of ``module:name`` -> what to do instead; the first that matches counts. A module that a pattern of the form
#: ``module:*`` matches can be imported, and has any public name that is asked of it.
_ABSENT = {
    "flinkish.java_gateway:*": _NO_JAVA,
    "flinkish.util:*": _NO_JAVA,
    "flinkish.util.java_utils:*": _NO_JAVA,
    "flinkish.common.utils:*": _NO_JAVA,
    "flinkish.datastream.connectors.aws:*": _OWN_CONNECTOR.format("AWS"),
    "flinkish.datastream.connectors.cassandra:*": _OWN_CONNECTOR.format("Cassandra"),
    "flinkish.datastream.connectors.dynamic_kafka:*": _DYNAMIC_KAFKA,
    "flinkish.datastream.connectors.dynamodb:*": _OWN_CONNECTOR.format("DynamoDB"),
    "flinkish.datastream.connectors.elasticsearch:*": _OWN_CONNECTOR.format("Elasticsearch"),
    "flinkish.datastream.connectors.mongodb:*": _OWN_CONNECTOR.format("MongoDB"),
    "flinkish.datastream.connectors.opensearch:*": _OWN_CONNECTOR.format("OpenSearch"),
    "flinkish.datastream.connectors.pulsar:*": _PULSAR,
    "flinkish.datastream.connectors.rabbitmq:*": _RABBITMQ,
    "flinkish.datastream.connectors:RMQ*": _RABBITMQ,
    "flinkish.datastream.connectors:DynamicKafka*": _DYNAMIC_KAFKA,
    "flinkish.datastream.connectors:Kafka*Subscriber": _DYNAMIC_KAFKA,
    "flinkish.datastream.connectors:*MetadataService": _DYNAMIC_KAFKA,
    "flinkish.datastream.connectors:StreamPatternSubscriber": _DYNAMIC_KAFKA,
    "flinkish.datastream.connectors:Pulsar*": _PULSAR,
    "flinkish.datastream.connectors:St[ao]*Cursor": _PULSAR,
    "flinkish.datastream.connectors:SubscriptionType": _PULSAR,
    "flinkish.metrics.metricbase:GenericMetricGroup": _PYFLINK_INSIDE,
    "flinkish.metrics.metricbase:MetricGroupType": _PYFLINK_INSIDE,
    "flinkish.table:[A-Z]*": _NOT_IN_TABLES,
    "flinkish.table.*:*": _NOT_IN_TABLES,
    "flinkish.find_flink_home:*": _NO_HOME,
    "flinkish.find_flink_home:_find_*": _NO_HOME,
    "flinkish.pyflink_gateway_server:*": _NO_JAVA,
    "flinkish.serializers:*": _PYFLINK_INSIDE,
    "flinkish.testing.*:*": _TESTING,
    # packages, and all modules below them
    **{
        f"flinkish.{package}{below}:*": instead
        for below in ("", ".*")
        for package, instead in {
            "dataframe": _NOT_IN_TABLES,
            "dataset": "there is no DataSet API: a DataStream whose sources are bounded does the same",
            "datastream.tests": _TESTING,
            "fn_execution": _PYFLINK_INSIDE,
        }.items()
    },
    **{
        f"flinkish.*:{name}": _PYFLINK_INSIDE
        for name in (
            *("AsyncFunctionDescriptor", "FunctionWrapper", "Internal*Window*", "Min", "NullByteKeySelector"),
            *("PassThrough*WindowFunction", "ReduceFunctionWrapper", "ResultTypeQueryable", "WINDOW_STATE_NAME"),
            *("WindowOperationDescriptor", "DEFAULT_OUTPUT_TAG"),
        )
    },
    "flinkish.*:Java*Wrapper": _NO_JAVA,
    "flinkish.*:pickled_bytes_to_python_converter": _NO_JAVA,
}

#: Modules of PyFlink that are no files here, and those that define their names.
_ELSEWHERE = {
    "flinkish.common.execution_mode": ("common.execution_config",),
    "flinkish.datastream.tests.test_util": ("testing.doubles",),
    "flinkish.table.changelog_mode": ("table.streams",),
    "flinkish.table.environment_settings": ("table.table_config",),
    "flinkish.table.explain_detail": ("table.table_environment",),
    "flinkish.table.result_kind": ("table.table_result",),
    "flinkish.table.sql_dialect": ("table.table_config",),
    "flinkish.table.statement_set": ("table.table_environment",),
    "flinkish.table.table_descriptor": ("table.schema",),
    "flinkish.table.table_pipeline": ("table.table",),
    "flinkish.table.table_schema": ("table.table_result",),
    "flinkish.table.window": ("table.table",),
    "flinkish.testing.test_case_utils": ("testing.program",),
    "flinkish.util.java_utils": ("datastream.environment_settings",),
}


class AbsentName(type):
    """The class of the classes that stand for what flinkish does not have. They can be imported, and name types in
    annotations; to call them, to derive from them or to take an attribute of them raises UnsupportedOperationError."""

    #: what to do instead
    instead: str

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> AbsentName:
        for base in bases:
            if isinstance(base, AbsentName):
                raise _absent(base)
        return super().__new__(cls, name, bases, namespace)

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        raise _absent(cls)

    def __getattr__(cls, name: str) -> NoReturn:
        # what Python itself asks for, as in pickling, is an attribute that a class may lack
        raise AttributeError(name) if name.startswith("_") else _absent(cls)


def _absent(name: AbsentName) -> UnsupportedOperationError:
    where = name.__module__.replace("flinkish", "pyflink", 1)
    return UnsupportedOperationError(f"flinkish has no {name.__name__}", where=where, hint=name.instead)


def supply_names(module: str, *homes: str) -> None:
    """Supply a module at one of PyFlink's paths with the names that its own code does not define: those that PyFlink's
    module only imports, from ``homes`` (modules within flinkish), and those that flinkish does not have (`AbsentName`).
    They are looked up when a program asks for them, so that nothing is imported in vain or in a circle.
    """

    is_package = "__path__" in sys.modules[module].__dict__

    def named(name: str) -> Any:
        # a module of the package is found by the import system
        is_module = is_package and name.islower() and importlib.util.find_spec(f"{module}.{name}") is not None
        for home in homes if not name.startswith("_") and not is_module else ():
            found = importlib.import_module(f"flinkish.{home}")
            if name in found.__all__:
                return getattr(found, name)
        instead = _instead_of(f"{module}:{name}")
        if instead is not None:
            stub = AbsentName(name, (), {"__module__": module, "__doc__": instead, "instead": instead})
            # pickling by reference needs the very same object
            setattr(sys.modules[module], name, stub)
            return stub
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    # not `__getattr__ = ...` in the module itself, for which type checkers would let any misspelt name pass
    sys.modules[module].__dict__["__getattr__"] = named


def _instead_of(path: str) -> str | None:
    """What to do instead of using the name ``module:name``, or of importing the module ``module:*``; None: it is no
    name of PyFlink's that matters. Private names, for which libraries look everywhere, need a pattern of their own."""
    is_private = ":_" in path
    fitting = (text for key, text in _ABSENT.items() if fnmatchcase(path, key) and (":_" in key or not is_private))
    return next(fitting, None)


class _Loader:
    """Loads a module without a file."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """The import system makes the module itself."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        module.__doc__ = _instead_of(f"{module.__name__}:*")
        supply_names(module.__name__, *_ELSEWHERE.get(module.__name__, ()))


def module_of_pyflink(name: str) -> ModuleSpec | None:
    """How to load a module that PyFlink has and that is no file here; None: PyFlink has none that matters."""
    if name not in _ELSEWHERE and _instead_of(f"{name}:*") is None:
        return None
    return ModuleSpec(name, _Loader, is_package=True)  # type: ignore[arg-type]
