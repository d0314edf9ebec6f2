# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the tests, and the make target that runs each. tests/checks/test_parts.py: no test is left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Target = Literal["test-unit", "test", "test-ci", "test-long", "test-full"]

_UNMEASURED = 20.0


@dataclass(frozen=True)
class Part:
    """Tests that one pytest process runs, side by side with other parts.

    name: also of its workspace of the testbed. tests: paths or node ids. effort: number of examples of the
    property tests, see tests/conftest.py; the part `thorough` runs again what others run. workers:
    processes of pytest-xdist; 0 for tests on hosts, which run in order. ci_hosts: group of molecule/inventory that the
    scenario is limited to in test-ci, where the time does not suffice for all of its hosts. optional: what
    the tests need, of testbed/prerequisites.py; they are skipped where it cannot be installed. marked: the tests of
    this marker of pyproject.toml alone, or of `not MARKER`. without: files of `tests` that other parts run. suites:
    for the images of its hosts, see testbed/images.py.

    minutes: how long it takes among the others of its target, on a quiet machine with two cores; 0 where nobody
    has measured it, see `expected`. A part that takes a quarter longer is named at the end of the run. cores: how many
    processors it keeps busy on the average, including its hosts. memory: GiB that it needs, with its hosts.
    """

    name: str
    target: Target
    tests: tuple[str, ...]
    effort: Literal["quick", "thorough"] = "quick"
    workers: int = 0
    minutes: float = 0.0
    cores: float = 1.0
    memory: float = 0.5
    ci_hosts: str = ""
    optional: str = ""
    marked: str = ""
    without: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()

    @property
    def expected(self) -> float:
        """Minutes; one that nobody has measured counts as long, since it must not begin last."""
        return self.minutes or _UNMEASURED

    @property
    def on_hosts(self) -> bool:
        """Whether the tests need the images of the testbed's hosts."""
        return any(test.startswith(("tests/system", "tests/full", _KUBELET)) for test in self.tests)


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
    *("callback", "decommission", "monitoring", "nvidia_smi", "pull", "report", "upgrade"),
    *(
        "backend_ai",
        "compatibility",
        "containers",
        "cuda",
        "dcgm",
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
_PACKAGE = _checks("sanity", "oldest_core", "ops_team", "package", "target_pythons")
_RELEASE = _checks("release", "site", "awx")
# As long as all other checks together.
_LINTERS = _checks("linters")
_OLDER_CORES = _checks("sanity_of_older_cores")
_SITE_OF_OLDER_CORES = "tests/system/test_molecule.py::test_the_scenario_converges_with_the_oldest_ansible_core[site]"
_OUR_TESTS = _checks("sanity_of_tests")
# Of those that install real packages the one with a few hundred megabytes.
_BACKEND_AI_AGENT = "tests/full/test_backend_ai_agent.py"
_KUBELET = "tests/kubernetes/test_kubelet.py"
_KUBERNETES_LONG = (
    "tests/kubernetes/test_api_host.py",
    "tests/kubernetes/test_operator.py",
    "tests/kubernetes/test_remediate.py",
    "tests/kubernetes/test_sharing.py",
    "tests/kubernetes/test_upgrade_faults.py",
    "tests/kubernetes/test_upgrade_interrupted.py",
    "tests/kubernetes/test_upgrade_outage.py",
    "tests/kubernetes/test_upgrade_waits.py",
    "tests/kubernetes/test_webhook.py",
)
# Runs of minutes: a fleet that is stopped and goes on, remedies with the controller killed at each step.
_FLEET = "tests/unit/upgrade/test_upgrade_fleet.py"
_KILLS = "tests/unit/hostile/test_kills.py"
_REMEDIES = ("tests/unit/upgrade/test_remediate_playbook.py", "tests/unit/upgrade/test_remediate_fleet.py")
_ACCEPT = "tests/unit/upgrade/test_accept_playbook.py"
# Units that take longest: each call that fails in each way, all layouts, all hosts of real indexes, hostile options,
# damaged documents, real servers.
_EXHAUSTIVE = _unit(
    "ecc/test_ecc_faults.py",
    "gpu_simulator_changes/test_placement.py",
    "mig/test_mig_faults.py",
    "mig/test_mig_properties.py",
    "monitoring/test_scrape.py",
    "nvidia_smi/test_facts_damage.py",
    "option_fuzz/test_option_fuzz.py",
    "pull/test_taking_a_commit.py",
    "real_indexes/test_host_matrix.py",
    "report/test_report_hostile.py",
    "settings/test_settings_faults.py",
    "state/test_boot_faults.py",
)
# What depends on GPU_FLEET_EFFORT and is run on each change as well.
_THOROUGH = (
    *("tests/torture", "tests/unit/option_fuzz", "tests/unit/real_indexes/test_host_matrix.py"),
    "tests/live_archive/test_situations.py",
    *(f"tests/unit/mig/test_mig_{name}.py" for name in ("export", "faults", "properties")),
    "tests/unit/nvidia_smi/test_facts_damage.py",
)

# Suites of the images of hosts.
_TRIXIE = ("trixie",)
_DEBIAN = ("bookworm", "trixie")
_FOUR = (*_DEBIAN, "ubuntu2404", "el9")
# Of `dnf_host` in molecule/inventory, which test-ci limits scenarios to.
_DNF_HOST = ("el9",)

PARTS = (
    # On each change.
    Part("one_host", "test", (_scenario("one_host"),), minutes=3.5, cores=0.6, memory=1.5, suites=_TRIXIE),
    Part(
        "unit",
        "test-unit",
        ("tests/unit",),
        minutes=4.5,
        cores=1.0,
        workers=2,
        marked="not plays",
        without=_EXHAUSTIVE,
    ),
    Part(
        "checks",
        "test-unit",
        ("tests/checks",),
        minutes=0.8,
        cores=0.75,
        workers=2,
        without=(*_LINTERS, *_PACKAGE, *_RELEASE, *_OLDER_CORES, *_OUR_TESTS),
    ),
    Part("linters", "test", _LINTERS, minutes=5.0, cores=0.75),
    # In CI too. While hosts boot and wait, the parts above keep the processors busy.
    Part("site", "test-ci", (_scenario("site"),), minutes=15.3, cores=0.6, memory=2.5, suites=_DEBIAN),
    Part("package", "test-ci", _PACKAGE, minutes=10.0, cores=0.4),
    Part(
        "plays",
        "test-ci",
        _unit(*_OF_SITE),
        minutes=2.3,
        cores=0.5,
        workers=2,
        marked="plays",
        without=_EXHAUSTIVE,
    ),
    Part(
        "containers",
        "test-ci",
        (_scenario("containers"),),
        minutes=12.0,
        cores=0.7,
        memory=2.0,
        ci_hosts="dnf_host",
        suites=_FOUR,
    ),
    Part(
        "other_plays",
        "test-ci",
        _unit(*_OF_OTHERS),
        minutes=19.5,
        cores=0.7,
        workers=2,
        marked="plays",
        without=(_FLEET, *_REMEDIES, _ACCEPT, *_EXHAUSTIVE),
    ),
    Part("exhaustive", "test-ci", ("tests/torture", *_EXHAUSTIVE), minutes=2.0, cores=0.9, workers=2),
    Part("live_archive", "test-ci", ("tests/live_archive",), minutes=1.2, cores=0.8),
    # Skipped without the programs of a control plane, see tests/kubernetes/control_plane.py.
    Part(
        "kubernetes",
        "test-ci",
        ("tests/kubernetes",),
        minutes=15.2,
        cores=0.45,
        memory=1.5,
        without=(*_KUBERNETES_LONG, _KUBELET),
    ),
    Part("hostile", "test-ci", _unit("hostile"), minutes=3.4, workers=2, marked="plays", without=(_KILLS,)),
    Part("mistakes", "test-ci", _unit("mistakes"), minutes=0.7, marked="plays"),
    Part("docker", "test-ci", _system("docker"), minutes=5.5, cores=0.6, memory=2.0, suites=_DEBIAN),
    Part(
        "demo",
        "test-ci",
        _system("demo", "documented_scenario", "gpu_state", "preloaded_python", "removal"),
        minutes=12.7,
        cores=0.5,
        memory=2.5,
        suites=_DEBIAN,
    ),
    Part(
        "nvidia_driver",
        "test-ci",
        (_scenario("nvidia_driver"),),
        minutes=17.9,
        cores=0.5,
        memory=2.0,
        ci_hosts="dnf_host",
        suites=_FOUR,
    ),
    Part(
        "gpu_simulator",
        "test-ci",
        (_scenario("gpu_simulator"),),
        minutes=0.9,
        cores=0.6,
        memory=1.5,
        suites=_DEBIAN,
    ),
    Part("platforms", "test-ci", ("tests/platforms",), minutes=1.4, cores=0.6),
    Part("release", "test-ci", _RELEASE, minutes=6.8, cores=0.6),
    Part("ops_team", "test-ci", _system("ops_team"), minutes=0.8, cores=0.6, memory=1.5, suites=_DEBIAN),
    Part("browser", "test-ci", ("tests/browser",), minutes=2.3, cores=0.6, memory=1.0, optional="Chromium"),
    # Nightly, with the parts of CI on all their hosts: together they take longer than CI may.
    Part("engines", "test-long", _system("engines"), minutes=19.2, cores=0.4, memory=2.0, suites=(*_DEBIAN, "sid")),
    Part(
        "mock_repositories",
        "test-long",
        _system("mock_repositories", "air_gapped"),
        minutes=6.5,
        cores=0.5,
        memory=2.5,
        suites=_FOUR,
    ),
    Part(
        "cuda",
        "test-long",
        (_scenario("cuda"),),
        minutes=8.8,
        cores=0.5,
        memory=2.0,
        suites=_FOUR,
    ),
    Part(
        "gpu_state",
        "test-long",
        (_scenario("gpu_state"),),
        minutes=5.3,
        cores=0.5,
        memory=1.5,
        suites=_DEBIAN,
    ),
    Part(
        "nvidia_repository",
        "test-long",
        (_scenario("nvidia_repository"),),
        minutes=4.3,
        cores=0.8,
        memory=1.5,
        suites=_FOUR,
    ),
    Part("thorough", "test-long", _THOROUGH, effort="thorough", minutes=45.0, cores=1.6, workers=2),
    Part(
        "driver_activation",
        "test-long",
        _system("nvidia_driver_activation", "nvidia_driver_faults"),
        minutes=17.0,
        cores=0.3,
        memory=2.0,
        suites=_DEBIAN,
    ),
    Part("older_cores", "test-long", _OLDER_CORES, effort="thorough", minutes=45.0, cores=0.6),
    Part(
        "site_of_older_cores", "test-long", (_SITE_OF_OLDER_CORES,), minutes=12.6, cores=0.6, memory=2.5, suites=_DEBIAN
    ),
    Part("sanity_of_tests", "test-long", _OUR_TESTS),
    Part("kubernetes_waits", "test-long", _KUBERNETES_LONG, minutes=75.0, cores=0.7, memory=1.5),
    # Skipped without a kubelet next to the programs of the control plane.
    Part("kubelet", "test-long", (_KUBELET,), minutes=5.0, cores=0.4, memory=2.0, suites=("sid",)),
    # site.yml and upgrade.yml killed at random points; as root, for a file system that is full.
    Part("kills", "test-long", (_KILLS,), effort="thorough", marked="plays"),
    Part("upgrade_fleet", "test-long", (_FLEET, *_REMEDIES), effort="thorough", minutes=60.0, marked="plays"),
    Part("accept", "test-long", (_ACCEPT,), marked="plays", optional="PyTorch"),
    Part("upgrade", "test-long", (_scenario("upgrade"),), minutes=60.0, memory=3.0, suites=("slurm", "slurm_sid")),
    Part(
        "remediate",
        "test-long",
        _system("remediate"),
        minutes=18.0,
        cores=0.6,
        memory=2.5,
        suites=("slurm", "slurm_sid"),
    ),
    Part(
        "driver_sources",
        "test-long",
        _system("nvidia_driver_sources"),
        minutes=5.4,
        memory=2.0,
        suites=("ubuntu2404", "el9"),
    ),
    Part(
        "distributions",
        "test-long",
        _system("distributions"),
        minutes=7.0,
        memory=2.0,
        suites=("ubuntu2604", "amzn2023"),
    ),
    Part("kills_of_hosts", "test-long", _system("kills"), minutes=12.0, cores=0.6, memory=2.0, suites=_TRIXIE),
    Part("dcgm", "test-long", _system("dcgm"), minutes=6.0, cores=0.6, memory=2.0, suites=("trixie", "el9")),
    Part("cuda_refusals", "test-long", _system("cuda"), minutes=4.4, memory=2.0, suites=_DEBIAN),
    Part("accept_hosts", "test-long", _system("accept"), minutes=18.8, cores=0.4, memory=2.0, suites=_TRIXIE),
    Part("real_gpu", "test-long", _system("real_gpu"), minutes=6.0, cores=0.6, memory=2.0, suites=_DEBIAN),
    Part("trays", "test-long", _system("trays"), minutes=17.0, cores=0.5, memory=3.0, suites=_TRIXIE),
    Part("pull", "test-long", _system("pull"), minutes=15.0, memory=2.0, suites=_DEBIAN),
    Part("mps", "test-long", _system("mps"), minutes=1.8, cores=0.5, memory=2.5, suites=_DEBIAN),
    # Skipped without the sources of enroot and pyxis, see the test.
    Part("enroot", "test-long", _system("enroot"), memory=1.5, suites=("slurm",)),
    Part("backend_ai_agent", "test-long", (_BACKEND_AI_AGENT,), memory=2.0, suites=_DEBIAN),
    # By hand: gigabytes of Debian's own packages.
    Part("full", "test-full", ("tests/full",), memory=4.0, without=(_BACKEND_AI_AGENT,), suites=_DEBIAN),
)

# Of the 40 minutes that `.ci/run` may take with two cores, those that parts to come may add to it: a part by one of
# these names keeps the processors busy for no longer.
RESERVED = {"hostile": 2.0, "kubernetes": 4.0, "live_archive": 1.0, "mistakes": 1.0}

# A target also runs the parts of the target that it is made of.
INCLUDED: dict[Target, tuple[Target, ...]] = {
    "test": ("test-unit", "test"),
    "test-ci": ("test-unit", "test", "test-ci"),
    "test-long": ("test-unit", "test", "test-ci", "test-long"),
}

# A part, and the one that does all of it and more: where that one runs, it is left out.
CONTAINED = {"one_host": "site"}


def for_target(part: Part, target: Target) -> Part:
    """The part as a target runs it: on all hosts of its scenario, which take longer, except in test-ci."""
    if not part.ci_hosts:
        return part
    return replace(part, suites=_DNF_HOST) if target == "test-ci" else replace(part, ci_hosts="", minutes=0.0)


def parts_of(target: Target) -> tuple[Part, ...]:
    """The parts that `make TARGET` runs, in the order of the table."""
    included = INCLUDED.get(target, (target,))
    chosen = [part for part in PARTS if part.target in included]
    names = {part.name for part in chosen}
    return tuple(for_target(part, target) for part in chosen if CONTAINED.get(part.name) not in names)
