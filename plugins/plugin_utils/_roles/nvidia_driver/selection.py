# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which driver a host gets: version, kernel modules, packages, removals and pins. Private to this collection.

Pure: the request, the facts of the host, and what its repositories offer in, the plan out. The role carries it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ....module_utils._knowledge.branches import KNOWN_BRANCHES, NEW_FEATURE_BRANCHES
from ..._compatibility import (
    KINDS,
    CompatibilityRequest,
    Findings,
    RequestedGpu,
    branch_end_of_life,
    check,
    choose_kernel_modules,
    kernel_failure,
)
from ..._compatibility import fits as fitting_values
from .kernel_packages import parts_of
from .offers import (
    EXCLUDED,
    PINNED,
    QUERY_FORMATS,
    Offer,
    end_of_transition,
    fits,
    upstream,
    version_key,
)
from .packages import (
    GPUDIRECT_PARTS,
    NEWEST,
    DriverRequest,
    DriverRequestError,
    Packages,
    is_of_driver,
    packages_for,
    release_of,
)
from .request import Request
from .sources import DISTRIBUTION, RUNFILE

FIRST_RELEASE_WITHOUT_STREAMS = 10
"""Of Enterprise Linux."""
_WITH_STREAMS = ("Amazon",)
"""Distributions of its family with releases of their own."""
# What apt is to prefer besides the names in the index: all that a driver may consist of, since packages need "this
# version or newer" of each other.
_FAMILY = (
    *("nvidia-*", "libnvidia-*", "cuda-drivers*", "libcuda1", "libnvcuvid1", "libnvsdm*"),
    *("firmware-nvidia-*", "xserver-xorg-video-nvidia*"),
)
_KERNEL_IMAGE = re.compile(r"linux-image-(?!\d|unsigned-|extra)(.+)")
# The driver that Ubuntu built the modules of a kernel for.
_BUILT_FOR = re.compile(r"nvidia-kernel-common-\S+ \(>= (\d{3}(?:\.\d+)+)\)")
# The sources of Debian's driver, whose packages have many names: libgl1-nvidia-glvnd-glx, libegl-nvidia0.
_DEBIAN_SOURCES = ("nvidia-graphics-drivers", "nvidia-open-gpu-kernel-modules")
# Drivers that Debian keeps for GPUs that its own driver has dropped.
_TESLA = re.compile(r"nvidia-tesla-(\d{3})-driver")
_EXACTLY = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)(?::\S+)? \(= ([^)]+)\)\s*")
_RECOMMENDED = re.compile(r"nvidia-driver-(\d+)")


@dataclass(frozen=True)
class Situation:
    """What of a host decides about its driver, for a request.

    `system` is Debian, Ubuntu or RedHat, `release` its version, `kernel` the one that boots next. `installed` has
    the versions of all packages by name, `family` the names of packages of a driver, `unmanaged` the ones
    that the role may not remove. `driver` is the version that is there, empty for none, `driver_kind` the kind
    of its modules, `lacks` what it has not of a driver, in words; `is_part`: its packages have no module.
    `recorded_source` is the source from which the role has installed it, empty where it has not. `repositories` are
    URLs by source. `compiler` is the major version of gcc that the kernels need and the host has not, empty for
    none; `host_compiler` the one that it has. `distribution` is Ansible's name, such as AlmaLinux. `companions` are
    of PARTS: what the host needs besides.
    """

    system: str
    release: str
    architecture: str
    kernel: str
    gpus: tuple[RequestedGpu, ...] = ()
    today: str = ""
    installed: Mapping[str, str] = field(default_factory=dict)
    family: tuple[str, ...] = ()
    unmanaged: tuple[str, ...] = ()
    driver: str = ""
    driver_kind: str = ""
    lacks: tuple[str, ...] = ()
    is_part: bool = False
    recorded_source: str = ""
    repositories: Mapping[str, str] = field(default_factory=dict)
    compiler: str = ""
    host_compiler: str = ""
    distribution: str = ""
    companions: tuple[str, ...] = ()

    @property
    def uses_apt(self) -> bool:
        """Whether apt installs packages, else dnf."""
        return self.system != "RedHat"


@dataclass(frozen=True)
class Offered:
    """What the repositories have. `is_complete`: all are configured and read, so what is not here does not exist."""

    packages: tuple[Offer, ...] = ()
    recommended: str = ""
    is_complete: bool = False


@dataclass(frozen=True)
class Pin:
    """A record of apt's preferences."""

    packages: str
    pin: str
    priority: int

    def __str__(self) -> str:
        return f"Package: {self.packages}\nPin: {self.pin}\nPin-Priority: {self.priority}\n"


@dataclass(frozen=True)
class DriverPlan:
    """The driver that the host is to have.

    `existing` states what happens to a driver without a record: none, adopted, kept, or refused. `version` is exact,
    empty where only the package manager will know it; `requested` is what it has to fit, `branch` is empty where
    nothing decides it. `install` are specifications for the package manager, `queries` the names of packages of which
    it should be asked before the next plan, and `query_format` what dnf is to print of each. `gpudirect` are packages
    of GPUDIRECT_PARTS.
    """

    existing: str
    version: str
    requested: str
    branch: str
    kernel_modules: str
    because: str
    packages: Packages = field(default_factory=lambda: Packages("", (), (), ()))
    install: tuple[str, ...] = ()
    stream: str = ""
    companions: tuple[str, ...] = ()
    gpudirect: tuple[str, ...] = ()
    removals: tuple[str, ...] = ()
    unmanaged: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    queries: tuple[str, ...] = ()
    query_format: str = QUERY_FORMATS[False]
    reasons: tuple[str, ...] = ()
    unknowns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return {
            **plain,
            "packages": self.packages.as_dict(),
            "pins": [asdict(pin) for pin in self.pins],
            "preferences": "\n".join(map(str, self.pins)),
        }


