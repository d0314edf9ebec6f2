# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the tables of plugins/module_utils/_knowledge with what NVIDIA and others publish for programs.

`make facts-check` reads the feeds from the network; `ARGS=--feeds=DIRECTORY` reads stored ones. `ARGS=--write` writes
the table of vulnerabilities, which follows from NVIDIA's documents alone; the other tables need a reader.
Exit status: 0 where the tables agree, 1 where a feed has something else, 2 where a feed could not be read, 3 for both.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import import_module, reload
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._knowledge import (
    branches,
    cuda,
    gpus,
    releases,
    vulnerabilities,
)
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.source import Source

from testbed import bulletins

KNOWLEDGE = Path(__file__).resolve().parent.parent / "plugins" / "module_utils" / "_knowledge"
_PACKAGE = "ansible_collections.gpu.fleet.plugins.module_utils._knowledge"
OLDEST_DAYS = 90
"""A table that nobody has compared with its sources for longer than this is not released."""
_LARGEST = 64 * 2**20
_SECONDS = 60
# Branches older than this are in no feed as a whole, and nobody installs them by these tables.
_FIRST_BRANCH = 535
_VERSION = re.compile(r"(?:[0-9]+:)?([0-9]{3})\.[0-9.]+")
_DRIVER = re.compile(r"nvidia-(?:open|driver-cuda|kernel-open-dkms|headless-[0-9]+-server)|cuda-drivers")
_TOOLKIT = re.compile(r"cuda-toolkit-([0-9]+)-([0-9]+)")
_RELEASE = re.compile(r"v?([0-9]+(?:\.[0-9]+){1,3})")
_FINAL = re.compile(r"([0-9]+\.[0-9]+)(?:\.[0-9]+)+(?:\.post[0-9]+)?")
# pci.ids names a GPU by its chip, and other functions of the same card by what they are.
_GPU = re.compile(r"\t([0-9a-f]{4})  ((?:G[FKMPVAHBR]|TU|AD)[0-9]{2,3}[0-9A-Z]?)[GLMS]{0,3}(?: / GN.*|  ?\[.*)?")


class FeedError(Exception):
    """A feed is not what it is expected to be; the message names it."""


@dataclass(frozen=True)
class Difference:
    """Something that a feed has and a table has not (`new`), the other way round (`missing`), or otherwise."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Feed:
    """A feed: the name of its stored copy, where it is, and what of it differs from the tables on a day."""

    file: str
    url: str
    compare: Callable[[bytes, str], Iterable[Difference]]


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise FeedError(f"it is no JSON: {error}") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise FeedError(f"{what} is no object with members")
    return value


def compare_driver_releases(content: bytes, today: str) -> Iterator[Difference]:
    """NVIDIA's releases.json of data center drivers: branches with their kind."""
    table = {branch.number: branch for branch in branches.BRANCHES}
    published: dict[int, str] = {}
    for name, entry in _object(_json(content), "the document").items():
        if not (name.isascii() and name.isdigit()) or not isinstance(entry, dict):
            raise FeedError(f"{name[:40]!r} is no branch")
        published[int(name)] = str(entry.get("type", ""))[:60]
    for number, kind in sorted(published.items()):
        row = table.get(number)
        if row is None:
            yield Difference("new", f"driver branch {number} ({kind})")
        elif row.new_feature and kind != "new feature branch" and number >= _FIRST_BRANCH:
            yield Difference("changed", f"driver branch {number} is a {kind}, the table has a new feature branch")
        elif not row.new_feature and kind == "new feature branch" and row.end is None and number >= _FIRST_BRANCH:
            yield Difference("changed", f"driver branch {number} is a new feature branch, the table has none")
    for number, row in sorted(table.items()):
        if row.end is not None and row.source.read[:7] <= row.end < today[:7]:
            yield Difference("ended", f"driver branch {number} in {row.end}: read {row.source.url} again")
        if row.end is not None and row.end >= today[:7] and number not in published:
            yield Difference("missing", f"driver branch {number}, which the table has until {row.end}")


def compare_packages(content: bytes, _today: str) -> Iterator[Difference]:
    """An index of packages (Packages or Packages.gz): branches of the driver, versions of CUDA."""
    try:
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise FeedError(f"it is no index of packages: {error}") from None
    found: dict[tuple[str, str], str] = {}
    stanzas = 0
    for stanza in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"(Package|Version): ", line))
        name, version = lines.get("Package", ""), lines.get("Version", "")
        stanzas += bool(name and version)
        toolkit, driver = _TOOLKIT.fullmatch(name), _VERSION.match(version)
        if toolkit:
            found["CUDA", f"{toolkit[1]}.{toolkit[2]}"] = name
        elif driver and _DRIVER.fullmatch(name):
            found["driver branch", driver[1]] = f"{name} {version}"
    if not stanzas:
        raise FeedError("it has no package")
    known = {
        "CUDA": set(cuda.DRIVER_OF_CUDA),
        "driver branch": {str(number) for number in branches.KNOWN_BRANCHES},
    }
    for (subject, value), seen in sorted(found.items()):
        if value not in known[subject]:
            yield Difference("new", f"{subject} {value} ({seen})")


