"""Uploads: names that lead nowhere, forms that are malformed, bodies that are too large, archives that are traps."""

from __future__ import annotations

import io
import os
import random
import zipfile
from pathlib import Path

import pytest

from flinkish.errors import FinalOperationError
from flinkish.rest.api import BodyTooLargeError
from flinkish.rest.route import BadRequestError, NotFoundError
from flinkish.session.uploads import UploadedBody, Uploads, boundary_of, file_of_form, place, safe_name

#: A name as a client gives it -> that of the upload; None: it is refused.
NAMES: list[tuple[str, str | None]] = [
    ("job.py", "job.py"),
    ("my job (1).py", "my_job__1_.py"),
    ("../../etc/cron.d/job.py", "job.py"),
    ("..\\..\\windows\\job.py", "job.py"),
    ("/etc/passwd.py", "passwd.py"),
    ("....py", None),
    (".py", None),
    (".hidden.py", "hidden.py"),
    ("-rf.py", "-rf.py"),
    ("job.PY", "job.py"),
    ("job.py\0.jar", None),
    ("job\n.py", "job_.py"),
    ("$(reboot).py", "__reboot_.py"),
    ("жук.zip", "___.zip"),
    ("lib-1.0-py3-none-any.whl", "lib-1.0-py3-none-any.whl"),
    ("x" * 500 + ".py", "x" * 97 + ".py"),
    ("job.jar", None),
    ("job", None),
    ("", None),
    ("/", None),
    ("..", None),
]


@pytest.mark.parametrize(("given", "name"), NAMES)
def test_the_name_of_an_upload_is_harmless(given: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(BadRequestError, match="runs Python programs"):
            safe_name(given)
    else:
        assert safe_name(given) == name


def part(name: str | None, content: bytes, field: str = "jarfile") -> bytes:
    file = "" if name is None else f'; filename="{name}"'
    return f'--B\r\nContent-Disposition: form-data; name="{field}"{file}\r\n\r\n'.encode() + content + b"\r\n"


END = b"--B--\r\n"

#: A body -> the name and the content of its file; None: it is refused.
FORMS: list[tuple[str, bytes, tuple[str, bytes] | None]] = [
    ("a file", part("a.py", b"print(1)") + END, ("a.py", b"print(1)")),
    ("an empty file", part("a.py", b"") + END, ("a.py", b"")),
    ("ends of lines and dashes", part("a.py", b"\r\n--\r\n--BB\r\n-") + END, None),
    ("something like the boundary", part("a.py", b"\r\n--b\r\n--A\n--B") + END, ("a.py", b"\r\n--b\r\n--A\n--B")),
    ("a field before it", part(None, b"x", "note") + part("a.py", b"1") + END, ("a.py", b"1")),
    ("a field behind it", part("a.py", b"1") + part(None, b"x", "note") + END, ("a.py", b"1")),
    ("two files", part("a.py", b"1") + part("b.py", b"2") + END, None),
    ("no file", part(None, b"x") + END, None),
    ("no end", part("a.py", b"1"), None),
    ("no end of the content", part("a.py", b"1")[:-2], None),
    ("nothing but the end", END, None),
    ("no boundary", b"print(1)", None),
    ("a head without end", b"--B\r\n" + b"X: y\r\n" * 5_000, None),
    ("a part without a head", b"--B\r\n\r\n\r\n--B--\r\n", None),
    ("too many parts", part(None, b"x") * 1_000 + part("a.py", b"1") + END, None),
    ("no charset", b"--B\r\nContent-Disposition: a; filename*=nonsense''a.py\r\n\r\n1\r\n" + END, ("a.py", b"1")),
    ("a head of zeros", b"--B\r\n" + b"\0" * 100 + b"\r\n\r\n1\r\n" + END, None),
]


@pytest.mark.parametrize(("body", "file"), [case[1:] for case in FORMS], ids=[case[0] for case in FORMS])
def test_the_file_of_a_form_is_found(body: bytes, file: tuple[str, bytes] | None) -> None:
    if file is None:
        with pytest.raises(BadRequestError):
            safe_name(file_of_form(body, b"B")[0])
    else:
        name, start, end = file_of_form(body, b"B")
        assert (name, body[start:end]) == file


def test_a_random_body_is_a_file_or_is_refused() -> None:
    chosen = random.Random(7)
    pieces = [
        b"--B",
        b"\r\n",
        b"\r\n\r\n",
        b"--",
        b"x",
        b'Content-Disposition: form-data; filename="a.py"',
        b"\0",
        b";",
    ]
    for _ in range(20_000):
        body = b"".join(chosen.choices(pieces, k=chosen.randrange(12)))
        try:
            name, start, end = file_of_form(body, b"B")
        except BadRequestError:
            continue
        assert name == "a.py" and 0 < start <= end <= len(body) and b"--B" not in body[start:end].partition(b"\r\n")[2]


#: The type of a body -> its boundary; None: it is refused.
TYPES: list[tuple[str, bytes | None]] = [
    ("multipart/form-data; boundary=abc", b"abc"),
    ('Multipart/Form-Data; boundary="a b"', b"a b"),
    ("multipart/form-data", None),
    ("multipart/form-data; boundary=", None),
    ("multipart/form-data; boundary=" + "x" * 71, None),
    ("multipart/mixed; boundary=abc", None),
    ("application/json", None),
    ("", None),
    ("multipart/form-data; boundary*=utf-8''%C3%A4", None),
    (";" * 10_000, None),
]


@pytest.mark.parametrize(("kind", "boundary"), TYPES, ids=[case[0][:60] for case in TYPES])
def test_the_boundary_is_that_of_the_type(kind: str, boundary: bytes | None) -> None:
    if boundary is None:
        with pytest.raises(BadRequestError, match="curl -F"):
            boundary_of(kind)
    else:
        assert boundary_of(kind) == boundary


def zipped(*names: str, content: bytes = b"print(1)") -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return written.getvalue()


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path / "uploads", 1 << 20)


