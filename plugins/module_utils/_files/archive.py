# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpack a tar archive safely into a directory of its own. Private to this collection.

The archives of cuDNN, NCCL and TensorRT have a single top-level directory, whose name differs (`cuda`,
`cudnn-linux-x86_64-9.14.0.64_cuda13-archive`, `nccl_2.27.5-1+cuda12.9_x86_64`): its content becomes the directory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import lzma
import os
import posixpath
import re
import shutil
import tarfile
import zlib
from dataclasses import dataclass
from typing import IO, Iterable, Mapping, Sequence

from .._common.json_text import parse_json
from .._common.regular_file import open_regular, text_of

RECORD = ".gpu-fleet-archive.json"
"""The file in an unpacked directory that records its archive and its expected content."""

_CHUNK = 1 << 20
_LOADED_NAME = re.compile(r"lib.+\.so\.\d+")
_NAMED = 3
_LONGEST_WALK = 1000
_SOURCES_OF_DAMAGE = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, ValueError)


class ArchiveError(Exception):
    """The archive cannot be used or unpacked; the message has the reason."""


@dataclass(frozen=True)
class Member:
    """One archive member. `kind` is `file`, `directory`, `link`, `hard link` or the name of another type."""

    name: str
    kind: str
    target: str = ""
    size: int = 0
    executable: bool = False


@dataclass(frozen=True)
class Entry:
    """One file or link to create, by path in the directory; `source` and `number` are the member's name and position.

    `target` is where a link points, None for a file; `size` is in bytes.
    """

    path: str
    source: str
    number: int
    target: str | None = None
    size: int = 0
    executable: bool = False


@dataclass(frozen=True)
class Content:
    """An entry on disk: a file's checksum and mode, or a link's target."""

    sha256: str | None
    mode: int | None
    target: str | None


@dataclass(frozen=True)
class ArchiveRecord:
    """State of an unpacked directory: checksum of its archive, and content by path."""

    archive: str
    contents: Mapping[str, Content]


def layout(members: Iterable[Member]) -> tuple[Entry, ...]:
    """The entries below the archive's top-level directory; raises ArchiveError when a member is unsafe."""
    members = tuple(members)
    refused = [f"{member.name} {reason}" for member in members for reason in (_objection(member),) if reason]
    if refused:
        raise ArchiveError(_in_words(refused))
    paths = [posixpath.normpath(member.name) for member in members]
    tops = sorted({path.partition("/")[0] for path in paths if path != "."})
    if len(tops) != 1:
        raise ArchiveError(f"it has to have one top-level directory, and has {', '.join(tops) or 'nothing'}")
    entries: dict[str, Entry] = {}
    for number, (path, member) in enumerate(zip(paths, members)):
        relative = path.partition("/")[2]
        if member.kind == "directory":
            continue
        if not relative:
            raise ArchiveError(f"{member.name} is at its top level, where only a directory is allowed")
        if relative in entries:
            raise ArchiveError(f"{member.name} is in it twice")
        # A hard link becomes a symbolic link: both read the same, and only a symbolic link is safe to create again.
        target = _relative_target(path, member)
        entries[relative] = Entry(relative, member.name, number, target, member.size, member.executable)
    _refuse_paths_through_entries(entries)
    _refuse_links_out(entries)
    if not entries:
        raise ArchiveError("it is empty")
    return tuple(entries[path] for path in sorted(entries))


def _objection(member: Member) -> str | None:
    """Why a member may not be unpacked, regardless of the other members; None when it may."""
    if member.name.startswith("/"):
        return "has an absolute path"
    if ".." in member.name.split("/"):
        return "leads out of the directory"
    if member.kind not in ("file", "directory", "link", "hard link"):
        return f"is a {member.kind}"
    if member.kind in ("link", "hard link") and (member.target.startswith("/") or not member.target):
        return f"is a {member.kind} to {member.target or 'nothing'}"
    return None


