# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module file_set, run as Ansible runs it, with the input that the role passes to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._files import file_set as files_of_a_set
from ansible_collections.gpu.fleet.plugins.modules import file_set


def run(capsys: pytest.CaptureFixture[str], check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
    """Run the module; return its result."""
    with (
        patch_module_args({**arguments, "_ansible_check_mode": check_mode, "_ansible_remote_tmp": "/tmp"}),
        pytest.raises(SystemExit),
    ):
        file_set.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def tree(directory: Path) -> dict[str, tuple[str, str]]:
    """Every file below a directory, with its content and mode."""
    return {
        str(path.relative_to(directory)): (path.read_text(encoding="utf-8"), f"{path.stat().st_mode & 0o7777:o}")
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "record.json"
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "host"


def arguments(place: Path, files: dict[str, str], programs: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "files": {f"{place}/{name}": text for name, text in files.items()},
        "programs": {f"{place}/{name}": text for name, text in (programs or {}).items()},
        "record": f"{place}/lib/record.json",
    }


def test_plan_writes_what_differs_and_removes_what_is_no_longer_desired() -> None:
    old, new = files_of_a_set.File("1", 0o644), files_of_a_set.File("2", 0o644)
    steps = files_of_a_set.plan({"/a": old, "/b": old, "/c": old, "/d": None}, {"/a": old, "/b": new, "/d": new})
    assert steps == (
        files_of_a_set.FileStep("/b", old, new),
        files_of_a_set.FileStep("/c", old, None),
        files_of_a_set.FileStep("/d", None, new),
    )


def test_check_mode_predicts_what_is_then_done(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desired = arguments(place, {"etc/a.conf": "a\n", "lib/x/y.py": "é\n"}, {"bin/run": "#!/bin/sh\n"})
    predicted = run(capsys, check_mode=True, **desired)
    assert not place.exists()
    done = run(capsys, **desired)
    assert predicted["changed"] is True
    assert {key: predicted[key] for key in ("changed", "written", "removed", "diff")} == {
        key: done[key] for key in ("changed", "written", "removed", "diff")
    }
    assert tree(place) == {
        "bin/run": ("#!/bin/sh\n", "755"),
        "etc/a.conf": ("a\n", "644"),
        "lib/x/y.py": ("é\n", "644"),
    }
    again = run(capsys, **desired)
    assert (again["changed"], again["written"], again["removed"], again["diff"]) == (False, [], [], [])


def test_drift_is_found_in_content_mode_and_kind(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desired = arguments(place, {"a": "a", "b": "b", "c": "c", "d": "d", "e": "e"})
    run(capsys, **desired)
    (place / "a").write_bytes(b"\xff")
    (place / "b").chmod(0o600)
    (place / "c").unlink()
    (place / "d").unlink()
    (place / "d").symlink_to(place / "e")
    result = run(capsys, **desired)
    assert result["written"] == [f"{place}/{name}" for name in "abcd"]
    assert tree(place) == {name: (name, "644") for name in "abcde"}
    assert not (place / "d").is_symlink()


def test_what_the_set_no_longer_has_goes_and_nothing_else(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, **arguments(place, {"etc/old": "1", "etc/kept": "2"}))
    (place / "etc/unmanaged").write_text("3")
    result = run(capsys, **arguments(place, {"etc/kept": "2"}))
    assert result["removed"] == [f"{place}/etc/old"]
    assert set(tree(place)) == {"etc/kept", "etc/unmanaged"}


def test_an_empty_set_removes_all_that_it_made(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place.mkdir()
    run(capsys, **arguments(place, {"one/two/file": "1"}, {"bin/run": "2"}))
    (place / "bin/unmanaged").write_text("3")
    nothing = arguments(place, {})
    predicted = run(capsys, check_mode=True, **nothing)
    assert sorted(predicted["removed"]) == sorted(
        [f"{place}/bin/run", f"{place}/lib/record.json", f"{place}/one/two/file"]
    )
    assert run(capsys, **nothing)["removed"] == predicted["removed"]
    assert [path.name for path in place.iterdir()] == ["bin"], "only the directory in use stays"
    assert run(capsys, **nothing)["changed"] is False


def test_unusable_paths_and_contents_are_refused_by_name(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, files={"etc/relative": "x", f"{place}/number": 1}, record=f"{place}/r")
    assert result["failed"] is True
    assert "etc/relative" in result["msg"]
    assert f"{place}/number" in result["msg"]
    assert not place.exists()


def test_what_cannot_be_written_is_reported(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place.mkdir()
    (place / "file").write_text("in the way")
    result = run(capsys, **arguments(place, {"file/below": "x"}))
    assert result["failed"] is True
    assert f"{place}/file" in result["msg"]


@pytest.mark.parametrize("record", ["", "[]", "{", '{"files": 1}'])
def test_a_damaged_record_knows_of_nothing(place: Path, record: str, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "lib").mkdir(parents=True)
    (place / "lib/record.json").write_text(record)
    assert run(capsys, **arguments(place, {"a": "a"}))["written"] == [f"{place}/a", f"{place}/lib/record.json"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_program_of_root_that_others_could_change_is_refused_before_anything_is_written(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], check_mode: bool
) -> None:
    request = arguments(place, {"etc/example.service": "[Service]\n"})
    program = tmp_path / "python3"
    program.touch()
    program.chmod(0o757)
    for unfit, reason in ((str(program), f"run chmod go-w {program}"), ("python3", "run_by_root: 'python3' ")):
        result = run(capsys, check_mode, **request, run_by_root=["/usr/bin/env", unfit])
        assert result["failed"]
        assert reason in result["msg"]
        assert not place.exists()
    assert run(capsys, check_mode, **request, run_by_root=["/usr/bin/env"])["changed"]
