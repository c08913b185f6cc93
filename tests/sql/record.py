"""Records Flink's answers: fills in what stands below ``----`` and behind ``=>`` in the files ``*.test`` here.

Run by hand, from the root of the repository, with a Python that has apache-flink (and a Java for it)::

    python tests/sql/record.py                      all files
    python tests/sql/record.py text.test            this one
    python tests/sql/record.py --missing            only what has no answer yet (of files that lack one)

It needs nothing of this project but `tests/support/sql_answers.py` and what it imports. The answers are those of a
streaming environment with parallelism 1, materialised; those of ``query batch`` come from a batch environment.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, Table, TableEnvironment

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support import sql_answers as answers


def new_environment(batch: bool = False) -> TableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    environment = TableEnvironment.create(settings)
    for key, value in {
        "parallelism.default": "1",
        "table.local-time-zone": "UTC",
        "pipeline.auto-watermark-interval": "1 ms",
        "restart-strategy.type": "none",
    }.items():
        environment.get_config().set(key, value)
    return environment


class Recorder:
    """Runs the records of one file."""

    def __init__(self, folder: Path, missing: bool) -> None:
        self._folder = folder
        self._missing = missing
        self._environments = {"stream": new_environment()}
        self._setup = []

    def run(self, record: Any) -> None:
        match record.kind:
            case "option":
                self._everywhere(
                    lambda environment: environment.get_config().set(record.words[0], " ".join(record.words[1:]))
                )
            case "table":
                statement = answers.declared(record, self._folder)
                self._everywhere(lambda environment: environment.execute_sql(statement))
            case "statement":
                self._statement(record)
            case "query":
                self._query(record)
            case "expressions":
                self._expressions(record)

    def _everywhere(self, step: Any) -> None:
        self._setup.append(step)
        for environment in self._environments.values():
            step(environment)

    def _environment(self, record: Any) -> TableEnvironment:
        if "batch" not in record.words:
            return self._environments["stream"]
        if "batch" not in self._environments:
            self._environments["batch"] = new_environment(batch=True)
            for step in self._setup:
                step(self._environments["batch"])
        return self._environments["batch"]

    def _statement(self, record: Any) -> None:
        if record.fails:
            self._refused(record, lambda: self._environment(record).execute_sql(record.sql).wait())
        elif record.sql.lstrip().upper().startswith(("INSERT", "EXECUTE")):
            try:
                self._environment(record).execute_sql(record.sql).wait()
            except Exception as error:
                print(f"  line {record.line} is refused: {message_of(error)}")
                record.words.append("error")
                record.answer = [message_of(error)]
        else:
            self._everywhere(lambda environment: environment.execute_sql(record.sql))

    def _query(self, record: Any) -> None:
        if self._missing and record.answer is not None:
            return

        def run() -> tuple[list[tuple[str, str]], list[tuple[int, list[Any]]]]:
            return rows_of(self._environment(record).sql_query(record.sql))

        if record.fails:
            self._refused(record, run)
            return
        try:
            types, changes = run()
        except Exception as error:
            print(f"  line {record.line} is refused: {message_of(error)}")
            record.words.append("error")
            record.answer = [message_of(error)]
            return
        rows = answers.materialized((kind, answers.row_text(row)) for kind, row in changes)
        record.answer = [answers.columns_text(types), *(answers.digest(rows) if "digest" in record.words else rows)]

    def _refused(self, record: Any, run: Any) -> None:
        try:
            run()
        except Exception as error:
            record.answer = [message_of(error)]
            return
        print(f"  line {record.line} is not refused")
        record.words.remove("error")
        record.answer = None

    def _expressions(self, record: Any) -> None:
        pairs = record.expressions
        wanted = [expression for expression, answer in pairs if not (self._missing and answer)]
        source = f" FROM {record.words[0]}" if record.words else ""
        found = {}
        self._answer(wanted, source, found)
        record.text = [f"{expression}{answers.ARROW}{found.get(expression, answer)}" for expression, answer in pairs]

    def _answer(self, wanted: list[str], source: str, found: dict[str, str]) -> None:
        """Many expressions are asked in one query, and in two halves if it fails."""
        if not wanted:
            return
        query = "SELECT " + ", ".join(f"{text} AS c{at}" for at, text in enumerate(wanted)) + source
        try:
            types, changes = rows_of(self._environments["stream"].sql_query(query))
        except Exception as error:
            if len(wanted) > 1:
                half = len(wanted) // 2
                self._answer(wanted[:half], source, found)
                self._answer(wanted[half:], source, found)
            else:
                found[wanted[0]] = answers.ERROR + message_of(error)
            return
        for at, text in enumerate(wanted):
            values = " | ".join(answers.text_of(row[at]) for _, row in changes)
            found[text] = f"{types[at][1]}: {values}"


def message_of(error: Exception) -> str:
    """The message of the last cause, in one line."""
    text = str(error)
    at = text.rfind("Caused by:")
    text = text[at + len("Caused by:") :] if at >= 0 else text
    text = text.split("\n\tat ")[0]
    return " ".join(text.split())[:200]


def rows_of(table: Table) -> tuple[list[tuple[str, str]], list[tuple[int, list[Any]]]]:
    """The columns with their types, and the changes: pairs of RowKind's number and values."""
    schema = table._j_table.getResolvedSchema()
    columns = [(name, type_text(kind)) for name, kind in zip(schema.getColumnNames(), schema.getColumnDataTypes())]
    changes = []
    iterator = table.execute()._j_table_result.collect()
    try:
        while iterator.hasNext():
            row = iterator.next()
            kind = int(row.getKind().toByteValue())
            changes.append((kind, [python_value(row.getField(at)) for at in range(len(columns))]))
    finally:
        iterator.close()
    return columns, changes


