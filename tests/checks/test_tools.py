# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test harness itself: each check must be able to fail."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from testbed import images, settings
from testbed.progress import CommandError
from tests.checks.controllers import controllers, pythons
from tests.checks.sanity import sanity_passes
from tests.checks.tools import ROOT, VENV, ToolError, check, environment, project_files, run


def test_a_failing_tool_is_reported_with_its_command_status_and_output() -> None:
    with pytest.raises(ToolError, match=r"(?s)sh -c .* ended with 3:\nout\nerr") as failure:
        run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert str(ROOT) in str(failure.value)


def test_a_failing_tool_fails_its_test() -> None:
    with pytest.raises(pytest.fail.Exception, match="ended with 1"):
        check(["false"])


def test_long_output_is_cut_at_its_beginning() -> None:
    with pytest.raises(ToolError, match=r"\[40 lines left out\]\n41\n(?s:.*)\n100$"):
        run(["sh", "-c", "seq 100; exit 1"])


def test_a_tool_does_not_see_the_settings_of_a_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "minimal")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    assert not {"ANSIBLE_STDOUT_CALLBACK", "PYTHONPATH"} & environment().keys()


def test_project_files_are_those_of_git_and_new_ones() -> None:
    files = project_files()
    assert Path("galaxy.yml") in files
    assert Path(__file__).relative_to(ROOT) in files
    assert not [path for path in files if path.parts[0] == ".cache"]


def test_the_own_environment_is_the_first_controller() -> None:
    assert controllers()[0].venv == VENV
    cores = [controller.core for controller in controllers()]
    assert len(set(cores)) == len(cores)


def test_every_python_found_is_the_version_it_is_found_as() -> None:
    assert sys.version_info[:2] in pythons()
    for (major, minor), python in pythons().items():
        assert run([python, "--version"]).startswith(f"Python {major}.{minor}.")


def test_an_image_that_fails_reports_why_although_its_directory_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount of the build that stayed cannot be removed."""

    def refused(path: str | bytes, *_arguments: object, **_options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(settings, "CACHE", tmp_path / "cache")
    with pytest.raises(CommandError, match="no space"), images._scratch() as scratch:
        (Path(scratch) / "file").touch()
        monkeypatch.setattr(os, "unlink", refused)
        raise CommandError("no space")


def test_images_of_extracted_packages_have_only_hooks_that_mmdebstrap_runs() -> None:
    options = [images._OPTIONS[image.kind](image, Path()) for image in images.SHARED_IMAGES]
    extracted = [words for words in options if "--variant=extract" in words]
    assert extracted
    never_run = ("--essential-hook", "--customize-hook")
    assert [word for words in extracted for word in words if word.startswith(never_run)] == []


def test_what_sanity_has_found_is_shown_wherever_it_is_in_the_output() -> None:
    def find() -> str:
        raise ToolError("ended with 1", "ERROR: plugins/a.py:1: disallowed-name\n" + "Installing\n" * 500)

    with pytest.raises(pytest.fail.Exception, match=r"^ERROR: plugins/a\.py:1: disallowed-name$"):
        sanity_passes("2.21", find, lambda *_lines: None)
