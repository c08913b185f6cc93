"""Each kind of file of a job directory: as it was stored, under its one name, and refused in one sentence if it is not
what was written.

A new kind needs a sample (`tests.support.stored_samples`), and with it goes through all of this.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from flinkish.checkpoint.manifest import CHECKPOINT_LAYOUT, Manifest
from flinkish.errors import CorruptStateError, FinalOperationError, FlinkishError, InternalError
from flinkish.jobdir.checks import OF_DIRECTORY
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.formats import LAYOUT
from flinkish.jobdir.layout import Answer, StoredRequest
from flinkish.jobdir.ownership import NEWEST, take_ownership
from flinkish.session.children import StartedDrivers
from flinkish.storage import stores
from flinkish.storage.paths import NameForm
from flinkish.storage.sealed import sealed
from flinkish.storage.stored_file import StoredFile
from tests.golden.write import FOLDER, unpack
from tests.support.sources import MODULES, name_of, nodes_of
from tests.support.stored_samples import SAMPLES, path_of

GOLDEN: dict[str, str] = json.loads((FOLDER / "job_files.json").read_text())
ALL = (*LAYOUT, *CHECKPOINT_LAYOUT, StartedDrivers)
IDS = [type(sample).__name__ for sample, _ in SAMPLES]
#: What is asked of a sample and of what stands in the name of its file.
each_kind = pytest.mark.parametrize(("sample", "parts"), SAMPLES, ids=IDS)


def test_each_kind_has_a_sample_with_all_of_its_fields() -> None:
    assert [type(sample) for sample, _ in SAMPLES] == list(ALL)


def test_the_list_has_every_kind_that_is_declared() -> None:
    def below(kind: type[StoredFile]) -> set[type[StoredFile]]:
        return {kind, *(one for child in kind.__subclasses__() for one in below(child))}

    here = {kind for kind in below(StoredFile) if "NAME" in vars(kind) and kind.__module__.startswith("flinkish.")}
    assert here == set(ALL)


@each_kind
def test_a_kind_is_stored_as_the_release_before_has_stored_it(sample: StoredFile, parts: tuple[object, ...]) -> None:
    if path_of(sample, parts) == "finished.json":
        return  # read, and never written any more
    golden = GOLDEN[path_of(sample, parts)].encode()
    assert sample.encoded() == golden
    assert type(sample).decoded(golden) == sample


@each_kind
def test_what_a_process_writes_is_read_by_the_next_one_and_by_nobody_else(
    sample: StoredFile, parts: tuple[object, ...], tmp_path: Path
) -> None:
    kind = type(sample)
    assert kind.read(str(tmp_path), *parts) is None
    sample.write(str(tmp_path), *parts)
    (path,) = tmp_path.iterdir()
    assert path.name == kind.file_name(*parts)
    assert (path.stat().st_mode & 0o777 == 0o600) == kind.PRIVATE
    assert kind.parts_of(path.name) is not None
    assert kind.read(str(tmp_path), *parts) == sample
    kind.delete(str(tmp_path), *parts)
    kind.delete(str(tmp_path), *parts)
    assert not path.exists()


# ------------------------------------------------------------------------------------------------ damage


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    content.pop("digest", None)
    change(content)
    if path.name != Manifest.NAME:
        path.write_bytes(sealed(content))
        return
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({"digest": digest, **content}, sort_keys=True, indent=1))


def of_newer_release(kind: type[StoredFile]) -> Callable[[dict[str, Any]], None]:
    version = "savepoint_version" if kind is Manifest else "version"
    return lambda content: content.update({version: kind.VERSION + 1, "new": 1})


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x04
    path.write_bytes(data)


def needed(kind: type[StoredFile]) -> list[str]:
    """The fields without which there is no such file."""
    return [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]  # type: ignore[arg-type]


def paths_in(kind: type[StoredFile]) -> dict[str, Any]:
    """The fields that name files or directories -> a value that leads elsewhere."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated and any(isinstance(one, NameForm) for one in get_args(hint)):
            found[name] = "../../outside/../x"
        elif any(get_origin(one) is Annotated for one in get_args(hint)):
            found[name] = ["../../outside"]
    return found


#: What happens to a file whose content is an object with a digest.
HARMS: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: path.write_bytes(b"") and None,
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]) and None,
    "a flipped bit": flip,
    "no object": lambda path: path.write_bytes(b'"x"') and None,
    "nested too deeply": lambda path: path.write_text('{"a": ' + "[" * 200_000) and None,
}


def said_of(kind: type[StoredFile], directory: Path, parts: tuple[object, ...]) -> str | None:
    """The one sentence by which a file is refused; None: it counts as missing."""
    try:
        assert kind.read(str(directory), *parts) is None
    except FlinkishError as error:
        text = str(error)
        assert not isinstance(error, InternalError) and error.hint, text
        assert "\n" not in text and kind.file_name(*parts) in text and str(directory) in text
        assert error.hint in text
        return text
    return None


@each_kind
@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_file_is_refused_by_its_name_with_what_to_do(
    sample: StoredFile, parts: tuple[object, ...], harm: str, tmp_path: Path
) -> None:
    kind = type(sample)
    sample.write(str(tmp_path), *parts)
    if harm == "a flipped bit" and not kind.SEALED:
        return  # nothing rests on what it says
    HARMS[harm](tmp_path / kind.file_name(*parts))
    said = said_of(kind, tmp_path, parts)
    assert (said is None) == kind.LENIENT
    assert said is None or " is damaged: " in said


