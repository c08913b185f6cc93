"""Conversion of state to rows that people can read and edit with SQL, and back: row by row, or in columns of texts,
which is `to_text` and `from_text` for many values at once.

Rule: each text of a column, and each value, is the one that `to_text` or `from_text` returns for it alone. Plain
values, and tuples or lists of them, are what most state consists of: such a column is encoded and decoded by a single
call, which takes a tenth of the time. That the result can be split into rows again is checked and never assumed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, repeat
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from flinkish.common.arguments import abbreviated
from flinkish.errors import SavepointError, StoredClassError
from flinkish.runtime.exchange.keys import SEQUENCES, frozen, thawed
from flinkish.runtime.state.state_rows import MAP_KINDS, WATERMARK, StateColumns, StateRow
from flinkish.runtime.stored.classes import NO_CLASSES, ProgramClasses
from flinkish.runtime.stored.texts import (
    DEPTH_MAX,
    DIGITS_MAX,
    PLAIN,
    decode_json,
    from_text,
    has_json,
    is_unicode,
    to_text,
)


class SavepointRow(NamedTuple):
    """One row of a savepoint's table; there is one per (operator uid, state name, key, namespace, value). Key,
    namespace and value are texts as of `to_text`, which SQL can compare and change."""

    uid: str
    state: str
    kind: str
    key: str
    namespace: str
    value: str


def to_savepoint_row(uid: str, row: StateRow, classes: ProgramClasses = NO_CLASSES) -> SavepointRow:
    """An entry of state as a row of texts. Raises StoredClassError if a part of it has no text ."""
    try:
        key, namespace, value = (to_text(part, classes) for part in (thawed(row.key), row.namespace, row.value))
    except StoredClassError as error:
        error.where = error.where or f"uid {uid}, state {row.state}, key {abbreviated(thawed(row.key))}"
        raise
    return SavepointRow(uid, row.state, row.kind, key, namespace, value)


def watermark_row(uid: str, namespace: Any, key: Any, watermark_ms: int) -> SavepointRow:
    """The row with one of the event times of a vertex, so that event time goes on from what was told, and records that
    were late before the savepoint stay late after it."""
    return SavepointRow(uid, WATERMARK, WATERMARK, to_text(key), to_text(namespace), to_text(watermark_ms))


def watermark_of(text: str, where: str) -> int:
    """The watermark in a row of `watermark_row`. Raises what `from_text` raises."""
    watermark_ms = from_text(text, where)
    if type(watermark_ms) is not int:
        raise SavepointError(f"the text {text[:200]!r} is no watermark", where=where, expected="whole milliseconds")
    return watermark_ms


def from_savepoint_row(row: SavepointRow, classes: ProgramClasses = NO_CLASSES) -> tuple[str, StateRow]:
    """The inverse of :func:`to_savepoint_row`. Raises what `from_text` raises."""
    where = f"savepoint row of uid {row.uid}, state {row.state}, key {row.key[:100]}"
    key, namespace, value = (from_text(text, where, classes) for text in (row.key, row.namespace, row.value))
    if row.kind in MAP_KINDS and isinstance(value, list):
        value = tuple(value)
    return row.uid, StateRow(row.state, row.kind, namespace, frozen_key(key, where), value)


def frozen_key(key: Any, where: str) -> Any:
    """The key of a row in hashable form.

    Raises:
        SavepointError: it is nested more deeply than keys that have a text.
    """
    if type(key) in (list, tuple) and _is_deep(key):
        raise SavepointError(
            "the key is nested too deeply",
            where=where,
            expected=f"at most {DEPTH_MAX} levels",
            hint="mend the row in the table",
        )
    return frozen(key)


def _is_deep(key: Any) -> bool:
    """Whether lists and tuples are nested more deeply than those of keys that have a text."""
    level = [key]
    for _ in range(DEPTH_MAX):
        # what occurs often counts once: a list may hold itself
        level = list({id(part): part for one in level if type(one) in (list, tuple) for part in one}.values())
        if not level:
            return False
    return True


#: Separates texts that are parsed together. No text contains it, because it is random and new in each process.
_BETWEEN = uuid.uuid4().hex
_SEPARATOR = f',"{_BETWEEN}",'

_PLAIN = frozenset(PLAIN)


class SavepointColumns(NamedTuple):
    """Rows of one state in a savepoint's table as parallel columns of texts. A namespace is None where an INSERT has
    left it out."""

    uid: str
    state: str
    kind: str
    keys: list[str]
    namespaces: list[str]
    values: list[str]

    def rows(self) -> Iterator[SavepointRow]:
        """The rows one by one."""
        for key, namespace, value in zip(self.keys, self.namespaces, self.values, strict=True):
            yield SavepointRow(self.uid, self.state, self.kind, key, namespace, value)


def to_texts(values: Sequence[Any], classes: ProgramClasses = NO_CLASSES) -> list[str]:
    """The texts of the values of a column. Raises the error of `to_text` for the first value that has no text.

    >>> to_texts([1, None, "a"]), to_texts([("a", 1), ("b", 2)])
    (['1', 'null', '"a"'], ['{"$tuple": ["a", 1]}', '{"$tuple": ["b", 2]}'])
    """
    texts = _plain_texts(values)
    return texts if texts is not None else [to_text(value, classes) for value in values]


def to_repeated_texts(values: Sequence[Any], classes: ProgramClasses = NO_CLASSES) -> list[str]:
    """`to_texts` for a column in which the same object often repeats in consecutive rows, as namespaces do."""
    texts: list[str] = []
    for _, same in groupby(values, id):
        run = list(same)
        texts.extend(repeat(to_text(run[0], classes), len(run)))
    return texts


def _plain_texts(values: Sequence[Any]) -> list[str] | None:
    """The texts of a column of plain values, or of tuples or lists of them; None: the column is of another kind, its
    texts cannot be split into rows, or JSON does not express one of its values."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return list(map(encode_basestring, values)) if is_unicode("".join(values)) else None
    if kinds <= _PLAIN:
        return _split(values, values, "", ", ", "")
    if len(kinds) == 1 and kinds <= {tuple, list} and set(map(type, chain.from_iterable(values))) <= _PLAIN:
        texts = _split(values, list(chain.from_iterable(values)), "[", "], [", "]")
        if texts is None:
            return None
        before, after = ('{"$tuple": [', "]}") if kinds == {tuple} else ("[", "]")
        return [before + text + after for text in texts]
    return None


