# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible sends to a host for each module, and what its imports cost there.

The payload is Ansible's AnsiballZ: a program with a compressed archive of the module, of all that it imports from this
collection, and of Ansible's own code, which is the same for each. A target imports from that archive, which has no byte
code: all of it is compiled in each run. Imports are measured as CPU time of a Python of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmark.measure import best_of, run
from tests.benchmark.report import Table
from tests.conftest import ROOT

ROUNDS = 5
_OWN = "ansible_collections/gpu/fleet/"
_IMPORT = "import sys; sys.path.insert(0, sys.argv[1]); import {}"
_BASE = "ansible.module_utils.basic"
_COLUMNS = ("module", "payload, kB", "files of the collection", "of it, kB", "import, CPU ms", "without Ansible's, ms")


def own_files(archive: Path) -> dict[str, int]:
    """The compressed bytes of each file of the collection in an archive; empty packages are left out."""
    with zipfile.ZipFile(archive) as files:
        return {
            entry.filename: entry.compress_size
            for entry in files.infolist()
            if entry.filename.startswith(_OWN) and entry.file_size
        }


def import_ms(path: Path, name: str) -> float:
    """CPU milliseconds of a Python that imports `name` from an archive, its own start included."""
    command: list[str | Path] = [sys.executable, "-ISB", "-c", _IMPORT.format(name), path]
    return best_of(ROUNDS, lambda: run(command)).cpu_seconds * 1000


def payloads(directory: Path) -> dict[str, int]:
    """Write the archive of each module, as MODULE.zip, and give the bytes of their payloads.

    By a process of its own: Ansible finds the collection only where nothing else has imported it.
    """
    argv = [sys.executable, "-m", "tests.benchmark.archives", str(directory)]
    printed = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    sizes: dict[str, int] = json.loads(printed)
    return sizes


def tables(_arguments: object = None) -> Iterator[Table]:
    """One table, a row for each module."""
    rows = []
    base = None
    with tempfile.TemporaryDirectory() as name:
        for module, size in payloads(Path(name)).items():
            archive = Path(name) / f"{module}.zip"
            base = base or import_ms(archive, _BASE)
            whole = import_ms(archive, f"ansible_collections.gpu.fleet.plugins.modules.{module}")
            own = own_files(archive)
            own_kb = round(sum(own.values()) / 1000)
            rows.append((module, round(size / 1000), len(own), own_kb, round(whole), max(0, round(whole - base))))
    yield Table("Payload of each module", _COLUMNS, tuple(rows))
