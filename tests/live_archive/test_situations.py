# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as admins leave them, on Debian's archive: releases x packages x disturbances x requests, by the role's stages.

What is planned is what apt does, with the site's own pins and holds; what is kept is a whole driver; what is refused is
refused for the reason that the situation has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._host.packages import DPKG_FORMAT, parse_dpkg, unfinished
from ansible_collections.gpu.fleet.plugins.module_utils._packages import apt
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackageError, PackagePlan, PackageRequest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Ask, Reading
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.host import Host as DockerHost
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.host import parse_offered
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.plan import plan as plan_docker
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.request import Request as DockerRequest

from tests.conftest import COUNT, EFFORT
from tests.live_archive.archive import SUITES, ArchiveRoot
from tests.live_archive.test_driver_matrix import MODULES, key, source, upstream
from tests.unit.driver.plans import DEBIAN, NO_DRIVER, listed, stage
from tests.unit.real_indexes.apt_root import AptRoot, field_of

DOCKER = RoleData.read().defaults(["docker"])
MIXES = {
    "trixie and sid": (*SUITES["trixie"], "sid"),
    "bookworm and trixie": (*SUITES["bookworm"], "trixie"),
}
"""Two releases in the sources of one host."""
RELEASES = {**SUITES, **MIXES}
_OWN = re.compile("nvidia-graphics-drivers|nvidia-open-gpu-kernel-modules")
_ANY = "Package: src:nvidia-graphics-drivers src:nvidia-open-gpu-kernel-modules\n"
LIBRARIES = ("libcuda1", "libnvidia-ml1")
WHOLE = ("nvidia-smi", *LIBRARIES, "nvidia-persistenced")
# What was installed by hand, by other tools or by halves. `dpkg` is on each host.
HOSTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "CUDA's libraries": LIBRARIES,
    "CUDA of the distribution": ("nvidia-cuda-toolkit",),
    "no module": ("nvidia-smi", *LIBRARIES),
    "a module alone": ("nvidia-kernel-dkms",),
    "firmware alone": ("firmware-nvidia-gsp",),
    "the daemon alone": ("nvidia-persistenced",),
    "a driver": (*WHOLE, "nvidia-kernel-dkms"),
    "an open driver": (*WHOLE, "nvidia-open-kernel-dkms"),
    "a driver with X": ("nvidia-driver", "nvidia-smi", "libcuda1"),
    "a driver and CUDA": (*WHOLE, "nvidia-kernel-dkms", "nvidia-cuda-toolkit"),
    "a driver and kernels": (
        *(*WHOLE, "nvidia-kernel-dkms"),
        *("linux-image-amd64", "linux-headers-amd64", "linux-image-cloud-amd64", "linux-image-rt-amd64"),
    ),
    "a driver and engines": (*WHOLE, "nvidia-kernel-dkms", "docker.io", "podman"),
    "the driver of old GPUs": ("nvidia-tesla-535-driver",),
}
ENGINES: dict[str, tuple[str, ...]] = {
    "no engine": (),
    "docker.io": ("docker.io",),
    "docker.io and podman": ("docker.io", "podman"),
    "podman": ("podman", "runc"),
    "containerd": ("containerd",),
    "a driver and docker.io": (*WHOLE, "nvidia-kernel-dkms", "docker.io"),
}
IS_WHOLE = frozenset(name for name, packages in HOSTS.items() if {"nvidia-smi", "libcuda1"} < {*packages}) - {
    "no module"
}


@dataclass(frozen=True)
class Disturbance:
    """What is odd: dpkg's states, holds, a site's records of preferences, packages of another architecture.

    `states` and `holds` are by expressions for names, of what is installed. In `pins` NEWEST and OLDEST are versions of
    the driver that the archive has. `only` are the hosts that it makes sense on, none for all.
    """

    states: Mapping[str, str] = field(default_factory=dict)
    holds: str = ""
    pins: str = ""
    has_i386: bool = False
    only: frozenset[str] = frozenset()