@dataclass(frozen=True)
class _Inputs:
    """All that a plan is made from. `own` is what the requested source offers."""

    request: Request
    facts: Situation
    offered: Offered
    own: tuple[Offer, ...]
    table: Sequence[Mapping[str, Any]]

    def packages(self, names: DriverRequest) -> Packages:
        """The packages of a request from the table; raises DriverRequestError when there are none."""
        return packages_for(names, self.table)

    def offers(self, name: str) -> list[Offer]:
        """The versions of a package that the source has."""
        return [one for one in self.own if one.name == name]


def driver_plan(request: Request, facts: Situation, offered: Offered, table: Sequence[Mapping[str, Any]]) -> DriverPlan:
    """Plan the driver. What makes it impossible is in `reasons`; nothing is to be changed then.

    An installed version stays while it fits, unless an upgrade is requested. Without complete offers, what they do not
    show is unknown and refused later.
    """
    # Where it is not known which repository has a package, each may be the right one.
    # A negative priority is the host's own word that apt never takes a version.
    own = tuple(
        one for one in offered.packages if one.priority >= 0 and (not one.sources or request.source in one.sources)
    )
    inputs = _Inputs(request, facts, offered, own, table)
    requested = _requested(inputs)
    kind, because = _kind(inputs, requested)
    plan = DriverPlan(
        existing=_existing(inputs, requested, kind),
        version="",
        requested=requested,
        branch=_branch(requested),
        kernel_modules=kind,
        because=because,
        companions=facts.companions,
        unmanaged=facts.unmanaged,
    )
    if plan.existing in ("kept", "refused"):
        notes = _compatibility(inputs, facts.driver).notes
        unknowns = _compatibility(inputs, requested).unknown if plan.existing == "refused" else ()
        return replace(
            plan,
            version=facts.driver,
            branch=_branch(facts.driver),
            kernel_modules=facts.driver_kind,
            companions=(),
            unknowns=tuple(unknowns),
            notes=tuple(notes),
        )
    try:
        plan = _with_runfile(plan, inputs) if request.source == RUNFILE else _with_packages(plan, inputs)
    except DriverRequestError as error:
        reason = f"{error}; choose another nvidia_driver_source, nvidia_driver_version or nvidia_driver_module_build"
        plan = replace(plan, reasons=(reason,))
    found = _compatibility(inputs, plan.version or plan.requested)
    return replace(
        plan,
        reasons=(
            *found.reasons,
            *_kernel_reasons(plan, inputs),
            *_gpudirect_reasons(plan, inputs),
            *_tesla_reasons(found, inputs),
            *plan.reasons,
        ),
        unknowns=(*found.unknown, *plan.unknowns),
        notes=(*plan.notes, *_parts(inputs), *_limits(plan, inputs), *found.notes),
    )


def _parts(inputs: _Inputs) -> Iterator[str]:
    """The note that an incomplete driver counts as none, with the parts it lacks."""
    facts = inputs.facts
    if facts.lacks and not facts.recorded_source:
        names = [name for name in facts.family if upstream(facts.installed.get(name, "")) == facts.driver]
        yield (
            f"driver {facts.driver} is incomplete: it lacks {', '.join(facts.lacks)}; there are "
            f"{', '.join(names) or 'no packages of it'}"
        )


def _limits(plan: DriverPlan, inputs: _Inputs) -> Iterator[str]:
    """That the newest driver is one of an older branch, because newer ones no longer support a GPU."""
    last = {gpu: gpu.architecture.last_branch for gpu in inputs.facts.gpus if gpu.architecture}
    old = [
        f"{gpu.name} ({gpu.chip.architecture})" for gpu, end in last.items() if gpu.chip and str(end) == plan.requested
    ]
    if inputs.request.version == "newest" and old and inputs.request.source != RUNFILE:
        yield f"the newest driver here is of branch {plan.requested}, the last one with {', '.join(dict.fromkeys(old))}"


def _with_runfile(plan: DriverPlan, inputs: _Inputs) -> DriverPlan:
    version = inputs.request.runfile_version(inputs.facts.architecture)
    return replace(plan, version=version, branch=_branch(version), removals=_removals(inputs.facts, ()))


def _branch(version: str) -> str:
    return version.split(".", maxsplit=1)[0] if version[:1].isdecimal() else ""


# The requested version, and what the GPUs and an installed driver make of it.


def _requested(inputs: _Inputs) -> str:
    """`newest`, a branch or an exact version."""
    request, facts = inputs.request, inputs.facts
    if request.version == "recommended":
        found = _RECOMMENDED.search(inputs.offered.recommended)
        return found[1] if found else request.version
    if request.version != "newest":
        return request.version
    # On Ubuntu another branch has other packages: newest stays at the installed one, unless an upgrade is asked for.
    stays = facts.recorded_source == request.source if facts.recorded_source else not request.replace_unmanaged
    if facts.system == "Ubuntu" and facts.driver and stays and not request.upgrade:
        return _branch(facts.driver)
    # Debian has one branch in each release.
    if request.source == DISTRIBUTION and facts.system == "Debian":
        return "newest"
    of_gpus, of_all = (fitting_values(CompatibilityRequest(gpus=gpus))["driver"] for gpus in (facts.gpus, ()))
    if of_gpus and of_gpus[-1] != of_all[-1]:
        return of_gpus[-1]
    return _newest_of_kind(inputs, of_gpus)


def _newest_of_kind(inputs: _Inputs, branches: Sequence[str]) -> str:
    """`newest`, or where the source has ended the requested modules the newest branch with them and with updates.

    An installed driver stays at its branch rather than becoming older.
    """
    request, facts = inputs.request, inputs.facts
    kind, _because = choose_kernel_modules(facts.gpus, None, request.kernel_modules)
    if request.source == RUNFILE or request.module_build != "dkms" or _has_modules(inputs, "newest", kind):
        return "newest"
    found = [one for one in branches if _has_modules(inputs, one, kind) and not _is_behind(int(one), facts.today)]
    installed = _branch(facts.driver)
    return max([*found[-1:], *([installed] if _has_modules(inputs, installed, kind) else [])], default="newest")


def _has_modules(inputs: _Inputs, version: str, kind: str) -> bool:
    """Whether the table has packages of a driver with this kind of modules."""
    try:
        inputs.packages(replace(_names(inputs, version, kind), parts=()))
    except DriverRequestError:
        return False
    return bool(version)