def _relative_target(path: str, member: Member) -> str | None:
    """The target of a link, None for a file. Hard links name their target relative to the archive's root."""
    if member.kind == "link":
        return member.target
    if member.kind == "hard link":
        return posixpath.relpath(posixpath.normpath(member.target), posixpath.dirname(path))
    return None


def _refuse_links_out(entries: Mapping[str, Entry]) -> None:
    links = {path: entry.target for path, entry in entries.items() if entry.target is not None}
    out = [entries[path] for path in sorted(links) if _leaves(path, links)]
    if out:
        named = [f"{entry.source} is a link out of the directory, to {entry.target}" for entry in out]
        raise ArchiveError(_in_words(named))


def _leaves(path: str, links: Mapping[str, str]) -> bool:
    """Whether resolving a link, through other links as the kernel does, leaves the directory at any point."""
    here = path.split("/")[:-1]
    ahead = links[path].split("/")
    for _step in range(_LONGEST_WALK):
        if not ahead:
            return False
        step, *ahead = ahead
        if step == "..":
            if not here:
                return True
            here.pop()
        elif step not in ("", "."):
            target = links.get("/".join([*here, step]))
            if target is None:
                here.append(step)
            else:
                ahead = [*target.split("/"), *ahead]
    return True  # a link loop


def _refuse_paths_through_entries(entries: Mapping[str, Entry]) -> None:
    """Refuse entries below a file or a link: they would be written to wherever the link points."""
    for path, entry in entries.items():
        directory = posixpath.dirname(path)
        while directory:
            if directory in entries:
                raise ArchiveError(f"{entry.source} is below {entries[directory].source}, which is not a directory")
            directory = posixpath.dirname(directory)


