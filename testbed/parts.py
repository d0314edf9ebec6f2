# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the tests, and the make target that runs each. tests/checks/test_parts.py: no test is left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Target = Literal["test-unit", "test", "test-ci", "test-long", "test-full"]


@dataclass(frozen=True)
class Part:
    """Tests that one pytest process runs, side by side with other parts.

    name: also that of its workspace of the testbed. tests: paths or node ids. effort: number of examples of the
    property tests, see tests/conftest.py; a part with more than `quick` runs again what another part runs. workers:
    processes of pytest-xdist; 0 for tests on hosts, which run in order. ci_hosts: group of molecule/inventory that the
    scenario is limited to in test-ci, where the time does not suffice for all of its hosts. debian_only: whether all of
    its hosts are Debian's, so that the images of other distributions need not be built for it. browser: whether the
    tests need Chromium; they are skipped where it cannot be installed. marked: the tests of this marker of
    pyproject.toml alone, or of `not MARKER`. without: files of `tests` that other parts run. suites: those of images
    of hosts that no other part needs, see testbed/images.py.
    """

    name: str
    target: Target
    tests: tuple[str, ...]
    effort: Literal["quick", "thorough"] = "quick"
    workers: int = 0
    ci_hosts: str = ""
    debian_only: bool = False
    browser: bool = False
    marked: str = ""
    without: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()

    @property
    def on_hosts(self) -> bool:
        """Whether the tests need the images of the testbed's hosts."""
        return any(test.startswith(("tests/system", "tests/full")) for test in self.tests)


def _scenario(name: str) -> str:
    return f"tests/system/test_molecule.py::test_the_scenario_passes[{name}]"


def _system(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/system/test_{name}.py" for name in names)


def _checks(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/checks/test_{name}.py" for name in names)


def _unit(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{name}" for name in names)


# Directories of tests that run ansible-playbook: what a run of site.yml does; then what it prints, other playbooks, and
# tasks of single roles.
_OF_SITE = ("health", "site", "state")
_OF_OTHERS = (
    *("callback", "decommission", "monitoring", "pull", "report", "upgrade"),
    *(
        "compatibility",
        "containers",
        "cuda",
        "driver",
        "kubernetes_node",
        "real_indexes",
        "repository",
        "slurm",
        "windows",
        "workload",
    ),
)
# What users install, as they get it; what a release and its pages are.
_PACKAGE = _checks("sanity", "ops_team", "package", "target_pythons")
_RELEASE = _checks("release", "site")
_OLDER_CORES = _checks("sanity_of_older_cores")
_OUR_TESTS = _checks("sanity_of_tests")
# Of those that install real packages the one with a few hundred megabytes.
_BACKEND_AI_AGENT = "tests/full/test_backend_ai_agent.py"
_FLEET = "tests/unit/upgrade/test_upgrade_fleet.py"
# What depends on GPU_FLEET_EFFORT.
_THOROUGH = (
    *("tests/torture", "tests/unit/option_fuzz", "tests/unit/real_indexes/test_host_matrix.py"),
    _FLEET,
    *(f"tests/unit/mig/test_mig_{name}.py" for name in ("export", "faults", "properties")),
    "tests/unit/plugins/test_facts_damage.py",
)

PARTS = (
    # On each change. What cannot use two cores comes first: parts start in this order, some side by side.
    Part("site", "test", (_scenario("site"),), debian_only=True),
    Part("package", "test", _PACKAGE),
    Part("plays", "test", _unit(*_OF_SITE), workers=2, marked="plays"),
    Part("unit", "test-unit", ("tests/unit", "tests/torture"), workers=2, marked="not plays"),
    Part("checks", "test-unit", ("tests/checks",), without=(*_PACKAGE, *_RELEASE, *_OLDER_CORES, *_OUR_TESTS)),
    # In CI, after those; the longest first.
    Part("containers", "test-ci", (_scenario("containers"),)),
    Part("driver_activation", "test-ci", _system("nvidia_driver_activation", "nvidia_driver_faults")),
    Part("other_plays", "test-ci", _unit(*_OF_OTHERS), workers=2, marked="plays", without=(_FLEET,)),
    Part("docker", "test-ci", _system("docker")),
    Part("engines", "test-ci", _system("engines")),
    Part("demo", "test-ci", _system("demo", "documented_scenario", "gpu_state", "removal")),
    Part("nvidia_driver", "test-ci", (_scenario("nvidia_driver"),), ci_hosts="package_managers"),
    Part("mock_repositories", "test-ci", _system("mock_repositories", "air_gapped")),
    Part("cuda", "test-ci", (_scenario("cuda"),), ci_hosts="package_managers"),
    Part("gpu_state", "test-ci", (_scenario("gpu_state"),)),
    Part("older_cores", "test-ci", _OLDER_CORES),
    Part("nvidia_repository", "test-ci", (_scenario("nvidia_repository"),), ci_hosts="package_managers"),
    Part("gpu_simulator", "test-ci", (_scenario("gpu_simulator"),)),
    Part("platforms", "test-ci", ("tests/platforms",)),
    Part("release", "test-ci", _RELEASE),
    Part("ops_team", "test-ci", _system("ops_team")),
    Part("browser", "test-ci", ("tests/browser",), browser=True),
    # Nightly, with those of CI on all their hosts: together they take longer than CI may.
    Part("thorough", "test-long", _THOROUGH, effort="thorough", workers=2),
    Part("sanity_of_tests", "test-long", _OUR_TESTS),
    Part("upgrade_fleet", "test-long", (_FLEET,), marked="plays"),
    Part("upgrade", "test-long", (_scenario("upgrade"),), debian_only=True, suites=("slurm", "slurm_sid")),
    Part("driver_sources", "test-long", _system("nvidia_driver_sources")),
    Part("cuda_refusals", "test-long", _system("cuda")),
    Part("pull", "test-long", _system("pull")),
    Part("backend_ai_agent", "test-long", (_BACKEND_AI_AGENT,)),
    # By hand: gigabytes of Debian's own packages.
    Part("full", "test-full", ("tests/full",), without=(_BACKEND_AI_AGENT,)),
)

# A target also runs the parts of the target that it is made of.
INCLUDED: dict[Target, tuple[Target, ...]] = {"test": ("test-unit", "test"), "test-long": ("test-ci", "test-long")}


def for_target(part: Part, target: Target) -> Part:
    """The part as a target runs it: on all hosts of its scenario, except in test-ci."""
    return part if target == "test-ci" else replace(part, ci_hosts="")


def parts_of(target: Target) -> tuple[Part, ...]:
    """The parts that `make TARGET` runs, in the order of the table."""
    included = INCLUDED.get(target, (target,))
    return tuple(for_target(part, target) for part in PARTS if part.target in included)
