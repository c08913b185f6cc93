"""Programs that were uploaded: the body of the request, the file that it becomes, and what a driver runs of it.

Rule: whoever may upload may run code, but nothing else: no name of an upload leads out of the folder, a body has at
most so many bytes and is written to a file while it comes, and an archive is unpacked below the job directory alone, up
to a bound.
"""

from __future__ import annotations

import email.message
import email.parser
import mmap
import os
import re
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from flinkish.errors import message_of
from flinkish.rest.api import BodyTooLargeError
from flinkish.rest.route import BadRequestError, NotFoundError
from flinkish.storage.paths import check_private, make_private
from flinkish.storage.stores import storage_errors

#: The kinds of files that can be run; an archive by its ``__main__.py``, as Python does.
KINDS = (".py", ".zip", ".whl")
_MAIN = "__main__.py"
#: The most characters of a name.
_LONGEST = 100
_OTHERS = re.compile(r"[^A-Za-z0-9._-]")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
#: The most bytes of the head of a part of a body, and the most parts.
_MAX_HEAD, _MOST_PARTS = 8 << 10, 20
#: The most files of an archive, and the most bytes of them.
_MOST_FILES, _MOST_BYTES = 20_000, 2 << 30
_UNFINISHED = ".upload-"


def safe_name(given: str) -> str:
    """The name of an upload: what stands behind the last slash of the given one, in harmless characters.

    Raises:
        BadRequestError: a file of this name cannot be run.

    >>> safe_name("../../etc/my job.py")
    'my_job.py'
    """
    name = _OTHERS.sub("_", re.split(r"[/\\]", given)[-1]).lstrip(".")
    stem, suffix = os.path.splitext(name)
    if suffix.lower() not in KINDS or not stem:
        raise BadRequestError(
            f"flinkish runs Python programs: the name of an upload ends with {', '.join(KINDS)}, and is not "
            f"{_shown(given)}."
        )
    return stem[: _LONGEST - len(suffix)] + suffix.lower()


def _shown(text: str) -> str:
    return repr(text[:_LONGEST])


@dataclass(frozen=True)
class Upload:
    """A program that was uploaded."""

    id: str
    path: Path
    uploaded_ms: int

    @property
    def name(self) -> str:
        """The name that it was uploaded under."""
        return self.id.partition("_")[2]


class Uploads:
    """The folder of the uploads. Any thread may use it.

    Args:
        folder: the folder, which is made; only this user may write there.
        max_bytes: the most bytes of a body.

    Raises:
        FinalOperationError: somebody else can write there.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        with storage_errors("write", str(folder)):
            make_private(str(folder))
        check_private(str(folder), "the folder of uploaded programs")
        for left in folder.glob(f"{_UNFINISHED}*"):
            left.unlink(missing_ok=True)

    def all(self) -> list[Upload]:
        """All uploads, the newest first."""
        found = []
        for entry in os.scandir(self.folder):
            if _ID.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    found.append(Upload(entry.name, Path(entry.path), int(entry.stat().st_mtime * 1000)))
        return sorted(found, key=lambda one: (-one.uploaded_ms, one.id))

    def get(self, upload_id: str) -> Upload:
        """The upload with this id.

        Raises:
            NotFoundError: there is none.
        """
        path = self.folder / upload_id
        if not _ID.fullmatch(upload_id) or path.is_symlink() or not path.is_file():
            raise NotFoundError(f"There is no upload {_shown(upload_id)}.")
        return Upload(upload_id, path, int(path.stat().st_mtime * 1000))

    def delete(self, upload_id: str) -> None:
        """Delete an upload; raises as `get` does."""
        self.get(upload_id).path.unlink(missing_ok=True)

    def take(self, body: Path, content_type: str) -> Upload:
        """Make an upload of the body of a request.

        Raises:
            BadRequestError: the body is no form with one file that can be run.
        """
        boundary = boundary_of(content_type)
        with body.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise BadRequestError("The body is empty.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
                given, start, end = file_of_form(whole, boundary)
            name = safe_name(given)
            upload_id = f"{uuid.uuid4()}_{name}"
            unfinished = self.folder / f"{_UNFINISHED}{upload_id}"
            try:
                file.seek(start)
                with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
                    _copy(file, target, end - start)
                if not name.endswith(".py"):
                    _check_archive(unfinished)
                os.replace(unfinished, self.folder / upload_id)
            finally:
                unfinished.unlink(missing_ok=True)
        return self.get(upload_id)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0 and (block := source.read(min(size, 1 << 20))):
        target.write(block)
        size -= len(block)


class UploadedBody:
    """Takes the body of an upload (`flinkish.rest.api.Receiver`)."""

    def __init__(self, uploads: Uploads, headers: Mapping[str, str]) -> None:
        self._uploads = uploads
        self._type = headers.get("content-type", "")
        self._size = 0
        self._file: Any = None

    def write(self, part: bytes) -> None:
        """Take the next bytes; raises BodyTooLargeError."""
        self._size += len(part)
        if self._size > self._uploads.max_bytes:
            raise BodyTooLargeError(
                f"The body has more than {self._uploads.max_bytes:,} bytes (rest.server.max-content-length)."
            )
        if self._file is None:
            self._file = tempfile.NamedTemporaryFile(prefix=_UNFINISHED, dir=self._uploads.folder)
        self._file.write(part)

    def answer(self) -> dict[str, str]:
        """Make an upload of it, and return what Flink's clients read."""
        if self._file is None:
            raise BadRequestError("The body is empty.")
        self._file.flush()
        upload = self._uploads.take(Path(self._file.name), self._type)
        return {"filename": str(upload.path), "status": "success"}

    def close(self) -> None:
        """Delete what was taken."""
        if self._file is not None:
            self._file.close()


