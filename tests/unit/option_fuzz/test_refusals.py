# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that modules once accepted, and their error messages now. Found by test_option_fuzz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.option_fuzz.subjects import SUBJECTS, Ran, run

BY_NAME = {str(subject): subject for subject in SUBJECTS}
APT, DNF = "package_transaction (apt)", "package_transaction (dnf)"


def _run(tmp_path: Path, subject_name: str, options: dict[str, Any], check: bool = False) -> Ran:
    """Run a module with valid options, updated with these."""
    subject = BY_NAME[subject_name]
    return run(subject, tmp_path, {**subject.bases[0], **options}, check)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        # As root, apt-get and dnf took these for options, for several packages, or for the next line of a script.
        (APT, {"install": ["-oAPT::Update::Pre-Invoke::=id"]}, "install: '-oAPT::Update::Pre-Invoke::=id' is not a"),
        (APT, {"install": ["pkg-"]}, "install: 'pkg-' is not a package as name or name=version"),
        (APT, {"install": ["pkg="]}, "install: 'pkg=' is not a"),
        (APT, {"remove": ["--purge"]}, "remove: '--purge' is not the name of a package"),
        (DNF, {"install": ["pkg --nogpgcheck"]}, "install: 'pkg --nogpgcheck' is not a"),
        (DNF, {"install": ["pkg\nremove bash"]}, "install: 'pkg\\nremove bash' is not a"),
        (DNF, {"stream": "--setopt=x:y"}, "stream: '--setopt=x:y' is not a module and its stream as module:stream"),
        (DNF, {"module": "../../tmp/x"}, "module: '../../tmp/x' is not the name of a module"),
        (DNF, {"release_holds": [""]}, "release_holds: '' is not the name of a package"),
        ("archive_directory", {"sha256": None}, "sha256: '' is not a sha256"),
        ("archive_directory", {"src": None}, "src: '' is neither a URL"),
        ("archive_directory", {"path": None}, "path: '' is not an absolute path"),
        ("archive_directory", {"path": "//"}, "path: // is not an absolute path of a directory with a name"),
        ("archive_directory", {"src": "/a\0b"}, "src: '/a\\x00b' is neither a URL"),
        ("file_set", {"record": "/a\0b"}, "record: '/a\\x00b' has a NUL character"),
        ("file_set", {"record": "files.json"}, "record: 'files.json' is not an absolute path"),
        ("file_set", {"files": {"/a\0b": "x"}}, "files: '/a\\x00b' has a NUL character"),
        ("file_set", {"programs": {"{root}/a": 1}}, "has content that is not a string"),
        ("daemon_json", {"path": "daemon.json"}, "path: 'daemon.json' is not an absolute path"),
        ("daemon_json", {"options": {"a": float("nan")}}, "options: what JSON cannot have"),
        ("containerd_runtime", {"name": 'a"]\n[plugins]'}, "name: 'a\"]\\n[plugins]' is not a name"),
        ("containerd_runtime", {"binary": '/usr/bin/a"'}, "binary: '/usr/bin/a\"' has a quote"),
        ("containerd_runtime", {"drop_in": "{root}/etc/nvidia"}, "drop_in: "),
        ("managed_record", {"files": ["/a\0b"]}, "files: '/a\\x00b' has a NUL character"),
    ],
)
def test_it_is_refused_by_name(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    for check in (True, False):
        ran = _run(tmp_path, name, options, check)
        assert ran.escaped is None, ran.escaped
        assert ran.result["failed"] and message in ran.result["msg"], ran.result["msg"]
        assert ran.after == ran.before
        assert [call for call in ran.bench.calls if call[0] in ("apt-get", "dnf")] == []


@pytest.mark.parametrize("executable", ["a\0b", "/a\0b", "\0"])
@pytest.mark.parametrize("name", ["cuda_facts", "mig_profile", "gpu_state", "nvidia_smi_facts"])
def test_a_program_that_cannot_be_started_is_no_traceback(tmp_path: Path, name: str, executable: str) -> None:
    assert _run(tmp_path, name, {"executable": executable}).escaped is None


def test_no_import_is_left_when_the_drop_in_cannot_be_written(tmp_path: Path) -> None:
    ran = _run(tmp_path, "containerd_runtime", {"drop_in": "{root}/etc/example.conf/99-nvidia.toml"})
    assert ran.result["failed"] and ran.after == ran.before