DISTURBANCES: dict[str, Disturbance] = {
    "": Disturbance(),
    "DKMS half configured": Disturbance({"nvidia-(?:open-)?kernel-dkms": "half-configured"}, only=IS_WHOLE),
    "libraries unpacked": Disturbance({"libcuda1": "unpacked"}, only=IS_WHOLE | {"CUDA's libraries"}),
    "half installed": Disturbance({"nvidia-smi": "half-installed"}, only=IS_WHOLE | {"no module"}),
    "another package half configured": Disturbance(
        {"libc6": "half-configured"}, only=frozenset({"nothing", "a driver"})
    ),
    "purged by halves": Disturbance({"nvidia-(?:smi|persistenced)": "config-files"}, only=IS_WHOLE),
    "libraries on hold": Disturbance(holds="libcuda1|libnvidia-ml1", only=IS_WHOLE | {"CUDA's libraries"}),
    "all on hold": Disturbance(holds=".*nvidia.*|libcuda1", only=IS_WHOLE),
    "kernel on hold": Disturbance(holds="linux-.*", only=frozenset({"a driver and kernels"})),
    "engine on hold": Disturbance(holds="docker.io", only=frozenset({"a driver and engines"})),
    "newest forbidden": Disturbance(pins=f"{_ANY}Pin: version NEWEST\nPin-Priority: -1\n"),
    "oldest at 1001": Disturbance(pins=f"{_ANY}Pin: version OLDEST\nPin-Priority: 1001\n"),
    "newest at 1001": Disturbance(pins=f"{_ANY}Pin: version NEWEST\nPin-Priority: 1001\n"),
    "everything forbidden": Disturbance(pins=f"{_ANY}Pin: release o=Debian\nPin-Priority: -1\n"),
    "libraries forbidden": Disturbance(pins="Package: libcuda1\nPin: version *\nPin-Priority: -1\n"),
    "backports at 990": Disturbance(pins="Package: *\nPin: release n=*-backports\nPin-Priority: 990\n"),
    "sid at 100": Disturbance(pins="Package: *\nPin: release n=sid\nPin-Priority: 100\n"),
    "sid forbidden": Disturbance(pins="Package: *\nPin: release n=sid\nPin-Priority: -1\n"),
    "libraries of 32 bits": Disturbance(has_i386=True, only=IS_WHOLE),
    "libraries of 32 bits on hold": Disturbance(has_i386=True, holds="libcuda1:i386", only=IS_WHOLE),
}
# The role's variables.
REQUESTS: dict[str, dict[str, Any]] = {
    "newest": {},
    "its branch": {"nvidia_driver_version": "BRANCH"},
    "exactly the oldest": {"nvidia_driver_version": "OLDEST"},
    "open": {"nvidia_driver_kernel_modules": "open"},
    "with X": {"nvidia_driver_headless": False},
    "may replace": {"nvidia_driver_replace_unmanaged": True},
    "may replace, exactly the oldest": {"nvidia_driver_replace_unmanaged": True, "nvidia_driver_version": "OLDEST"},
    "upgrade": {"nvidia_driver_upgrade": True, "nvidia_driver_replace_unmanaged": True},
    "absent": {"nvidia_driver_state": "absent", "nvidia_driver_replace_unmanaged": True},
}


@dataclass(frozen=True)
class Situation:
    """Names of a release, a host, a disturbance and a request."""

    suites: str
    host: str
    disturbance: str
    request: str

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.suites, self.host, self.disturbance, self.request)))


def situations() -> Iterator[Situation]:
    """Each disturbance on each of its hosts and releases, with requests in turn; each request undisturbed."""
    number = 0
    for suites, sources in RELEASES.items():
        for host in HOSTS:
            for name, disturbance in DISTURBANCES.items():
                is_of_others = ("sid" in name and "sid" not in sources) or (
                    name.startswith("backports") and "backports" not in suites
                )
                if is_of_others or (disturbance.only and host not in disturbance.only):
                    continue
                # Numbers without a common divisor, so that each meets each.
                number += 7
                names = list(REQUESTS)
                yield Situation(suites, host, name, names[number % len(names)])


# Tried each time, since they once came out otherwise.
FOUND = frozenset(
    (
        "trixie and backports, firmware alone, backports at 990, newest",
        "trixie and backports, CUDA of the distribution, newest at 1001, may replace",
        "sid, a driver and kernels, all on hold, absent",
        "trixie, an open driver, libraries unpacked, absent",
    )
)