def _is_behind(branch: int, today: str) -> bool:
    """Whether a branch gets no more updates."""
    ended = bool(today) and branch_end_of_life(branch, today)[1] == "ended"
    return ended or (branch in NEW_FEATURE_BRANCHES and branch < max(KNOWN_BRANCHES))


def _kind(inputs: _Inputs, version: str) -> tuple[str, str]:
    branch = int(_branch(version)) if _branch(version) else None
    return choose_kernel_modules(inputs.facts.gpus, branch, inputs.request.kernel_modules)


def _compatibility(inputs: _Inputs, version: str) -> Findings:
    kind = None if inputs.request.kernel_modules == "auto" else inputs.request.kernel_modules
    today = inputs.facts.today[:7] or None
    return check(CompatibilityRequest(inputs.facts.gpus, version if _branch(version) else None, kind, today=today))


# A driver that this role has not installed.


def _existing(inputs: _Inputs, requested: str, kind: str) -> str:
    request, facts = inputs.request, inputs.facts
    if facts.recorded_source or not facts.driver or request.replace_unmanaged or facts.is_part:
        return "none"
    if not fits(facts.driver, requested) or request.kernel_modules not in ("auto", facts.driver_kind):
        return "refused"
    if _is_adoptable(inputs, kind):
        return "adopted"
    return "refused" if facts.lacks else "kept"


def _is_adoptable(inputs: _Inputs, kind: str) -> bool:
    """Whether the packages that the role would install are all there, without companions, and not of another source."""
    if inputs.request.source == RUNFILE or not inputs.facts.family:
        return False
    try:
        packages = inputs.packages(replace(_names(inputs, inputs.facts.driver, kind), parts=()))
    except DriverRequestError:
        return False
    installed = inputs.facts.installed
    return all(name in installed and not _is_elsewhere(name, installed[name], inputs) for name in packages.driver)


def _is_elsewhere(name: str, version: str, inputs: _Inputs) -> bool:
    """Whether other sources have this version of a package, and the requested one has not."""
    sources = [one.sources for one in inputs.offered.packages if (one.name, one.version) == (name, version)]
    return any(sources) and not any(inputs.request.source in one for one in sources)


# Packages.


def _names(inputs: _Inputs, version: str, kind: str) -> DriverRequest:
    request, facts = inputs.request, inputs.facts
    return DriverRequest(
        origin=request.source,
        system=facts.system,
        architecture=facts.architecture,
        version=version,
        kind=kind,
        module_build=request.module_build,
        headless=request.headless,
        server=request.ubuntu_series == "server",
        kernel=facts.kernel,
        parts=facts.companions,
        distribution=facts.distribution,
    )


def _with_packages(plan: DriverPlan, inputs: _Inputs) -> DriverPlan:
    """The plan with version and packages; raises DriverRequestError where the table has none."""
    names = _names(inputs, plan.requested, plan.kernel_modules)
    is_signed = names.origin == DISTRIBUTION and not inputs.facts.uses_apt
    plan = replace(
        plan,
        packages=inputs.packages(names),
        queries=tuple(_queries(names, inputs)),
        query_format=QUERY_FORMATS[is_signed],
    )
    if names.version == "recommended":
        return _without_branch(plan, inputs)
    if inputs.request.version == "newest" and "*" in _of_all_branches(names, inputs).probe:
        real = _real_branches(names, inputs)
        if not real and names.branch == NEWEST:
            return _without_branch(plan, inputs)
        # An installed branch stays as long as it is real.
        if real and names.branch not in real:
            usable = [one for one in real if not _compatibility(inputs, str(one)).reasons]
            names = replace(names, version=str((usable or real)[-1]))
    names = _with_flavours(names, inputs)
    names, because = _with_kind(names, plan.because, inputs)
    version = _version(names, inputs)
    exact = replace(names, version=version or names.version)
    packages = inputs.packages(exact)
    compiler = inputs.facts.compiler if inputs.facts.uses_apt else ""
    packages = replace(packages, others=(*packages.others, *([f"gcc-{compiler}"] if compiler else [])))
    return replace(
        plan,
        version=version,
        requested=names.version,
        branch=_branch(exact.version),
        kernel_modules=names.kind,
        because=because,
        packages=packages,
        gpudirect=tuple(_gpudirect(exact, inputs)),
        install=tuple(_specifications(exact, packages, inputs)),
        stream=_stream(packages, inputs.facts),
        removals=_removals(inputs.facts, (*packages.driver, *packages.others, *_of_other_kernels(exact, inputs))),
        pins=tuple(_pins(exact, packages, inputs)),
        reasons=(*_reasons(names, exact, inputs), *_compiler_reasons(inputs)),
        unknowns=tuple(_unknown_kernels(exact, inputs)),
        notes=tuple(_notes(names, version, inputs)),
    )


def _gpudirect(names: DriverRequest, inputs: _Inputs) -> Iterator[str]:
    """The packages of GPUDirect, which depend on the driver and go with it."""
    parts = tuple(part for part in names.parts if part not in GPUDIRECT_PARTS)
    others = inputs.packages(replace(names, parts=parts)).others
    return (name for name in inputs.packages(names).others if name not in others)


def _without_branch(plan: DriverPlan, inputs: _Inputs) -> DriverPlan:
    """The plan where nothing that is offered decides the branch."""
    source = inputs.request.source
    if not inputs.offered.is_complete:
        unknown = f"the branches of {source} are known only when its packages can be read"
        return replace(plan, unknowns=(unknown,))
    reason = (
        f"{source} has no package {plan.packages.probe}; check that its components (restricted, multiverse) are "
        "enabled, or choose another nvidia_driver_source"
        if inputs.request.version != "recommended"
        else "`ubuntu-drivers list --recommended` names no NVIDIA driver; set nvidia_driver_version to a branch"
    )
    return replace(plan, reasons=(reason,))


