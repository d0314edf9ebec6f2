# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mock driver packages are as the real ones: what differs is in simplifications.yml, with the reason.

Ubuntu's are compared with its index, others with the facts of reality.yml: packages, units, configuration files, DKMS,
module streams and directories of the repository.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common import services
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.distributions import PLATFORMS

from testbed.mock_repositories import deb
from testbed.mock_repositories.description import File, Package, Place, read_places
from tests.conftest import COUNT
from tests.unit.real_indexes.apt_root import AptRoot, field_of, stanzas_of

HERE = Path(__file__).resolve().parent
REALITY = yaml.safe_load((HERE / "reality.yml").read_text(encoding="utf-8"))
SIMPLIFICATIONS: list[dict[str, str]] = yaml.safe_load((HERE / "simplifications.yml").read_text(encoding="utf-8"))
# The machine's kernel, for which the mocks are made, is the index's newest.
KERNEL = "6.8.0-151-generic"
FIELDS = ("depends", "conflicts", "provides", "replaces", "breaks")
# Headers, images and tools that come from elsewhere, but are served with the driver.
_OF_DRIVER = re.compile(
    r"(?!linux-(headers|image)-|nvidia-driver-local).*(nvidia|nscq|cuda-drivers|ubuntu-drivers|nvlsm|libnvsdm|datacenter-gpu).*"
)
_OF_SYSTEM = "packages of the rest of the system"


@dataclass(frozen=True)
class Contract:
    """What is really there and what the mock has, each as a set of lines."""

    subject: str
    real: frozenset[str]
    mock: frozenset[str]

    @property
    def differences(self) -> list[str]:
        """One line for each difference, which simplifications.yml matches."""
        lacks = [f"{self.subject}: lacks {line}" for line in sorted(self.real - self.mock)]
        return lacks + [f"{self.subject}: has {line}" for line in sorted(self.mock - self.real)]


def contract(subject: str, real: Iterable[str], mock: Iterable[str]) -> Contract:
    return Contract(subject, frozenset(real), frozenset(mock))


@cache
def places() -> dict[str, Place]:
    """The repositories of drivers by vendor and place, for x86_64; local packages have the same content."""
    found = {place.id.removesuffix("/x86_64"): place for place in read_places() if not place.id.endswith("/sbsa")}
    vendors = ("cuda/", "ubuntu/")
    return {
        name: one for name, one in found.items() if name.startswith(vendors) and "local" not in name and one.packages
    }


@cache
def index() -> dict[str, dict[str, str]]:
    """Ubuntu's packages by name: the newest of each, which stands last."""
    entries = [dict(line.partition(": ")[::2] for line in stanza.splitlines()) for stanza in stanzas_of("noble")]
    entries.sort(key=lambda entry: entry["Pocket"] != "release")
    return {entry["Package"]: entry for entry in entries}


def matching(facts: Mapping[str, Any], key: str = "places") -> Iterator[tuple[str, Place]]:
    """The places that a fact is about."""
    patterns = facts[key]
    return ((name, place) for name, place in places().items() if any(fnmatchcase(name, word) for word in patterns))


def packages_of(place: Place, pattern: str = "*") -> dict[tuple[str, str], Package]:
    """Packages of a driver by name and version."""
    return {
        (package.name, package.version): package
        for package in place.packages
        if _OF_DRIVER.fullmatch(package.name) and fnmatchcase(package.name, pattern)
    }


def relations(text: str | Iterable[str]) -> frozenset[str]:
    """Relations, one a line; those to packages that are not NVIDIA's are one line."""
    parts = text.split(",") if isinstance(text, str) else text
    lines = {re.sub(r"\s+", " ", part.strip()) for part in parts}
    theirs = {
        line for line in lines if line and not re.search(r"nvidia|nscq|dkms|libcuda|opencl-icd|linux-|jockey", line)
    }
    return frozenset((lines - theirs - {""}) | ({_OF_SYSTEM} if theirs else set()))


def contracts_of_ubuntu() -> Iterator[Contract]:
    """Each mock package of Ubuntu's archive and its PPA: existence, version, component and relations."""
    for name, place in matching({"places": ["ubuntu/*"]}):
        for package in packages_of(place).values():
            real = index().get(package.name.replace(platform.release(), KERNEL))
            subject = f"{name} {package.name.replace(platform.release(), KERNEL)}"
            yield contract(f"{name} names", [package.name] if real else [], [package.name])
            if real is None:
                continue
            yield contract(f"{subject} version", [real["Version"]], [package.version])
            yield contract(f"{subject} component", [real["Component"]], [place.component])
            for field in FIELDS:
                mock = (line.replace(platform.release(), KERNEL) for line in package.relations.get(field, ()))
                yield contract(f"{subject} {field}", relations(real.get(field.capitalize(), "")), relations(mock))


