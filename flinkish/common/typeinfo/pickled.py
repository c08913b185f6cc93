"""The type of values for which none is declared: any Python object, carried by pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flinkish.common.typeinfo.base import TypeInformation

if TYPE_CHECKING:
    import pyarrow as pa


class PickledBytesTypeInfo(TypeInformation):
    """The type of any Python object. Nothing is checked or converted, and it has no column: tables refuse it."""

    def _convert(self, value: Any) -> Any:
        return value

    def _list_converter(self) -> None:
        return None

    def for_keys(self) -> TypeInformation:
        return self

    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.binary()

    def _parts(self) -> tuple[Any, ...]:
        return ()

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"