def _split(values: Sequence[Any], plain: Sequence[Any], before: str, between: str, after: str) -> list[str] | None:
    """The JSON of each value without its brackets, where the values consist of those of ``plain``. None: a value
    contains the separator, so that there are more parts than values, or JSON does not express one."""
    try:
        together = json.dumps(values, ensure_ascii=False, allow_nan=True, check_circular=False)
    except ValueError:
        return None  # an integer has too many digits
    texts = together[1 + len(before) : len(together) - 1 - len(after)].split(between)
    if len(texts) != len(values) or not is_unicode(together):
        return None
    # a long integer makes a long text
    return texts if max(map(len, texts)) <= DIGITS_MAX or all(map(has_json, plain)) else None


def from_texts(texts: Sequence[str], classes: ProgramClasses = NO_CLASSES) -> list[Any]:
    """The values of the texts of a column. May raise any exception if one of them is not the text of a value;
    `from_text` of each text alone raises an error that describes it.

    >>> from_texts(['{"$tuple": ["a", 1]}', '{"$tuple": ["b", 2]}']), from_texts(["1", '"a"'])
    ([('a', 1), ('b', 2)], [1, 'a'])
    """
    if not texts:
        return []
    parsed = json.loads("[" + _SEPARATOR.join(texts) + "]")
    # each text is exactly one value only if all separators, and no others, are where they belong
    if parsed[1::2] != [_BETWEEN] * (len(texts) - 1) or len(parsed) != 2 * len(texts) - 1:
        raise ValueError("the texts are not one value each")
    values: list[Any] = parsed[::2]
    kinds = set(map(type, values))
    if kinds <= _PLAIN or kinds == {list} and set(map(type, chain.from_iterable(values))) <= _PLAIN:
        return values
    tuples = _tuples(values) if kinds == {dict} else None
    return tuples if tuples is not None else [decode_json(value, classes) for value in values]


def _tuples(values: list[dict[str, Any]]) -> list[tuple[Any, ...]] | None:
    """The values of a column of tuples of plain values; None: the column is of another kind."""
    if set(map(len, values)) != {1}:
        return None
    contents: list[Any] = [value.get("$tuple") for value in values]
    if set(map(type, contents)) != {list} or not set(map(type, chain.from_iterable(contents))) <= _PLAIN:
        return None
    return list(map(tuple, contents))


def to_savepoint_columns(uid: str, found: StateColumns, classes: ProgramClasses = NO_CLASSES) -> SavepointColumns:
    """`to_savepoint_row` for the entries of one state."""
    try:
        keys = to_texts(list(map(thawed, found.keys)), classes)
        namespaces = to_repeated_texts(found.namespaces, classes)
        values = to_texts(found.values, classes)
    except StoredClassError:
        for row in found.rows():
            to_savepoint_row(uid, row, classes)  # raises the error that names the row
        raise
    return SavepointColumns(uid, found.state, found.kind, keys, namespaces, values)


def from_savepoint_columns(saved: SavepointColumns, classes: ProgramClasses = NO_CLASSES) -> StateColumns:
    """The inverse of `to_savepoint_columns`. May raise any exception if a row is bad, as `from_texts` does."""
    distinct = list(dict.fromkeys(saved.namespaces))
    # a namespace that an INSERT has left out is null
    parsed = dict(zip(distinct, from_texts(["null" if text is None else text for text in distinct], classes)))
    values = from_texts(saved.values, classes)
    if saved.kind in MAP_KINDS:
        values = [tuple(value) if isinstance(value, list) else value for value in values]
    keys = from_texts(saved.keys, classes)
    if not SEQUENCES.isdisjoint(map(type, keys)):
        where = f"uid {saved.uid}, state {saved.state}"
        keys = [frozen_key(key, where) for key in keys]
    namespaces = [parsed[text] for text in saved.namespaces]
    return StateColumns(saved.state, saved.kind, namespaces, keys, values)