def _wheels(content: bytes) -> list[str]:
    """The major and minor versions of a project in PyPI's JSON that have files."""
    project = _object(_object(_json(content), "the document").get("releases"), "releases")
    found = {match[1] for name, files in project.items() if files and (match := _FINAL.fullmatch(name))}
    return sorted(found, key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def compare_cuda_wheels(content: bytes, _today: str) -> Iterator[Difference]:
    """PyPI's JSON of the wheels of CUDA's compiler."""
    for version in _wheels(content):
        if version not in cuda.DRIVER_OF_CUDA:
            yield Difference("new", f"CUDA {version} (on PyPI)")


def compare_cudnn_wheels(content: bytes, _today: str) -> Iterator[Difference]:
    """PyPI's JSON of the wheels of cuDNN."""
    for version in _wheels(content):
        if not any(_numbers(row.first) <= _numbers(version) <= _numbers(row.last) for row in cuda.CUDNN):
            yield Difference("new", f"cuDNN {version} (on PyPI)")


def _tag(release: Any, feed: str) -> str:
    """The version in a tag: of dcgm-exporter it has DCGM's version before its own, of Slurm hyphens."""
    if not isinstance(release, dict) or release.get("prerelease") or release.get("draft"):
        return ""
    if feed == "tags":
        slurm = re.fullmatch(r"slurm-([0-9]+)-([0-9]+)-([0-9]+)-[0-9]+", str(release.get("name", "")))
        return ".".join(slurm.groups()) if slurm else ""
    match = _RELEASE.fullmatch(str(release.get("tag_name", "")).rsplit("-", 1)[-1])
    return match[1] if match else ""


def _compare_releases(project: releases.Project) -> Callable[[bytes, str], Iterator[Difference]]:
    known = _numbers(project.newest)

    def compare(content: bytes, _today: str) -> Iterator[Difference]:
        if project.feed == "pypi":
            versions = _wheels(content)
        else:
            document = _json(content)
            if not isinstance(document, list) or not document:
                raise FeedError("it is no list of releases")
            versions = [version for release in document if (version := _tag(release, project.feed))]
        for version in versions:
            if _numbers(version)[: len(known)] > known:
                yield Difference("new", f"{project.name} {version}: read its notes, the table has {project.newest}")

    return compare


def compare_bulletins(content: bytes, _today: str) -> Iterator[Difference]:
    """The index of a year's security bulletins."""
    try:
        for kind, row in bulletins.missing(content.decode(errors="replace")):
            yield Difference(kind, f"bulletin {row.number} of {row.date}, updated {row.updated}: {row.title}; --write")
    except bulletins.BulletinError as error:
        raise FeedError(str(error)) from None


def compare_pci_ids(content: bytes, _today: str) -> Iterator[Difference]:
    """The PCI ID Repository: GPUs that no row has."""
    _before, vendor, text = content.decode(errors="replace").partition("\n10de  ")
    if not vendor:
        raise FeedError("it has no devices of NVIDIA")
    for line in text.splitlines()[1:]:
        if re.match(r"[0-9a-f]{4}  ", line):
            break
        match = _GPU.fullmatch(line)
        if match and "NVSwitch" not in line and match[2] not in gpus.WITHOUT_CAPABILITY:
            device = int(match[1], 16)
            if not any(chip.first_id <= device <= chip.last_id for chip in gpus.CHIPS):
                yield Difference("new", f"GPU {line.strip()}")


_ADDRESSES = {
    "releases": "https://api.github.com/repos/{}/releases?per_page=20",
    "tags": "https://api.github.com/repos/{}/tags?per_page=60",
    "pypi": "https://pypi.org/pypi/{}/json",
}


def feeds_of(today: str) -> tuple[Feed, ...]:
    """All feeds, the bulletins of every year until today among them."""
    return (*FEEDS, *(_bulletins_of(year) for year in range(bulletins.FIRST_YEAR, int(today[:4]) + 1)))


def _bulletins_of(year: int) -> Feed:
    return Feed(f"product-security-{year}.md", f"{bulletins.RAW}/{year}/README.md", compare_bulletins)


FEEDS = (
    Feed("releases.json", "https://docs.nvidia.com/datacenter/tesla/drivers/releases.json", compare_driver_releases),
    Feed(
        "ubuntu2404.Packages",
        "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/Packages.gz",
        compare_packages,
    ),
    Feed("nvidia-cuda-crt.json", "https://pypi.org/pypi/nvidia-cuda-crt/json", compare_cuda_wheels),
    Feed("pci.ids", "https://raw.githubusercontent.com/pciutils/pciids/master/pci.ids", compare_pci_ids),
    Feed("nvidia-cudnn-cu13.json", "https://pypi.org/pypi/nvidia-cudnn-cu13/json", compare_cudnn_wheels),
    *(
        Feed(
            f"{project.name.rpartition('/')[2]}.json",
            _ADDRESSES[project.feed].format(project.name),
            _compare_releases(project),
        )
        for project in releases.PROJECTS
    ),
)


def _fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "gpu.fleet facts-check"})
    with urllib.request.urlopen(request, timeout=_SECONDS) as response:
        content: bytes = response.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise FeedError(f"it has more than {_LARGEST} bytes")
    return content


