"""``flinkish.common.typeinfo``: PyFlink's types, plus checking, narrowing and their Arrow form (see ``base``)."""

from __future__ import annotations

from flinkish.common.typeinfo.base import PickledBytesTypeInfo, TypeInformation
from flinkish.common.typeinfo.basic import BasicType, BasicTypeInfo, InstantTypeInfo
from flinkish.common.typeinfo.collections import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
)
from flinkish.common.typeinfo.composite import ExternalTypeInfo, RowTypeInfo, TupleTypeInfo
from flinkish.common.typeinfo.temporal import (
    DateTypeInfo,
    LocalTimeTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from flinkish.common.typeinfo.types import Types, declared_type

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "declared_type",
]