def type_text(data_type: Any) -> str:
    """The type without NOT NULL, and without the marks of time attributes."""
    text = str(data_type.getLogicalType().copy(True).asSummaryString())
    for mark in (" NOT NULL", " *ROWTIME*", " *PROCTIME*"):
        text = text.replace(mark, "")
    return text.replace("VARCHAR(2147483647)", "STRING").replace("VARBINARY(2147483647)", "BYTES")


def python_value(value: Any) -> Any:
    """A value of Java as Python's; times as their texts."""
    if type(value).__name__ == "JavaArray":
        return [python_value(item) for item in value]
    if type(value).__name__ == "JavaMap":
        return {python_value(key): python_value(item) for key, item in value.items()}
    if type(value).__name__ != "JavaObject":
        return value
    name = str(value.getClass().getSimpleName())
    if name == "Row":
        return tuple(python_value(value.getField(at)) for at in range(value.getArity()))
    if name == "Instant":
        return _Verbatim(answers.time_text(str(value.toString()).rstrip("Z")) + "Z")
    if name in ("LocalDateTime", "LocalTime"):
        return _Verbatim(answers.time_text(str(value.toString())))
    return _Verbatim(str(value.toString()))


class _Verbatim:
    """A value whose text is known."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--missing", action="store_true")
    given = parser.parse_args()
    paths = [answers.FOLDER / Path(name).name for name in given.files] or sorted(answers.FOLDER.glob("*.test"))
    for path in paths:
        parts = answers.parse(path)
        records = [part for part in parts if not isinstance(part, str)]
        if given.missing and not any(lacks(record) for record in records):
            continue
        print(path.name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            recorder = Recorder(Path(folder), given.missing)
            for record in records:
                try:
                    recorder.run(record)
                except Exception as error:
                    raise SystemExit(f"{path.name}:{record.line}: {message_of(error)}\n{record.sql}") from error
        path.write_text(answers.written(parts))


def lacks(record: Any) -> bool:
    if record.kind == "expressions":
        return any(answer is None for _, answer in record.expressions)
    return record.answer is None and (record.kind == "query" or record.fails)


if __name__ == "__main__":
    main()
