"""The texts that a real Java writes for values: the table that the unit tests of `flinkish.common.text` read.

``python -m tests.support.java_texts`` writes ``tests/unit/common/java_texts.tsv`` anew: a line per value with its kind,
the value and Java's text of it. The version of Java stands in the first line.
"""

from __future__ import annotations

import datetime
import random
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path

TABLE = Path(__file__).parents[1] / "unit" / "common" / "java_texts.tsv"

#: Reads lines of a kind and a value, and writes the text of each value.
_PROGRAM = """
import java.io.*;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.time.*;

public class Texts {
    static Object value(String kind, String text) {
        switch (kind) {
            case "DOUBLE": return Double.longBitsToDouble(Long.parseUnsignedLong(text, 16));
            case "FLOAT": return Float.intBitsToFloat(Integer.parseUnsignedInt(text, 16));
            case "BIG_DEC": return new BigDecimal(text);
            case "SQL_DATE": return java.sql.Date.valueOf(LocalDate.parse(text));
            case "SQL_TIME": return Time.valueOf(LocalTime.parse(text));
            case "SQL_TIMESTAMP": return Timestamp.valueOf(LocalDateTime.parse(text));
            case "LOCAL_DATE": return LocalDate.parse(text);
            case "LOCAL_TIME": return LocalTime.parse(text);
            case "LOCAL_DATE_TIME": return LocalDateTime.parse(text);
            case "INSTANT":
                String[] parts = text.split(" ");
                return Instant.ofEpochSecond(Long.parseLong(parts[0]), Long.parseLong(parts[1]));
            default: throw new IllegalArgumentException(kind);
        }
    }

    public static void main(String[] arguments) throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new StringBuilder(System.getProperty("java.version")).append("\\n");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\\t");
            out.append(value(parts[0], parts[1])).append("\\n");
        }
        System.out.print(out);
    }
}
"""


def texts_of_java(values: Iterable[tuple[str, str]]) -> tuple[str, list[str]]:
    """The version of the Java of this machine, and the text that it writes for each (kind, value)."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "Texts.java")
        program.write_text(_PROGRAM)
        done = subprocess.run(
            ["java", "-XX:+UseSerialGC", str(program)],
            input="".join(f"{kind}\t{value}\n" for kind, value in values),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    version, *texts = done.stdout.splitlines()
    return version, texts


def sample(seed: int, size: int) -> Iterator[tuple[str, str]]:
    """Values of all kinds, about ``size`` numbers of each width and fewer of the other kinds."""
    chosen = random.Random(seed)
    doubles = [
        0.0,
        -0.0,
        float("nan"),
        float("inf"),
        float("-inf"),
        5e-324,
        1.7976931348623157e308,
        2.2250738585072014e-308,
    ]
    doubles += [float(f"1e{power}") for power in chosen.sample(range(-323, 309), size // 10)]
    doubles += [2.0**power for power in chosen.sample(range(-1074, 1024), size // 10)]
    doubles += [chosen.randrange(10**6) / 10 ** chosen.randrange(7) for _ in range(size // 4)]
    doubles += [chosen.uniform(-1, 1) * 10 ** chosen.randrange(-12, 13) for _ in range(size // 4)]
    doubles += [chosen.randrange(1, 100) * 5e-324 for _ in range(size // 10)]
    doubles += [struct.unpack("<d", chosen.randbytes(8))[0] for _ in range(size // 4)]
    yield from (("DOUBLE", struct.pack(">d", value).hex()) for value in doubles if value == value)
    floats = [struct.pack("<f", value) for value in doubles if abs(value) < 3.4e38]
    floats += [struct.pack("<I", bits) for bits in (1, 0x7F7FFFFF, 0x00800000, 0x7F800000, 0xFF800000, 0x7FC00000)]
    floats += [struct.pack("<I", power << 23) for power in chosen.sample(range(1, 255), min(254, size // 4))]
    floats += [chosen.randbytes(4) for _ in range(size // 4)]
    yield from (("FLOAT", value[::-1].hex()) for value in floats)
    for _ in range(size // 10):
        digits = tuple(int(digit) for digit in str(chosen.randrange(10 ** chosen.randrange(1, 25))))
        yield "BIG_DEC", str(Decimal((chosen.randrange(2), digits, chosen.randrange(-20, 10))))
        at = datetime.datetime(chosen.randrange(1600, 9999), 1, 1) + datetime.timedelta(
            chosen.randrange(365), chosen.randrange(86_400), chosen.choice([0, 600_000, 1_000, 70, 123_456])
        )
        at = at.replace(second=chosen.choice([0, at.second]))
        yield from (("SQL_DATE", str(at.date())), ("LOCAL_DATE", str(at.date())))
        yield from (("SQL_TIME", str(at.time())), ("LOCAL_TIME", str(at.time())))
        yield from (("SQL_TIMESTAMP", at.isoformat()), ("LOCAL_DATE_TIME", at.isoformat()))
        nanos = chosen.choice([0, 5, 6_000, 700_000_000, 123_456_789, 120_000])
        yield "INSTANT", f"{chosen.randrange(-(10**12), 10**12)} {nanos}"


def main() -> None:
    """Write the table."""
    values = list(sample(37, 1_000))
    version, texts = texts_of_java(values)
    lines = [f"{kind}\t{value}\t{text}\n" for (kind, value), text in zip(values, texts, strict=True)]
    TABLE.write_text(f"Java {version}\n" + "".join(lines))


if __name__ == "__main__":
    main()