def _queries(names: DriverRequest, inputs: _Inputs) -> Iterator[str]:
    """Names of packages, of all branches and with wildcards, that the package manager should be asked about."""
    newest = replace(names, version="newest")
    if not inputs.facts.uses_apt:
        if names.module_build == "precompiled":
            yield _kmod(names, inputs)
        if names.origin == DISTRIBUTION:
            yield inputs.packages(newest).probe
        return
    _release, flavour = parts_of(names.kernel)
    kernels = (names.kernel, f"*-{flavour}") if names.module_build == "precompiled" else (names.kernel,)
    # The source may have ended these modules.
    asked = (newest, names) if _has_modules(inputs, newest.version, names.kind) else (names,)
    variants = (replace(one, kernel=kernel, flavours=(f"{flavour}*",)) for one in asked for kernel in kernels)
    found = [inputs.packages(one) for one in variants]
    compiler = [f"gcc-{inputs.facts.compiler}"] if inputs.facts.compiler else []
    every = (name for one in found for name in (one.probe, *one.driver, *one.others, *one.pinning, *compiler))
    yield from dict.fromkeys((*every, *_queries_of_family(names, inputs)))


def _queries_of_family(names: DriverRequest, inputs: _Inputs) -> Iterator[str]:
    """On Debian, whose names have no branch: all packages of a driver, by their source, and modules of both kinds."""
    if inputs.facts.system != "Debian":
        return
    others = (inputs.packages(replace(names, kind=kind)) for kind in KINDS if _has_modules(inputs, names.version, kind))
    yield from (name for one in others for name in one.driver)
    # NVIDIA's repository keeps all versions.
    version = "" if names.branch == NEWEST or names.origin == DISTRIBUTION else f",?version(^{names.branch}[.])"
    yield from (f"?and(?source-package(^{source}$){version})" for source in _DEBIAN_SOURCES)
    if names.origin == DISTRIBUTION:
        yield "nvidia-tesla-*-driver"


def _of_all_branches(names: DriverRequest, inputs: _Inputs) -> Packages:
    """The packages of the newest version: with wildcards where names have the branch.

    With modules of the other kind where the source has ended these.
    """
    (other,) = {*KINDS} - {names.kind}
    kind = names.kind if _has_modules(inputs, "newest", names.kind) else other
    return inputs.packages(replace(names, version="newest", kind=kind))


def _real_branches(names: DriverRequest, inputs: _Inputs) -> tuple[int, ...]:
    """The branches of which every package of the request is offered and none is transitional, lowest first."""
    pattern = re.compile(re.escape(_of_all_branches(names, inputs).probe).replace(r"\*", "([0-9]{3})"))
    branches = sorted(
        {int(match[1]) for one in inputs.own if (match := pattern.fullmatch(one.name)) and match.groups()}
    )
    asked = [replace(names, version=str(branch)) for branch in branches]
    return tuple(one.branch for one in asked if not any(_problems(one, inputs)))


def _problems(names: DriverRequest, inputs: _Inputs) -> Iterator[str]:
    """Why the packages cannot be had: those that lead to other packages, and those that are missing."""
    packages, exact = inputs.packages(names), names.version if "." in names.version else ""
    for name in (*packages.driver, *packages.others):
        offers = inputs.offers(name)
        version = exact if name in packages.driver else ""
        fitting = [one for one in offers if not version or one.upstream == version]
        installed = inputs.facts.installed.get(name, "")
        stays = installed and (name in packages.others or fits(upstream(installed), names.version))
        if not offers and not stays:
            yield _missing(name, names, inputs)
        elif fitting and fitting[0].becomes:
            yield f"{name} installs {end_of_transition(fitting[0], inputs.own)}"


def _missing(name: str, names: DriverRequest, inputs: _Inputs) -> str:
    """That a package does not exist; of modules for another kernel, which kernels there are."""
    kernel = names.kernel if names.module_build == "precompiled" and names.kernel in name else ""
    excluded = [one.version for one in inputs.offered.packages if one.name == name and one.priority < 0]
    if excluded:
        return f"the host's apt preferences exclude {name} ({', '.join(dict.fromkeys(excluded))})"
    if not kernel:
        return f"{name} does not exist"
    before, _kernel, after = name.partition(kernel)
    pattern = re.compile(re.escape(before) + r"(\d\S*)" + re.escape(after))
    kernels = sorted({match[1] for one in inputs.own if (match := pattern.fullmatch(one.name))})
    has = f"there are some for {', '.join(kernels)}: boot such a kernel" if kernels else "there are none for any kernel"
    return f"{name} does not exist ({has}, or set nvidia_driver_module_build to dkms)"


def _reasons(names: DriverRequest, exact: DriverRequest, inputs: _Inputs) -> Iterator[str]:
    """Why what the source offers does not do. `names` has what is requested, `exact` the version that was chosen."""
    if not inputs.facts.uses_apt:
        yield from _reasons_of_dnf(names, inputs)
        return
    packages = inputs.packages(exact)
    is_known = inputs.offered.is_complete or inputs.offers(packages.probe)
    if not (is_known or (inputs.own and "*" in _of_all_branches(names, inputs).probe)):
        return
    built_for = _built_for(packages, names, inputs)
    if problems := tuple(_problems(exact, inputs)):
        real = _real_branches(names, inputs)
        has = f"; with {names.kind} kernel modules it has the branches {', '.join(map(str, real))}" if real else ""
        has += _excluded(packages, inputs)
        yield f"branch {_branch(exact.version)} is not there as such: {', '.join(problems)}{has}"
    elif built_for and built_for != exact.version and "." in names.version:
        yield (
            f"the precompiled modules of kernel {names.kernel} are of driver {built_for}, not of {names.version}; set "
            "nvidia_driver_version to the branch, or nvidia_driver_module_build to dkms"
        )
    elif inputs.offered.is_complete:
        yield from (
            _unavailable(names, packages, inputs)
            if not _candidates(names, inputs)
            else _incomplete(names, exact, inputs)
        )


def _excluded(packages: Packages, inputs: _Inputs) -> str:
    """The versions that apt never takes."""
    found = [one.version for one in inputs.offered.packages if one.name == packages.probe and one.priority < 0]
    return f"; the host's apt preferences exclude {', '.join(dict.fromkeys(found))}" if found else ""