class Archive:
    """The archive's roots with each host's packages, made on first use."""

    def __init__(self, directory: Path, lists: tuple[Path, str]) -> None:
        self._directory = directory
        self.lists, self.origin = lists
        self.root = cache(self._root)
        self.versions = cache(self._versions)
        self.installed = cache(self._installed)

    def _root(self, suites: str) -> ArchiveRoot:
        return ArchiveRoot(self._directory / suites.replace(" ", "-"), RELEASES[suites], self.lists)

    def _versions(self, suites: str) -> tuple[str, ...]:
        """The versions of the driver in the archive, newest first."""
        text = self.root(suites).run(["apt-cache", "policy", "nvidia-smi"]).text
        found = dict.fromkeys(map(upstream, re.findall(r"^ {5}(\S+) -?\d+$", text, re.MULTILINE)))
        return tuple(sorted(found, key=lambda version: tuple(map(int, version.split("."))), reverse=True))

    def _installed(self, suites: str, host: str) -> dict[str, str] | None:
        """What apt installs for a host; None where the archive has no such packages."""
        root = self.root(suites)
        done = root.run(
            ["apt-get", "--simulate", "--no-install-recommends", "install", "dpkg", *{**HOSTS, **ENGINES}[host]]
        )
        return apt.parse_simulation(done.text)[0] if done.rc == 0 else None

    def prepare(self, suites: str, host: str, disturbance: Disturbance, directory: Path) -> AptRoot | None:
        """A host with its disturbance; None where there is none."""
        installed = self.installed(suites, host)
        if installed is None:
            return None
        root = self.root(suites).host(directory)
        root.installed = dict(installed)
        stanzas = [root.stanza(name, version) for name, version in installed.items()]
        # With all that they depend on; the archive of their architecture is not among the sources.
        i386 = [
            re.sub("^Architecture: .*$", "Architecture: i386", one, flags=re.MULTILINE)
            for one in stanzas
            if disturbance.has_i386 and field_of(one, "Multi-Arch") == "same"
        ]
        (root.dpkg / "status").write_text(
            "".join(_entry(one, disturbance) for one in (*stanzas, *i386)), encoding="utf-8"
        )
        root.config.write_text(
            root.config.read_text().replace(
                'APT::Architectures { "amd64"; }', 'APT::Architectures { "amd64"; "i386"; }'
            )
        )
        if disturbance.pins:
            versions = self.versions(suites)
            pins = disturbance.pins.replace("NEWEST", f"{versions[0]}-*").replace("OLDEST", f"{versions[-1]}-*")
            # Of two records for a version the first counts: before the role's file, or behind it.
            (root.preferences / ("00-site" if len(host) % 2 else "site")).write_text(pins)
        return root


def _entry(stanza: str, disturbance: Disturbance) -> str:
    """A stanza of dpkg's status. Of what is not there any more, apt knows the configuration files."""
    name = field_of(stanza, "Package")
    is_i386 = field_of(stanza, "Architecture") == "i386"
    full = f"{name}:i386" if is_i386 else name
    state = "installed"
    if not is_i386:
        state = next((one for names, one in disturbance.states.items() if re.fullmatch(names, name)), state)
    desired = "hold" if disturbance.holds and re.fullmatch(disturbance.holds, full) else "install"
    flag = "reinstreq" if state == "half-installed" else "ok"
    desired = "deinstall" if state == "config-files" else desired
    more = (
        f"\nConfig-Version: {field_of(stanza, 'Version')}"
        if state in ("half-installed", "half-configured", "unpacked")
        else ""
    )
    text = re.sub(
        "^(Package: .*)$", rf"\1\nStatus: {desired} {flag} {state}{more}", stanza, count=1, flags=re.MULTILINE
    )
    return f"{text}\nMaintainer: -\nDescription: -\n\n"


