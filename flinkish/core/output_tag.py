"""OutputTag: the name and type of a side output."""

from __future__ import annotations

from typing import Any, ClassVar

from flinkish.common.arguments import kind_of
from flinkish.common.detach import share
from flinkish.common.no_effect import no_java_object
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.errors import ArgumentTypeError, ArgumentValueError


class OutputTag:
    """A named and typed side output. A function emits to it with ``yield tag, value``.

    Example::

        late = OutputTag("late", Types.STRING())
        main = ds.process(MyFunction())
        main.get_side_output(late)

    Two tags with the same id are the same side output.
    """

    #: whether a tag was made or unpickled in this process; without one, no result of a function can be tagged
    exists: ClassVar[bool] = False

    def __new__(cls, *arguments: Any, **options: Any) -> OutputTag:
        OutputTag.exists = True
        return super().__new__(cls)

    def __init__(self, tag_id: str, type_info: TypeInformation | list[TypeInformation] | None = None) -> None:
        if not tag_id:
            raise ArgumentValueError(
                "OutputTag tag_id cannot be None or empty string",
                where="OutputTag",
                expected="a name",
                hint="tags with the same name are one side output",
            )
        self.tag_id = tag_id
        if type_info is None:
            self.type_info: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        elif isinstance(type_info, list):
            self.type_info = Types.ROW(type_info)
        elif isinstance(type_info, TypeInformation):
            self.type_info = type_info
        else:
            raise ArgumentTypeError(
                f"OutputTag type_info must be None, list or TypeInformation. It is {kind_of(type_info)}",
                where=f"OutputTag '{tag_id}'",
                expected="a TypeInformation, such as Types.STRING(), or a list of such",
                hint="without a type it takes any Python object",
            )

    def get_java_output_tag(self) -> object:
        """Raises ProgramError: there is no Java object."""
        no_java_object("get_java_output_tag()")

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return hash(("OutputTag", self.tag_id))

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"


share(OutputTag)
