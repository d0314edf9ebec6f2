# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module archive_directory, run as Ansible runs it: complete or unchanged."""

from __future__ import annotations

import errno
import http.server
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._files import archive, archive_run
from ansible_collections.gpu.fleet.plugins.modules import archive_directory

from tests.unit.cuda import archives


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Run the module; return its result."""

    def run(check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        with (
            patch_module_args({**arguments, "_ansible_check_mode": check_mode, "_ansible_remote_tmp": "/tmp"}),
            pytest.raises(SystemExit),
        ):
            archive_directory.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The parent of the directories that the module creates; it must never contain anything else."""
    path = tmp_path / "place"
    path.mkdir()
    return path


def tree(target: Path) -> dict[str, str]:
    """Every file and link below a directory, with its content or target, except the module's record."""
    return {
        str(path.relative_to(target)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(target.rglob("*"))
        if (path.is_symlink() or path.is_file()) and path.name != archive.RECORD
    }


NINE = {
    "LICENSE": "terms",
    "include/cudnn.h": "#pragma once\n",
    "lib/libcudnn.so": "-> libcudnn.so.9",
    "lib/libcudnn.so.9": "-> libcudnn.so.9.14.0",
    "lib/libcudnn.so.9.14.0": "nine",
    "lib/libcudnn_static.a": "-> libcudnn_static_v9.a",
    "lib/libcudnn_static_v9.a": "static",
}


@pytest.fixture
def nine(tmp_path: Path) -> dict[str, Any]:
    """Arguments for cuDNN 9's layout."""
    path = tmp_path / "nine.tar.xz"
    return {"src": str(path), "sha256": archives.cudnn_9(path)}


_FILE = archive.Content("1" * 64, 0o644, None)


def _unpacked(sha256: str, **contents: archive.Content) -> archive_run.Directory:
    """A directory as archive_run observes it: made from an archive with one file `lib`, and its contents now."""
    return archive_run.Directory(archive.ArchiveRecord(sha256, {"lib": _FILE}), contents)


@pytest.mark.parametrize(
    ("sha256", "observed", "planned"),
    [
        ("a", None, ("/x/cudnn is missing",)),
        (None, None, ()),
        ("a", _unpacked("a", lib=_FILE), ()),
        ("a", _unpacked("a"), ("lib is missing",)),
        ("a", _unpacked("b"), ("/x/cudnn is from another archive",)),
        (None, _unpacked("a"), ("/x/cudnn exists",)),
    ],
)
def test_plan_lists_what_differs(
    sha256: str | None, observed: archive_run.Directory | None, planned: tuple[str, ...]
) -> None:
    assert archive_run.plan(archive_run.ArchiveRequest("/x/cudnn", "/a", sha256, 1), observed) == planned


@pytest.mark.parametrize("sha256", ["a", None])
def test_plan_refuses_a_directory_of_others(sha256: str | None) -> None:
    with pytest.raises(archive.ArchiveError, match="move it away"):
        archive_run.plan(archive_run.ArchiveRequest("/x/cudnn", "/a", sha256, 1), archive_run.Directory(None, {}))


def test_check_mode_predicts_what_is_done_once(run: Any, place: Path, nine: dict[str, Any]) -> None:
    desired = {**nine, "path": str(place / "cudnn-9")}
    predicted = run(check_mode=True, **desired)
    assert predicted["changed"] is True
    assert list(place.iterdir()) == []
    done, again = run(**desired), run(**desired)
    assert (done["changed"], again["changed"]) == (True, False)
    assert predicted["diff"] == done["diff"]
    assert tree(place / "cudnn-9") == NINE
    assert again["libraries"] == {"libcudnn.so.9": f"{place}/cudnn-9/lib/libcudnn.so.9"}
    assert [path.name for path in place.iterdir()] == ["cudnn-9"]


def test_no_archive_is_needed_to_find_that_all_is_well(run: Any, place: Path, nine: dict[str, Any]) -> None:
    desired = {**nine, "path": str(place / "cudnn-9")}
    run(**desired)
    Path(nine["src"]).unlink()
    assert run(**desired)["changed"] is False


def test_the_old_layout_is_unpacked_next_to(run: Any, place: Path, tmp_path: Path, nine: dict[str, Any]) -> None:
    old = tmp_path / "cudnn-10.2-linux-x64-v7.6.5.32.tgz"
    run(path=str(place / "cudnn-7"), src=str(old), sha256=archives.cudnn_7(old))
    run(**nine, path=str(place / "cudnn-9"))
    assert tree(place / "cudnn-7") == {
        "NVIDIA_SLA_cuDNN_Support.txt": "terms",
        "include/cudnn.h": "#pragma once\n",
        "lib64/libcudnn.so": "-> libcudnn.so.7",
        "lib64/libcudnn.so.7": "-> libcudnn.so.7.6.5",
        "lib64/libcudnn.so.7.6.5": "seven",
    }
    assert tree(place / "cudnn-9") == NINE


def _missing(target: Path) -> None:
    (target / "lib/libcudnn.so.9").unlink()


def _changed(target: Path) -> None:
    (target / "lib/libcudnn.so.9.14.0").write_text("evil")


def _mode(target: Path) -> None:
    (target / "lib/libcudnn.so.9.14.0").chmod(0o600)


def _additional(target: Path) -> None:
    (target / "lib/libcudnn.so.10").write_text("x")


def _relinked(target: Path) -> None:
    (target / "lib/libcudnn.so.9").unlink()
    (target / "lib/libcudnn.so.9").symlink_to("/etc/passwd")


@pytest.mark.parametrize("harm", [_missing, _changed, _mode, _additional, _relinked])
def test_what_differs_is_named_and_repaired(
    run: Any, place: Path, nine: dict[str, Any], harm: Callable[[Path], None]
) -> None:
    desired = {**nine, "path": str(place / "cudnn-9")}
    run(**desired)
    harm(place / "cudnn-9")
    result = run(**desired)
    assert (result["changed"], len(result["differences"])) == (True, 1)
    assert result["differences"][0].startswith("lib/libcudnn.so")
    assert tree(place / "cudnn-9") == NINE
    assert run(**desired)["changed"] is False


def test_another_archive_replaces_the_directory(run: Any, place: Path, tmp_path: Path, nine: dict[str, Any]) -> None:
    run(**nine, path=str(place / "cudnn-9"))
    other = tmp_path / "other.tar.xz"
    assert run(path=str(place / "cudnn-9"), src=str(other), sha256=archives.cudnn_9(other, text="other"))["changed"]
    assert tree(place / "cudnn-9") == {**NINE, "lib/libcudnn.so.9.14.0": "other"}
    assert [path.name for path in place.iterdir()] == ["cudnn-9"]


@pytest.mark.parametrize("before", [False, True], ids=["nothing before", "a good one before"])
@pytest.mark.parametrize(
    "fault", ["checksum", "truncated", "no end", "corrupt", "absolute", "dots", "device", "no archive", "gone"]
)
def test_what_cannot_be_used_leaves_all_as_it_was(
    run: Any, place: Path, tmp_path: Path, nine: dict[str, Any], *, fault: str, before: bool
) -> None:
    if before:
        run(**nine, path=str(place / "cudnn-9"))
    found = {path: path.stat().st_ino for path in place.rglob("*") if not path.is_symlink()}
    bad = tmp_path / "bad.tar.xz"
    archives.cudnn_9(bad, text="other" * 1000)
    if fault == "truncated":
        bad.write_bytes(bad.read_bytes()[:-60])
    elif fault == "no end":
        bad.write_bytes(bad.read_bytes()[:-8])
    elif fault == "corrupt":
        content = bytearray(bad.read_bytes())
        content[len(content) // 2] ^= 0xFF
        bad.write_bytes(content)
    elif fault == "absolute":
        archives.write(bad, archives.member("top/a", "1"), archives.member("/etc/evil", "2"))
    elif fault == "dots":
        archives.write(bad, archives.member("top/a", "1"), archives.member("top/../../evil", "2"))
    elif fault == "device":
        archives.write(bad, archives.member("top/a", "1"), archives.member("top/sda", kind=b"4"))
    elif fault == "no archive":
        bad.write_text("<html>not found</html>")
    sha256 = archives.sha256(bad) if fault != "checksum" else "0" * 64
    if fault == "gone":
        bad.unlink()
    result = run(path=str(place / "cudnn-9"), src=str(bad), sha256=sha256)
    assert result["failed"] is True
    assert str(bad) in result["msg"] and "is unchanged" in result["msg"]
    assert {path: path.stat().st_ino for path in place.rglob("*") if not path.is_symlink()} == found
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_full_disk_leaves_all_as_it_was(
    run: Any, place: Path, nine: dict[str, Any], after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full after `after` files have been written."""
    written = 0
    real = archive.checksum

    def checksum(stream: Any, copy: Any = None) -> str:
        nonlocal written
        if copy is not None:
            if written == after:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += 1
        return real(stream, copy)

    monkeypatch.setattr(archive, "checksum", checksum)
    monkeypatch.setattr(archive_run, "checksum", checksum)
    result = run(**nine, path=str(place / "cudnn-9"))
    assert result["failed"] is True
    assert "no space left" in result["msg"]
    assert list(place.iterdir()) == []


def test_too_little_room_is_reported_before_anything_is_unpacked(
    run: Any, place: Path, nine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 1})())
    result = run(**nine, path=str(place / "cudnn-9"))
    assert "needs 1 MiB" in result["msg"]
    assert list(place.iterdir()) == []


def test_a_directory_of_others_is_never_touched(run: Any, place: Path, nine: dict[str, Any]) -> None:
    (place / "cudnn-9").mkdir()
    (place / "cudnn-9/mine").write_text("1")
    for arguments in ({**nine, "path": str(place / "cudnn-9")}, {"path": str(place / "cudnn-9"), "state": "absent"}):
        result = run(**arguments)
        assert result["failed"] is True and "move it away" in result["msg"]
    assert tree(place / "cudnn-9") == {"mine": "1"}


def test_removal_leaves_nothing_and_is_done_once(run: Any, place: Path, nine: dict[str, Any]) -> None:
    gone = {"path": str(place / "cudnn-9"), "state": "absent"}
    run(**nine, path=str(place / "cudnn-9"))
    assert [run(check_mode=True, **gone)["changed"], run(**gone)["changed"], run(**gone)["changed"]] == [
        True,
        True,
        False,
    ]
    assert list(place.iterdir()) == []


def test_what_a_killed_run_has_left_is_cleared_and_its_old_directory_restored(
    run: Any, place: Path, nine: dict[str, Any]
) -> None:
    desired = {**nine, "path": str(place / "cudnn-9")}
    run(**desired)
    (place / "cudnn-9").rename(place / ".cudnn-9.old")
    (place / ".cudnn-9.new").mkdir()
    assert run(**desired)["changed"] is False
    assert tree(place / "cudnn-9") == NINE
    _missing(place / "cudnn-9")
    run(**desired)
    assert [path.name for path in place.iterdir()] == ["cudnn-9"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"path": "cudnn", "src": "/a", "sha256": "0" * 64}, "absolute"),
        ({"path": "/x/cudnn", "src": "a.tgz", "sha256": "0" * 64}, "src"),
        ({"path": "/x/cudnn", "src": "git://a.tgz", "sha256": "0" * 64}, "src"),
        ({"path": "/x/cudnn", "src": "/a.tgz", "sha256": "0" * 63}, "sha256"),
        ({"path": "/x/cudnn", "src": "/a.tgz"}, "sha256"),
        ({"path": "/x/cudnn"}, "src"),
    ],
)
def test_bad_input_is_refused_by_name(
    run: Any, tmp_path: Path, arguments: dict[str, str], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(**arguments)
    assert result["failed"] is True and word in result["msg"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """An HTTP server on this machine for the files of tmp_path."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, *_words: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def test_an_archive_comes_from_a_server(run: Any, place: Path, nine: dict[str, Any], server: str) -> None:
    desired = {"path": str(place / "cudnn-9"), "sha256": nine["sha256"].upper()}
    missing = run(**desired, src=f"{server}/nothing.tar.xz")
    assert "404" in missing["msg"] and f"{server}/nothing.tar.xz" in missing["msg"]
    assert run(**desired, src=f"{server}/nine.tar.xz")["changed"] is True
    assert tree(place / "cudnn-9") == NINE


def test_an_archive_comes_through_the_proxy_of_the_host(
    run: Any, place: Path, nine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forward proxy for a name that only it knows, as on a host without a route: https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2."""
    content = Path(nine["src"]).read_bytes()
    requested = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments: Any) -> None:
            pass

    source = "http://mirror.invalid/nine.tar.xz"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
            monkeypatch.delenv(name, raising=False)
        refused = run(path=str(place / "nine"), **{**nine, "src": source})
        assert refused["failed"] is True and not requested and [*place.iterdir()] == []
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{listening.server_port}")
        done = run(path=str(place / "nine"), **{**nine, "src": source})
        listening.shutdown()
    assert done["changed"] is True and requested == [source]
    assert tree(place / "nine") == NINE


def _failing_renames(patch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Let the renames of these numbers fail."""
    really, count = os.rename, 0

    def rename(old: Any, new: Any) -> None:
        nonlocal count
        count += 1
        if count in numbers:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        really(old, new)

    patch.setattr(os, "rename", rename)


@pytest.mark.parametrize(
    ("failing", "changed", "left"),
    [((1,), False, "is unchanged"), ((2,), False, "is unchanged"), ((2, 3), True, "the next run restores it")],
)
def test_a_failed_replacement_states_what_is_left(
    *,
    failing: tuple[int, ...],
    changed: bool,
    left: str,
    run: Any,
    place: Path,
    tmp_path: Path,
    nine: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, target = tmp_path / "cudnn-10.2-linux-x64-v7.6.5.32.tgz", place / "cudnn"
    seven = {"path": str(target), "src": str(old), "sha256": archives.cudnn_7(old)}
    assert run(**seven)["changed"] is True
    before = tree(target)
    with monkeypatch.context() as patch:
        _failing_renames(patch, *failing)
        result = run(**nine, path=str(target))
    assert result["failed"] and left in result["msg"], result
    assert result["changed"] is changed is not target.exists()
    # Nothing is lost: the next run has the former directory, or what replaces it.
    with monkeypatch.context() as patch:
        _failing_renames(patch, 2)
        run(**nine, path=str(target))
    assert tree(target) == before
    assert run(**nine, path=str(target))["changed"] and tree(target) == NINE


def test_what_an_interrupted_run_had_moved_away_is_a_change_also_in_a_failure(
    run: Any, place: Path, nine: dict[str, Any], tmp_path: Path
) -> None:
    run(**nine, path=str(place / "cudnn"))
    (place / "cudnn").rename(place / ".cudnn.old")
    result = run(path=str(place / "cudnn"), src=str(tmp_path / "none.tar.xz"), sha256="0" * 64)
    assert result["failed"] and result["changed"] and "is there again" in result["msg"], result
    assert tree(place / "cudnn") == NINE