def facts_of(root: AptRoot, situation: Situation) -> dict[str, Any]:
    """What the modules of facts find on the host: packages by dpkg-query, and the driver that its packages make."""
    text = root.run(["dpkg-query", "--show", f"--showformat={DPKG_FORMAT}"]).text
    packages, open_ = parse_dpkg(text), unfinished(text)

    def version_of(*names: str) -> str | None:
        found = (upstream(packages[name][0]["version"]) for name in names if name in packages)
        return next((one for one in found if one), None)

    module = version_of("nvidia-kernel-dkms", "nvidia-open-kernel-dkms", "nvidia-tesla-535-kernel-dkms")
    module = None if {*open_} & {"nvidia-kernel-dkms", "nvidia-open-kernel-dkms"} else module
    library = version_of("libcuda1", "nvidia-tesla-535-driver-libs", "libnvidia-tesla-535-cuda1")
    smi = version_of("nvidia-smi", "nvidia-tesla-535-smi")
    kind = ("open" if "nvidia-open-kernel-dkms" in packages else "proprietary") if module else None
    works = bool(module) and module == library == smi
    reason = None if works else "no_nvidia_smi" if smi is None else "not_loaded" if not module else "version_mismatch"
    driver = {"library_version": library, "module_version": module, "module_kind": kind, "loaded": bool(module)}
    driver |= {"loaded_version": module, "loaded_kind": kind}
    release = "12" if situation.suites.startswith("bookworm") else "13"
    return {
        **DEBIAN,
        **{"distribution_version": release, "distribution_major_version": release},
        "packages": packages,
        "gpu_fleet_unfinished_packages": open_,
        "gpu_fleet_managed": {},
        "nvidia_smi": {"available": works, "reason": reason, "pci_gpus": [{"device_id": "0x2335"}] * 2},
        "cuda": {"driver": {**NO_DRIVER, **driver}, "services": {}},
    }


def variables_of(situation: Situation, versions: Sequence[str]) -> dict[str, Any]:
    words = {"BRANCH": versions[0].partition(".")[0], "OLDEST": versions[-1]}
    given = {name: words.get(str(value), value) for name, value in REQUESTS[situation.request].items()}
    return {"nvidia_driver_source": "distribution", "nvidia_driver_rollback": "ignore", **given}


@dataclass(frozen=True)
class Decided:
    """What the role decides: `outcome` is kept, refused or planned; `why` the messages of a refusal."""

    outcome: str
    why: str = ""
    selection: Mapping[str, Any] = field(default_factory=dict)
    found: PackagePlan = field(default_factory=PackagePlan)


def result_of(root: AptRoot, reading: Reading | list[Reading]) -> dict[str, Any]:
    """The result of a command that a stage asks for, by the programs of the archive's root."""
    assert isinstance(reading, tuple) and reading[0] == "command"
    _env, _language, *argv = reading[1]["argv"]
    return {"stdout": root.run(argv).text}


def decide(root: AptRoot, facts: dict[str, Any], variables: dict[str, Any]) -> Decided:
    """The stages of a run, in its order, until the packages would change."""
    sources = root.run(["dpkg-query", "--show", "--showformat", "${Package}\t${source:Package}\n"]).text.splitlines()
    read: dict[str, Any] = {"sources": {"stdout_lines": sources}, "in_use": {"users": []}, "containers": {}}
    planned = stage("plan", facts, {"check_mode": True, "reads": True, **read}, **variables)
    if planned["refusals"]:
        return Decided("refused", "; ".join(planned["refusals"]))
    if "remove" in planned["steps"]:
        removal = planned["removal"]
        asked_for = {"install": [], "removals": removal["packages"], "releasable": removal["releasable"]}
        return transaction(root, asked_for, repair=True)
    if "install" not in planned["steps"]:
        return Decided("kept", "; ".join(planned["notes"]))
    known: dict[str, Any] = {}
    selection = listed(facts, {"sources": sources}, known, **variables)
    while isinstance(selection, Ask):
        known |= {name: result_of(root, one) for name, one in selection.readings.items()}
        selection = listed(facts, {"sources": sources}, known, **variables)
    if selection["refusals"]:
        return Decided("refused", "; ".join(selection["refusals"]), selection)
    if selection["is_kept"]:
        return Decided("kept", "", selection)
    return transaction(root, selection)


