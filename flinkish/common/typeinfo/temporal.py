"""The types of dates and times: ``datetime.date``, ``datetime.time`` and ``datetime.datetime``.

Rule upheld here: microseconds are kept. (PyFlink's coder for SQL_TIMESTAMP keeps milliseconds; what Python can hold
is not truncated here.) A datetime keeps its time zone on its way through the job; in Arrow form it is in UTC.
"""

from __future__ import annotations

import calendar
import datetime
import time
from enum import Enum
from typing import TYPE_CHECKING, Any

from flinkish.common.typeinfo.base import ListConverter, Mismatch, TypeInformation

if TYPE_CHECKING:
    import pyarrow as pa


class _TemporalTypeInfo(TypeInformation):
    _python_type: type
    _expected: str

    @property
    def is_flat(self) -> bool:
        return True

    def _convert(self, value: Any) -> Any:
        if type(value) is self._python_type:
            return value
        # datetime is a subclass of date: a point in time is not a day
        if not isinstance(value, self._python_type) or (
            self._python_type is datetime.date and isinstance(value, datetime.datetime)
        ):
            raise Mismatch(value, self._expected)
        return value

    def _list_converter(self) -> ListConverter:
        convert, final = self._convert, {self._python_type}

        def convert_list(values: list[Any]) -> list[Any]:
            return values if set(map(type, values)) <= final else [convert(value) for value in values]

        return convert_list

    def _parts(self) -> tuple[Any, ...]:
        return ()

    def __repr__(self) -> str:
        return type(self).__name__


class DateTypeInfo(_TemporalTypeInfo):
    """A ``datetime.date``; internally days since 1970-01-01."""

    EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
    _python_type = datetime.date
    _expected = "a datetime.date"

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: datetime.date | None) -> int | None:
        return None if obj is None else obj.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, obj: int | None) -> datetime.date | None:
        return None if obj is None else datetime.date.fromordinal(obj + self.EPOCH_ORDINAL)

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.date32()


class TimeTypeInfo(_TemporalTypeInfo):
    """A ``datetime.time``; internally microseconds of the day."""

    # the local zone's offset at the epoch, as PyFlink has it
    EPOCH_ORDINAL = calendar.timegm(time.localtime(0)) * 10**6
    _python_type = datetime.time
    _expected = "a datetime.time"

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: datetime.time | None) -> int | None:
        if obj is None:
            return None
        offset = obj.utcoffset() if obj.tzinfo is not None else None
        offset_us = self.EPOCH_ORDINAL if obj.tzinfo is None else (offset or datetime.timedelta()) // _MICROSECOND
        return ((obj.hour * 60 + obj.minute) * 60 + obj.second) * 10**6 + obj.microsecond - offset_us

    def from_internal_type(self, obj: int | None) -> datetime.time | None:
        if obj is None:
            return None
        seconds, microseconds = divmod(obj + self.EPOCH_ORDINAL, 10**6)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return datetime.time(hours, minutes, seconds, microseconds)

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.time64("us")


class TimestampTypeInfo(_TemporalTypeInfo):
    """A ``datetime.datetime``; internally microseconds since the epoch, a naive one read in the local time zone."""

    _python_type = datetime.datetime
    _expected = "a datetime.datetime"

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: datetime.datetime | None) -> int | None:
        if obj is None:
            return None
        seconds = calendar.timegm(obj.utctimetuple()) if obj.tzinfo else time.mktime(obj.timetuple())
        return int(seconds) * 10**6 + obj.microsecond

    def from_internal_type(self, obj: int | None) -> datetime.datetime | None:
        if obj is None:
            return None
        return datetime.datetime.fromtimestamp(obj // 10**6).replace(microsecond=obj % 10**6)

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.timestamp("us")


class SqlTimeTypeInfo(TypeInformation):
    """Gives access to the types of java.sql's Date, Time and Timestamp."""

    @staticmethod
    def DATE() -> DateTypeInfo:
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        return TimestampTypeInfo()


class LocalTimeTypeInfo(_TemporalTypeInfo):
    """java.time's LocalDate, LocalTime or LocalDateTime: the same Python types, without the meaning of a time zone."""

    class TimeType(Enum):
        LOCAL_DATE = 0
        LOCAL_TIME = 1
        LOCAL_DATE_TIME = 2

    def __init__(self, time_type: LocalTimeTypeInfo.TimeType) -> None:
        self._time_type = time_type
        self._python_type = (datetime.date, datetime.time, datetime.datetime)[time_type.value]
        self._expected = f"a datetime.{self._python_type.__name__}"

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return (pa.date32(), pa.time64("us"), pa.timestamp("us"))[self._time_type.value]

    def _parts(self) -> tuple[Any, ...]:
        return (self._time_type,)

    def __repr__(self) -> str:
        return f"LocalTimeTypeInfo({self._time_type.name})"


_MICROSECOND = datetime.timedelta(microseconds=1)
