"""Failures are written as the Java objects that Flink's client reads."""

from __future__ import annotations

import base64
import struct

import pytest

from flinkish.errors import SavepointError
from flinkish.rest.failures import failure_cause, failure_cause_of, serialized_throwable


class Reader:
    """Reads what a Java stream of such an object holds, as far as these tests need."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, form: str) -> int:
        size = struct.calcsize(form)
        (value,) = struct.unpack(form, self.data[self.place : self.place + size])
        self.place += size
        return int(value)

    def utf(self, size: int) -> str:
        raw = self.data[self.place : self.place + size]
        self.place += size
        units = raw.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")

    def text(self) -> str | None:
        kind = self.take(">B")
        if kind == 0x70:
            return None
        assert kind in (0x74, 0x7C)
        return self.utf(self.take(">H" if kind == 0x74 else ">q"))

    def described(self) -> tuple[str, int, int, list[str]]:
        assert self.take(">B") == 0x72
        name = self.utf(self.take(">H"))
        version, flags, count = self.take(">q"), self.take(">B"), self.take(">H")
        fields = []
        for _ in range(count):
            assert chr(self.take(">B")) in "L["
            fields.append(self.utf(self.take(">H")))
            self.text()
        assert self.take(">B") == 0x78
        return name, version, flags, fields


def read(data: bytes) -> tuple[list[str], str | None, str | None, str | None]:
    """The classes, the message, the trace and the name of the class in the bytes of a throwable."""
    reader = Reader(data)
    assert (reader.take(">H"), reader.take(">H"), reader.take(">B")) == (0xACED, 5, 0x73)
    classes = [reader.described() for _ in range(3)]
    assert [(name, version, flags) for name, version, flags, _ in classes] == [
        ("org.apache.flink.util.SerializedThrowable", 7284183123441947635, 2),
        ("java.lang.Exception", -3387516993124229948, 2),
        ("java.lang.Throwable", -3042686055658047285, 3),
    ]
    # the fields of a class are written in the order of their names
    assert all(fields == sorted(fields) for _, _, _, fields in classes)
    assert reader.take(">B") == 0x70, "Object is not serializable"
    cause, message, stack, suppressed = (reader.text() for _ in range(4))
    assert (cause, stack, suppressed) == (None, None, None)
    assert reader.take(">B") == 0x78, "Throwable writes itself, and may write more"
    trace, name, original = reader.text(), reader.text(), reader.text()
    assert original is None
    assert reader.place == len(data), "nothing stands behind it"
    return [name for name, *_ in classes], message, trace, name


TEXTS = ["", "plain", "a\x00b", "Größe", "\u2028", "🚀 up", "x" * 65_535, "ü" * 40_000, "line\nline"]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:10]) + str(len(text)))
def test_a_java_reader_finds_any_text_as_it_was(text: str) -> None:
    _, message, trace, name = read(serialized_throwable("a.B", text, f"a.B: {text}"))
    assert (message, trace, name) == (text, f"a.B: {text}", "a.B")


def test_a_half_of_a_pair_of_surrogates_does_not_break_the_bytes() -> None:
    assert serialized_throwable("a.B", "\ud800", "t").count(b"\xed\xa0\x80") == 1


def test_the_message_does_not_name_the_class_which_readers_put_before_it() -> None:
    cause = failure_cause(SavepointError("the disk is full", hint="make room"))
    assert cause["class"] == "flinkish.errors.SavepointError"
    assert cause["stack-trace"] == "flinkish.errors.SavepointError: the disk is full; make room"
    _, message, trace, name = read(base64.b64decode(cause["serialized-throwable"]))
    assert (message, name) == ("the disk is full; make room", "flinkish.errors.SavepointError")
    assert trace == cause["stack-trace"]


def test_a_trace_that_is_given_is_the_one_that_is_printed() -> None:
    cause = failure_cause_of("ValueError", "no", "Traceback ...\nValueError: no")
    assert cause["stack-trace"] == "Traceback ...\nValueError: no"
    assert read(base64.b64decode(cause["serialized-throwable"]))[2] == cause["stack-trace"]