def contracts_of_packages() -> Iterator[Contract]:
    """Each mock package of NVIDIA's repository whose name is a fact, and its relations where they are."""
    for name, place in matching({"places": ["cuda/*"]}):
        facts: dict[str, Any] = {}
        for part in REALITY["packages"]:
            facts.update(part["packages"] if any(fnmatchcase(name, word) for word in part["places"]) else {})
        mocks = packages_of(place)
        yield contract(f"{name} names", facts, {_general(package) for package in mocks.values()})
        for package in mocks.values():
            known = facts.get(_general(package), {})
            for field in FIELDS:
                subject = f"{name} {package.name} {package.upstream} {field}"
                mock = package.relations.get(field, ())
                if field in known:
                    yield contract(subject, (_filled(line, package) for line in known[field]), mock)
                elif mock:
                    yield contract(subject, [], (f"{line}, which no fact confirms" for line in mock))


def _general(package: Package) -> str:
    """The name of a package, in which a precompiled module has driver and kernel, the machine's or RHEL's."""
    kernel = re.sub(rf"(?<=-){re.escape(platform.release())}|(?<=-)\d+\.\d+\.\d+-[\d.]+$", "@KERNEL@", package.name)
    return kernel.replace(package.upstream, "@UPSTREAM@") if kernel != package.name else package.name


def _filled(text: str, package: Package) -> str:
    values = {"VERSION": package.version, "UPSTREAM": package.upstream, "KERNEL": platform.release()}
    values |= {"EPOCH_VERSION": package.version.rpartition("-")[0]}
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)


def contracts_of_units() -> Iterator[Contract]:
    """Each unit: its directory, and each line of the sections that matter."""
    for facts in REALITY["units"]:
        for name, place in matching(facts):
            # Transitional packages have no files.
            found = {key: one for key, one in packages_of(place, facts["package"]).items() if one.files}
            yield contract(f"{name} {facts['package']}", ["a package"], ["a package"] if found else [])
            for package in found.values():
                subject = f"{name} {package.name} {package.upstream}"
                paths = [path for path in package.files if path.endswith(".service")]
                yield contract(f"{subject} unit", [facts["path"]], paths)
                for path in paths:
                    mock = lines_of_unit(package.files[path].value)
                    yield contract(f"{subject} {Path(path).name}", lines_of_unit(facts["text"]), mock)


def lines_of_unit(text: str) -> Iterator[str]:
    """A line for each directive with its section; each flag of ExecStart is one of its own."""
    section = ""
    for line in filter(None, map(str.strip, re.sub(r"\s*\\\n\s*", " ", text).splitlines())):
        if line.startswith("["):
            section = line
        elif line.startswith("ExecStart="):
            program, *flags = re.split(r" (?=-)", line)
            yield f"{section} {program}"
            yield from (f"{section} ExecStart {flag}" for flag in flags)
        elif not line.startswith("Description="):
            yield f"{section} {line}"


def contracts_of_configuration() -> Iterator[Contract]:
    """Configuration files of packages, also those outside of /etc."""
    facts = REALITY["configuration"]
    for name, place in matching({"places": ["*"]}):
        for package in place.packages:
            about = [
                one["paths"]
                for one in facts
                if fnmatchcase(package.name, one["package"]) and any(fnmatchcase(name, word) for word in one["places"])
            ]
            mock = {path for path, file in package.files.items() if is_configuration(path, file)}
            # Transitional packages have no files.
            if package.files and (about or (mock and _OF_DRIVER.fullmatch(package.name))):
                real = {path.replace("@PLACE@", name.rpartition("/")[2]) for paths in about for path in paths}
                yield contract(f"{name} {package.name} {package.upstream} configuration", real, mock)


def is_configuration(path: str, file: File) -> bool:
    return file.kind != "link" and (file.configuration or path.startswith("/etc/"))


