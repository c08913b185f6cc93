"""DataTypes: the types of columns, by their SQL names.

Rule: a column's type is a type of the DataStream API (``Types``), so that records, columns of files and their types
cannot disagree; with it goes the type of SQL that was declared, which tables compute with. ``nullable`` is accepted and
has no effect: every column may hold None. Nor has ``bridged_to``, which names classes of Java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.basic import DecimalTypeInfo
from flinkish.common.typeinfo.composite import RowField, RowTypeInfo
from flinkish.common.types import Row
from flinkish.errors import ArgumentValueError
from flinkish.table import logical_types as sql
from flinkish.table.logical_types import LogicalType, of_type_info

__all__ = ["DataType", "DataTypes", "Row", "RowField", "RowType"]

DataType = TypeInformation
RowType = RowTypeInfo


class Resolution(NamedTuple):
    """The unit of an INTERVAL, with its number of digits, which has no effect."""

    unit: str
    precision: int = -1

    def __call__(self, precision: int = -1) -> Resolution:
        return Resolution(self.unit, precision)


def _plain(kind: LogicalType) -> Callable[..., DataType]:
    def made(nullable: bool = True) -> DataType:
        return kind.info

    return made


def _text(root: str) -> Callable[..., DataType]:
    def made(length: int, nullable: bool = True) -> DataType:
        return LogicalType(root, (length,)).info

    return made


def _time(root: str, digits: int) -> Callable[..., DataType]:
    def made(precision: int | None = None, nullable: bool = True) -> DataType:
        return LogicalType(root, (digits if precision is None else precision,)).info

    return made


_OF_MONTHS, _OF_DAYS = ("YEAR", "MONTH"), ("DAY", "HOUR", "MINUTE", "SECOND")


class DataTypes:
    """Makes the types of columns, under the names of ``pyflink.table.DataTypes``. Times have as many digits of a second
    as are given, else none (TIME) or six.

    >>> DataTypes.ROW([DataTypes.FIELD("a", DataTypes.STRING()), DataTypes.FIELD("n", DataTypes.BIGINT())])
    RowTypeInfo(a: String, n: Long)
    """

    NULL, BOOLEAN, DATE = map(staticmethod, map(_plain, (sql.NULL, sql.BOOLEAN, sql.DATE)))
    TINYINT, SMALLINT, INT = map(staticmethod, map(_plain, (sql.TINYINT, sql.SMALLINT, sql.INT)))
    BIGINT, FLOAT, DOUBLE = map(staticmethod, map(_plain, (sql.BIGINT, sql.FLOAT, sql.DOUBLE)))
    STRING, BYTES = map(staticmethod, map(_plain, (sql.STRING, sql.BYTES)))
    CHAR, VARCHAR, BINARY, VARBINARY = map(staticmethod, map(_text, ("CHAR", "VARCHAR", "BINARY", "VARBINARY")))
    TIME, TIMESTAMP = staticmethod(_time("TIME", 0)), staticmethod(_time("TIMESTAMP", 6))
    TIMESTAMP_LTZ = TIMESTAMP_WITH_LOCAL_TIME_ZONE = staticmethod(_time("TIMESTAMP_LTZ", 6))
    YEAR, MONTH, DAY = Resolution("YEAR"), Resolution("MONTH"), Resolution("DAY")
    HOUR, MINUTE, SECOND = Resolution("HOUR"), Resolution("MINUTE"), Resolution("SECOND")
    FIELD = RowField

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> DataType:
        return Types.LIST(element_type)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> DataType:
        return Types.MAP(key_type, value_type)

    LIST_VIEW, MAP_VIEW = ARRAY, MAP

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> DataType:
        """A dict of elements, each with the number of times that it is there, as in Java's ``Map<T, Integer>``."""
        return LogicalType("MULTISET", parts=(of_type_info(element_type),)).info

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
    def INTERVAL(upper_resolution: Resolution, lower_resolution: Resolution | None = None) -> DataType:
        """An interval: of days to seconds it is a ``timedelta``, of years to months a number of months, as in Java's
        ``Period``.

        Raises:
            ValueError: there is no such INTERVAL.
        """
        lower = lower_resolution or upper_resolution
        for units in (_OF_MONTHS, _OF_DAYS):
            if upper_resolution.unit in units and lower.unit in units[units.index(upper_resolution.unit) :]:
                return (sql.INTERVAL_MONTH if units is _OF_MONTHS else sql.INTERVAL_DAY).info
        raise ArgumentValueError(
            f"the type is INTERVAL({upper_resolution.unit}, {lower.unit})",
            where="DataTypes.INTERVAL",
            expected="a unit and a smaller one: YEAR and MONTH, or two of DAY, HOUR, MINUTE and SECOND",
            hint="such as DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.SECOND())",
        )

    @staticmethod
    def ROW(row_fields: Sequence[RowField] = (), nullable: bool = True) -> RowType:
        return Types.ROW_NAMED([field.name for field in row_fields], [field.data_type for field in row_fields])
