"""What one kind of stored file is: its name, its version, its fields, who reads it, and what is said of one that cannot
be used. A kind is declared once, as a frozen dataclass; `flinkish.jobdir.layout` has the list of all kinds of a job
directory.

Rule: nothing is guessed. A file is read as what it was written as, or refused by one sentence that names the file and
what to do about it: one that is damaged, that has other fields, that names a path which is none of its kind, or that a
newer release has written.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import fields, is_dataclass
from string import Formatter
from typing import Any, ClassVar, TypeVar

from flinkish.errors import CorruptStateError, FinalOperationError, FlinkishError
from flinkish.storage.paths import FileKind
from flinkish.storage.sealed import content_of, json_as, plain, sealed, typed, unsealed
from flinkish.storage.stores import storage_error, storage_errors, storage_of

RESTORE = "restore the file from a copy, or start the job in a new directory from a checkpoint or savepoint"
CHECKPOINT = "restore the file from a copy, or the job from its last checkpoint or savepoint"


F = TypeVar("F", bound="StoredFile")


class NewerReleaseError(ValueError):
    """A newer release has written the file."""


def newer_release(version: int, known: int) -> NewerReleaseError:
    """The error for a version that this release does not know."""
    return NewerReleaseError(f"it has version {version}, and this release reads {known} at most")


class StoredFile:
    """Base of the contents of stored files. The first sentence about a kind says what it holds. Fields with a default
    are missing in some files, or in those of earlier releases."""

    #: the name of the file; of a kind of which there are several, with {} for what tells them apart
    NAME: ClassVar[str]
    #: a regular expression for what stands for {}
    PART: ClassVar[str] = "[0-9]+"
    #: the folder in which it lies, as documentation shows it; "" for that of the job
    FOLDER: ClassVar[str] = ""
    #: the version that is written (0: it has none), and the oldest one that is read
    VERSION: ClassVar[int] = 2
    OLDEST: ClassVar[int] = 1
    #: whether it is sealed with its version and a digest; another one may be damaged without being noticed
    SEALED: ClassVar[bool] = True
    #: whether it holds the value of its one field alone
    BARE: ClassVar[bool] = False
    #: whether one with another content counts as missing: it only makes the job faster
    LENIENT: ClassVar[bool] = False
    #: whether fields that the class does not have are refused
    STRICT: ClassVar[bool] = False
    #: whether only its owner may read it, and whether it survives a power cut once it is written
    PRIVATE: ClassVar[bool] = True
    DURABLE: ClassVar[bool] = False
    #: when it is there, and who reads it
    WHEN: ClassVar[str] = "always"
    READER: ClassVar[str] = "the driver"
    #: what to do about one that is damaged, and the error that says so
    REMEDY: ClassVar[str] = RESTORE
    ERROR: ClassVar[type[FlinkishError]] = FinalOperationError
    #: its limit of bytes
    KIND: ClassVar[FileKind] = FileKind.JOB_FILE

    @classmethod
    def file_name(cls, *parts: object) -> str:
        """The name of a file of the kind; ``parts``: what stands for {}."""
        return cls.NAME.format(*parts)

    @classmethod
    def path_in(cls, directory: str, *parts: object) -> str:
        """The path of a file of the kind in a directory."""
        return posixpath.join(directory, cls.file_name(*parts))

    @classmethod
    def parts_of(cls, name: str) -> tuple[str, ...] | None:
        """What stands for {} in the name of a file; None: it is no file of this kind."""
        pieces = ((text, "" if field is None else f"({cls.PART})") for text, field, _, _ in Formatter().parse(cls.NAME))
        found = re.fullmatch("".join(re.escape(text) + part for text, part in pieces), name)
        return None if found is None else found.groups()

    def content(self) -> dict[str, Any]:
        """The fields as they are written; `optional` ones only if they are set."""
        return content_of(self)

    def encoded(self) -> bytes:
        """The content of the file."""
        if not self.SEALED:
            (value,) = vars(self).values() if self.BARE else (self.content(),)
            return json.dumps(value, default=plain).encode()
        return sealed({**({"version": self.VERSION} if self.VERSION else {}), **self.content()})

    @classmethod
    def decoded(cls: type[F], data: bytes) -> F:
        """The inverse of `encoded`.

        Raises:
            ValueError: the content is not what was written; the message gives the reason.
        """
        if not cls.SEALED:
            value = json_as(Any, data)
            return typed(cls, dict.fromkeys(cls._names(), value) if cls.BARE else value)
        content = unsealed(data)
        version = content.pop("version", cls.OLDEST)
        if type(version) is not int or version < min(cls.OLDEST, cls.VERSION):
            raise ValueError(f"it is of version {version!r:.100}, expected {cls.OLDEST} to {cls.VERSION}")
        if version > cls.VERSION:
            raise newer_release(version, cls.VERSION)
        unknown = sorted(content.keys() - set(cls._names())) if cls.STRICT else []
        if unknown:
            raise ValueError(f"it has an unknown field {unknown[0]!r:.100}")
        return typed(cls, content)

    @classmethod
    def _names(cls) -> list[str]:
        return [one.name for one in fields(cls)] if is_dataclass(cls) else []

    def check_name(self, *parts: str) -> None:
        """Check that the content is that of the file of this name. Raises ValueError if it is not."""

    @classmethod
    def read(cls: type[F], directory: str, *parts: object) -> F | None:
        """The content of the file in a directory; None: there is no such file.

        Raises:
            FlinkishError: the file cannot be used; the error, which is of the class `ERROR`, names it.
            OperationError: the storage fails.
        """
        path = cls.path_in(directory, *parts)
        try:
            data = storage_of(path).read(path, cls.KIND)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError as error:
            raise cls.damaged(path, "it is a directory") from error
        except ValueError as error:
            if cls.LENIENT:
                return None
            raise cls.damaged(path, error) from error
        except OSError as error:
            if isinstance(error, FlinkishError):
                raise
            raise storage_error(error, "read", path) from error
        try:
            found = cls.decoded(data)
            found.check_name(*map(str, parts))
            return found
        except ValueError as error:
            if cls.LENIENT:
                return None
            raise cls.damaged(path, error) from error

    def write(self, directory: str, *parts: object) -> None:
        """Write the file, whole or not at all."""
        path = self.path_in(directory, *parts)
        with storage_errors("write", path):
            storage_of(path).replace(path, self.encoded(), self.DURABLE, self.PRIVATE)

    @classmethod
    def delete(cls, directory: str, *parts: object) -> None:
        """Delete the file if it is there."""
        path = cls.path_in(directory, *parts)
        with storage_errors("delete", path):
            storage_of(path).delete(path)

    @classmethod
    def _shown(cls, path: str) -> str:
        """The name of a file, with that of the folder if it lies in one."""
        return "/".join(path.rsplit("/", 2 if cls.FOLDER else 1)[1:])

    @classmethod
    def damaged(cls, path: str, why: object) -> FlinkishError:
        """The error for a file that is there and cannot be used. ``why``: what is wrong with it."""
        name = cls._shown(path)
        if isinstance(why, NewerReleaseError):
            final = cls.ERROR if issubclass(cls.ERROR, FinalOperationError) else FinalOperationError
            return final(
                f"the file {name} was written by a newer release of flinkish: {why}",
                where=path,
                hint="use the release that has written it, or start the job in a new directory from a savepoint",
            )
        expected = "the file as flinkish wrote it"
        error = cls.ERROR(f"the file {name} is damaged: {why}", where=path, expected=expected, hint=cls.REMEDY)
        if isinstance(error, CorruptStateError):
            error.file = path
        return error

    @classmethod
    def missing(cls, directory: str, *parts: object) -> FlinkishError:
        """The error for a file that is missing, although other files show that it was there."""
        path = cls.path_in(directory, *parts)
        return FinalOperationError(
            f"the file {cls._shown(path)} is missing",
            where=path,
            expected="a job directory with all its files, since epochs have been run in it",
            hint=cls.REMEDY,
        )
