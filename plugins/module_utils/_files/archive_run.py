# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""archive_directory: replace a directory by an archive's content, or leave it. Private to this collection."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Iterator, Mapping

from ansible.module_utils.urls import open_url

from .._common.arguments import check_path, shortened
from .._common.errors import ChangeError, RunError
from .._common.os_errors import advice
from .._common.regular_file import open_regular
from .archive import (
    RECORD,
    ArchiveError,
    ArchiveRecord,
    Content,
    checksum,
    differences,
    is_disk_full,
    loaded_names,
    observe,
    read_record,
    unpack,
)


@dataclass(frozen=True)
class ArchiveRequest:
    """The directory `path` as it is in the archive with this checksum; absent where `sha256` is None.

    `source` is a URL or a path on the host, `timeout` in seconds.
    """

    path: str
    source: str
    sha256: str | None
    timeout: int


@dataclass(frozen=True)
class Directory:
    """An observed directory. `record` is None when it was not made from an archive.

    `contents` are read only where they matter, as reading them takes time.
    """

    record: ArchiveRecord | None
    contents: Mapping[str, Content]


def parse_request(params: Mapping[str, Any]) -> ArchiveRequest:
    """The request in the options; raises ChangeError by the name of an option."""
    check_path("path", params["path"])
    path, source, sha256 = os.path.normpath(params["path"]), params["src"] or "", params["sha256"] or ""
    if os.path.basename(path) == "":
        raise ChangeError(f"path: {path} is not an absolute path of a directory with a name")
    if params["state"] == "absent":
        return ArchiveRequest(path, source, None, params["timeout"])
    if not re.fullmatch("[0-9a-f]{64}", sha256.lower()):
        raise ChangeError(f"sha256: {shortened(sha256)} is not a sha256, 64 hexadecimal digits")
    if not re.match("(https?|ftp)://|/", source) or "\0" in source:
        raise ChangeError(
            f"src: {shortened(source)} is neither a URL (http, https, ftp) nor an absolute path on the host"
        )
    return ArchiveRequest(path, source, sha256.lower(), params["timeout"])


def observe_directory(request: ArchiveRequest) -> Directory | None:
    """The directory on disk, None where there is none."""
    if not os.path.lexists(request.path):
        return None
    record = None if os.path.islink(request.path) else read_record(request.path)
    is_same = record is not None and record.archive == request.sha256
    return Directory(record, observe(request.path) if is_same else {})


def plan(request: ArchiveRequest, observed: Directory | None) -> tuple[str, ...]:
    """What makes it necessary to unpack or remove the directory; raises ArchiveError for one of others."""
    if observed is None:
        return (f"{request.path} is missing",) if request.sha256 else ()
    if observed.record is None:
        raise ArchiveError(
            f"{request.path} exists and has no {RECORD}: it was not unpacked from an archive; move it away"
        )
    if request.sha256 is None:
        return (f"{request.path} exists",)
    if observed.record.archive != request.sha256:
        return (f"{request.path} is from another archive",)
    return differences(observed.contents, observed.record.contents)