@each_kind
def test_a_field_of_another_type_one_that_is_missing_and_a_path_that_leads_out_are_refused(
    sample: StoredFile, parts: tuple[object, ...], tmp_path: Path
) -> None:
    kind, path = type(sample), tmp_path / type(sample).file_name(*parts)
    if not kind.SEALED:
        path.write_text('{"a": [[]]}')
        assert said_of(kind, tmp_path, parts) is None
        return
    changes: list[Callable[[dict[str, Any]], None]] = []
    for one in fields(kind):  # type: ignore[arg-type]
        if one.type not in ("Any", "object"):
            changes.append(lambda content, name=one.name: content.update({name: [{"no": "such thing"}]}))  # type: ignore[misc]
    changes += [lambda content, name=name: content.pop(name, None) for name in needed(kind)]  # type: ignore[misc]
    changes += [lambda content, name=name, out=out: content.update({name: out}) for name, out in paths_in(kind).items()]  # type: ignore[misc]
    for change in changes:
        sample.write(str(tmp_path), *parts)
        changed(path, change)
        said = said_of(kind, tmp_path, parts)
        assert kind.LENIENT if said is None else " is damaged: it" in said


@each_kind
def test_a_directory_in_its_place_is_refused_by_its_name(
    sample: StoredFile, parts: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / sample.file_name(*parts)).mkdir()
    said = said_of(type(sample), tmp_path, parts)
    assert said is not None and "it is a directory" in said


@each_kind
def test_a_file_that_may_not_be_read_is_refused_by_its_name(
    sample: StoredFile, parts: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample.write(str(tmp_path), *parts)

    def denied(path: str, kind: object) -> bytes:
        # as of mode 0000, which root reads all the same
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(stores, "read_regular", denied)
    said = said_of(type(sample), tmp_path, parts)
    assert said is not None and "permission denied" in said and "let this user read" in said


@each_kind
def test_a_file_of_a_newer_release_is_refused_and_is_never_a_reason_to_go_back_to_a_checkpoint(
    sample: StoredFile, parts: tuple[object, ...], tmp_path: Path
) -> None:
    kind = type(sample)
    if not (kind.SEALED and kind.VERSION):
        return  # no later driver reads it
    sample.write(str(tmp_path), *parts)
    changed(tmp_path / kind.file_name(*parts), of_newer_release(kind))
    with pytest.raises(FinalOperationError) as caught:
        kind.read(str(tmp_path), *parts)
    said = said_of(kind, tmp_path, parts)
    assert said is not None and "was written by a newer release of flinkish" in said
    assert not isinstance(caught.value, CorruptStateError)


@each_kind
def test_a_file_of_another_epoch_is_never_taken_for_that_of_this_one(
    sample: StoredFile, parts: tuple[object, ...], tmp_path: Path
) -> None:
    if "epoch" in needed(type(sample)) and type(sample).check_name is not StoredFile.check_name:
        sample.write(str(tmp_path), 77)
        said = said_of(type(sample), tmp_path, (77,))
        assert said is not None and "it is that of epoch 3" in said


def content_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("sample", "parts"), [one for one in SAMPLES if type(one[0]) in OF_DIRECTORY], ids=IDS[: len(OF_DIRECTORY)]
)
def test_a_directory_of_a_newer_release_is_refused_before_anything_in_it_has_changed(
    sample: StoredFile, parts: tuple[object, ...], tmp_path: Path
) -> None:
    unpack("minicluster", tmp_path)
    job, kind = tmp_path / "job", type(sample)
    job.chmod(0o700)
    sample.write(str(job), *parts)
    changed(job / kind.file_name(*parts), of_newer_release(kind))
    before, directory = content_below(job), JobDirectory(str(job))
    if kind in (StoredRequest, Answer):
        # whoever wrote it does not keep a job from being started
        take_ownership(None, directory, "golden", NEWEST)
        directory.release()
        return
    with pytest.raises(FinalOperationError, match="was written by a newer release"):
        take_ownership(None, directory, "golden", NEWEST)
    assert content_below(job) == before


# ------------------------------------------------------------------------------------------------ one place for names


def test_no_name_of_a_file_stands_anywhere_but_where_it_is_declared() -> None:
    whole = {kind.NAME for kind in ALL if "{" not in kind.NAME}
    beginnings = {begin for kind in ALL if (begin := kind.NAME.partition("{")[0]) and begin not in whole}
    own = {kind.__module__.removeprefix("flinkish.").replace(".", "/") + ".py": set[int]() for kind in ALL}
    for path in MODULES:
        if name_of(path) in own:
            own[name_of(path)] = {
                id(node.value)
                for node in nodes_of(path)
                if isinstance(node, ast.Assign) and [getattr(one, "id", "") for one in node.targets] == ["NAME"]
            }
    found = [
        f"{name_of(path)}:{node.lineno}: {node.value}"
        for path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.value in whole or node.value in beginnings or re.fullmatch(r"\w+-\d*\.json", node.value))
        and id(node) not in own.get(name_of(path), ())
    ]
    assert found == []
