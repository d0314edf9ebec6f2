# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the files of a release: a reproducible archive, its SBOM and checksums."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

from testbed import settings
from testbed.prerequisites import make_environment
from testbed.progress import CommandError, run

SIGN = "gpg --armor --detach-sign SHA256SUMS"
"""How a maintainer signs; `gpg --verify SHA256SUMS.asc` and `sha256sum --check SHA256SUMS` verify."""
_SBOM = Path(__file__).with_name("sbom.py")
_EARLIEST = 315532800  # 1980-01-01, for a checkout without commits


def build(directory: Path) -> list[Path]:
    """Make the release of the version in galaxy.yml below `directory`; raises CommandError.

    The same tree gives the same bytes. Returns the archive, the SBOM and the checksums.
    """
    venv = settings.CACHE / "venv-release"
    make_environment(venv, settings.ROOT / "requirements" / "release.txt")
    check_changelog(venv)
    directory.mkdir(parents=True, exist_ok=True)
    archive = build_archive(venv / "bin" / "ansible-galaxy", directory)
    sbom = archive.with_name(archive.name.replace(".tar.gz", ".cdx.json"))
    run([venv / "bin" / "python", _SBOM, archive, sbom], log="release")
    sums = directory / "SHA256SUMS"
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in (archive, sbom)]
    sums.write_text("".join(lines), encoding="ascii")
    return [archive, sbom, sums]


def check_changelog(venv: Path) -> None:
    """Raise CommandError unless the changelog has the version of galaxy.yml, and every fragment is in it."""
    galaxy, changelog = (
        (settings.ROOT / name).read_text(encoding="utf-8") for name in ("galaxy.yml", "changelogs/changelog.yaml")
    )
    version = galaxy.partition("\nversion: ")[2].partition("\n")[0]
    fragments = sorted(path.name for path in (settings.ROOT / "changelogs" / "fragments").glob("*.yml"))
    if f"\n  {version}:\n" not in changelog or fragments:
        raise CommandError(
            f"the changelog is not complete: version {version}, fragments left: {', '.join(fragments) or 'none'}; "
            "run antsibull-changelog release, see docs/releasing.md"
        )
    run([venv / "bin" / "antsibull-changelog", "lint"], log="release")


def build_archive(ansible_galaxy: Path, directory: Path) -> Path:
    """Build the archive of the collection, with the same bytes for the same tree; returns its path."""
    with tempfile.TemporaryDirectory() as scratch:
        run([ansible_galaxy, "collection", "build", "--output-path", scratch, settings.ROOT], log="release")
        built = next(Path(scratch).glob("*.tar.gz"))
        target = directory / built.name
        target.write_bytes(normalized(built.read_bytes(), _time_of_commit()))
    return target


def normalized(archive: bytes, time: int) -> bytes:
    """The archive with its members in the order of their names, and nothing of the machine and the moment in it."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=time) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        members = {member.name: member for member in source.getmembers()}
        streams = {name: source.extractfile(member) for name, member in members.items()}
        contents = {name: stream.read() for name, stream in streams.items() if stream is not None}
        _sort_files(contents)
        for name, member in sorted(members.items()):
            member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            if name in contents:
                member.size = len(contents[name])
            target.addfile(member, io.BytesIO(contents[name]) if name in contents else None)
    return packed.getvalue()


def _sort_files(contents: dict[str, bytes]) -> None:
    """Order FILES.json, which has the order of the directories on disk, and correct its checksum in MANIFEST.json."""
    files = json.loads(contents["FILES.json"])
    files["files"].sort(key=lambda file: file["name"])
    contents["FILES.json"] = json.dumps(files, indent=True).encode()
    manifest = json.loads(contents["MANIFEST.json"])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(contents["FILES.json"]).hexdigest()
    contents["MANIFEST.json"] = json.dumps(manifest, indent=True).encode()


def _time_of_commit() -> int:
    """SOURCE_DATE_EPOCH, or the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    git = ["git", "-c", f"safe.directory={settings.ROOT}", "log", "-1", "--format=%ct"]
    done = subprocess.run(git, cwd=settings.ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.stdout.strip() else _EARLIEST
