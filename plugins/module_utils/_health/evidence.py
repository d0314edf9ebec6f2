# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a fault, kept before a reset or a reboot destroys it. Private to this collection."""

from __future__ import annotations

import os
import re
import shutil
import stat
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Sequence

from .._common.atomic_write import atomic_write
from .._common.evidence_options import ALWAYS, DIRECTORY, WHEN_UNHEALTHY
from .._common.runner import find_executable
from .evaluate import Finding
from .kernel_log_sources import Run
from .policy import FAIL, WARN
from .table import STATES_OF_SOFTWARE

BUG_REPORT = "nvidia-bug-report.sh"
BUG_REPORT_SECONDS = 180.0
"""It takes about a minute on a host with eight GPUs; one that hangs must not keep the host from its reset."""

MOST_COLLECTIONS = 5
MOST_BYTES = 256 << 20
"""Of all collections together."""
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_MARKER = ".gpu-fleet-evidence"
"""In each collection. The directory may be one that others use, with directories of the same kind of name."""


@dataclass(frozen=True)
class Evidence:
    """What was collected: files of `directory`, and notes about what could not be. Without a directory, nothing."""

    directory: str | None = None
    files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Collection:
    """What is to be collected: `documents` by file name. `root` is a path prefix for tests."""

    name: str
    documents: Mapping[str, str]
    run_program: Run
    directory: str = DIRECTORY
    root: str = ""
    notes: list[str] = field(default_factory=list)

    def collect(self) -> Evidence:
        """Write the files, for root only; never raises for a host that cannot keep them."""
        path = os.path.join(self.root + self.directory, self.name)
        try:
            # A directory that exists keeps its mode: it may be one that others use as well.
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._create(path)
            for name, text in self.documents.items():
                atomic_write(os.path.join(path, name), text.encode("utf-8", "surrogateescape"), 0o600)
            if shutil.disk_usage(path).free > 2 * MOST_BYTES:
                self._report_of_driver(path)
            else:
                self.notes.append(f"{BUG_REPORT} was not run: less than {2 * MOST_BYTES >> 20} MiB are free")
            names = sorted(name for name in os.listdir(path) if name != _MARKER)
            for name in names:
                os.chmod(os.path.join(path, name), 0o600)
            self._remove_oldest()
            return Evidence(os.path.join(self.directory, self.name), names, self.notes)
        # ValueError: a path with a character that no path has.
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            return Evidence(notes=[*self.notes, f"evidence cannot be kept in {self.directory}: {reason}"])

    @staticmethod
    def _create(path: str) -> None:
        """The directory with its marker, or the one of a run in the same second; OSError where it is of others."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not _is_own(path):
                raise
        atomic_write(os.path.join(path, _MARKER), b"", 0o600)

    def _report_of_driver(self, path: str) -> None:
        target = os.path.join(path, "nvidia-bug-report.log")
        program = find_executable(BUG_REPORT)
        result = self.run_program((program, "--output-file", target), BUG_REPORT_SECONDS)
        written = [name for name in os.listdir(path) if name.startswith("nvidia-bug-report")]
        if result.start_error is not None:
            self.notes.append(f"there is no {BUG_REPORT}")
        elif result.rc != 0:
            self.notes.append(f"{BUG_REPORT} failed: {result.ending}")
        elif not written:
            self.notes.append(f"{BUG_REPORT} wrote nothing")
        for name in written:
            size = os.path.getsize(os.path.join(path, name))
            if size > MOST_BYTES // 2:
                os.unlink(os.path.join(path, name))
                self.notes.append(f"{name} was not kept: it has {size >> 20} MiB")

    def _remove_oldest(self) -> None:
        directory = self.root + self.directory
        names = sorted(
            name for name in os.listdir(directory) if _NAME.fullmatch(name) and _is_own(os.path.join(directory, name))
        )
        sizes = [(name, _bytes_in(os.path.join(directory, name))) for name in names]
        for name in superseded(sizes):
            shutil.rmtree(os.path.join(directory, name))


def _is_own(directory: str) -> bool:
    """Whether this module has made the directory: it and its marker belong to us, and neither is a link."""
    try:
        found = [os.lstat(path) for path in (directory, os.path.join(directory, _MARKER))]
    except OSError:
        return False
    modes = [stat.S_IFMT(status.st_mode) for status in found]
    return modes == [stat.S_IFDIR, stat.S_IFREG] and {status.st_uid for status in found} == {os.geteuid()}


def _bytes_in(directory: str) -> int:
    return sum(os.lstat(os.path.join(directory, name)).st_size for name in os.listdir(directory))


def superseded(collections: Sequence[tuple[str, int]]) -> list[str]:
    """The names to remove of collections with their bytes, the oldest first; the newest one stays in any case."""
    total, kept = 0, 0
    removed = []
    for name, size in reversed(collections):
        total += size
        if kept and (kept >= MOST_COLLECTIONS or total > MOST_BYTES):
            removed.append(name)
        else:
            kept += 1
    return removed[::-1]


def is_due(mode: str, findings: Iterable[Finding]) -> bool:
    """Whether to collect: `always`, or where a finding is a fault. A mode that waits for the reset is none."""
    if mode != WHEN_UNHEALTHY:
        return mode == ALWAYS
    return any(finding.verdict in (WARN, FAIL) and finding.row not in STATES_OF_SOFTWARE for finding in findings)