def contracts_of_dkms() -> Iterator[Contract]:
    """The name under which DKMS has the modules, the modules and their directory."""
    for facts in REALITY["dkms"]:
        for name, place in matching(facts):
            for pattern, word in facts["names"].items():
                for package in packages_of(place, pattern).values():
                    configurations = [file.value for path, file in package.files.items() if path.endswith("/dkms.conf")]
                    real = [f'PACKAGE_NAME="{word}"', f'DEST_MODULE_LOCATION[0]="{facts["destination"]}"']
                    real += [
                        f'BUILT_MODULE_NAME[{number}]="{module}"' for number, module in enumerate(facts["modules"])
                    ]
                    shown = ("PACKAGE_NAME", "DEST_MODULE_LOCATION", "BUILT_MODULE_NAME")
                    mock = [line for text in configurations for line in text.splitlines() if line.startswith(shown)]
                    if configurations:
                        yield contract(f"{name} {package.name} {package.upstream} dkms.conf", real, mock)


def contracts_of_streams() -> Iterator[Contract]:
    """The module streams: which there are, their profiles and kernel modules; EL 10 has none."""
    facts = REALITY["streams"]
    for name, place in matching({"places": ["cuda/rhel*", "cuda/amzn*"]}):
        drivers = packages_of(place, "nvidia-driver-cuda")
        branches = {package.upstream.split(".")[0] for package in drivers.values()}
        names = {word.replace("@BRANCH@", branch) for branch in branches for word in facts["of_a_branch"]}
        modular = {*names, *facts["of_the_newest"]} if "rhel10" not in name else set()
        if name in facts["not_precompiled"]:
            modular = {word for word in modular if any(word.endswith(end) for end in facts["kmods"])}
        mocks = {stream.stream: stream for stream in place.streams if stream.name == facts["module"]}
        yield contract(f"{name} streams", modular, mocks)
        newest = max(branches, key=int)
        for word, stream in mocks.items():
            branch = newest if word in facts["of_the_newest"] else word.partition("-")[0]
            yield contract(f"{name} {word} versions", [f"*{branch}.*"], stream.versions)
            yield contract(f"{name} {word} profiles", facts["profiles"], stream.profiles)
            kmods = [kmod for end, kmod in facts["kmods"].items() if word.endswith(end)][:1]
            real = kmods or [facts["precompiled"]]
            artifacts = [one for one in place.packages if any(fnmatchcase(one.name, name) for name in stream.packages)]
            mock = {_general(one) for one in artifacts if one.name.startswith("kmod-")}
            yield contract(f"{name} {word} kernel modules", real, mock)
            is_default = facts["default"].get(name) == word
            yield contract(f"{name} {word} default", ["default"] * is_default, ["default"] if stream.default else [])


def contracts_of_directories() -> Iterator[Contract]:
    """The directories of NVIDIA's repository for the platforms of the collection, their keys and architectures."""
    served: dict[str, set[str]] = {}
    keys = {}
    for place in read_places():
        vendor, directory, *rest = place.id.split("/")
        if vendor == "cuda" and "/compute/cuda/repos/" in place.url:
            served.setdefault(directory, set()).update(rest)
            keys[directory] = place.key_file
    assert set(REALITY["directories"]) == {row.cuda_repository for row in PLATFORMS}
    yield contract("cuda directories", REALITY["directories"], served)
    for directory, facts in REALITY["directories"].items():
        if directory in served:
            yield contract(f"cuda/{directory} key", [facts["key_file"]], [keys[directory]])
            yield contract(
                f"cuda/{directory} architectures",
                facts["architectures"],
                served[directory] - {*facts.get("unknown", ())},
            )


PARTS: dict[str, Callable[[], Iterator[Contract]]] = {
    "Ubuntu's packages": contracts_of_ubuntu,
    "NVIDIA's packages": contracts_of_packages,
    "units": contracts_of_units,
    "configuration files": contracts_of_configuration,
    "DKMS": contracts_of_dkms,
    "module streams": contracts_of_streams,
    "directories": contracts_of_directories,
}


@pytest.mark.parametrize("part", PARTS)
def test_a_mock_differs_from_reality_only_where_it_is_listed(
    part: str, record_property: Callable[[str, dict[str, int]], None]
) -> None:
    contracts = list(PARTS[part]())
    found = [line for one in contracts for line in one.differences]
    unlisted = [line for line in found if not any(fnmatchcase(line, entry["difference"]) for entry in SIMPLIFICATIONS)]
    listed = sum(any(fnmatchcase(line, entry["difference"]) for line in found) for entry in SIMPLIFICATIONS)
    record_property(
        f"{COUNT}mock repositories",
        {"contracts": len(contracts), "listed simplifications": listed, "unlisted differences": len(unlisted)},
    )
    assert len(contracts) > 2
    assert unlisted == []


