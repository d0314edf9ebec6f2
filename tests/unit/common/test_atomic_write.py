# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atomic replacement of a file: whole or not at all, with the right attributes, and no temporary file left."""

from __future__ import annotations

import ast
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.atomic_write import PREFIX, atomic_write

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"


@pytest.fixture
def existing(tmp_path: Path) -> Path:
    path = tmp_path / "conf" / "file.json"
    path.parent.mkdir()
    path.write_bytes(b"before")
    path.chmod(0o640)
    return path


def test_a_new_file_gets_its_directory_and_a_mode_whatever_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        atomic_write(str(tmp_path / "a" / "b"), b"\x00\xff")
        atomic_write(str(tmp_path / "a" / "program"), b"", 0o755)
    finally:
        os.umask(previous)
    assert (tmp_path / "a" / "b").read_bytes() == b"\x00\xff"
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "a" / "program").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o600, 0o600)])
def test_without_a_mode_that_of_the_file_stays(existing: Path, mode: int | None, expected: int) -> None:
    os.utime(existing, (1, 1))
    atomic_write(str(existing), b"after", mode)
    assert existing.read_bytes() == b"after" and existing.stat().st_mode & 0o7777 == expected
    assert existing.stat().st_mtime > 1, "the time of modification must be that of the new content"


def test_without_a_mode_owner_and_label_of_the_file_stay(existing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's file system may have no labels, and its user may not change owners."""
    attributes = {str(existing): {"security.selinux": b"system_u:object_r:container_config_t:s0"}}
    owners: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr(os, "listxattr", lambda path, **_named: list(attributes.get(str(path), {})))
    monkeypatch.setattr(os, "getxattr", lambda path, name, **_named: attributes[str(path)][name])
    monkeypatch.setattr(
        os, "setxattr", lambda path, name, value, **_named: attributes.setdefault(str(path), {}).update({name: value})
    )
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: owners.update({str(path): (uid, gid)}))
    temporary: list[str] = []
    atomic_write(str(existing), b"after", check=temporary.append)
    assert attributes[temporary[0]] == attributes[str(existing)]
    assert owners == {temporary[0]: (existing.stat().st_uid, existing.stat().st_gid)}


def test_a_link_is_replaced_and_its_target_is_unchanged(tmp_path: Path, existing: Path) -> None:
    for target in (existing, tmp_path / "missing"):
        link = tmp_path / "link"
        link.symlink_to(target)
        atomic_write(str(link), b"after")
        assert not link.is_symlink() and link.read_bytes() == b"after"
        link.unlink()
    assert existing.read_bytes() == b"before" and not (tmp_path / "missing").exists()


class Stop(BaseException):
    """Not an Exception, as KeyboardInterrupt and SystemExit are not."""


def _fail(error: BaseException) -> Any:
    def fail(*_arguments: Any, **_named: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), ValueError("no"), Stop()], ids=repr)
@pytest.mark.parametrize("call", ["fsync", "fchmod", "chown", "replace", "copystat", "check"])
def test_any_error_leaves_the_previous_file_and_nothing_else(
    existing: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    if call != "check":
        monkeypatch.setattr(shutil if call == "copystat" else os, call, _fail(error))
    with pytest.raises(type(error)):
        atomic_write(str(existing), b"after", check=_fail(error) if call == "check" else None)
    assert existing.read_bytes() == b"before" and [*existing.parent.iterdir()] == [existing]


def test_the_content_is_checked_whole_and_on_disk_next_to_the_file(
    existing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        (temporary,) = existing.parent.glob(f"{PREFIX}*")
        calls.append(temporary.read_text(encoding="utf-8"))
        fsync(descriptor)

    def check(temporary: str) -> None:
        assert calls == ["after"] and Path(temporary).read_text(encoding="utf-8") == "after"
        assert Path(temporary).parent == existing.parent and existing.read_text(encoding="utf-8") == "before"
        calls.append("checked")

    monkeypatch.setattr(os, "fsync", recorded)
    atomic_write(str(existing), b"after", check=check)
    assert calls == ["after", "checked"]


def test_a_directory_in_its_place_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        atomic_write(str(tmp_path / "file"), b"")
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]


def test_no_other_module_util_has_a_copy() -> None:
    """A second implementation would miss one of the cases above."""
    users = {
        path.relative_to(PLUGINS).as_posix()
        for path in (PLUGINS / "module_utils").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("os", "replace"), ("tempfile", "mkstemp")}
    }
    assert users == {"module_utils/_common/atomic_write.py"}