def _incomplete(names: DriverRequest, exact: DriverRequest, inputs: _Inputs) -> Iterator[str]:
    """That the driver of a version is not there as a whole, or only one that is older than what is there or offered."""
    bare = replace(exact, parts=())
    if missing := _missing_of(bare, inputs):
        yield (
            f"{inputs.request.source} has no {names.kind} kernel modules of driver {exact.version}, which need"
            f" {', '.join(missing)}{_instead(names, inputs)}"
        )
        return
    present = _present(names, inputs)
    newer = max([*_candidates(names, inputs), *present], key=version_key)
    # An exact version permits everything that follows from it, and an installed version becomes no older.
    is_asked = "." in names.version or present == [exact.version]
    if is_asked or version_key(exact.version) >= version_key(newer):
        return
    if missing := _missing_of(replace(bare, version=newer), inputs):
        yield (
            f"the newest driver of {inputs.request.source} with {names.kind} kernel modules is {exact.version}, older "
            f"than {newer}, which is installed or offered without them; set nvidia_driver_version to {exact.version} "
            f"to install the older one{_instead(names, inputs)}"
        )


def _instead(names: DriverRequest, inputs: _Inputs) -> str:
    """The variable for the modules that a version lacks: modules of the other kind, if the GPUs support them."""
    (other,) = {*KINDS} - {names.kind}
    gpus_take = all(not gpu.kinds or other in gpu.kinds for gpu in inputs.facts.gpus)
    asked = replace(names, kind=other, parts=())
    if not gpus_take or not _has_modules(inputs, names.version, other):
        return ""
    found = [one for one in _candidates(asked, inputs) if not _missing_of(replace(asked, version=one), inputs)]
    best = max(found, key=version_key, default="")
    return f"; with nvidia_driver_kernel_modules {other} there is {best}" if best else ""


def _notes(names: DriverRequest, version: str, inputs: _Inputs) -> Iterator[str]:
    """That an older driver comes than the one that is installed or offered: because it was asked for."""
    if not inputs.facts.uses_apt or not version:
        return
    installed = upstream(inputs.facts.installed.get(inputs.packages(names).probe, ""))
    newest = replace(names, version="newest")
    # The source may have ended these modules.
    every = _candidates(newest, inputs) if _has_modules(inputs, "newest", names.kind) else ()
    offered = max(every, key=version_key, default="")
    if installed and version_key(version) < version_key(installed):
        yield f"driver {installed} is replaced by {version}, which is older, since nvidia_driver_version asks for it"
    elif _branch(offered) == _branch(version) and version_key(version) < version_key(offered):
        yield f"driver {version} is older than {offered}, which {inputs.request.source} offers"


def _unavailable(names: DriverRequest, packages: Packages, inputs: _Inputs) -> Iterator[str]:
    """That no version fits, and which there are."""
    offers = inputs.offers(packages.probe)
    stays = fits(upstream(inputs.facts.installed.get(packages.probe, "")) or "-", names.version)
    if not stays and not any(one.upstream and fits(one.upstream, names.version) for one in offers):
        available = ", ".join(dict.fromkeys(one.version for one in offers)) or "none"
        yield (
            f"{inputs.request.source} has no driver {names.version} (package {packages.probe}); available: {available}"
            f"{_excluded(packages, inputs)}; choose another nvidia_driver_version or nvidia_driver_source"
        )


def _kernel_reasons(plan: DriverPlan, inputs: _Inputs) -> Iterator[str]:
    """That the modules are known not to build for the kernel. Distributions repair theirs, and may have."""
    request, facts = inputs.request, inputs.facts
    driver = plan.version or (plan.requested if _branch(plan.requested) else "")
    if request.source == DISTRIBUTION or request.module_build != "dkms" or not driver or driver == facts.driver:
        return
    failure = kernel_failure(driver, facts.kernel)
    if failure is not None:
        instead = f"{failure.fixed_in} or a newer branch" if failure.fixed_in else "a newer branch"
        yield (
            f"the kernel modules of driver {driver} do not build for kernel {facts.kernel} ({failure.source.url}); set "
            f"nvidia_driver_version to {instead}, or boot another kernel"
        )


def _gpudirect_reasons(plan: DriverPlan, inputs: _Inputs) -> Iterator[str]:
    """That modules of GPUDirect cannot be built for these of the driver.

    DKMS builds them from the driver's own sources. GPUDirect Storage supports open modules only, from 1.7.2 on, which
    NVIDIA's repository has: https://docs.nvidia.com/gpudirect-storage/release-notes/. Debian's is older.
    """
    request = inputs.request
    asked = [part for part in GPUDIRECT_PARTS if part in inputs.facts.companions]
    if asked and request.module_build != "dkms":
        yield (
            f"{' and '.join(asked)} of nvidia_driver_gpudirect are built from the sources of the driver's modules, "
            "which precompiled ones do not have; set nvidia_driver_module_build to dkms"
        )
    if "storage" in asked and plan.kernel_modules == "proprietary" and request.source != DISTRIBUTION:
        yield (
            "storage of nvidia_driver_gpudirect needs the open kernel modules; set nvidia_driver_kernel_modules to "
            "open where the GPUs allow it"
        )


def _tesla_reasons(found: Findings, inputs: _Inputs) -> Iterator[str]:
    """Debian's packages of a branch for GPUs that its driver has dropped, which this role does not install."""
    names = sorted({one.name for one in inputs.own if _TESLA.fullmatch(one.name)})
    branches = {gpu.architecture.last_branch for gpu in inputs.facts.gpus if gpu.architecture}
    for name in names if found.reasons and inputs.request.source == DISTRIBUTION else ():
        if int(name.split("-")[2]) in branches:
            yield f"Debian has {name} for these GPUs, which this role does not install: install it yourself"