@pytest.mark.parametrize("entry", SIMPLIFICATIONS, ids=lambda entry: entry["difference"])
def test_a_listed_simplification_exists(entry: dict[str, str]) -> None:
    assert set(entry) == {"difference", "reason"}
    assert entry["reason"].endswith(".")
    differences = (line for part in PARTS.values() for one in part() for line in one.differences)
    assert any(fnmatchcase(line, entry["difference"]) for line in differences), (
        "the mock is as the real one: remove the entry"
    )


DAEMON = ("nvidia-compute-utils-@", "libnvidia-cfg1-@")
REQUESTS = {
    "DKMS, open": ("libnvidia-compute-@", "nvidia-utils-@", "nvidia-dkms-@-open", *DAEMON),
    "DKMS, proprietary": ("libnvidia-compute-@", "nvidia-utils-@", "nvidia-dkms-@", *DAEMON),
    "without the daemon": ("nvidia-utils-@", "nvidia-dkms-@-open"),
    "transitional": ("nvidia-utils-535-server", "nvidia-dkms-535-server-open"),
    "Fabric Manager": ("nvidia-utils-@", "nvidia-fabricmanager-580", "libnvidia-nscq-580", "nvidia-imex-580"),
    "precompiled, open": (
        "nvidia-utils-@",
        "linux-modules-nvidia-@-open-KERNEL",
        "linux-modules-nvidia-@-open-generic",
    ),
    "precompiled, proprietary": ("nvidia-utils-@", "linux-modules-nvidia-@-KERNEL", "linux-modules-nvidia-@-generic"),
}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[AptRoot, AptRoot]:
    """The real index, and the mock archive with what it lacks of the rest of the system."""
    real = stanzas_of("noble")
    mocks = [deb.control(one).rstrip("\n") for one in packages_and_kernel(places()["ubuntu/noble"])]
    rest = [one for one in real if not _OF_DRIVER.fullmatch(field_of(one, "Package"))]
    root = tmp_path_factory.mktemp
    return AptRoot(root("real"), real), AptRoot(root("mock"), [*mocks, *rest])


def packages_and_kernel(place: Place) -> list[Package]:
    return [*packages_of(place).values(), *(one for one in place.packages if one.name.startswith("linux-image-"))]


# Precompiled modules and the companions are there for branch 580 only.
CASES = [(name, "580-server") for name in REQUESTS] + [(name, "595-server") for name in list(REQUESTS)[:3]]


@pytest.mark.parametrize(("name", "branch"), CASES)
def test_apt_installs_the_same_from_the_mock_archive(name: str, branch: str, archives: tuple[AptRoot, AptRoot]) -> None:
    names = [word.replace("@", branch) for word in REQUESTS[name]]
    real, mock = (
        {
            (found.replace(kernel, "KERNEL"), version)
            for found, version in root.simulate(*(word.replace("KERNEL", kernel) for word in names)).items()
            if _OF_DRIVER.fullmatch(found)
        }
        for root, kernel in zip(archives, (KERNEL, platform.release()), strict=True)
    )
    assert mock == real


def test_a_difference_is_seen() -> None:
    assert contract("a", ["x", "y"], ["y", "z"]).differences == ["a: lacks x", "a: has z"]
    assert contract("a", ["x"], ["x"]).differences == []
    assert relations("nvidia-a (= 1),  libc6 (>= 2), libx") == {"nvidia-a (= 1)", _OF_SYSTEM}
    assert list(lines_of_unit("[Service]\nExecStart=/bin/x -a b --c\n")) == [
        "[Service] ExecStart=/bin/x",
        "[Service] ExecStart -a b",
        "[Service] ExecStart --c",
    ]


@pytest.mark.parametrize("daemon", services.DAEMONS, ids=lambda daemon: daemon.name)
def test_a_mock_daemon_prints_its_version_and_does_not_start(daemon: services.Daemon) -> None:
    """`--version` of one that starts its daemon instead leaves a process behind that systemd waits for at its stop."""
    scripts = {
        (package.upstream, file.value)
        for place in places().values()
        for package in place.packages
        for path, file in package.files.items()
        if path == f"/usr/bin/{daemon.program}"
    }
    assert scripts
    for upstream, script in scripts:
        shown = subprocess.run(
            ["sh", "-c", script, daemon.program, "--version"], capture_output=True, text=True, check=True, timeout=60
        )
        (found,) = [one for one in services.services({}, {daemon.name: shown.stdout}, None) if one.name == daemon.name]
        assert found.version == upstream