def received(uploads: Uploads, body: bytes, kind: str = "multipart/form-data; boundary=B") -> str:
    """The id of the upload that a body becomes, which comes in pieces."""
    receiver = UploadedBody(uploads, {"content-type": kind})
    try:
        for at in range(0, len(body), 10_000):
            receiver.write(body[at : at + 10_000])
        return Path(receiver.answer()["filename"]).name
    finally:
        receiver.close()


def test_what_is_uploaded_is_listed_and_deleted(uploads: Uploads) -> None:
    first = received(uploads, part("../a.py", b"print(1)") + END)
    os.utime(uploads.folder / first, (1, 1))
    second = received(uploads, part("b.zip", zipped("__main__.py", "c/d.py")) + END)
    assert [(one.id, one.name) for one in uploads.all()] == [(second, "b.zip"), (first, "a.py")]
    assert uploads.get(first).path.read_bytes() == b"print(1)"
    assert uploads.get(first).path.stat().st_mode & 0o777 == 0o600
    uploads.delete(first)
    assert [one.id for one in uploads.all()] == [second]
    with pytest.raises(NotFoundError):
        uploads.delete(first)


@pytest.mark.parametrize(
    "name", ["", "..", "../a", "passwd", "0" * 36 + "_a.py", "../../etc/passwd", ".upload-x", "a" * 5_000]
)
def test_nothing_but_an_upload_has_an_id(name: str, uploads: Uploads) -> None:
    (uploads.folder / "passwd").write_text("x")
    (uploads.folder / f"{'0' * 8}-0000-0000-0000-{'0' * 12}_link.py").symlink_to("/etc/passwd")
    for given in (name, f"{'0' * 8}-0000-0000-0000-{'0' * 12}_link.py"):
        with pytest.raises(NotFoundError):
            uploads.get(given)
    assert uploads.all() == []


#: What a body holds -> a part of the sentence by which it is refused.
REFUSED: list[tuple[str, bytes, str]] = [
    ("no archive", part("a.zip", b"PK no") + END, "cannot be read"),
    ("an archive without a program", part("a.whl", zipped("lib.py")) + END, "__main__.py"),
    (
        "too many files",
        part("a.zip", zipped("__main__.py", *(f"{n}.py" for n in range(20_000)), content=b"")) + END,
        "20,000 files",
    ),
    ("another kind", part("a.jar", b"PK") + END, "runs Python programs"),
    ("nothing", b"", "empty"),
]


@pytest.mark.parametrize(("body", "sentence"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_be_run_is_refused_and_leaves_nothing(body: bytes, sentence: str, tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads", 64 << 20)
    with pytest.raises(BadRequestError, match=sentence):
        received(uploads, body)
    assert os.listdir(uploads.folder) == []


def test_a_body_that_is_too_large_is_refused_while_it_comes_and_leaves_nothing(uploads: Uploads) -> None:
    receiver = UploadedBody(uploads, {"content-type": "multipart/form-data; boundary=B"})
    receiver.write(b"x" * (1 << 20))
    assert len(os.listdir(uploads.folder)) == 1
    with pytest.raises(BodyTooLargeError, match="1,048,576 bytes"):
        receiver.write(b"x")
    receiver.close()
    assert os.listdir(uploads.folder) == []


def test_what_an_earlier_process_has_left_is_deleted(uploads: Uploads) -> None:
    (uploads.folder / ".upload-x").write_text("half")
    assert os.listdir(Uploads(uploads.folder, 1).folder) == []


def test_a_folder_in_which_others_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o700)
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(FinalOperationError, match="others can write"):
        Uploads(tmp_path / "shared", 1)


def test_a_program_is_placed_in_its_job_directory_and_an_archive_leads_nowhere_else(
    uploads: Uploads, tmp_path: Path
) -> None:
    program = uploads.get(received(uploads, part("a.py", b"print(1)") + END))
    assert place(program, tmp_path / "one").read_bytes() == b"print(1)"
    archive = zipped("__main__.py", "../../outside.py", "/absolute.py", "lib/x.py")
    main = place(uploads.get(received(uploads, part("a.zip", archive) + END)), tmp_path / "two")
    assert main == tmp_path / "two" / "__main__.py"
    inside = {str(path.relative_to(tmp_path / "two")) for path in (tmp_path / "two").rglob("*.py")}
    assert inside == {"__main__.py", "outside.py", "absolute.py", "lib/x.py"}
    assert not (tmp_path / "outside.py").exists() and not Path("/absolute.py").exists()


def test_a_damaged_archive_is_refused(uploads: Uploads, tmp_path: Path) -> None:
    whole = zipped("__main__.py", content=b"print(1)" * 100)
    damaged = whole.replace(b"print(1)", b"print(2)", 1)
    upload = uploads.get(received(uploads, part("a.zip", damaged) + END))
    with pytest.raises(BadRequestError, match="cannot be unpacked"):
        place(upload, tmp_path / "one")
