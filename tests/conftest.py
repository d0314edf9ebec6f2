# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the checkout importable under the names its users have, from any working directory or Python path."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.terminal import TerminalReporter
from hypothesis import configuration, settings
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parent.parent
COLLECTIONS = ROOT / ".cache" / "collections"
_FILES_IN_MEMORY = 2 << 30
# Prefixes of user properties that are printed at the end of a run: a line of text, and numbers of cases to be added up.
REPORT = "report: "
COUNT = "count: "


def _link_collection() -> None:
    """Create ansible_collections/gpu/fleet, the only path at which Ansible finds the collection."""
    link = COLLECTIONS / "ansible_collections" / "gpu" / "fleet"
    link.parent.mkdir(parents=True, exist_ok=True)
    # `make`, or another pytest worker just now, may have created it.
    with contextlib.suppress(FileExistsError):
        link.symlink_to("../../../..")


def _memory_for_files() -> None:
    """Let tmp_path lie in memory, where there is enough of it: half of the time of a simulated host is file operations.

    Programs in it must be executable, which the mount options of containers often forbid.
    """
    memory = Path("/dev/shm")
    if "PYTEST_DEBUG_TEMPROOT" in os.environ or not os.access(memory, os.W_OK):
        return
    status = os.statvfs(memory)
    if status.f_bavail * status.f_frsize >= _FILES_IN_MEMORY and not status.f_flag & os.ST_NOEXEC:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(memory)


_link_collection()
_memory_for_files()
# By default the database lies in the directory that pytest was started in.
configuration.set_hypothesis_home_dir(ROOT / ".cache" / "hypothesis")
# Number of examples for hypothesis and tests/torture: `quick` is part of each `make test` and deterministic, `thorough`
# of `make test-long`, `fuzz` of `make fuzz`; the seed of the latter two is printed.
EFFORT = os.environ.get("GPU_FLEET_EFFORT", "quick")
settings.register_profile("quick", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=1_000, deadline=None, print_blob=True)
settings.register_profile("fuzz", max_examples=4_000, deadline=None, print_blob=True)
settings.load_profile(EFFORT)
# The simulator is a plain package that is copied to hosts, outside of ansible_collections.
for _path in (ROOT, COLLECTIONS, ROOT / "roles" / "gpu_simulator" / "files"):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))


# Of PyYAML the fast one, where it was built with it: safe_load would be a tenth of the time of all units.
if yaml.__with_libyaml__:
    vars(yaml)["SafeLoader"] = yaml.CSafeLoader


_ON_THE_HOSTS_OF_THE_DEMO = ("test_demo", "test_documented_scenario", "test_gpu_state", "test_removal")
_ON_THE_HOSTS_OF_MOLECULE = ("test_molecule",)


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """One file of tests at a time per worker; tests on real hosts form three groups, each of which shares resources."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        name = Path(path).stem
        if not path.startswith("tests/system/"):
            return path
        if name in _ON_THE_HOSTS_OF_THE_DEMO:
            return "tests/system, demo"
        # The rest has its own hosts, but shares the fault injection of the mock vendor repositories.
        return "tests/system, molecule" if name in _ON_THE_HOSTS_OF_MOLECULE else "tests/system"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    """Use this scheduling; the groups on real hosts, which take longest, come first in collection order."""
    return _Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over ten thousand tests that stay until the end."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print what tests have reported, also from workers of pytest-xdist."""
    lines: set[str] = set()
    counts: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name.startswith(REPORT):
                    lines.add(f"{name[len(REPORT) :]}: {value}")
                elif name.startswith(COUNT) and report.when == "call":  # the other phases have the same properties
                    counts.setdefault(name[len(COUNT) :], Counter()).update(value)
    lines |= {f"{topic}: {', '.join(f'{number} {what}' for what, number in c.items())}" for topic, c in counts.items()}
    if lines:
        terminalreporter.section("checks")
        for line in sorted(lines):
            terminalreporter.line(line)
