"""Conversions between types of columns, for everybody who reads columns: one table says which there are.

Rule upheld here: no value becomes another one, or one of another kind. What a table of conversions does not have is
refused, and so is the value that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any

from flinkish.errors import TypeMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

#: Arithmetic that rounds nothing: what would be rounded is an error.
_EXACT = Context(prec=200, traps=[Inexact, InvalidOperation])

#: Converts a column to one of another type. It raises a ValueError, which says why, for a value that would change.
Conversion = Callable[["pa.Array"], "pa.Array"]

#: The largest whole numbers below which each one is a float of that many bits.
_WHOLE_FLOATS = {16: 1 << 11, 32: 1 << 24, 64: 1 << 53}


def lossless(found: pa.DataType, wanted: pa.DataType) -> Conversion | None:
    """The conversion of columns of the type ``found`` to the type ``wanted``, by which no value becomes another one.
    None: the columns are read as they are.

    pyarrow's own cast, which is called safe, wraps decimals around at 128 bits, rounds floats and decimals, and makes
    moments of numbers, days of moments and truth values of everything.

    Raises:
        ValueError: values of the one type are none of the other, whatever they are.
    """
    if found == wanted:
        return None
    kind, target = _kind(found), _kind(wanted)
    if kind == "null":
        return lambda column: _nulls(len(column), wanted)
    if kind in _DECODERS:
        plain, decode = _DECODERS[kind]
        rest = lossless(plain(found), wanted)
        return decode if rest is None else lambda column: rest(decode(column))
    if kind == target and kind in _NESTED:
        return _NESTED[kind](found, wanted)
    convert = _LOSSLESS.get((kind, target))
    if convert is None:
        raise ValueError(f"a {kind} is no {target}")
    return lambda column: convert(column, wanted)


def unreadable(name: str, found: pa.DataType, wanted: Any, why: Any, where: str, expected: str) -> TypeMismatchError:
    """The error for a column that cannot be read as the declared type."""
    return TypeMismatchError(
        f"the column '{name}' of type {found} cannot be read as {wanted}: {' '.join(str(why).split())}",
        where=where,
        expected=expected,
        hint="declare the type that the column has",
    )


def _kind(arrow: pa.DataType) -> str:
    import pyarrow as pa

    if isinstance(arrow, pa.BaseExtensionType):
        return "extension"
    # older versions of pyarrow do not have all of these types
    known = ((getattr(pa.types, name, None), kind) for name, kind in _KINDS.items())
    return next((kind for holds, kind in known if holds is not None and holds(arrow)), str(arrow))


# predicate of pyarrow.types -> what its types are in the tables below
_KINDS = {
    "is_null": "null",
    "is_boolean": "truth value",
    "is_integer": "whole number",
    "is_floating": "float",
    "is_decimal": "decimal",
    **dict.fromkeys(("is_string", "is_large_string", "is_string_view"), "text"),
    **dict.fromkeys(("is_binary", "is_large_binary", "is_fixed_size_binary", "is_binary_view"), "sequence of bytes"),
    "is_date": "date",
    "is_time": "time of day",
    "is_timestamp": "moment",
    **dict.fromkeys(("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view"), "list"),
    "is_map": "map",
    "is_struct": "struct",
    "is_dictionary": "dictionary",
    "is_run_end_encoded": "run",
}


def _nulls(length: int, wanted: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(length, wanted)


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    # only for pairs of types whose every loss pyarrow detects
    return column.cast(wanted)


def _whole_of_float(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    limit = _WHOLE_FLOATS[column.type.bit_width]
    found = _wide(column).cast(wanted)
    least, most = pc.min_max(found).as_py().values()
    if most is not None and max(most, -least) > limit:
        # beyond it, a float stands for several whole numbers
        raise ValueError(f"{most if most > limit else least} is more than a {column.type} holds exactly")
    return found


def _wide(column: pa.Array) -> pa.Array:
    """A column of floats without those of 16 bits, which pyarrow casts to wrong whole numbers."""
    import pyarrow as pa

    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


def _float_of_float(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    if column.type.bit_width < wanted.bit_width:
        return _wide(column).cast(wanted)
    found = column.cast(wanted)
    changed = pc.invert(pc.or_(pc.equal(found.cast(column.type), column), pc.is_nan(column)))
    if pc.any(changed).as_py():
        raise ValueError(f"{column.filter(changed)[0]} has more digits than a {wanted}")
    return found


def _decimal_of_decimal(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    import pyarrow as pa

    found, scale = column.type, wanted.scale
    if scale >= found.scale and wanted.precision - scale >= found.precision - found.scale:
        return column.cast(wanted)
    # by values, since pyarrow's cast wraps around
    return pa.array(scaled(column.to_pylist(), scale), wanted)


def scaled(numbers: Sequence[Any], scale: int) -> list[Any]:
    """Decimals and whole numbers (or None) with ``scale`` digits behind the point. pyarrow itself makes 0 of a decimal
    that has 39 digits more.

    Raises:
        ValueError: a number has more digits.
    """
    unit, quantize = Decimal((0, (1,), -scale)), _EXACT.quantize
    try:
        return [None if number is None else quantize(number, unit) for number in numbers]
    except Inexact:
        raise ValueError(f"more than {scale} digits behind the point") from None
    except InvalidOperation:
        raise ValueError("too many digits") from None


def _decimal_of_whole(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return _decimal_of_decimal(column.cast(pa.decimal128(20, 0)), wanted)


#: (what a column holds, what is wanted) -> the conversion, where there is one.
_LOSSLESS: dict[tuple[str, str], Callable[[pa.Array, pa.DataType], pa.Array]] = {
    ("truth value", "whole number"): _cast,
    ("whole number", "whole number"): _cast,
    ("whole number", "float"): _cast,
    ("whole number", "decimal"): _decimal_of_whole,
    ("float", "whole number"): _whole_of_float,
    ("float", "float"): _float_of_float,
    ("decimal", "whole number"): _cast,
    ("decimal", "decimal"): _decimal_of_decimal,
    ("text", "text"): _cast,
    ("sequence of bytes", "sequence of bytes"): _cast,
    ("date", "date"): _cast,
    ("time of day", "time of day"): _cast,
    # a moment without a zone is one in UTC, as in files of Spark and Hive
    ("moment", "moment"): _cast,
}

#: Types that stand for another one -> that type, and the conversion to it.
_DECODERS: dict[str, tuple[Callable[[Any], pa.DataType], Conversion]] = {
    "dictionary": (lambda found: found.value_type, lambda column: column.dictionary_decode()),
    "run": (lambda found: found.value_type, lambda column: _run_end_decoded(column)),
    "extension": (lambda found: found.storage_type, lambda column: column.storage),
}


def _run_end_decoded(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.run_end_decode(column)


def _list_to_list(found: pa.DataType, wanted: pa.DataType) -> Conversion | None:
    import pyarrow as pa

    inner = lossless(found.value_type, wanted.value_type)
    plain = pa.list_(found.value_type)
    if inner is None:
        return None if pa.types.is_list(found) else lambda column: column.cast(plain)

    def convert(column: pa.Array) -> pa.Array:
        column = column if pa.types.is_list(column.type) else column.cast(plain)
        return _with_children(column, wanted, inner(column.values))

    return convert


def _map_to_map(found: pa.MapType, wanted: pa.MapType) -> Conversion | None:
    key, item = lossless(found.key_type, wanted.key_type), lossless(found.item_type, wanted.item_type)
    if key is None and item is None:
        return None

    def convert(column: pa.Array) -> pa.Array:
        import pyarrow as pa

        keys, items = column.keys, column.items
        keys, items = keys if key is None else key(keys), items if item is None else item(items)
        fields = [pa.field("key", keys.type, nullable=False), pa.field("value", items.type)]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        return _with_children(column, pa.map_(keys.type, items.type), entries)

    return convert


def _with_children(column: pa.Array, wanted: pa.DataType, children: pa.Array) -> pa.Array:
    """A column of lists or maps with the same places for other children."""
    import pyarrow as pa

    validity_and_offsets = column.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(column), validity_and_offsets, column.null_count, column.offset, [children]
    )


def _struct_to_struct(found: pa.StructType, wanted: pa.StructType) -> Conversion | None:
    """The fields are found by name; those that are not wanted are left out."""
    names = [field.name for field in found]
    for field in wanted:
        if names.count(field.name) != 1:
            raise ValueError(f"it has {'no' if field.name not in names else 'more than one'} field '{field.name}'")
    places = [names.index(field.name) for field in wanted]
    inner = []
    for place, field in zip(places, wanted, strict=True):
        try:
            inner.append(lossless(found[place].type, field.type))
        except ValueError as error:
            raise ValueError(f"field '{field.name}': {error}") from None
    if places == list(range(len(names))) and not any(inner):
        return None

    def convert(column: pa.Array) -> pa.Array:
        import pyarrow as pa

        parts = column.flatten()
        chosen = [parts[place] for place in places]
        chosen = [part if change is None else change(part) for part, change in zip(chosen, inner, strict=True)]
        fields = [pa.field(field.name, part.type) for field, part in zip(wanted, chosen, strict=True)]
        return pa.StructArray.from_arrays(chosen, fields=fields, mask=column.is_null())

    return convert


_NESTED: dict[str, Callable[[Any, Any], Conversion | None]] = {
    "list": _list_to_list,
    "map": _map_to_map,
    "struct": _struct_to_struct,
}