def check(read: Callable[[Feed], bytes], today: str, feeds: Sequence[Feed] = ()) -> tuple[list[str], list[str]]:
    """The differences between the feeds and the tables, and what could not be read."""
    differences, failures = [], []
    for feed in feeds or feeds_of(today):
        try:
            differences += [f"{difference} [{feed.url}]" for difference in feed.compare(read(feed), today)]
        except (OSError, FeedError) as error:
            failures.append(f"{feed.url}: {error}")
    return differences, failures


def write(read: Callable[[Feed], bytes], today: str) -> list[str]:
    """Write the table of vulnerabilities out of the documents; what could not be read.

    Rows that an index which was read still has as they are get its date, and so do new ones.
    """
    rows, state, failures = [], {}, []
    for year in range(bulletins.FIRST_YEAR, int(today[:4]) + 1):
        feed = _bulletins_of(year)
        try:
            for _kind, listed in bulletins.missing(read(feed).decode(errors="replace")):
                feed = Feed(f"{listed.number}.json", listed.address, compare_bulletins)
                rows += bulletins.bulletin(_json(read(feed)), today)
            state[str(year)] = today
        except (OSError, FeedError, bulletins.BulletinError) as error:
            failures.append(f"{feed.url}: {error}")
    text = bulletins.TABLE.read_text(encoding="utf-8")
    bulletins.TABLE.write_text(bulletins.written(text, bulletins.with_rows(rows, state)), encoding="utf-8")
    return failures


def sources() -> dict[str, list[Source]]:
    """The sources of the rows of each table, by file and table."""
    found: dict[str, list[Source]] = {}
    for path in sorted(KNOWLEDGE.glob("*.py")):
        for name, value in vars(import_module(f"{_PACKAGE}.{path.stem}")).items():
            rows = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
            if name.isupper():
                of_rows = [row.source for row in rows if isinstance(getattr(row, "source", None), Source)]
                if of_rows:
                    found[f"{path.name} {name}"] = of_rows
    return found


def _age(source: Source, today: date) -> int:
    return (today - date.fromisoformat(source.read)).days


def outdated(today: date) -> list[str]:
    """The tables with a row whose source was read in a state that is too old for a release. The oldest row counts."""
    oldest = {table: min(rows, key=lambda source: source.read) for table, rows in sources().items()}
    return [
        f"{table} was last compared with {source.url} of {source.read}, {_age(source, today)} days ago"
        for table, source in oldest.items()
        if _age(source, today) > OLDEST_DAYS
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the differences; see the description of this file."""
    parser = argparse.ArgumentParser(prog="make facts-check", description=__doc__)
    parser.add_argument("--feeds", type=Path, help="read stored feeds from this directory, not from the network")
    parser.add_argument("--today", default=date.today().isoformat())
    parser.add_argument("--outdated", action="store_true", help="instead, fail where a table is too old for a release")
    parser.add_argument("--write", action="store_true", help="first, write the table of vulnerabilities")
    given = parser.parse_args(arguments)
    if given.outdated:
        old = outdated(date.fromisoformat(given.today))
        print("\n".join(old) or f"every row was compared with its source within {OLDEST_DAYS} days")
        return int(bool(old))
    stored: Path | None = given.feeds

    def read(feed: Feed) -> bytes:
        return (stored / feed.file).read_bytes() if stored else _fetch(feed.url)

    if given.write:
        failed = write(read, given.today)
        print("".join(f"not written: {failure}\n" for failure in failed), end="", file=sys.stderr)
        reload(vulnerabilities)
    differences, failures = check(read, given.today)
    print("\n".join(differences) or "the tables agree with the feeds that were read")
    print("".join(f"not read: {failure}\n" for failure in failures), end="", file=sys.stderr)
    return bool(differences) + 2 * bool(failures)


if __name__ == "__main__":
    sys.exit(main())
