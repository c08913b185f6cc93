"""The texts of rows in files and on the screen, and what is read of them: recorded from Flink 2.3."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkish.errors import MalformedRecordError
from flinkish.table import StreamTableEnvironment
from tests.support.programs import new_environment

COLUMNS = (
    "i INT, b BOOLEAN, d DOUBLE, f FLOAT, c DECIMAL(10, 2), x BYTES, dt DATE, t TIME(0), w TIMESTAMP(3), "
    "w6 TIMESTAMP(6), z TIMESTAMP_LTZ(3), a ARRAY<INT>, r ROW<u INT, v TIMESTAMP(3)>, s STRING"
)
ROWS = """
(1, TRUE, 1.5E10, CAST(0.1 AS FLOAT), CAST(10 AS DECIMAL(10, 2)), ENCODE('ab', 'UTF-8'), DATE '2026-01-31',
 TIME '12:30:00', TIMESTAMP '2026-01-31 12:00:00', TIMESTAMP '2026-01-31 12:00:00.123456',
 CAST(TIMESTAMP '2026-01-31 12:00:00.500' AS TIMESTAMP_LTZ(3)), ARRAY[1, CAST(NULL AS INT)],
 ROW(1, TIMESTAMP '2026-01-31 12:00:00.120'), 'a, "b" c'),
(2, CAST(NULL AS BOOLEAN), CAST(NULL AS DOUBLE), CAST(NULL AS FLOAT), CAST(1.5 AS DECIMAL(10, 2)), CAST(NULL AS BYTES),
 CAST(NULL AS DATE), CAST(NULL AS TIME(0)), CAST(NULL AS TIMESTAMP(3)), CAST(NULL AS TIMESTAMP(6)),
 CAST(NULL AS TIMESTAMP_LTZ(3)), CAST(NULL AS ARRAY<INT>), CAST(NULL AS ROW<u INT, v TIMESTAMP(3)>), '')
"""
PRINTED = [
    "+I[1, true, 1.5E10, 0.1, 10.00, [97, 98], 2026-01-31, 12:30, 2026-01-31T12:00, 2026-01-31T12:00:00.123456, "
    '2026-01-31T03:00:00.500Z, [1, null], +I[1, 2026-01-31T12:00:00.120], a, "b" c]',
    "+I[2, null, null, null, 1.50, null, null, null, null, null, null, null, null, ]",
]
JSON = [
    '{"i":1,"b":true,"d":1.5E10,"f":0.1,"c":1E+1,"x":"YWI=","dt":"2026-01-31","t":"12:30:00",'
    '"w":"2026-01-31 12:00:00","w6":"2026-01-31 12:00:00.123456","z":"2026-01-31 03:00:00.5Z","a":[1,null],'
    '"r":{"u":1,"v":"2026-01-31 12:00:00.12"},"s":"a, \\"b\\" c"}',
    '{"i":2,"b":null,"d":null,"f":null,"c":1.5,"x":null,"dt":null,"t":null,"w":null,"w6":null,"z":null,"a":null,'
    '"r":null,"s":""}',
]
CSV = [
    '1,true,1.5E10,0.1,1E+1,YWI=,2026-01-31,12:30:00,"2026-01-31 12:00:00","2026-01-31 12:00:00.123456",'
    '"2026-01-31 03:00:00.5Z",1;,"1;2026-01-31 12:00:00.12","a, ""b"" c"',
    "2,,,,1.5,,,,,,,,,",
]


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    made = StreamTableEnvironment.create(new_environment().set_parallelism(1))
    made.get_config().set("table.local-time-zone", "Asia/Tokyo")
    return made


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("+I")]


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ("'format' = 'json'", JSON),
        ("'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'", None),
        ("'format' = 'csv', 'csv.null-literal' = ''", CSV),
        ("'format' = 'parquet'", None),
    ],
)
def test_what_is_written_is_flinks_and_is_read_again(
    t_env: StreamTableEnvironment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: str,
    texts: list[str] | None,
) -> None:
    t_env.execute_sql(
        f"CREATE TABLE files ({COLUMNS}) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', {options})"
    )
    t_env.execute_sql(f"CREATE TABLE screen ({COLUMNS}) WITH ('connector' = 'print')")
    t_env.execute_sql(f"INSERT INTO files VALUES {ROWS}").wait()
    if texts is not None:
        assert sorted(line for file in tmp_path.iterdir() for line in file.read_text().splitlines()) == sorted(texts)
    t_env.execute_sql("INSERT INTO screen SELECT * FROM files").wait()
    # with that null literal, an empty text is NULL
    printed = [line.replace(", ]", ", null]") for line in PRINTED] if texts is CSV else PRINTED
    assert sorted(shown(capsys)) == printed


_READ = "i INT, b BOOLEAN, d DOUBLE, s STRING, c DECIMAL(10, 2), t TIME(3), w TIMESTAMP(3)"


def test_json_is_read_as_flink_reads_it(
    t_env: StreamTableEnvironment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {
        '{"i":"12","b":"true","d":"1e3","s":{"k":[1,"x"]},"c":"1.005","t":"12:30:00.5"}': (
            '12, true, 1000.0, {"k":[1,"x"]}, 1.01, 12:30:00.500, null'
        ),
        '{"i":1.9,"b":1,"d":1,"s":1.50,"c":123456789012}': "1, false, 1.0, 1.50, null, null, null",
        '{"i":" 5 ","b":"yes","d":"NaN","s":true,"c":1e2}': "5, false, NaN, true, 100.00, null, null",
        '{"b":{},"s":null,"t":"24:00:00","w":"2026-02-30 12:00:00"} tail': (
            "null, false, null, null, null, 00:00, 2026-02-28T12:00"
        ),
    }
    (tmp_path / "lines").write_text("\n".join(lines))
    files = f"'connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json'"
    t_env.execute_sql(f"CREATE TABLE files ({_READ}) WITH ({files})")
    t_env.execute_sql(f"CREATE TABLE screen ({_READ}) WITH ('connector' = 'print')")
    t_env.execute_sql("INSERT INTO screen SELECT * FROM files").wait()
    assert shown(capsys) == [f"+I[{line}]" for line in lines.values()]


@pytest.mark.parametrize(
    "line",
    [
        '{"t":"12:30"}',
        '{"w":"2026-01-31 12:00"}',
        '{"w":" 2026-01-31 12:00:00 "}',
        '{"i":""}',
        '{"i":3000000000}',
        "7",
        "{",
    ],
)
def test_json_that_flink_refuses_is_refused(t_env: StreamTableEnvironment, tmp_path: Path, line: str) -> None:
    (tmp_path / "lines").write_text(line)
    files = f"'connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json'"
    t_env.execute_sql(f"CREATE TABLE files ({_READ}) WITH ({files})")
    t_env.execute_sql(f"CREATE TABLE nowhere ({_READ}) WITH ('connector' = 'blackhole')")
    with pytest.raises(MalformedRecordError):
        t_env.execute_sql("INSERT INTO nowhere SELECT * FROM files").wait()
