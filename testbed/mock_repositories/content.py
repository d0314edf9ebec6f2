# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contents of a package's files: text, a copy, a compiled program, a file of a real Debian package, an archive."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.mock_repositories.description import DescriptionError, File

# Root file systems of Debian releases with the files to repackage, mounted by container.py.
DEBIAN = Path("/debian")
EPOCH = 1700000000

_MACHINE = "amd64"
_SUFFIX = {".tar": "", ".gz": "gz", ".tgz": "gz", ".xz": "xz", ".txz": "xz", ".bz2": "bz2"}


@dataclass(frozen=True)
class Content:
    """Bytes and mode, or the target of a link."""

    data: bytes = b""
    mode: int = 0o644
    link: str = ""
    configuration: bool = False

    def is_configuration(self, path: str) -> bool:
        """Whether a package keeps changes of this file, at a path without a leading slash, over an upgrade."""
        return not self.link and (self.configuration or path.startswith("etc/"))

    def write(self, path: Path) -> None:
        """Write it as a file, or make the link."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.link:
            path.symlink_to(self.link)
        else:
            path.write_bytes(self.data)
            path.chmod(self.mode)


class Materializer:
    """Turns descriptions of files into content. `keyring` gives a key's public half by its name, armored or not."""

    def __init__(self, keyring: Callable[[str, bool], bytes], payloads: Mapping[str, str]) -> None:
        self._keyring = keyring
        self._payloads = payloads
        self._compiled: dict[tuple[str, ...], bytes] = {}

    def digest(self, file: File, architecture: str) -> str:
        """A digest that changes when the content does, much cheaper than the content."""
        if file.kind == "debian":
            parts = f"{self._payloads[file.suite]} {file.value}"
        elif file.kind == "c":
            parts = f"{file.value} {file.flags} {architecture}"
        elif file.kind == "tar":
            members = {path: self.digest(item, architecture) for path, item in file.value.items()}
            parts = f"{members} {file.compression}"
        else:
            content = self.content(file, architecture)
            parts = f"{hashlib.sha256(content.data).hexdigest()} {content.mode} {content.link}"
        return hashlib.sha256(f"{file.kind} {file.mode} {file.configuration} {parts}".encode()).hexdigest()

    def content(self, file: File, architecture: str, path: str = "") -> Content:
        """The content of a file for a package of this architecture; `path` decides the compression of an archive."""
        if file.kind == "link":
            return Content(link=file.value)
        data, mode = self._data(file, architecture, path)
        return Content(data, mode if file.mode is None else file.mode, configuration=file.configuration)

    def _data(self, file: File, architecture: str, path: str) -> tuple[bytes, int]:
        if file.kind == "content":
            text = file.value
            return text.encode(), 0o755 if text.startswith("#!") else 0o644
        if file.kind == "key":
            return self._keyring(file.value, file.armored), 0o644
        if file.kind == "c":
            return self._compile(file, architecture), 0o755
        if file.kind == "tar":
            compression = file.compression or _SUFFIX.get(Path(path).suffix, "")
            members = {name: self.content(item, architecture, name) for name, item in file.value.items()}
            return compress(tar(members), compression), 0o644
        source = DEBIAN / file.suite / str(file.value).lstrip("/") if file.kind == "debian" else Path(file.value)
        if not source.is_file():
            raise DescriptionError(f"{source} is no file")
        return source.read_bytes(), source.stat().st_mode & 0o777

    def _compile(self, file: File, architecture: str) -> bytes:
        if architecture not in (_MACHINE, "all"):
            # No cross-compiler here and no host to run it: the source text stands in for the program.
            return str(file.value).encode()
        inputs = (file.value, *file.flags)
        if inputs not in self._compiled:
            with tempfile.TemporaryDirectory() as scratch:
                output = Path(scratch) / "output"
                argv = ["gcc", "-O1", "-s", "-x", "c", "-", "-o", str(output), *file.flags]
                done = subprocess.run(argv, input=file.value, text=True, capture_output=True, check=False)
                if done.returncode:
                    raise DescriptionError(f"gcc: {done.stderr}")
                self._compiled[inputs] = output.read_bytes()
        return self._compiled[inputs]


def tar(members: Mapping[str, Content]) -> bytes:
    """A tar archive; names are taken as they are, so that a hostile archive can be described too."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as archive:
        seen: set[str] = set()
        for name, content in members.items():
            for parent in [str(parent) for parent in reversed(Path(name).parents)]:
                if parent not in (".", "/") and ".." not in parent and not name.startswith("/") and parent not in seen:
                    seen.add(parent)
                    directory = tarfile.TarInfo(parent)
                    directory.type, directory.mode, directory.mtime = tarfile.DIRTYPE, 0o755, EPOCH
                    archive.addfile(directory)
            member = tarfile.TarInfo(name)
            member.mtime = EPOCH
            if content.link:
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, content.link, 0o777
                archive.addfile(member)
            else:
                member.size, member.mode = len(content.data), content.mode
                archive.addfile(member, io.BytesIO(content.data))
    return output.getvalue()


def compress(data: bytes, compression: str) -> bytes:
    """Compress reproducibly: '' (not at all), gz, xz or bz2."""
    if compression == "gz":
        return gzip.compress(data, compresslevel=1, mtime=0)
    if compression == "xz":
        return lzma.compress(data, preset=1)
    return bz2.compress(data) if compression == "bz2" else data