def run(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    request = parse_request(params)
    path = request.path
    before = _identity(path)
    try:
        if not check_mode:
            _restore(path)
        found = plan(request, observe_directory(request))
        if found and not check_mode:
            apply(request)
            left = plan(request, observe_directory(request))
            if left:
                raise ChangeError(f"path: {path} was changed, but reading it back shows: {', '.join(left)}")
        record = read_record(path)
    except ArchiveError as error:
        raise _failure(f"{request.source or path}: {error}; {_left(path, before)}", path, before) from error
    except (OSError, UnicodeError) as error:
        raise _failure(f"path: {path}: {error}{advice(error)}", path, before) from error
    except ChangeError as error:
        raise _failure(str(error), path, before) from error
    libraries = loaded_names(record.contents) if record else {}
    return {
        "changed": bool(found),
        "differences": list(found),
        "libraries": {name: f"{path}/{relative}" for name, relative in libraries.items()},
        "diff": {"before": "".join(f"{line}\n" for line in found), "after": ""},
    }


def _identity(path: str) -> tuple[int, int] | None:
    """Which directory it is: a replaced one has another number. None where there is none."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _failure(message: str, path: str, before: tuple[int, int] | None) -> RunError:
    return RunError(message, {"changed": _identity(path) != before})


def _left(path: str, before: tuple[int, int] | None) -> str:
    """What a failed run has left at `path`."""
    now, old = _identity(path), _work_paths(path)[1]
    if now == before:
        return f"{path} is unchanged"
    if now is None:
        kept = f"; its former content is in {old}, and the next run restores it" if os.path.lexists(old) else ""
        return f"{path} is gone{kept}"
    if before is None:
        return f"{path} is there again, which an interrupted run had moved away"
    return f"{path} has been replaced"


def apply(request: ArchiveRequest) -> None:
    """Remove the directory, or replace it by the archive's content."""
    if request.sha256 is None:
        _remove(request.path)
    else:
        _replace(request.path, request.source, request.sha256, request.timeout)


def _replace(path: str, source: str, sha256: str, timeout: int) -> None:
    work = _work_paths(path)[0]
    parent = os.path.dirname(path)
    os.makedirs(parent, mode=0o755, exist_ok=True)
    try:
        _clear(path)
        os.mkdir(work, 0o700)
        _put_in_place(_fetch_and_unpack(source, sha256, work, timeout), path)
    except OSError as error:
        if is_disk_full(error):
            raise ArchiveError(f"no space left in {parent} for it; make room there, then run again") from error
        raise ArchiveError(f"it cannot be fetched or unpacked: {error}{advice(error)}") from error
    finally:
        # The old directory is all there is where it could not be restored.
        _clear(path, keeps_old=not os.path.lexists(path))


def _fetch_and_unpack(source: str, sha256: str, work: str, timeout: int) -> str:
    """Fetch the archive into the directory `work`, verify and unpack it there; returns the unpacked directory."""
    archive, directory = os.path.join(work, "archive"), os.path.join(work, "directory")
    with _opened(source, timeout) as stream, open(archive, "wb") as file:
        found = checksum(stream, file)
    if found != sha256:
        raise ArchiveError(f"its sha256 is {found}, not {sha256}")
    record = unpack(archive, directory, sha256)
    wrong = differences(observe(directory), record.contents)
    if wrong:
        raise ArchiveError(f"read back after unpacking: {', '.join(wrong)}")
    return directory


@contextmanager
def _opened(source: str, timeout: int) -> Iterator[IO[bytes]]:
    """The archive's bytes, from a URL or a file."""
    is_url = "://" in source
    with open_url(source, timeout=timeout, http_agent="gpu.fleet") if is_url else open_regular(source) as stream:
        yield stream


def _put_in_place(directory: str, path: str) -> None:
    """Rename the unpacked directory to `path`; the previous one is kept until the new one is in place."""
    if os.path.lexists(path):
        os.rename(path, _work_paths(path)[1])
    try:
        os.rename(directory, path)
    except OSError:
        _restore(path)
        raise


def _restore(path: str) -> None:
    """Restore the old directory after an interrupted replacement."""
    old = _work_paths(path)[1]
    if os.path.lexists(old) and not os.path.lexists(path):
        os.rename(old, path)


def _remove(path: str) -> None:
    """Remove the directory: rename it first, then delete it file by file."""
    _clear(path)
    os.rename(path, _work_paths(path)[1])
    _clear(path)


def _clear(path: str, keeps_old: bool = False) -> None:
    """Remove what a run has made next to the directory."""
    work, old = _work_paths(path)
    for left in (work,) if keeps_old else (work, old):
        shutil.rmtree(left, ignore_errors=True)


def _work_paths(path: str) -> tuple[str, str]:
    """Directories for work and for the old directory: fixed names, so that a run cleans up after a killed one."""
    parent, name = os.path.split(path)
    return os.path.join(parent, f".{name}.new"), os.path.join(parent, f".{name}.old")
