"""DataTypes: the types of columns, by their SQL names.

Rule: a column's type is a type of the DataStream API (``Types``), so that records, columns of files and their types
cannot disagree. ``nullable`` is accepted and has no effect: every column may hold None. ``length``, and the
``precision`` of times, are accepted and have no effect either, and so does ``bridged_to``, which names classes of Java.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.base import Mismatch
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.typeinfo.composite import RowTypeInfo
from flinkish.common.types import Row
from flinkish.errors import ArgumentValueError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DataType", "DataTypes", "Row", "RowField", "RowType"]

DataType = TypeInformation
RowType = RowTypeInfo


class RowField(NamedTuple):
    """A field of a ROW, as `DataTypes.FIELD` makes it: its name, its type, and a description, which has no effect."""

    name: str
    data_type: DataType
    description: str | None = None


class Resolution(NamedTuple):
    """The unit of an INTERVAL, with its number of digits, which has no effect."""

    unit: str
    precision: int = -1


_OF_MONTHS, _OF_DAYS = ("YEAR", "MONTH"), ("DAY", "HOUR", "MINUTE", "SECOND")


class NullTypeInfo(TypeInformation):
    """The type whose only value is None."""

    is_flat = True

    def _convert(self, value: Any) -> Any:
        if value is not None:
            raise Mismatch(value, "None")
        return value

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.null()

    def _parts(self) -> tuple[Any, ...]:
        return ()

    def __repr__(self) -> str:
        return "Null"


class IntervalTypeInfo(NullTypeInfo):
    """The type of ``timedelta``: an interval of days to seconds, with microseconds."""

    def _convert(self, value: Any) -> Any:
        if not isinstance(value, timedelta):
            raise Mismatch(value, "a timedelta")
        return value

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.duration("us")

    def __repr__(self) -> str:
        return "Interval"


class DataTypes:
    """Makes the types of columns, under the names of ``pyflink.table.DataTypes``.

    >>> DataTypes.ROW([DataTypes.FIELD("a", DataTypes.STRING()), DataTypes.FIELD("n", DataTypes.BIGINT())])
    RowTypeInfo(a: String, n: Long)
    """

    @staticmethod
    def STRING(nullable: bool = True) -> DataType:
        return Types.STRING()

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> DataType:
        return Types.STRING()

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> DataType:
        return Types.STRING()

    @staticmethod
    def BYTES(nullable: bool = True) -> DataType:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> DataType:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> DataType:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def NULL() -> DataType:
        """The type whose only value is None."""
        return NullTypeInfo()

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> DataType:
        return Types.BOOLEAN()

    @staticmethod
    def TINYINT(nullable: bool = True) -> DataType:
        return Types.BYTE()

    @staticmethod
    def SMALLINT(nullable: bool = True) -> DataType:
        return Types.SHORT()

    @staticmethod
    def INT(nullable: bool = True) -> DataType:
        return Types.INT()

    @staticmethod
    def BIGINT(nullable: bool = True) -> DataType:
        return Types.LONG()

    @staticmethod
    def FLOAT(nullable: bool = True) -> DataType:
        return Types.FLOAT()

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DataType:
        return Types.DOUBLE()

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DataType:
        """A number of at most ``precision`` digits (1 to 38), ``scale`` of them behind the point. Others are rounded to
        the scale, and are None if they have too many digits.

        Raises:
            ValueError: there is no such DECIMAL.
        """
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise ArgumentValueError(
                f"the type is DECIMAL({precision}, {scale})",
                where="DataTypes.DECIMAL",
                expected="a precision of 1 to 38, and a scale of 0 to the precision",
                hint="such as DECIMAL(10, 2)",
            )
        return DecimalTypeInfo(precision, scale)

    @staticmethod
    def DATE(nullable: bool = True) -> DataType:
        return Types.SQL_DATE()

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> DataType:
        return Types.SQL_TIME()

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> DataType:
        return Types.SQL_TIMESTAMP()

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> DataType:
        return Types.INSTANT()

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> DataType:
        return Types.INSTANT()

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> DataType:
        return Types.LIST(element_type)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> DataType:
        return Types.MAP(key_type, value_type)

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> DataType:
        """A dict of elements, each with the number of times that it is there, as in Java's ``Map<T, Integer>``."""
        return Types.MAP(element_type, Types.INT())

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> DataType:
        return Types.LIST(element_type)

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> DataType:
        return Types.MAP(key_type, value_type)

    @staticmethod
    def YEAR(precision: int = 2) -> Resolution:
        return Resolution("YEAR", precision)

    @staticmethod
    def MONTH() -> Resolution:
        return Resolution("MONTH")

    @staticmethod
    def DAY(precision: int = 2) -> Resolution:
        return Resolution("DAY", precision)

    @staticmethod
    def HOUR() -> Resolution:
        return Resolution("HOUR")

    @staticmethod
    def MINUTE() -> Resolution:
        return Resolution("MINUTE")

    @staticmethod
    def SECOND(precision: int = 6) -> Resolution:
        return Resolution("SECOND", precision)

    @staticmethod
    def INTERVAL(upper_resolution: Resolution, lower_resolution: Resolution | None = None) -> DataType:
        """An interval: of days to seconds it is a ``timedelta``, of years to months a number of months, as in Java's
        ``Period``.

        Raises:
            ValueError: there is no such INTERVAL.
        """
        lower = lower_resolution or upper_resolution
        for units in (_OF_MONTHS, _OF_DAYS):
            if upper_resolution.unit in units and lower.unit in units[units.index(upper_resolution.unit) :]:
                return Types.INT() if units is _OF_MONTHS else IntervalTypeInfo()
        raise ArgumentValueError(
            f"the type is INTERVAL({upper_resolution.unit}, {lower.unit})",
            where="DataTypes.INTERVAL",
            expected="a unit and a smaller one: YEAR and MONTH, or two of DAY, HOUR, MINUTE and SECOND",
            hint="such as DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.SECOND())",
        )

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:
        return RowField(name, data_type, description)

    @staticmethod
    def ROW(row_fields: Sequence[RowField], nullable: bool = True) -> RowType:
        return Types.ROW_NAMED([field.name for field in row_fields], [field.data_type for field in row_fields])