def boundary_of(content_type: str) -> bytes:
    """What separates the parts of a body.

    Raises:
        BadRequestError: the type is not ``multipart/form-data`` with a boundary.
    """
    message = email.message.Message()
    message["content-type"] = content_type
    boundary = message.get_param("boundary") if message.get_content_type() == "multipart/form-data" else None
    if not isinstance(boundary, str) or not 0 < len(boundary) <= 70 or not boundary.isascii():
        raise BadRequestError("A program is uploaded as multipart/form-data: curl -F jarfile=@PROGRAM.py URL.")
    return boundary.encode()


def file_of_form(body: mmap.mmap | bytes, boundary: bytes) -> tuple[str, int, int]:
    """The given name of the only file of a form, and where its content begins and ends in the body.

    Raises:
        BadRequestError: there is not one file, or the body is malformed.
    """
    delimiter = b"\r\n--" + boundary
    files: list[tuple[str, int, int]] = []
    if body[: len(delimiter) - 2] != delimiter[2:]:
        raise _malformed()
    end = -2
    for _ in range(_MOST_PARTS):
        if body[end + len(delimiter) : end + len(delimiter) + 2] != b"\r\n":
            break
        head = end + len(delimiter) + 2
        start = body.find(b"\r\n\r\n", head, head + _MAX_HEAD) + 4
        end = body.find(delimiter, start)
        if start < 4 or end < 0:
            raise _malformed()
        name = _file_name(bytes(body[head:start]))
        if name is not None:
            files.append((name, start, end))
    if body[end + len(delimiter) : end + len(delimiter) + 2] != b"--":
        raise _malformed()
    if len(files) != 1:
        raise BadRequestError(
            f"The form has {'more than one file' if files else 'no file'}: one is uploaded at a time."
        )
    return files[0]


def _file_name(head: bytes) -> str | None:
    try:
        return email.parser.BytesHeaderParser().parsebytes(head).get_filename()
    except Exception as error:  # the library does not say what it raises
        raise _malformed() from error


def _malformed() -> BadRequestError:
    return BadRequestError("The body is no form: its parts do not have their form.")


def _check_archive(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise BadRequestError(f"The archive cannot be read: {message_of(error)}.") from error
    if _MAIN not in (entry.filename for entry in entries):
        raise BadRequestError(f"The archive has no {_MAIN} at its top, by which Python runs archives.")
    if len(entries) > _MOST_FILES or sum(entry.file_size for entry in entries) > _MOST_BYTES:
        raise BadRequestError(f"The archive has more than {_MOST_FILES:,} files or {_MOST_BYTES:,} bytes.")


def place(upload: Upload, directory: Path) -> Path:
    """Copy a program to a directory, which must not exist, and return the path of the file that is run there.

    Raises:
        BadRequestError: it is an archive that cannot be unpacked.
    """
    make_private(str(directory))
    if upload.name.endswith(".py"):
        return Path(shutil.copyfile(upload.path, directory / upload.name))
    _check_archive(upload.path)
    try:
        with zipfile.ZipFile(upload.path) as archive:
            archive.extractall(directory)
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        raise BadRequestError(f"The archive cannot be unpacked: {message_of(error)}.") from error
    return directory / _MAIN