def _compiler_reasons(inputs: _Inputs) -> Iterator[str]:
    """That the compiler of a kernel is neither there nor offered: an older one does not know all of its options."""
    compiler, offers = inputs.facts.compiler, inputs.offered.packages
    is_known = not inputs.facts.uses_apt or offers
    if compiler and is_known and not any(one.name == f"gcc-{compiler}" for one in offers):
        yield (
            f"a kernel was built by gcc {compiler}, and the host has gcc {inputs.facts.host_compiler}, which cannot "
            f"build modules for it; install gcc-{compiler}"
        )


# The exact version.


def _version(names: DriverRequest, inputs: _Inputs) -> str:
    """The exact version, empty where only the package manager will know it: the installed one if it fits, else the
    newest that fits and of which all packages are offered.
    """
    packages = inputs.packages(names)
    installed = inputs.facts.installed.get(packages.probe, "")
    present = upstream(installed)
    if present and (not fits(present, names.version) or _is_elsewhere(packages.probe, installed, inputs)):
        present = ""
    if not inputs.facts.uses_apt:
        return _version_of_dnf(names, present, inputs)
    modules = _built_for(packages, names, inputs)
    upgrade = inputs.request.upgrade
    is_kept = present and _is_kept(replace(names, version=present, parts=()), inputs)
    if is_kept and not upgrade and modules in ("", present):
        return present
    fitting = _candidates(names, inputs)
    if modules in fitting:
        return modules
    complete = [one for one in fitting if not _missing_of(replace(names, version=one), inputs)]
    # Companions are sometimes behind, and refused by name where they are in no version.
    usable = complete or [one for one in fitting if not _missing_of(replace(names, version=one, parts=()), inputs)]
    return max([*(usable or fitting), *([present] if is_kept and upgrade else [])], key=version_key, default="")


def _candidates(names: DriverRequest, inputs: _Inputs) -> list[str]:
    """The versions that fit, of the repositories that apt prefers: none of backports if the release has one."""
    offers = inputs.offers(inputs.packages(names).probe)
    fitting = [one for one in offers if one.upstream and fits(one.upstream, names.version)]
    highest = max((one.priority for one in fitting), default=0)
    return list(dict.fromkeys(one.upstream for one in fitting if one.priority == highest))


def _present(names: DriverRequest, inputs: _Inputs) -> list[str]:
    """The installed version where it fits, else nothing."""
    found = upstream(inputs.facts.installed.get(inputs.packages(names).probe, ""))
    return [found] if found and fits(found, names.version) else []


def _is_kept(names: DriverRequest, inputs: _Inputs) -> bool:
    """Whether an installed version can stay: all of it is installed, or offered as far as that is known."""
    driver, installed = inputs.packages(names).driver, inputs.facts.installed
    if not inputs.offered.is_complete or all(upstream(installed.get(one, "")) == names.version for one in driver):
        return True
    return not _missing_of(names, inputs)


def _missing_of(names: DriverRequest, inputs: _Inputs) -> tuple[str, ...]:
    """What a version of the driver lacks: packages, and those that they need in exactly one version."""
    there = {one.name: one for one in inputs.own if one.upstream == names.version}
    every = {(one.name, one.version) for one in inputs.offered.packages} | {*inputs.facts.installed.items()}
    known = {name for name, _version in every}
    missing: dict[str, None] = {}
    ahead, seen = list(inputs.packages(names).driver), set[str]()
    while ahead:
        name = ahead.pop()
        seen.add(name)
        if name not in there and upstream(inputs.facts.installed.get(name, "")) != names.version:
            missing[f"{name} {names.version}"] = None
            continue
        for group in there[name].depends.split(",") if name in there else ():
            exact = [_EXACTLY.fullmatch(one) for one in group.split("|")]
            found = [match for match in exact if match and (match[1], match[2]) in every]
            # A package of another name, in any version, or one that only others provide.
            is_other = any(match is None or match[1] not in known for match in exact)
            if not found and not is_other:
                missing[group.strip()] = None
            ahead += [match[1] for match in found if match[1] in there and match[1] not in seen]
    return tuple(missing)


def _with_kind(names: DriverRequest, because: str, inputs: _Inputs) -> tuple[DriverRequest, str]:
    """The kind of modules by the branch that comes, and by what there is of it, where neither user nor GPUs choose."""
    gpus, facts = inputs.facts.gpus, inputs.facts
    is_free = inputs.request.kernel_modules == "auto" and all(len(gpu.kinds) != 1 for gpu in gpus)
    if not is_free or not facts.uses_apt or facts.system != "Debian":
        return names, because
    kept = _present(names, inputs) if not inputs.request.upgrade else []
    version = max(kept or _candidates(names, inputs), key=version_key, default="")
    if not version:
        return names, because
    kind, because = choose_kernel_modules(gpus, int(_branch(version)), "auto")
    if kept and facts.driver_kind in KINDS and _branch(names.version) == "":
        return replace(names, kind=facts.driver_kind), "as installed"
    (other,) = {*KINDS} - {kind}
    bare = replace(names, version=version, parts=())
    has = {
        one: _has_modules(inputs, version, one) and not _missing_of(replace(bare, kind=one), inputs) for one in KINDS
    }
    if inputs.offered.is_complete and has[other] and not has[kind]:
        return replace(names, kind=other), f"the only ones of {version} in {inputs.request.source}"
    return replace(names, kind=kind), because


def _version_of_dnf(names: DriverRequest, present: str, inputs: _Inputs) -> str:
    """As _version. What disabled streams have is not offered: there dnf takes the newest of the branch."""
    exact = names.version if "." in names.version else ""
    upgrade = inputs.request.upgrade
    if names.module_build != "precompiled":
        return present if present and not upgrade else exact
    built = {one.driver for one in _builds(names, inputs) if one.kernel in (release_of(names.kernel), "")}
    if names.origin == DISTRIBUTION and inputs.offered.is_complete:
        built &= {*_drivers_of_programs(names, inputs)}
    return present if present in built and not upgrade else max(built, key=version_key, default=exact)


@dataclass(frozen=True)
class _Build:
    """Precompiled modules of a driver, in the package `name`, for a kernel as release_of names it; empty: not known."""

    driver: str
    kernel: str
    name: str
    version: str