def transaction(root: AptRoot, selection: Mapping[str, Any], repair: bool = False) -> Decided:
    """What package_transaction plans, with the site's preferences and the role's own."""
    directory = root.dpkg / "planned.d"
    directory.mkdir()
    for path in root.preferences.iterdir():
        (directory / path.name).write_text(path.read_text())
    if selection.get("preferences"):
        (directory / "gpu-fleet-nvidia-driver").write_text(selection["preferences"])
    install, remove = tuple(selection["install"]), tuple(selection["removals"])
    holds = tuple(selection["releasable"])
    request = PackageRequest(install, remove, release_holds=holds, preferences=str(directory), repair=repair)
    try:
        return Decided("planned", "", selection, apt.plan(request, root.run))
    except PackageError as error:
        return Decided("refused", str(error), selection)


def judge(situation: Situation, archive: Archive, root: AptRoot) -> tuple[str, str]:
    """The outcome, and what is wrong with it: empty for nothing."""
    facts = facts_of(root, situation)
    versions = archive.versions(situation.suites)
    decided = decide(root, facts, variables_of(situation, versions))
    objection = {"kept": against_keeping, "refused": against_refusal, "planned": against_plan}[decided.outcome]
    return decided.outcome, objection(situation, root, facts, decided)


def against_keeping(situation: Situation, _root: AptRoot, facts: dict[str, Any], decided: Decided) -> str:
    if not facts["nvidia_smi"]["available"]:
        return "kept what is no driver"
    names = [one for one in facts["gpu_fleet_unfinished_packages"] if re.match("nvidia|libcuda|libnvidia", one)]
    if [one for one in names if one not in decided.why]:
        return f"does not name {names}"
    return ""


# What a refusal may name, by what is true of the situation.
_REASONS: tuple[tuple[str, Callable[[Situation, dict[str, Any]], bool]], ...] = (
    ("is on hold, and not by this role", lambda one, _facts: bool(DISTURBANCES[one.disturbance].holds)),
    ("half installed", lambda one, _facts: bool(DISTURBANCES[one.disturbance].states)),
    (
        "is broken: it lacks",
        lambda _one, facts: not facts["nvidia_smi"]["available"] and bool(facts["cuda"]["driver"]["module_version"]),
    ),
    ("and does not fit: version", lambda one, _facts: one.request in ("exactly the oldest", "open", "its branch")),
)


def against_refusal(situation: Situation, root: AptRoot, facts: dict[str, Any], decided: Decided) -> str:
    named, stays, _rest = decided.why.partition(" would have to be removed, which was not requested")
    if stays:
        # apt goes no other way, and none of them is of what the role may remove.
        may_go = {*named.split(", ")} & {*decided.selection["removals"]}
        return f"refused to remove what it may: {may_go}" if may_go else ""
    for text, is_true in _REASONS:
        if re.search(text, decided.why):
            return "" if is_true(situation, facts) else f"refused without its reason: {decided.why}"
    found = possible(situation, root, facts, decided.selection)
    return f"refused, and {found} is possible: {decided.why}" if found else ""


def possible(situation: Situation, root: AptRoot, facts: dict[str, Any], selection: Mapping[str, Any]) -> str:
    """A driver that would do, and that apt installs with what the site has set, empty for none: each one is tried."""
    rows = re.findall(
        r"^ (?:\*\*\*|   ) (\S+) (-?\d+)", root.run(["apt-cache", "policy", "nvidia-smi"]).text, re.MULTILINE
    )
    # Of repositories that apt prefers less, the request has to name a version.
    highest = max((int(priority) for _version, priority in rows), default=-1)
    is_exact = situation.request.endswith("exactly the oldest")
    offered = [one for one, priority in rows if int(priority) >= (0 if is_exact else max(0, highest))]
    candidate = re.findall(r"Candidate: (\d\S*)", root.run(["apt-cache", "policy", "nvidia-smi"]).text)
    there = [str(one[0]["version"]) for name, one in facts["packages"].items() if name == "nvidia-smi"]
    floor = max([*candidate, *there], key=key, default="")
    asked = str(selection.get("requested") or "newest")
    kinds = MODULES if situation.request != "open" else {"open": MODULES["open"]}
    for revision in offered:
        if any(_priority(root, name, revision) < 0 for name in LIBRARIES):
            continue
        is_older = "." not in asked and floor and key(revision) < key(floor)
        if is_older or not (asked == "newest" or f"{upstream(revision)}.".startswith(f"{asked}.")):
            continue
        for kind, module in kinds.items():
            directory = root.dpkg / f"possible {revision} {kind}"
            directory.mkdir()
            for path in root.preferences.iterdir():
                (directory / path.name).write_text(path.read_text())
            records = {"nvidia-graphics-drivers": revision, "nvidia-open-gpu-kernel-modules": f"{upstream(revision)}-*"}
            pins_ = (
                f"Package: src:{name}\nPin: version {one}\nPin-Priority: 1001\n\n" for name, one in records.items()
            )
            (directory / "zz").write_text("".join(pins_))
            names = [*(f"{name}={revision}" for name in (*LIBRARIES, "nvidia-smi")), f"{module}={upstream(revision)}-*"]
            more = () if situation.request != "with X" else (f"nvidia-driver={revision}",)
            options = ("-o", f"Dir::Etc::PreferencesParts={directory}", "--no-install-recommends", "--allow-downgrades")
            done = root.run(["apt-get", "--simulate", *options, "install", *names, *more])
            _installed, removed = apt.parse_simulation(done.text)
            if done.rc == 0 and not {*removed} - {*selection["removals"]}:
                return f"{revision} with {kind} modules"
    return ""


