# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's archive of the day in private roots of apt: what a driver can need of it, with the releases' priorities.

Where the archive cannot be reached, a snapshot of the same excerpt is read.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.unit.real_indexes.apt_root import AptRoot, field_of

SNAPSHOT = Path(__file__).resolve().parent / "snapshot.tar.xz"
# The lists are kept by this name, whatever mirror the machine has.
MIRROR = "http://archive.example"
_MIRROR = re.compile(r"(https?://\S+?)/debian/?(?=\s|$)", re.MULTILINE)
COMPONENTS = "main contrib non-free non-free-firmware"
SUITES = {
    "bookworm": ("bookworm", "bookworm-updates", "bookworm-security"),
    "bookworm and backports": ("bookworm", "bookworm-updates", "bookworm-security", "bookworm-backports"),
    "trixie": ("trixie", "trixie-updates", "trixie-security"),
    "trixie and backports": ("trixie", "trixie-updates", "trixie-security", "trixie-backports"),
    "sid": ("sid",),
}
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_SOURCES = re.compile(r"nvidia-(?:graphics-drivers|open-gpu-kernel-modules)(?:-tesla.*)?|nvidia-persistenced|dkms")
# Of other sources: what brings a part of a driver, what a module is built for, and engines.
_NAMES = re.compile(
    r"nvidia-cuda-toolkit|linux-(?:image|headers)-(?:(?:cloud|rt)-)?amd64"
    r"|docker\.io|docker-(?:cli|buildx|compose)|podman|python3-requests|ca-certificates|apparmor"
)
_RELATION = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)")
_PROVIDED = re.compile(r"(?:^|,)\s*([a-z0-9][a-z0-9+.-]*)")
_FIELDS = re.compile(
    r"(?:Package|Version|Architecture|Multi-Arch|Source|Depends|Pre-Depends|Provides|Conflicts|Breaks|Replaces"
    r"|Essential|Priority|Section|Filename|Size|SHA256): .*"
)
_HEADERS = re.compile(
    r"^(?:Origin|Label|Suite|Version|Codename|Date|NotAutomatic|ButAutomaticUpgrades|Architectures|Components): .*$",
    re.MULTILINE,
)


class ArchiveRoot(AptRoot):
    """A host without packages on the archive with these suites, whose lists are in `lists`."""

    def __init__(self, root: Path, suites: Sequence[str], lists: Path) -> None:
        for name in ("state", "cache/archives/partial", "dpkg", "etc/apt.conf.d", "etc/sources.list.d", "log"):
            (root / name).mkdir(parents=True)
        self.root = root
        (root / "state/lists").symlink_to(lists, target_is_directory=True)
        (root / "etc/sources.list").write_text(sources(suites))
        # dpkg's status has nothing of a file.
        self.stanzas = [
            re.sub(r"^(?:Filename|Size|SHA256): .*\n?", "", stanza, flags=re.MULTILINE).strip()
            for path in _packages(lists, suites)
            for stanza in _stanzas(path)
        ]
        self._by_key = {(field_of(one, "Package"), field_of(one, "Version")): one for one in self.stanzas}
        self._use(root / "dpkg")


def sources(suites: Iterable[str], mirror: str = MIRROR) -> str:
    """The lines of sources.list."""
    trust = f"signed-by={_KEYRING}" if _KEYRING.is_file() else "trusted=yes"
    urls = ((f"{mirror}/debian{'-security' * suite.endswith('-security')}", suite) for suite in suites)
    return "".join(f"deb [arch=amd64 {trust}] {url} {suite} {COMPONENTS}\n" for url, suite in urls)


def lists_of(directory: Path) -> tuple[Path, str]:
    """The directory of apt's lists, and where it is from: `archive` or `snapshot`."""
    lists = directory / "lists"
    if "GPU_FLEET_SNAPSHOT" not in os.environ and _fetch(directory):
        _rename(lists)
        excerpt(lists)
        return lists, "archive"
    for path in (*lists.glob("*_*"),):
        path.unlink()
    with tarfile.open(SNAPSHOT) as archive:
        archive.extractall(directory, filter="data")
    _rename(lists)
    return lists, "snapshot"