def _kmod(names: DriverRequest, inputs: _Inputs) -> str:
    """The package of precompiled modules, with wildcards for the driver and the kernel where they are in its name."""
    packages = inputs.packages(replace(names, version="newest", kernel=_of_any_release(names.kernel), parts=()))
    return next(name for name in packages.driver if name.startswith("kmod-"))


def _unknown_kernels(names: DriverRequest, inputs: _Inputs) -> Iterator[str]:
    """That dnf has read no list of files, which alone name the kernel of the modules."""
    if names.origin == DISTRIBUTION and not inputs.facts.uses_apt and names.module_build == "precompiled":
        for one in _builds(names, inputs):
            if not one.kernel:
                yield f"the kernel that {one.name} {one.version} has modules for is not known"


def _of_other_kernels(names: DriverRequest, inputs: _Inputs) -> tuple[str, ...]:
    """Precompiled modules of the same driver for other kernels of Enterprise Linux, which may still be booted."""
    if inputs.facts.uses_apt or names.module_build != "precompiled":
        return ()
    return tuple(one.name for one in _builds(names, inputs) if one.driver == names.version)


def _of_any_release(kernel: str) -> str:
    _release, plus, variant = kernel.partition("+")
    return f"*{plus}{variant}" if plus else "*"


def _builds(names: DriverRequest, inputs: _Inputs) -> list[_Build]:
    """The precompiled modules of drivers that fit which are offered for kernels of Enterprise Linux, or installed."""
    kmod, here = _kmod(names, inputs), release_of(names.kernel)
    shape = re.escape(kmod).replace(r"\*", r"(\d+(?:\.\d+)+)", 1).replace(r"\*", r"(\d\S*)", 1)
    found = []
    for one in inputs.own:
        match = re.fullmatch(shape, one.name)
        if match and match.groups():
            found.append(_Build(match[1], match[2], one.name, one.version))
        elif match:
            variants = [kernel for kernel in one.kernels if kernel.partition("+")[2] == names.kernel.partition("+")[2]]
            kernels = map(release_of, variants) if one.kernels else [""]
            found += [_Build(one.upstream, kernel, one.name, one.version) for kernel in kernels]
    for name, version in inputs.facts.installed.items():
        if match := re.fullmatch(shape, name):
            # What is installed stays, whatever kernel it is for.
            driver, kernel = match.groups() or (upstream(version), here)
            found.append(_Build(driver, kernel, name, version))
    return [one for one in found if one.driver and fits(one.driver, names.version)]


def _reasons_of_dnf(names: DriverRequest, inputs: _Inputs) -> Iterator[str]:
    source = inputs.request.source
    if names.module_build != "precompiled":
        return
    if source != DISTRIBUTION and _has_no_streams(inputs.facts):
        yield (
            f"{source} has precompiled modules in streams only, and Enterprise Linux {inputs.facts.release} has none; "
            "set nvidia_driver_module_build to dkms"
        )
        return
    builds = _builds(names, inputs)
    here = {one.driver for one in builds if one.kernel in (release_of(names.kernel), "")}
    if not inputs.offered.is_complete:
        return
    if not here:
        kernels = sorted({one.kernel for one in builds})
        has = (
            f"there are some for {', '.join(kernels)}: boot such a kernel"
            if kernels
            else f"there are none for any kernel{_repository_of(inputs.facts) if source == DISTRIBUTION else ''}"
        )
        other = "choose another nvidia_driver_source"
        instead = other if source == DISTRIBUTION else "set nvidia_driver_module_build to dkms"
        yield (
            f"{source} has no precompiled modules of driver {names.version} for kernel {names.kernel}; {has}, "
            f"or {instead}"
        )
    elif source == DISTRIBUTION and not here & {*_drivers_of_programs(names, inputs)}:
        probe = inputs.packages(names).probe
        programs = ", ".join(_drivers_of_programs(names, inputs)) or "no version"
        yield (
            f"{source} has modules of {', '.join(sorted(here, key=version_key))} for kernel {names.kernel}, and {probe}"
            f" of {programs}: both have to be of one version{_repository_of(inputs.facts)}"
        )


def _drivers_of_programs(names: DriverRequest, inputs: _Inputs) -> list[str]:
    """The versions of the driver's programs that are offered or installed."""
    probe = inputs.packages(names).probe
    found = [*(one.upstream for one in inputs.offers(probe)), upstream(inputs.facts.installed.get(probe, ""))]
    return list(dict.fromkeys(filter(None, found)))


def _repository_of(facts: Situation) -> str:
    """Where the driver of a distribution of Enterprise Linux is, which this role does not enable."""
    if facts.distribution == "AlmaLinux":
        return " (`dnf install almalinux-release-nvidia-driver` adds their repositories)"
    own, more = (f"rhel-{facts.release}-for-{facts.architecture}-{one}-rpms" for one in ("extensions", "supplementary"))
    return f" (RHEL 10.1 and newer has them: `subscription-manager repos --enable={own} --enable={more}`)"


# Ubuntu's precompiled modules.


def _with_flavours(names: DriverRequest, inputs: _Inputs) -> DriverRequest:
    """The request with the flavours whose metapackages bring the modules of later kernels.

    They match the host's kernel metapackages; without one, their modules are for the kernel at hand.
    """
    if names.module_build != "precompiled" or inputs.facts.system != "Ubuntu" or names.branch == NEWEST:
        return names
    without = set(inputs.packages(names).others)
    (prefix,) = set(inputs.packages(replace(names, flavours=("",))).others) - without
    images = (match[1] for name in sorted(inputs.facts.installed) if (match := _KERNEL_IMAGE.fullmatch(name)))
    # The kernel of virtual machines is the generic one.
    flavours = dict.fromkeys(re.sub("^virtual", "generic", one) for one in images)
    offered = {one.name.removeprefix(prefix): one for one in inputs.own if one.name.startswith(prefix)}
    found = [one for one in flavours if one in offered] or [
        flavour
        for flavour, one in offered.items()
        if not flavour[:1].isdecimal() and f"{prefix}{names.kernel} " in f"{one.depends} "
    ]
    return replace(names, flavours=tuple(found))


