# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make release: the same bytes twice, an SBOM that is valid and complete, and no release without its changelog."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from testbed import prerequisites, release, settings
from testbed.progress import CommandError
from tests.checks.tools import CACHE, ROOT, check, environment, locked


@pytest.fixture(scope="module")
def venv() -> Path:
    """The environment of `make release`."""
    with locked("venv-release"):
        prerequisites.make_environment(CACHE / "venv-release", ROOT / "requirements" / "release.txt")
    return CACHE / "venv-release"


def _shuffled(archive: bytes) -> bytes:
    """The same archive, built at another time by another user from a directory in another order."""
    shuffled = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as source, tarfile.open(fileobj=shuffled, mode="w:gz") as target:
        for member in reversed(source.getmembers()):
            stream = source.extractfile(member)
            text = stream.read() if stream else b""
            if member.name == "FILES.json":
                files = json.loads(text)
                text = json.dumps({**files, "files": files["files"][::-1]}, indent=True).encode()
            member.mtime, member.uname, member.mode, member.size = 1, "ops", member.mode | 0o020, len(text)
            target.addfile(member, io.BytesIO(text) if stream else None)
    return shuffled.getvalue()


def test_the_archive_has_the_same_bytes_wherever_it_is_built(archive: Path) -> None:
    content = archive.read_bytes()
    other = _shuffled(content)
    assert other != content
    assert release.normalized(other, release._time_of_commit()) == content


def test_the_sbom_is_valid_and_names_every_file(archive: Path, venv: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    for sbom in (first, second):
        check([venv / "bin" / "python", ROOT / "testbed" / "sbom.py", archive, sbom])
    assert first.read_bytes() == second.read_bytes()
    bom = json.loads(first.read_text(encoding="utf-8"))
    with tarfile.open(archive) as members:
        packed = {member.name for member in members if member.isfile()} - {"FILES.json", "MANIFEST.json"}
    assert {part["name"] for part in bom["components"] if part["type"] == "file"} == packed
    assert {part["name"] for part in bom["components"] if part["type"] == "library"} == {
        "community.docker",
        "community.general",
        "containers.podman",
    }


def test_galaxy_imports_the_archive_without_a_warning(archive: Path, venv: Path, tmp_path: Path) -> None:
    # Its ansible-doc and ansible-lint are those of test_package.py and test_linters.py.
    left_out = {"GALAXY_IMPORTER_RUN_ANSIBLE_DOC": "false", "GALAXY_IMPORTER_RUN_ANSIBLE_LINT": "false"}
    importer: list[str | Path] = [venv / "bin" / "python", "-m", "galaxy_importer.main", archive]
    # It writes its result to the directory that it is started in.
    printed = check(importer, cwd=tmp_path, env=environment(venv) | left_out)
    assert "Importer processing completed successfully" in printed
    assert [line for line in printed.splitlines() if re.match("WARNING|ERROR", line)] == []


def test_every_file_has_a_licence(venv: Path) -> None:
    check([venv / "bin" / "reuse", "lint", "--quiet"])


def test_a_version_without_its_changelog_is_not_released(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "changelogs" / "fragments").mkdir(parents=True)
    (tmp_path / "galaxy.yml").write_text("---\nnamespace: gpu\nversion: 7.0.0\nname: fleet\n")
    (tmp_path / "changelogs" / "changelog.yaml").write_text("releases:\n  6.9.0:\n    changes: {}\n")
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    with pytest.raises(CommandError, match=r"version 7\.0\.0, fragments left: none"):
        release.check_changelog(venv)
    (tmp_path / "changelogs" / "changelog.yaml").write_text("releases:\n  7.0.0:\n    changes: {}\n")
    (tmp_path / "changelogs" / "fragments" / "mig.yml").touch()
    with pytest.raises(CommandError, match=r"fragments left: mig\.yml"):
        release.check_changelog(venv)
