"""Failures as Flink's clients read them: its Java client takes nothing of a failure but a serialized Java object.

The bytes are those of Java's Object Serialization Stream Protocol, written here without a JVM: an instance of
``org.apache.flink.util.SerializedThrowable`` with a message, the name of the original class and its stack trace as
text, and without the original exception, which the client could not load anyway.
"""

from __future__ import annotations

import base64
import struct

from flinkish.errors import FlinkishError

_HEADER = b"\xac\xed\x00\x05"
_NULL, _CLASS, _OBJECT, _STRING, _END, _LONG_STRING = b"\x70", b"\x72", b"\x73", b"\x74", b"\x78", b"\x7c"
#: What a class says of how it is written: by its fields alone, or by a method of its own behind them.
_BY_FIELDS, _BY_METHOD = 2, 3
_TEXT, _BYTES = "Ljava/lang/String;", "[B"


def failure_cause(error: FlinkishError) -> dict[str, str]:
    """The failure as the ``failure-cause`` of an answer."""
    return failure_cause_of(f"{type(error).__module__}.{type(error).__qualname__}", error.message)


def failure_cause_of(error_class: str, message: str, trace: str = "") -> dict[str, str]:
    """A failure as the ``failure-cause`` of an answer.

    Args:
        error_class: the full name of its class.
        message: what it says, without the class, which readers put before it.
        trace: its stack trace as text; "": it has none to show.
    """
    shown = trace or f"{error_class}: {message}"
    serialized = serialized_throwable(error_class, message, shown)
    return {
        "class": error_class,
        "stack-trace": shown,
        "serialized-throwable": base64.b64encode(serialized).decode("ascii"),
    }


def serialized_throwable(error_class: str, message: str, trace: str) -> bytes:
    """The bytes of a SerializedThrowable."""
    flink = _class_of(
        "org.apache.flink.util.SerializedThrowable",
        7284183123441947635,
        _BY_FIELDS,
        {"fullStringifiedStackTrace": _TEXT, "originalErrorClassName": _TEXT, "serializedException": _BYTES},
    )
    exception = _class_of("java.lang.Exception", -3387516993124229948, _BY_FIELDS, {})
    throwable = _class_of(
        "java.lang.Throwable",
        -3042686055658047285,
        _BY_METHOD,
        {
            "cause": "Ljava/lang/Throwable;",
            "detailMessage": _TEXT,
            "stackTrace": "[Ljava/lang/StackTraceElement;",
            "suppressedExceptions": "Ljava/util/List;",
        },
    )
    values_of_throwable = _NULL + _text(message) + _NULL + _NULL + _END
    values_of_flink = _text(trace) + _text(error_class) + _NULL
    return _HEADER + _OBJECT + flink + exception + throwable + _NULL + values_of_throwable + values_of_flink


def _class_of(name: str, version: int, written: int, fields: dict[str, str]) -> bytes:
    """The description of a class; that of its parent follows. ``fields``: name -> type, in the order of the names."""
    described = b"".join(kind[:1].encode() + _utf(field) + _text(kind) for field, kind in fields.items())
    return _CLASS + _utf(name) + struct.pack(">qBH", version, written, len(fields)) + described + _END


def _text(text: str) -> bytes:
    encoded = _modified_utf8(text)
    if len(encoded) > 0xFFFF:
        return _LONG_STRING + struct.pack(">q", len(encoded)) + encoded
    return _STRING + struct.pack(">H", len(encoded)) + encoded


def _utf(text: str) -> bytes:
    encoded = _modified_utf8(text)
    return struct.pack(">H", len(encoded)) + encoded


def _modified_utf8(text: str) -> bytes:
    """Java's UTF-8: a zero has two bytes, and a character above the first 65,536 is a pair of surrogates of three
    bytes each."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = struct.unpack(f">{len(units) // 2}H", units)
    return b"".join(b"\xc0\x80" if code == 0 else chr(code).encode("utf-8", "surrogatepass") for code in codes)
