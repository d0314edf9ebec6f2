# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible sends to a host for each module, and what its imports cost there.

The payload is Ansible's AnsiballZ: a program with a compressed archive of the module, of all that it imports from this
collection, and of Ansible's own code, which is the same for each. A target imports from that archive, which has no byte
code: all of it is compiled in each run. Imports are measured as CPU time of a Python of their own.

`LIMITS_KIB` is what a module may have: tests/checks/test_payload.py holds it. What makes a payload larger moves a limit
in the same commit, with its reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.benchmark.measure import best_of, run
from tests.benchmark.report import Cell, Table
from tests.conftest import ROOT

ROUNDS = 5
_OWN = "ansible_collections/gpu/fleet/"
_IMPORT = "import sys; sys.path.insert(0, sys.argv[1]); import {}"
_BASE = "ansible.module_utils.basic"
_PLUGINS = "ansible_collections.gpu.fleet.plugins"
_COLUMNS = (
    "module",
    "payload, KiB",
    "limit",
    "files of the collection",
    "of it, KiB",
    "import, CPU ms",
    "over Ansible's, ms",
)

COMMON_LIMIT_KIB = 220
LIMITS_KIB: Mapping[str, int] = {
    "ecc_mode": 276,
    "gpu_health": 433,
    "gpu_reset": 263,
    "gpu_settings": 273,
    "gpu_state": 425,
    "host_facts": 510,
    "mig_profile": 334,
    "nvidia_smi_facts": 281,
    "report_facts": 320,
    "signed_repository": 232,
}
"""By module; the others have the common limit. Ansible's own code is 166 of each (ansible-core 2.19), and 25 more of
signed_repository, which fetches keys."""

_FACTS = (
    *("_host.packages", "_host.machine", "_host.readings"),
    *("_nvidia_smi.facts", "_nvidia_smi.nvlink_fabric", "_cuda.facts", "_managed.run"),
)
REQUESTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "host_facts": {
        "packages, GPUs, driver, records": _FACTS,
        "these, room and prediction": (*_FACTS, "_common.file_systems", "_state.module"),
    }
}
"""By module and request: what is imported for it besides the module itself."""


def own_files(archive: Path) -> dict[str, int]:
    """The compressed bytes of each file of the collection in an archive; empty packages are left out."""
    with zipfile.ZipFile(archive) as files:
        return {
            entry.filename: entry.compress_size
            for entry in files.infolist()
            if entry.filename.startswith(_OWN) and entry.file_size
        }


def import_ms(path: Path, *names: str) -> float:
    """CPU milliseconds of a Python that imports these from an archive, its own start included."""
    command: list[str | Path] = [sys.executable, "-ISB", "-c", _IMPORT.format(", ".join(names)), path]
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
    """One table: a row for each module, and for each request for which a module imports more."""
    rows: list[tuple[Cell, ...]] = []
    missed = []
    base = None
    with tempfile.TemporaryDirectory() as name:
        for module, size in payloads(Path(name)).items():
            archive = Path(name) / f"{module}.zip"
            base = base or import_ms(archive, _BASE)
            name_of_module = f"{_PLUGINS}.modules.{module}"
            whole = import_ms(archive, name_of_module)
            own, limit = own_files(archive), LIMITS_KIB.get(module, COMMON_LIMIT_KIB)
            own_kib = round(sum(own.values()) / 1024)
            times = (round(whole), max(0, round(whole - base)))
            rows.append((module, round(size / 1024), limit, len(own), own_kib, *times))
            if size > limit * 1024:
                missed.append(f"the payload of {module} is larger than {limit} KiB")
            for request, parts in REQUESTS.get(module, {}).items():
                imported = (f"{_PLUGINS}.module_utils.{part}" for part in parts)
                whole = import_ms(archive, name_of_module, *imported)
                rows.append((f"  {request}", *[None] * 4, round(whole), max(0, round(whole - base))))
    yield Table("Payload of each module", _COLUMNS, tuple(rows), tuple(missed))
