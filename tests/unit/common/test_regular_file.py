# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file that is none, or that does not end, holds up no module."""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _common
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.regular_file import (
    MOST_BYTES,
    open_regular,
    read_bytes,
    read_text,
    text_of,
)
from ansible_collections.gpu.fleet.plugins.module_utils._files import archive, file_set
from ansible_collections.gpu.fleet.plugins.module_utils._health import announcement, history
from ansible_collections.gpu.fleet.plugins.module_utils._managed import observe as managed
from ansible_collections.gpu.fleet.plugins.module_utils._state import service, service_files

PLUGINS = Path(_common.__path__[0]).parents[1]


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """To wait for the writer of a FIFO would be for ever."""

    def hangs(*_of: object) -> None:
        raise AssertionError("it waits")

    previous = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def test_a_fifo_a_device_and_a_directory_are_errors(tmp_path: Path) -> None:
    for path, reason in ((str(fifo(tmp_path / "a")), "not a regular file"), ("/dev/zero", "not a regular file")):
        for read in (open_regular, read_bytes, read_text, text_of):
            with pytest.raises(OSError, match=reason):
                read(path)
    with pytest.raises(IsADirectoryError):
        read_text(str(tmp_path))


def test_a_file_that_becomes_a_fifo_after_the_first_look_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = fifo(tmp_path / "a"), os.stat
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "stat", lambda _path, **_how: real(tmp_path / "file"))
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(str(path))


def test_a_file_without_an_end_of_reason_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, MOST_BYTES)
    assert len(read_bytes(str(path))) == MOST_BYTES
    os.truncate(path, MOST_BYTES + 1)
    with pytest.raises(OSError, match="more than 16 MiB"):
        read_text(str(path))
    assert HostFiles(str(tmp_path)).read("/large") is None


def test_other_files_are_read_as_python_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a\r\nb\rc\n\xc3\xa4")
    assert (read_text(str(path)), text_of(str(path))) == ("a\nb\nc\nä",) * 2
    assert read_text(str(path), newline="") == "a\r\nb\rc\nä"
    assert read_text(str(tmp_path / "missing")) is None
    path.write_bytes(b"\xff")
    with pytest.raises(UnicodeError):
        read_text(str(path))
    (tmp_path / "masked").symlink_to("/dev/null")
    assert read_text(str(tmp_path / "masked")) == ""
    # Of the kernel, whose size is 0 as stat shows it.
    assert text_of("/proc/self/stat").startswith(f"{os.getpid()} ")


def _kind(state: object) -> object:
    return getattr(state, "kind", None)


Damaged = Callable[[Path], object]
READERS: dict[str, tuple[Damaged, object]] = {
    "HostFiles.read": (lambda path: HostFiles(str(path.parent)).read(f"/{path.name}"), None),
    "HostFiles.read_bytes": (lambda path: HostFiles(str(path.parent)).read_bytes(f"/{path.name}"), b""),
    "boot_cache": (lambda path: BootCache(str(path)).get(("a",), None), None),
    "archive": (lambda path: archive.read_record(str(path.parent)), None),
    "file_set": (lambda path: file_set.observe(str(path)), None),
    "history": (lambda path: history.read(str(path.parent)), history.History()),
    "announcement": (lambda path: announcement.read(str(path), 0.0).verdict, "unknown"),
    "reboot": (lambda path: service.reboot_was_tried(["0"], str(path.parent)), False),
    "service_files": (lambda path: (service_files.read(str(path)) or "")[:7], "(owner "),
    "managed": (lambda path: _kind(managed.path_state(HostFiles(str(path.parent)), f"/{path.name}")), "other"),
}
NAMES = {"archive": archive.RECORD, "history": history.FILE, "reboot": service.REBOOT_FILE.lstrip("/")}


@pytest.mark.parametrize("name", READERS)
def test_no_reader_waits_for_the_writer_of_a_fifo(tmp_path: Path, name: str) -> None:
    read, expected = READERS[name]
    path = tmp_path / NAMES.get(name, "file")
    path.parent.mkdir(parents=True, exist_ok=True)
    assert read(fifo(path)) == expected


# Files of the kernel by fixed paths, those that a module writes itself, and the archive in its own directory of work.
OPENED = {
    "module_utils/_common/boot_cache.py": 1,
    "module_utils/_files/archive.py": 3,
    "module_utils/_files/archive_run.py": 1,
    "module_utils/_nvidia_smi/blockers.py": 1,
    "module_utils/_nvidia_smi/pci.py": 1,
    "module_utils/_packages/run.py": 1,
    "module_utils/_repository/run.py": 1,
    "module_utils/_state/service.py": 1,
}


def test_no_other_module_opens_files_by_itself() -> None:
    found: dict[str, int] = {}
    for path in sorted((*PLUGINS.glob("module_utils/**/*.py"), *PLUGINS.glob("modules/*.py"))):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("open", "tarfile.open", "io.open"):
                name = str(path.relative_to(PLUGINS))
                found[name] = found.get(name, 0) + 1
    assert found == OPENED
