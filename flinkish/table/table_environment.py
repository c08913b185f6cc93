"""Table environments: the tables, views and functions of a program, its statements, and the way from and to streams.

Rule upheld here: a statement of SQL and a call of the Table API make the same plan (`planner`), and a plan becomes
operators (`translate`) only where rows are wanted: in an INSERT, in the result of a query, or in a stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from flinkish.common.arguments import check_instance
from flinkish.common.configuration import Configuration
from flinkish.common.no_effect import supply_names
from flinkish.common.options import core, execution
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.types import Row, RowKind
from flinkish.datastream import DataStream, StreamExecutionEnvironment
from flinkish.errors import ConfigurationError, ProgramError
from flinkish.graph.stream_graph import StreamNode
from flinkish.table import explain, planner, sql, syntax, translate
from flinkish.table.catalog import Catalog, name_of
from flinkish.table.expression import Expression
from flinkish.table.functions import FUNCTIONS
from flinkish.table.logical_types import BIGINT, STRING
from flinkish.table.plan import Changes, Field, Relation, Sink
from flinkish.table.projections import prune
from flinkish.table.refusals import refusal, refuse
from flinkish.table.schema import Schema, TableDescriptor
from flinkish.table.streams import ChangelogMode, from_elements, from_expressions, from_pandas, table_of
from flinkish.table.table import Table, TablePipeline
from flinkish.table.table_config import EnvironmentSettings, TableConfig
from flinkish.table.table_result import ResultKind, TableResult
from flinkish.table.tokens import where_of
from flinkish.table.udf import ScalarFunction, UserFunction, imported

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ExplainDetail", "StatementSet", "StreamTableEnvironment", "TableEnvironment"]

_WHERE = "the table environment"


class ExplainDetail:
    """What `explain` may be asked for besides the plan; it shows all that there is."""

    ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE = range(4)


class StatementSet:
    """Inserts that run as one job, or within the job of the DataStream program."""

    def __init__(self, t_env: TableEnvironment) -> None:
        self._t_env = t_env
        self._sinks: list[Sink] = []

    def add(self, table_pipeline: TablePipeline) -> StatementSet:
        """Add what ``Table.insert_into(...)`` gives."""
        where, hint = "StatementSet.add()", "table.insert_into('name') makes one"
        check_instance(table_pipeline, TablePipeline, "the pipeline is", where, hint)
        return self._add(syntax.Insert(table_pipeline._target, table_pipeline._table._query))

    def add_insert(self, target_path_or_descriptor: Any, table: Table, overwrite: bool = False) -> StatementSet:
        """Add an insert of the rows of a table, whose columns are in the order of those of the target."""
        check_instance(table, Table, "the table is", "add_insert()", "from_data_stream(ds) makes one")
        return self.add(table.insert_into(target_path_or_descriptor, overwrite))

    def add_insert_sql(self, stmt: str) -> StatementSet:
        check_instance(stmt, str, "the statement is", "add_insert_sql()", "give SQL as a text")
        found = sql.parse(stmt)
        if not isinstance(found, syntax.Insert):
            raise ProgramError("the statement is no INSERT", where=where_of(stmt), expected="INSERT INTO")
        return self._add(found, stmt)

    def _add(self, insert: syntax.Insert, statement: str = "") -> StatementSet:
        self._sinks.append(planner.resolve_insert(insert, self._t_env._catalog, statement))
        return self

    def attach_as_datastream(self) -> list[StreamNode]:
        """Leave the inserts to the next ``env.execute()``."""
        sinks, self._sinks = self._sinks, []
        return translate.insert(planner.pruned(sinks), self._t_env)

    def execute(self) -> TableResult:
        """Start a job of these inserts alone. ``env.execute()`` does not run them again."""
        if not self._sinks:
            where, expected = "StatementSet.execute()", "an add_insert(...)"
            raise ProgramError("the statement set is empty", where=where, expected=expected)
        names = [f"{explain.CATALOG}{sink.name}" for sink in self._sinks]
        job = self._t_env._env._execute_part(self.attach_as_datastream(), f"insert-into_{','.join(names)}")

        def written() -> list[Row]:
            job.get_job_execution_result().result()
            # as in Flink, how many rows were written is not known
            return [Row(*[-1] * len(names))]

        # the job goes on when the result is closed
        return TableResult([Field(name, BIGINT) for name in names], written, job)

    def explain(self, *extra_details: Any) -> str:
        return explain.explain(planner.pruned(self._sinks))

    print_explain = Table.print_explain


class TableEnvironment:
    """The tables and queries of a program (``pyflink.table.TableEnvironment``).

    Example::

        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.execute_sql("CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '9')")
        t_env.sql_query("SELECT n % 3 AS m, COUNT(*) AS c FROM numbers GROUP BY n % 3").execute().print()
    """

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env
        config = self.get_config()
        self._catalog = Catalog(lambda: config._zone, lambda: env._configuration.get(execution.RUNTIME_MODE) == "BATCH")

    @staticmethod
    def create(environment_settings: EnvironmentSettings | Configuration) -> TableEnvironment:
        """An environment of its own, in streaming or in batch mode."""
        given, kinds = environment_settings, (EnvironmentSettings, Configuration)
        where, hint = "TableEnvironment.create()", "EnvironmentSettings.in_streaming_mode()"
        check_instance(given, kinds, "the settings are", where, hint)
        settings = given if isinstance(given, Configuration) else given.get_configuration()
        return TableEnvironment(StreamExecutionEnvironment.get_execution_environment(settings))

    def get_config(self) -> TableConfig:
        return TableConfig(self._env)

    # --- statements -------------------------------------------------------------------------------------------------

    def execute_sql(self, stmt: str) -> TableResult:
        """Carry out one statement of SQL. A query and an INSERT start a job.

        Raises:
            ProgramError: it cannot be read, is not supported, or names what is not there.
        """
        check_instance(stmt, str, "the statement is", "execute_sql()", "give SQL as a text")
        match sql.parse(stmt):
            case syntax.Insert() | syntax.InsertSet() as inserts:
                return self._set_of(inserts, stmt).execute()
            case syntax.Explain(explained):
                plan = self._plan_of(explained, stmt)
                return TableResult(_rows=lambda: [Row(plan)])
            case syntax.Show() as shown:
                return self._shown(shown)
            case syntax.SetOption() as option:
                return self._set_option(option)
            case syntax.CreateTable(name, definition, tolerant, temporary):
                table = TableDescriptor(self._catalog.with_base(definition, stmt))
                self._create(name, table, tolerant, temporary, stmt)
            case syntax.CreateView() as view:
                self._create_view(view, stmt)
            case syntax.CreateFunction(name, target, tolerant):
                self._catalog.add_function(name, imported(target, stmt), tolerant)
            case syntax.Drop(kind, name, tolerant):
                self._catalog.drop(kind, name, tolerant)
            case query:
                return self._execute_query(planner.resolve(query, self._catalog, stmt))
        return TableResult(_kind=ResultKind.SUCCESS)

    def sql_query(self, query: str) -> Table:
        check_instance(query, str, "the query is", "sql_query()", "give SQL as a text")
        return Table(planner.resolve(sql.parse_query(query), self._catalog, query), self)

    def create_statement_set(self) -> StatementSet:
        return StatementSet(self)

    def explain_sql(self, stmt: str, *extra_details: Any) -> str:
        statement = sql.parse(stmt)
        statement = statement.statement if isinstance(statement, syntax.Explain) else statement
        if not isinstance(statement, syntax.Explained):
            raise ProgramError("the statement has no plan", where=where_of(stmt), expected="a query, or an INSERT")
        return self._plan_of(statement, stmt)

    def _plan_of(self, statement: syntax.Explained, stmt: str) -> str:
        if isinstance(statement, syntax.Insert | syntax.InsertSet):
            return self._set_of(statement, stmt).explain()
        return explain.explain(prune([planner.resolve(statement, self._catalog, stmt)]))

    def _set_of(self, statement: syntax.Insert | syntax.InsertSet, stmt: str) -> StatementSet:
        statements = self.create_statement_set()
        for insert in (statement,) if isinstance(statement, syntax.Insert) else statement.inserts:
            statements._add(insert, stmt)
        return statements

    def _execute_query(self, relation: Relation) -> TableResult:
        with self._env._apart():
            stream = translate.rows_of(prune([relation])[0], self, "collect")
            rows: Any = stream.execute_and_collect(self._env._configuration.get(core.NAME) or "collect")
        style, zone = "types" if self._catalog.is_batch() else "changes", self._catalog.zone()
        return TableResult(relation.fields, lambda: rows, rows._client, style, rows.close, _zone=zone)

    def _set_option(self, option: syntax.SetOption) -> TableResult:
        config = self._env._configuration
        if option.reset:
            for key in [option.key] if option.key is not None else list(config.to_dict()):
                config.remove_config(key)
        elif option.key is not None:
            self.get_config().set(option.key, option.value or "")
        else:
            return _listed(("key", "value"), [Row(*item) for item in sorted(config._shown().items())])
        return TableResult(_kind=ResultKind.SUCCESS)

    def _shown(self, shown: syntax.Show) -> TableResult:
        if shown.what == "COLUMNS":
            table = self._catalog.known(shown.name)
            relation = planner.resolve(syntax.TableName(shown.name), self._catalog)
            definition = syntax.TableDefinition() if isinstance(table, Relation) else table.definition
            return _listed(*explain.described(relation, definition))
        kind = shown.what.lower().replace("user ", "user_defined_")
        names: list[str] = getattr(self, f"list_{kind}")()
        return _listed((f"{kind.split('_')[-1][:-1]} name",), list(map(Row, names)))

    # --- tables and views -------------------------------------------------------------------------------------------

    def from_path(self, path: str) -> Table:
        """The table or view of that name. Raises ProgramError if there is none."""
        check_instance(path, str, "the name of the table is", "from_path()", "such as 'orders'")
        self._catalog.known(path)
        return Table(planner.resolve(syntax.TableName(name_of(path)), self._catalog), self)

    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """A table without a name."""
        return self.from_path(self._target(descriptor))

    def create_table(self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool = False) -> None:
        """Declare a table. Raises ProgramError if the name is taken, unless that is to be ignored."""
        where, hint = "create_table()", "TableDescriptor.for_connector('kafka').schema(...).build()"
        check_instance(descriptor, TableDescriptor, "the table is", where, hint)
        self._create(path, descriptor, bool(ignoreIfExists))

    def create_temporary_table(self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool = False) -> None:
        """Declare a temporary table. All tables belong to the program."""
        self.create_table(path, descriptor, ignoreIfExists)
        self._catalog.temporary.add(name_of(path))

    def _create(
        self, name: str, table: TableDescriptor, tolerant: bool, temporary: bool = False, statement: str = ""
    ) -> None:
        # an option that is wrong is an error where the table is read or written
        with suppress(ConfigurationError):
            planner.Planner(self._catalog, statement).declared(table, name_of(name))
        self._catalog.add_table(name, table, tolerant, temporary)

    def create_temporary_view(
        self, view_path: str, table_or_data_stream: Table | DataStream, *fields_or_schema: Any
    ) -> None:
        """Give a name to a table or stream. Raises ProgramError if the name is taken."""
        found = table_or_data_stream
        relation = found._relation if isinstance(found, Table) else table_of(self._catalog, found, fields_or_schema)
        self._catalog.add_table(view_path, relation, temporary=True)

    def create_view(self, view_path: str, table: Table, ignore_if_exists: bool = False) -> None:
        """Give a name to a table. Raises ProgramError if the name is taken, unless that is to be ignored."""
        check_instance(table, Table, "the table is", "create_view()", "t_env.sql_query(...) gives one")
        self._catalog.add_table(view_path, table._relation, bool(ignore_if_exists))

    def _create_view(self, view: syntax.CreateView, stmt: str) -> None:
        query = syntax.Named(view.query, "", view.columns) if view.columns else view.query
        relation = planner.resolve(query, self._catalog, stmt)
        if view.or_replace:
            self._catalog.remove(name_of(view.name))
        self._catalog.add_table(view.name, relation, view.if_not_exists, view.temporary)

    def _target(self, path_or_descriptor: Any, overwrite: bool = False, source: Relation | None = None) -> str:
        """The name of a table that is given by its name or by its declaration. One without columns has those of the
        query whose rows are written into it."""
        if overwrite:
            raise refusal("OVERWRITE", "execute_insert()")
        if isinstance(path_or_descriptor, TableDescriptor):
            name = f"*anonymous_{path_or_descriptor.options.get('connector', '')}${len(self._catalog.tables)}*"
            definition = path_or_descriptor.definition
            if not definition.columns and source is not None:
                columns = tuple(syntax.ColumnDefinition(field.name, field.type) for field in source.fields)
                path_or_descriptor = TableDescriptor(replace(definition, columns=columns))
            self._create(name, path_or_descriptor, False)
            return name
        check_instance(path_or_descriptor, str, "the target is", "execute_insert()", "give the name of a table")
        return name_of(path_or_descriptor)

    def drop_temporary_table(self, table_path: str) -> bool:
        return name_of(table_path) in self._catalog.temporary and self.drop_table(table_path)

    def drop_temporary_view(self, view_path: str) -> bool:
        return name_of(view_path) in self._catalog.temporary and self.drop_view(view_path)

    def drop_table(self, table_path: str, ignore_if_not_exists: bool = True) -> bool:
        return self._catalog.drop("TABLE", table_path, ignore_if_not_exists)

    def drop_view(self, view_path: str, ignore_if_not_exists: bool = True) -> bool:
        return self._catalog.drop("VIEW", view_path, ignore_if_not_exists)

    def list_tables(self) -> list[str]:
        """The names of all tables and views."""
        return sorted(self._catalog.tables)

    def list_views(self) -> list[str]:
        return sorted(name for name, entry in self._catalog.tables.items() if isinstance(entry, Relation))

    def list_temporary_tables(self) -> list[str]:
        return sorted(self._catalog.temporary)

    def list_temporary_views(self) -> list[str]:
        return sorted(self._catalog.temporary.intersection(self.list_views()))

    def from_elements(self, elements: Iterable[Any], schema: Any = None, verify_schema: bool = True) -> Table:
        """A table of values: of tuples, lists, Rows or dicts. ``schema``: a ROW type, or the names of the columns."""
        given = list(elements)
        if given and all(isinstance(each, Expression) for each in given):
            return Table(from_expressions([each._node for each in given], schema, self._catalog), self)
        return Table(from_elements(given, schema, self._catalog.zone()), self)

    def from_pandas(self, pdf: pd.DataFrame, schema: Any = None, splits_num: int = 1) -> Table:
        """A table of the rows of a DataFrame. ``schema``: a ROW type, the names of the columns, or their types."""
        return Table(from_pandas(pdf, schema), self)

    # --- functions --------------------------------------------------------------------------------------------------

    def create_temporary_function(self, path: str, function: Any) -> None:
        """Give a function a name for SQL. Raises ProgramError if the name is taken."""
        hint = "@udf(result_type=DataTypes.BIGINT())"
        if isinstance(function, ScalarFunction):
            hint = f"udf({type(function).__name__}(), result_type=...)"
        where = "create_temporary_function()"
        check_instance(function, UserFunction, "the function is", where, hint, "what udf() makes")
        self._catalog.add_function(path, function)

    create_temporary_system_function = create_temporary_function

    def drop_temporary_function(self, path: str) -> bool:
        return self._catalog.drop("FUNCTION", path, True)

    drop_function = drop_temporary_system_function = drop_temporary_function

    def list_user_defined_functions(self) -> list[str]:
        return sorted(self._catalog.functions)

    def list_functions(self) -> list[str]:
        """The names of the built-in functions and of those of the program."""
        built_in = {name.lower() for name in FUNCTIONS if name.replace("_", "").isalnum()}
        return sorted(built_in.union(self._catalog.functions))

    # --- the program ------------------------------------------------------------------------------------------------

    def use_catalog(self, catalog_name: str) -> None:
        """Accepts the one catalog that there is."""
        if catalog_name != "default_catalog":
            raise refusal("CATALOG", "use_catalog()")

    def use_database(self, database_name: str) -> None:
        """Accepts the one database that there is."""
        if database_name != "default_database":
            raise refusal("DATABASE", "use_database()")


class StreamTableEnvironment(TableEnvironment):
    """A table environment of a program of streams.

    Example::

        t_env = StreamTableEnvironment.create(env)
        words = t_env.from_data_stream(stream)
        t_env.to_data_stream(words.where(words.n > 3)).map(lambda row: row.word).print()
        env.execute()
    """

    @staticmethod
    def create(  # type: ignore[override]
        stream_execution_environment: StreamExecutionEnvironment | None = None,
        environment_settings: EnvironmentSettings | None = None,
    ) -> StreamTableEnvironment:
        env = stream_execution_environment or StreamExecutionEnvironment.get_execution_environment()
        check_instance(env, StreamExecutionEnvironment, "the environment is", _WHERE, "get_execution_environment()")
        if environment_settings is not None:
            env.configure(environment_settings.get_configuration())
        return StreamTableEnvironment(env)

    def from_data_stream(self, data_stream: DataStream, *fields_or_schema: Expression | Schema) -> Table:
        """A stream as a table. Its columns are the fields of the declared type (those of a tuple are f0, f1 and so on);
        with a schema, or with fields as expressions, those that these name, or, if the stream has none of them, all by
        their order.

        Raises:
            ProgramError: the stream has no declared type, or not these columns.
        """
        return Table(table_of(self._catalog, data_stream, fields_or_schema), self)

    def from_changelog_stream(
        self, data_stream: DataStream, schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> Table:
        """A stream of Rows as a table whose rows change as their kinds say."""
        return Table(table_of(self._catalog, data_stream, (schema,), changelog_mode or ChangelogMode.all()), self)

    def to_data_stream(self, table: Table) -> DataStream:
        """The rows of a table, as Rows with the names of its columns, and, if it has a column of event time, the times
        of that. Raises ProgramError if rows are updated or deleted."""
        check_instance(table, Table, "the table is", "to_data_stream()", "from_path('name') gives one")
        if table._relation.changes is not Changes.INSERT:
            raise ProgramError(
                explain.no_changes_for("Table sink 'to_data_stream()'", table._relation),
                where=_WHERE,
                expected="a table of which rows are only inserted",
                hint="t_env.to_changelog_stream(table), whose Rows have the kinds of changes",
            )
        return self.to_changelog_stream(table)

    def to_changelog_stream(
        self, table: Table, target_schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> DataStream:
        """The rows of a table with the kinds of their changes."""
        check_instance(table, Table, "the table is", "to_changelog_stream()", "from_path('name') gives one")
        mode = changelog_mode or ChangelogMode.all()
        if mode.changes is Changes.INSERT:
            return self.to_data_stream(table)
        rows = translate.rows_of(prune([table._relation])[0], self)
        return rows.filter(lambda row: row.get_row_kind() is not RowKind.UPDATE_BEFORE) if mode.is_upsert else rows

    def to_append_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """The rows of a table whose rows do not change, converted to a type."""
        return self.to_data_stream(table).map(lambda row: row, output_type=type_info)

    def to_retract_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """The rows of a table, converted to a type, each in a pair with whether it is added or taken back."""
        stream = self.to_changelog_stream(table)
        return stream.map(_added_or_not, output_type=Types.TUPLE([Types.BOOLEAN(), type_info]))


def _added_or_not(row: Row) -> tuple[bool, Row]:
    added = row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
    row.set_row_kind(RowKind.INSERT)
    return added, row


def _listed(names: Iterable[str], rows: list[Row]) -> TableResult:
    return TableResult([Field(name, STRING) for name in names], lambda: rows, _style="content")


#: Methods with one answer.
_ANSWERS: dict[str, Any] = {
    "get_current_catalog": "default_catalog", "list_catalogs": ["default_catalog"], "list_modules": ["core"],
    "get_current_database": "default_database", "list_databases": ["default_database"],
}  # fmt: skip


refuse(
    TableEnvironment,
    {
        "CATALOG": "create_catalog register_catalog get_catalog",
        "MODULES": "load_module unload_module use_modules list_full_modules",
        "MODEL": "create_model create_temporary_model drop_model drop_temporary_model list_models "
        "list_temporary_models",
        "COMPILE": "compile_plan_sql load_plan execute_plan",
        "language": "create_java_function create_java_temporary_function create_java_temporary_system_function",
        "MATERIALIZED": "list_materialized_tables",
    },
)
for _name, _answer in _ANSWERS.items():
    setattr(TableEnvironment, _name, staticmethod(partial(copy, _answer)))
for _name in ("add_python_file", "add_python_archive", "set_python_requirements"):
    setattr(TableEnvironment, _name, property(attrgetter(f"_env.{_name}")))

supply_names(__name__)