def against_plan(situation: Situation, root: AptRoot, facts: dict[str, Any], decided: Decided) -> str:
    """apt does the same, with what the site has set, and what is there after it is one driver."""
    found, selection = decided.found, decided.selection
    argv = ["apt-get", "--simulate", "--no-install-recommends", "--allow-downgrades", "install", *selection["install"]]
    argv += [*found.along, *(f"{name}-" for name in found.remove)]
    done = root.run([*argv[:1], "-o", f"Dir::Etc::PreferencesParts={root.dpkg / 'planned.d'}", *argv[1:]])
    if done.rc != 0:
        return f"apt does not do it: {done.error_text}"
    installed, removed = apt.parse_simulation(done.text)
    if (installed, {*removed}) != (dict(found.install), {*found.remove}):
        return f"planned {found.install}, {found.remove}, apt does {installed}, {removed}"
    unnamed = {*removed} - {*selection["removals"]}
    if unnamed:
        return f"removes {unnamed} without naming it"
    held = root.run(["apt-mark", "showhold"]).text.split()
    if {*held} & {*installed, *removed}:
        return f"changes packages on hold: {held}"
    forbidden = [name for name, one in installed.items() if _priority(root, name, one) < 0]
    if forbidden:
        return f"installs what the site forbids: {forbidden}"
    if situation.request == "absent":
        return ""
    names = {name: str(rows[0]["version"]) for name, rows in facts["packages"].items()}
    after = {name: one for name, one in {**names, **installed}.items() if name not in removed}
    of_driver = {
        name: one for name, one in after.items() if ":" not in name and _OWN.fullmatch(source(root.stanza(name, one)))
    }
    if {upstream(one) for one in of_driver.values()} != {selection["version"]}:
        return f"not one driver: {of_driver}"
    needed = {MODULES[selection["kernel_modules"]], "nvidia-smi", "libcuda1"}
    return f"lacks {needed - {*of_driver}}" if needed - {*of_driver} else ""


