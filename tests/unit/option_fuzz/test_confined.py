# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the sandbox that protects this machine from fuzzed modules, with harmless operations."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit import confined
from tests.unit.confined import TooMuchWorkError, bounded


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file next to the directory that may be changed, and links to it from inside."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "file").write_text("as it was")
    (tmp_path / "directory").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "file")
    (tmp_path / "inside" / "directory").symlink_to(tmp_path / "directory")
    return tmp_path


def _unlink_at(top: Path) -> None:
    descriptor = os.open(top, os.O_RDONLY)
    try:
        os.unlink("file", dir_fd=descriptor)
    finally:
        os.close(descriptor)


WAYS: dict[str, Callable[[Path], object]] = {
    "open": lambda top: (top / "file").open("w"),
    "append": lambda top: (top / "file").open("ab"),
    "through a link": lambda top: (top / "inside" / "link").write_text("x"),
    "through a directory": lambda top: (top / "inside" / "directory" / "new").write_text("x"),
    "through ..": lambda top: Path(f"{top}/inside/../new").write_text("x"),
    "low level": lambda top: os.open(top / "new", os.O_CREAT | os.O_WRONLY),
    "bytes": lambda top: os.open(os.fsencode(top / "new"), os.O_CREAT | os.O_WRONLY),
    "temporary file": lambda top: tempfile.mkstemp(dir=top),
    "mkdir": lambda top: (top / "new").mkdir(),
    "makedirs": lambda top: os.makedirs(top / "new" / "b"),  # noqa: PTH103
    "unlink": lambda top: (top / "file").unlink(),
    "rmdir": lambda top: (top / "directory").rmdir(),
    "rmdir of the directory itself": lambda top: (top / "inside").rmdir(),
    "rmtree": lambda top: shutil.rmtree(top / "directory"),
    "rename into": lambda top: (top / "file").rename(top / "inside" / "file"),
    "rename out": lambda top: (top / "inside" / "link").rename(top / "file"),
    "link": lambda top: (top / "new").hardlink_to(top / "inside" / "link"),
    "symlink": lambda top: (top / "new").symlink_to("file"),
    "chmod": lambda top: (top / "file").chmod(0o777),
    "chmod through a link": lambda top: (top / "inside" / "link").chmod(0o777),
    "chown": lambda top: shutil.chown(top / "file", 1, 1),
    "utime": lambda top: (top / "file").touch(),
    "truncate": lambda top: os.truncate(top / "file", 0),
    "relative to a directory": _unlink_at,
    "program": lambda top: subprocess.run(["/bin/touch", top / "new"], check=True),
    "shell": lambda top: os.system(f"touch {top}/new"),
    "fork": lambda top: os.fork(),
    "kill": lambda top: os.kill(os.getpid(), 0),
    "network": lambda top: socket.create_connection(("127.0.0.1", 9)),
}


def _tree(top: Path) -> list[tuple[str, int, str]]:
    return sorted(
        (str(path), path.lstat().st_mode, path.read_text() if path.is_file() else "") for path in top.rglob("*")
    )


@pytest.mark.parametrize("way", WAYS)
def test_nothing_outside_is_changed_or_started(outside: Path, way: str) -> None:
    before = _tree(outside)
    with confined.confined(outside / "inside"), pytest.raises(OSError):
        WAYS[way](outside)
    assert _tree(outside) == before
    assert confined.refused()


def test_all_is_allowed_inside_and_again_afterwards(outside: Path) -> None:
    top = outside / "inside"
    with confined.confined(top):
        (top / "a" / "b").mkdir(parents=True)
        (top / "a" / "b" / "file").write_text("x")
        (top / "a" / "b" / "file").rename(top / "file")
        (top / "program").write_text("#!/bin/sh\nexit 7\n")
        (top / "program").chmod(0o755)
        assert subprocess.run([top / "program"], check=False).returncode == 7
        shutil.rmtree(top / "a")
    assert sorted(path.name for path in top.iterdir()) == ["directory", "file", "link", "program"]
    (outside / "file").write_text("changed")


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "CPU_SECONDS", 0.1)
    with pytest.raises(TooMuchWorkError), bounded():
        while True:
            pass
    with pytest.raises(MemoryError), bounded():
        b"x" * (confined.MEMORY_BYTES + (64 << 20))