def _in_words(refused: Sequence[str]) -> str:
    more = len(refused) - _NAMED
    return "; ".join(refused[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def members_of(archive: tarfile.TarFile) -> tuple[Member, ...]:
    """All members of an open archive, which is read to its end; raises ArchiveError when it is damaged."""
    try:
        members = tuple(_member(info) for info in archive)
        # Data after the last member shows whether the archive is truncated or damaged.
        while archive.fileobj is not None and archive.fileobj.read(_CHUNK):
            pass
        return members
    except (*_SOURCES_OF_DAMAGE, OSError) as error:
        raise ArchiveError(f"it is damaged: {error}") from error


def _member(info: tarfile.TarInfo) -> Member:
    kinds = (
        (info.isreg(), "file"),
        (info.isdir(), "directory"),
        (info.issym(), "link"),
        (info.islnk(), "hard link"),
        (info.ischr() or info.isblk(), "device node"),
        (info.isfifo(), "named pipe"),
    )
    kind = next((name for is_it, name in kinds if is_it), "member of unknown type")
    return Member(info.name, kind, info.linkname, info.size if info.isreg() else 0, bool(info.mode & 0o111))


def checksum(stream: IO[bytes], copy: IO[bytes] | None = None) -> str:
    """The hexadecimal sha256 of a stream; the data is also written to `copy`."""
    digest = hashlib.sha256()
    for chunk in iter(lambda: stream.read(_CHUNK), b""):
        digest.update(chunk)
        if copy is not None:
            copy.write(chunk)
    return digest.hexdigest()


def unpack(path: str, directory: str, archive_sha256: str) -> ArchiveRecord:
    """Unpack the archive at `path` into the new `directory`. All members are checked before any is written."""
    with _opened(path) as archive:
        entries = layout(members_of(archive))
        needed, free = sum(entry.size for entry in entries), shutil.disk_usage(os.path.dirname(directory)).free
        if needed > free:
            raise ArchiveError(
                f"{os.path.dirname(directory)} has {_mib(free)} free, and unpacked it needs {_mib(needed)}"
            )
        os.mkdir(directory, 0o755)
        contents = {entry.path: _write(archive, entry, directory) for entry in entries}
    record = ArchiveRecord(archive_sha256, contents)
    with open(os.path.join(directory, RECORD), "w", encoding="utf-8") as file:
        file.write(render(record))
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    return record


def _opened(path: str) -> tarfile.TarFile:
    try:
        return tarfile.open(path)
    except (*_SOURCES_OF_DAMAGE, OSError) as error:
        raise ArchiveError(f"it is not a tar archive: {error}") from error


def _mib(size: int) -> str:
    return f"{-(-size // (1 << 20))} MiB"


def _write(archive: tarfile.TarFile, entry: Entry, directory: str) -> Content:
    path = os.path.join(directory, *entry.path.split("/"))
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if entry.target is not None:
        os.symlink(entry.target, path)
        return Content(None, None, entry.target)
    try:
        source = archive.extractfile(archive.getmembers()[entry.number])
    except _SOURCES_OF_DAMAGE as error:
        raise ArchiveError(f"it is damaged at {entry.source}: {error}") from error
    if source is None:
        raise ArchiveError(f"it is damaged at {entry.source}")
    mode = 0o755 if entry.executable else 0o644
    with source, open(path, "xb") as file:
        sha256 = checksum(source, file)
        # Owner and other mode bits come from the machine that made the archive and are ignored.
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    return Content(sha256, mode, None)


def render(record: ArchiveRecord) -> str:
    """The content of the record's file."""
    contents = {
        path: {"link": content.target}
        if content.target is not None
        else {"sha256": content.sha256, "mode": f"{content.mode:04o}"}
        for path, content in sorted(record.contents.items())
    }
    return json.dumps({"archive": record.archive, "contents": contents}, indent=1) + "\n"


def parse(text: str) -> ArchiveRecord:
    """Parse the content of a record's file; raises ArchiveError when it is invalid."""
    try:
        document = parse_json(text)
        contents = {
            path: Content(None, None, item["link"])
            if "link" in item
            else Content(item["sha256"], int(item["mode"], 8), None)
            for path, item in document["contents"].items()
        }
        return ArchiveRecord(document["archive"], contents)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(f"{RECORD} cannot be read: {error}") from error


def read_record(directory: str) -> ArchiveRecord | None:
    """The record of a directory; None where it is missing or cannot be read."""
    try:
        return parse(text_of(os.path.join(directory, RECORD)))
    except (OSError, UnicodeError, ArchiveError):
        return None


def observe(directory: str) -> dict[str, Content]:
    """The content of a directory by path, without subdirectories and the record."""
    found: dict[str, Content] = {}
    for parent, directories, files in os.walk(directory):
        links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
        for name in [*files, *links]:
            path = os.path.join(parent, name)
            relative = os.path.relpath(path, directory).replace(os.sep, "/")
            if relative != RECORD:
                found[relative] = _observed(path)
    return found


def _observed(path: str) -> Content:
    if os.path.islink(path):
        return Content(None, None, os.readlink(path))
    if not os.path.isfile(path):
        return Content(None, None, None)
    with open_regular(path) as file:
        return Content(checksum(file), os.fstat(file.fileno()).st_mode & 0o7777, None)


def differences(observed: Mapping[str, Content], desired: Mapping[str, Content]) -> tuple[str, ...]:
    """Differences from the desired content, one line for each path."""
    lines = []
    for path in sorted({*observed, *desired}):
        if path not in observed:
            lines.append(f"{path} is missing")
        elif path not in desired:
            lines.append(f"{path} is not in the archive")
        elif observed[path] != desired[path]:
            lines.append(f"{path} differs from the archive")
    return tuple(lines)


def loaded_names(contents: Mapping[str, Content]) -> dict[str, str]:
    """The names under which a loader looks for a directory's libraries, such as `libcudnn.so.9`, with their paths."""
    names: dict[str, str] = {}
    for path in sorted(contents):
        name = posixpath.basename(path)
        if _LOADED_NAME.fullmatch(name) and posixpath.basename(posixpath.dirname(path)) != "stubs":
            names.setdefault(name, path)
    return names


def is_disk_full(error: OSError) -> bool:
    """Whether an error means that the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