def _rename(lists: Path) -> None:
    for path in (*lists.glob("*_dists_*"),):
        path.rename(lists / re.sub(r"^.*?(?=_debian(?:-security)?_dists_)", MIRROR.partition("://")[2], path.name))


def _mirror() -> str:
    """Debian's mirror in the machine's sources of apt; empty on another distribution."""
    places = (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*")))
    files = [path.read_text(errors="replace") for path in places if path.is_file()]
    found = [match[1] for lines in files for match in _MIRROR.finditer(re.sub(r"(?m)^\s*#.*$", "", lines))]
    return found[0] if found else ""


def _fetch(directory: Path) -> bool:
    """Read the package lists of all suites; whether the archive could be reached."""
    lists, config = directory / "lists", directory / "apt.conf"
    (lists / "partial").mkdir(parents=True)
    mirror = _mirror()
    if not mirror:
        return False
    suites = dict.fromkeys(one for suites in SUITES.values() for one in suites)
    (directory / "sources.list").write_text(sources(suites, mirror))
    (directory / "status").touch()
    config.write_text(
        f'Dir "{directory}";\nDir::State "{directory}";\nDir::State::lists "{lists}";\n'
        f'Dir::State::status "{directory}/status";\nDir::Cache "{directory}";\nDir::Etc "{directory}";\n'
        f'Dir::Log "{directory}";\nAcquire::Languages "none";\nAcquire::Retries "1";\nAcquire::http::Timeout "20";\n'
        'APT::Sandbox::User "root";\nAcquire::Check-Valid-Until "false";\nAPT::Architectures { "amd64"; };\n'
        'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\nAPT::Update::Error-Mode "any";\n'
    )
    done = subprocess.run(
        ["apt-get", "update", "-qq"], env={**os.environ, "APT_CONFIG": str(config)}, capture_output=True, check=False
    )
    return done.returncode == 0


def _packages(lists: Path, suites: Iterable[str]) -> Iterator[Path]:
    for suite in suites:
        yield from sorted(lists.glob(f"*_dists_{suite}_*_Packages"))


def excerpt(lists: Path) -> None:
    """Keep in the lists what a driver can need, by source and by relation, and of a release what apt's pins look at."""
    files = {path: _stanzas(path) for path in lists.glob("*_Packages")}
    by_name: dict[str, list[str]] = {}
    for stanzas in files.values():
        for stanza in stanzas:
            for name in (field_of(stanza, "Package"), *_PROVIDED.findall(field_of(stanza, "Provides"))):
                by_name.setdefault(name, []).append(stanza)
    ahead = {
        field_of(stanza, "Package")
        for stanzas in files.values()
        for stanza in stanzas
        if _SOURCES.fullmatch((field_of(stanza, "Source") or field_of(stanza, "Package")).partition(" ")[0])
        or _NAMES.fullmatch(field_of(stanza, "Package"))
    }
    needed: set[str] = set()
    while ahead:
        needed |= ahead
        relations = (
            f"{field_of(stanza, 'Depends')},{field_of(stanza, 'Pre-Depends')}"
            for name in ahead
            for stanza in by_name.get(name, ())
        )
        named = {match[1] for text in relations for one in re.split("[,|]", text) if (match := _RELATION.match(one))}
        found = {field_of(stanza, "Package") for name in named for stanza in by_name.get(name, ())}
        ahead = found - needed
    for path, stanzas in files.items():
        kept = [stanza for stanza in stanzas if field_of(stanza, "Package") in needed]
        path.write_text("\n\n".join("\n".join(_FIELDS.findall(one)) for one in kept) + ("\n" if kept else ""))
    for path in lists.glob("*_InRelease"):
        headers = "\n".join(_HEADERS.findall(path.read_text()))
        path.with_name(path.name.replace("InRelease", "Release")).write_text(f"{headers}\n")
        path.unlink()


def _stanzas(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").strip().split("\n\n")