def _built_for(packages: Packages, names: DriverRequest, inputs: _Inputs) -> str:
    """The driver that Ubuntu's modules of the kernel are for, which no other fits; empty where nothing changes."""
    modules = [one for one in inputs.own if one.name in packages.others and one.name.endswith(f"-{names.kernel}")]
    if names.module_build != "precompiled" or not modules or modules[0].name in inputs.facts.installed:
        return ""
    found = _BUILT_FOR.search(modules[0].depends)
    return found[1] if found else ""


# What the package manager is given.


def _specifications(names: DriverRequest, packages: Packages, inputs: _Inputs) -> Iterator[str]:
    """Names with versions: exactly as in the source, so that apt takes no package of another one."""
    is_exact = "." in names.version
    revisions = _revisions(packages.driver, names.version, inputs) if inputs.facts.uses_apt and is_exact else {}
    # AlmaLinux's modules have the kernel in their files only: of the releases of a version, the one for this kernel.
    is_signed = names.origin == DISTRIBUTION and not inputs.facts.uses_apt and is_exact
    here = release_of(names.kernel)
    builds = {
        one.name: one.version for one in reversed(_builds(names, inputs) if is_signed else []) if one.kernel == here
    }
    for name in packages.driver:
        if inputs.facts.uses_apt:
            version = revisions.get(name, "")
        else:
            version = names.version if is_exact else f"{names.version}.*" if names.branch != NEWEST else ""
            version = builds.get(name, version)
        yield f"{name}={version}" if version else name
    yield from packages.others
    if inputs.request.pin:
        yield from (name for name in packages.pinning if inputs.offers(name))


def _full_version(name: str, version: str, inputs: _Inputs) -> str:
    """The version of a package in the source; a pattern where it is not offered any more.

    It is the installed one, else apt's candidate: of an archive's revisions, the one of the preferred repository.
    """
    offered = [one for one in inputs.offers(name) if one.upstream == version]
    best = max(offered, key=lambda one: one.priority, default=None)
    installed = inputs.facts.installed.get(name, "")
    there = [one.version for one in offered]
    if upstream(installed) == version and (installed in there or not offered):
        # The newest comes first.
        is_newest = best is None or installed not in there or there.index(installed) <= there.index(best.version)
        if is_newest or not inputs.request.upgrade:
            return installed
    return best.version if best else f"{version}-*"


def _revisions(names: Iterable[str], version: str, inputs: _Inputs) -> dict[str, str]:
    """The full version of each package: one revision for all that are built from the same source.

    The installed revision stays while all packages are installed or offered in it.
    """
    found = {name: _full_version(name, version, inputs) for name in names}
    offers = {name: [one for one in inputs.offers(name) if one.upstream == version] for name in found}
    by_source: dict[str, list[str]] = {}
    for name, known in offers.items():
        if known and known[0].built_from:
            by_source.setdefault(known[0].built_from, []).append(name)
    for group in by_source.values():
        common = [
            revision
            for revision in dict.fromkeys(found[name] for name in group)
            if all(
                any(one.version == revision for one in offers[name]) or inputs.facts.installed.get(name) == revision
                for name in group
            )
        ]
        installed = [one for one in common if any(inputs.facts.installed.get(name) == one for name in group)]
        # What the host's own preferences have at such a priority, the role's cannot outrank.
        ranks = {one.version: one.priority for name in group for one in offers[name] if one.priority >= PINNED}
        preferred = [one for one in ranks if one in common and ranks[one] == max(ranks.values())]
        if common:
            kept = common if inputs.request.upgrade else installed or common
            found.update(dict.fromkeys(group, (preferred or kept)[0]))
    return found


def _pins(names: DriverRequest, packages: Packages, inputs: _Inputs) -> Iterator[Pin]:
    """apt's preferences: the version, and of it only what the source has. The first record that fits a version counts.

    NVIDIA's repository and Ubuntu's archive have packages of the same names and versions up to branch 580. Debian's
    archive has the same version in several revisions, of which one is named.
    """
    version = names.version
    if not inputs.facts.uses_apt or "." not in version:
        return
    same = [one for one in inputs.offered.packages if one.upstream == version and one.sources]
    family = [one.name for one in same if is_of_driver(one.name, one.built_from)]
    every = tuple(dict.fromkeys((*packages.driver, *family)))
    is_revision = names.origin == DISTRIBUTION and inputs.facts.system == "Debian" and bool(family)
    globs = " ".join(dict.fromkeys((*every, *_FAMILY)))
    own = {one.version for one in same if inputs.request.source in one.sources and one.priority >= 0}
    for other in sorted({one.version for one in same} - own):
        yield Pin(globs, f"version {other}", EXCLUDED)
    if not is_revision:
        yield Pin(globs, f"version {version}-*", PINNED)
        return
    revisions = {**_revisions(family, version, inputs), **_revisions(packages.driver, version, inputs)}
    # What is installed decides for the whole driver only where it is one of the packages that are asked for.
    decided = {one.built_from: revisions[one.name] for one in same if one.name in packages.driver}
    for one in same:
        if one.version == decided.get(one.built_from):
            revisions[one.name] = one.version
    for revision in dict.fromkeys(revisions.values()):
        yield Pin(" ".join(name for name in every if revisions[name] == revision), f"version {revision}", PINNED)


def _has_no_streams(facts: Situation) -> bool:
    release = int(facts.release.split(".", maxsplit=1)[0] or 0)
    return release >= FIRST_RELEASE_WITHOUT_STREAMS and facts.distribution not in _WITH_STREAMS


def _stream(packages: Packages, facts: Situation) -> str:
    """A version that is kept stays in its stream."""
    return (
        ""
        if facts.uses_apt or packages.stream is None or _has_no_streams(facts)
        else f"nvidia-driver:{packages.stream}"
    )


def _removals(facts: Situation, desired: Sequence[str]) -> tuple[str, ...]:
    """The packages to remove; 32-bit libraries stay while their package stays."""
    return tuple(
        name
        for name in facts.family
        if name not in facts.unmanaged and re.sub(r":\w+$|\.i[3-6]86$", "", name) not in desired
    )