def _priority(root: AptRoot, name: str, version: str) -> int:
    """apt's priority of a version on the host, before the role has pins of its own."""
    text = root.run(["apt-cache", "policy", name]).text
    found = re.search(rf"^ (?:\*\*\*|   ) {re.escape(version)} (-?\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, lists: tuple[Path, str]) -> Archive:
    return Archive(tmp_path_factory.mktemp("archive"), lists)


@pytest.mark.parametrize("suites", RELEASES)
def test_situations_come_out_as_apt_would_have_it(
    suites: str, archive: Archive, tmp_path: Path, record_property: Callable[[str, dict[str, int]], None]
) -> None:
    of_suites = [one for one in situations() if one.suites == suites]
    tried = {*of_suites[:: 24 if EFFORT == "quick" else 1]}
    every = [one for one in of_suites if one in tried or str(one) in FOUND]
    count = {"situations": 0, "planned": 0, "kept": 0, "refused": 0, f"of the {archive.origin}": 0}
    wrong = []
    for number, situation in enumerate(every):
        directory = tmp_path / str(number)
        directory.mkdir()
        root = archive.prepare(suites, situation.host, DISTURBANCES[situation.disturbance], directory)
        if root is None:
            continue
        outcome, objection = judge(situation, archive, root)
        wrong += [f"{situation}: {objection}"] if objection else []
        for name in ("situations", outcome, f"of the {archive.origin}"):
            count[name] += 1
    record_property(f"{COUNT}situations on Debian's archive", count)
    assert wrong == [], "\n".join(wrong)
    assert count["situations"] >= len(every) // 2


def test_there_are_hundreds_of_them() -> None:
    every = list(situations())
    assert len({*every}) == len(every) >= 400
    assert {one.request for one in every} == {*REQUESTS}
    assert {one.disturbance for one in every} == {*DISTURBANCES}
    assert {*map(str, every)} >= FOUND


_OF_ENGINES: dict[str, Disturbance] = {
    "": Disturbance(),
    "on hold": Disturbance(holds="docker.io|containerd|runc"),
    "half configured": Disturbance({"docker.io|containerd": "half-configured"}),
    "forbidden": Disturbance(pins="Package: docker.io containerd\nPin: version *\nPin-Priority: -1\n"),
    "backports at 990": Disturbance(pins="Package: *\nPin: release n=*-backports\nPin-Priority: 990\n"),
    "sid at 100": Disturbance(pins="Package: *\nPin: release n=sid\nPin-Priority: 100\n"),
}


@pytest.mark.parametrize("suites", RELEASES)
def test_engines_come_out_as_apt_would_have_it(suites: str, archive: Archive, tmp_path: Path) -> None:
    """Docker of the distribution next to what is there, and the replacement of podman's and Debian's own parts."""
    wrong = []
    every = list(product(ENGINES, _OF_ENGINES.items(), (False, True)))
    for host, (name, disturbance), replaces in every[:: 13 if EFFORT == "quick" else 1]:
        directory = tmp_path / f"{host} {name} {replaces}"
        directory.mkdir()
        root = archive.prepare(suites, host, disturbance, directory)
        assert root is not None
        objection = against_engine(suites, host, disturbance, replaces, root)
        wrong += [f"{host}, {name}, {'replaces' if replaces else 'adds'}: {objection}"] if objection else []
    assert wrong == [], "\n".join(wrong)


def against_engine(suites: str, host: str, disturbance: Disturbance, replaces: bool, root: AptRoot) -> str:
    text = root.run(["dpkg-query", "--show", f"--showformat={DPKG_FORMAT}"]).text
    release = "12" if suites.startswith("bookworm") else "13"
    system = {**DEBIAN, "distribution_version": release, "distribution_major_version": release}
    offered = root.run(["apt-cache", "madison", "docker-buildx", "docker-compose-v2", "docker-compose"]).text
    known = DockerHost.of({**system, "packages": parse_dpkg(text), "gpu_fleet_managed": {}})
    variables = {
        **DOCKER,
        "docker_source": "distribution",
        **({"docker_replace": ["podman"]} if replaces else {}),
    }
    found = plan_docker(
        DockerRequest.read(variables), replace(known, offered=parse_offered(offered) if offered else None)
    ).as_dict()
    if found["refusals"]:
        return f"refused: {found['refusals']}"
    request = PackageRequest(install=tuple(found["install"]), remove=tuple(found["replace"]))
    try:
        planned = apt.plan(request, root.run)
    except PackageError as error:
        truths = (
            ("is on hold, and not by this role", disturbance.holds and host != "no engine"),
            ("half installed", disturbance.states and host != "no engine"),
            ("has no installation candidate", "-1" in disturbance.pins),
        )
        return "" if any(word in str(error) and is_true for word, is_true in truths) else f"refused: {error}"
    more = [*planned.along, *(f"{name}-" for name in planned.remove)]
    argv = [
        "apt-get",
        "--simulate",
        "--no-install-recommends",
        "--allow-downgrades",
        "install",
        *found["install"],
        *more,
    ]
    done = root.run(argv)
    if done.rc != 0 or apt.parse_simulation(done.text) != (dict(planned.install), dict(planned.remove)):
        return f"planned {planned.install}, {planned.remove}; apt: {done.text} {done.error_text}"
    unnamed = {*planned.remove} - {*found["replace"]}
    return f"removes {unnamed} without naming it" if unnamed else ""
