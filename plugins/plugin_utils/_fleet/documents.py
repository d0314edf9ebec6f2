# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host returned, read once for all that decides over many hosts. Private to this collection.

A host may return anything. Whoever decides over many takes only what has passed here: documents of the form that the
documentation of their module has, or, of those that decide by a few values, the dataclasses below. Each is bounded in
its values, text, lists and numbers, and nothing that has no form is looked into. FormError is for one host, which is
named and counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import REMEDIES, VERDICTS

WHAT_TO_DO = "no module of this collection returns that: check who changed the host"

_Document = TypeVar("_Document")
Scalar = str | int | float | bool | None

_TYPES: Mapping[str, Any] = {
    **{"str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": Mapping, "links": Mapping},
    "scalar": (str, int, float, bool, type(None)),
}
_WORDS = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list"}
# Lists and dictionaries are never null, but for those whose documentation has it; of other values only these.
_NEVER_NULL = frozenset(
    (
        *("pci_gpu_count", "nics.rdma", "topology.label"),
        *("instances.profile", "instances.placement_start", "instances.placement_size"),
        *("verdict", "remedy", "gpus.verdict", "gpus.remedy", "changes.time", "changes.verdict"),
        *("findings.row", "findings.verdict", "findings.remedy", "findings.message", "xids.code", "xids.count"),
        *("error_history.time", "error_history.kind", "error_history.count"),
    )
)
_CHOICES: Mapping[str, Sequence[str]] = {"verdict": VERDICTS, "remedy": tuple(REMEDIES)}
# The kernel module supports 32 GPUs in a system: NV_MAX_DEVICES,
# https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/src/common/sdk/nvidia/inc/nvlimits.h
_MOST = {"gpus": 64, "topology": 256, "nics": 1024, "instances": 64, "processes": 1024, "nvlinks": 64}
_MOST_ELEMENTS = 10_000
_MOST_LINKS = 512
_MOST_VALUES = 200_000
_MOST_TEXT = 4 << 20
_LONGEST_TEXT, _LONGEST_LINK = 16_384, 64
# What a program printed, of which a part of a character may be, as of a library's warning.
_OUTPUT = ("stdout", "stderr", "msg")
_LONGEST = {"version": 64, "driver": 64, "row": 256, "gpu": 128, "uuid": 128, **dict.fromkeys(_OUTPUT, 2 << 20)}
"""By the last word of a name; of another text _LONGEST_TEXT."""
_LARGEST = 1 << 62
# As the modules read them, see module_utils/_nvidia_smi/values.py; an all-reduce has no fewer than a microsecond.
_BOUNDS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("placement_start", "placement_size", "pci_link_gen_max", "pci_link_width_current"), (0, 64)),
    "speed_gb_per_second": (0, 100_000),
    "seconds": (1e-6, 86_400),
}
"""Of numbers by their name."""
_UNITS: Mapping[str, tuple[float, float]] = {
    "mib": (0, 2**30),
    "w": (0, 100_000),
    "c": (-273, 1000),
    "percent": (0, 1000),
}
"""Of numbers by their unit, the last word of their name."""


class FormError(ValueError):
    """What is wrong, and where: `place` is the path to the value, empty for the document itself."""

    def __init__(self, wrong: str, place: str = "") -> None:
        super().__init__(wrong)
        self.wrong, self.place = wrong, place

    def __str__(self) -> str:
        return f"{self.place or 'it'} {self.wrong}"

    def within(self, name: object) -> FormError:
        """The error of the surrounding value: by a name, or the number of an element."""
        step = f"[{name}]" if isinstance(name, int) else str(name)[:_LONGEST_LINK]
        joined = self.place if not self.place or self.place.startswith("[") else f".{self.place}"
        return type(self)(self.wrong, f"{step}{joined}")


class _TooMuchError(FormError):
    """The error of the whole document."""

    def __str__(self) -> str:
        return f"there are more than {_MOST_VALUES} values or {_MOST_TEXT >> 20} MiB of text"


@dataclass(frozen=True)
class Form:
    """What a value may be: its kind, whether it may be null, and its bounds.

    members: of a dictionary; what else it has is left out. element: of a list, or of a dictionary with any names. make:
    what the read members become. One that is `optional` may be missing, and is then left out; `name` is the name in the
    document, where its field has another. most: the largest number, the longest text, the longest list.
    """

    kind: str
    is_nullable: bool = False
    members: Mapping[str, Form] | None = None
    element: Form | None = None
    make: Callable[..., Any] = dict
    optional: bool = False
    name: str = ""
    least: float = -_LARGEST
    most: float = _LARGEST
    choices: Sequence[str] = ()
    check: str = ""


class _Budget:
    """What one host may return at most; each part of it is within its own bounds."""

    def __init__(self) -> None:
        self.values, self.text = _MOST_VALUES, _MOST_TEXT

    def take(self, text: int = 0) -> None:
        self.values, self.text = self.values - 1, self.text - text
        if self.values < 0 or self.text < 0:
            raise _TooMuchError("")


# What a module documents


def facts_of(host: object) -> dict[str, Any]:
    """The facts of report_facts; raises FormError."""
    found: dict[str, Any] = _read(_documented()[0], host, _Budget())
    return found


def health_of(result: object) -> dict[str, Any]:
    """The result of gpu_health without what Ansible adds to it; raises FormError."""
    found: dict[str, Any] = _read(_documented()[1], result, _Budget())
    return found


@cache
def _documented() -> tuple[Form, Form]:
    # The callbacks of each run read dataclasses alone.
    from ansible_collections.gpu.fleet.plugins.modules import gpu_health, report_facts  # noqa: PLC0415

    facts, health = yaml.safe_load(report_facts.RETURN), yaml.safe_load(gpu_health.RETURN)
    return _form_of("", facts["host"]), _form_of("", {"type": "dict", "contains": health})


def _form_of(path: str, documented: Mapping[str, Any]) -> Form:
    kind, name = documented["type"], path.rpartition(".")[2]
    if kind in ("list", "dict"):
        is_nullable = "V(null)" in str(documented.get("description"))
    else:
        is_nullable = ".".join(path.split(".")[-2:]) not in _NEVER_NULL
    if kind == "list":
        element = _form_of(path, {**documented, "type": documented["elements"], "description": ""})
        element = replace(element, is_nullable=False)
        return Form(kind, is_nullable, element=element, make=list, most=_MOST.get(name, _MOST_ELEMENTS))
    if kind == "dict" and "contains" in documented:
        members = {
            inner: _form_of(f"{path}.{inner}" if path else inner, one) for inner, one in documented["contains"].items()
        }
        return Form(kind, is_nullable, members)
    return _bounded(name, "links" if kind == "dict" else kind, is_nullable)


def _bounded(name: str, kind: str, is_nullable: bool) -> Form:
    """The form of a value by its name, which has its unit."""
    word = name.rpartition("_")[2]
    if kind in ("int", "float"):
        least, most = _BOUNDS.get(name) or _UNITS.get(word) or (-_LARGEST, _LARGEST)
        return Form(kind, is_nullable, least=least, most=most)
    longest = _LONGEST.get(name) or _LONGEST.get(word, _LONGEST_TEXT)
    check = name if name in ("row", "time", *_OUTPUT) else ""
    return Form(kind, is_nullable, most=longest, choices=_CHOICES.get(name, ()), check=check)


# What is read of it, where a few values decide. A field with a default may be missing; a module gives the names.


@dataclass(frozen=True)
class Finding:
    """A row of the health policy that holds."""

    row: str
    verdict: str
    remedy: str
    message: str
    gpu: str | None = None


@dataclass(frozen=True)
class PlacedGpu:
    """A GPU with its place in the NVLink fabric."""

    name: str | None = None
    fabric_cluster_uuid: str | None = None
    fabric_clique_id: int | None = None


@dataclass(frozen=True)
class JudgedGpu(PlacedGpu):
    """A GPU of gpu_health, by its names."""

    uuid: str | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True)
class MeasuredTest:
    """A test of gpu_health."""

    name: str
    evidence: str


@dataclass(frozen=True)
class Health:
    """Of the result of gpu_health what decides about its host."""

    verdict: str
    findings: tuple[Finding, ...]
    gpus: tuple[JudgedGpu, ...] = ()
    driver_version: str | None = None
    time: str | None = None
    tests: tuple[MeasuredTest, ...] = ()


@dataclass(frozen=True)
class Imex:
    """The service of IMEX, as cuda_facts has it."""

    installed: bool | None = None
    version: str | None = None
    state: str | None = None
    enabled: str | None = None
    domain_status: str | None = None
    nodes_not_ready: Mapping[str, str] = field(default_factory=dict)
    channels: int | None = None


@dataclass(frozen=True)
class Placement:
    """What a host has of an NVLink domain, as `nvlink_domains.observed` puts it together."""

    driver: str | None = None
    gpus: tuple[PlacedGpu, ...] = ()
    imex: Imex = field(default_factory=Imex)


@dataclass(frozen=True)
class Process:
    """A process on a GPU."""

    pid: int | None
    name: str | None


@dataclass(frozen=True)
class Link:
    """An NVLink of a GPU."""

    active: bool | None
    speed_gb_per_second: float | None
    remote_pci_bus_id: str | None


@dataclass(frozen=True)
class LinkedGpu:
    """Of the GPUs of nvidia_smi_facts what an all-reduce runs on. Readings that a GPU does not have are left out."""

    index: int | None = None
    pci_bus_id: str | None = None
    mig_mode_current: str | None = None
    processes: tuple[Process, ...] | None = None
    nvlinks: tuple[Link, ...] | None = None
    pci_link_gen_max: int | None = None
    pci_link_width_current: int | None = None
    fabric_cluster_uuid: str | None = None
    fabric_clique_id: int | None = None


@dataclass(frozen=True)
class Adapter:
    """A network adapter of report_facts."""

    rdma: bool
    up: bool | None
    speed_gb_per_second: float | None


@dataclass(frozen=True)
class LinkedGpus:
    """The fact nvidia_smi."""

    gpus: tuple[LinkedGpu, ...]


@dataclass(frozen=True)
class Adapters:
    """The facts of report_facts."""

    nics: tuple[Adapter, ...] = ()


@dataclass(frozen=True)
class Ended:
    """The result of a task that ran a program, or that waited for its end."""

    rc: int | None = None
    finished: Scalar = None
    skipped: Scalar = None
    stdout: str | None = None
    stderr: str | None = None
    msg: str | None = None


@dataclass(frozen=True)
class Printed:
    """What the program of the acceptance prints."""

    seconds: tuple[float, ...]
    wrong: Scalar
    bytes: int | None = None
    world: int | None = None


# What a run shows of its hosts at its end; any part of it may not have been read.


@dataclass(frozen=True)
class Message:
    """A finding for people."""

    verdict: str
    message: str


@dataclass(frozen=True)
class Judged:
    """The result of the module gpu_health; without a verdict it has failed."""

    verdict: str | None = None
    remedy: str | None = None
    findings: tuple[Message, ...] = ()
    driver_version: str | None = None
    gpus: tuple[PlacedGpu, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What a container has seen."""

    gpus: int | None = None
    mig_devices: int | None = None
    mode: str | None = None


@dataclass(frozen=True)
class RoleHealth:
    """The fact gpu_health_result of the role."""

    ok: bool | None = None
    verdict: str | None = None
    remedy: str | None = None
    reasons: tuple[str, ...] | None = None
    notes: tuple[str, ...] | None = None
    findings: tuple[Message, ...] | None = None
    containers: Seen | None = None


@dataclass(frozen=True)
class Device:
    """What is only counted."""


@dataclass(frozen=True)
class ListedGpu:
    """A GPU of nvidia_smi_facts."""

    index: int | None = None
    name: str | None = None
    ecc_mode_current: str | None = None
    ecc_mode_pending: str | None = None
    mig_mode_current: str | None = None
    mig_mode_pending: str | None = None
    mig_devices: tuple[Device, ...] | None = None


@dataclass(frozen=True)
class Listed:
    """The fact nvidia_smi."""

    reason: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[ListedGpu, ...] | None = None
    pci_gpus: tuple[Device, ...] | None = None


@dataclass(frozen=True)
class Version:
    """A version of anything."""

    version: str | None = None


@dataclass(frozen=True)
class DriverVersions:
    """The driver on the disk and the loaded one."""

    library_version: str | None = None
    loaded_version: str | None = None


@dataclass(frozen=True)
class Libraries:
    """Libraries of CUDA."""

    cudnn: tuple[Version, ...] = ()
    nccl: tuple[Version, ...] = ()
    tensorrt: tuple[Version, ...] = ()


@dataclass(frozen=True)
class Services:
    """Services of the driver."""

    fabric_manager: Version = field(default_factory=Version)


@dataclass(frozen=True)
class Cuda:
    """The fact cuda."""

    driver: DriverVersions = field(default_factory=DriverVersions)
    toolkits: tuple[Version, ...] = ()
    libraries: Libraries = field(default_factory=Libraries)
    services: Services = field(default_factory=Services)
    container_toolkit: Version = field(default_factory=Version)


@dataclass(frozen=True)
class Drift:
    """What has drifted since the last run of a role."""

    message: str


@dataclass(frozen=True)
class Record:
    """The record of a role in the fact gpu_fleet_managed."""

    drift: tuple[Drift, ...] | None = None


@dataclass(frozen=True)
class Packages:
    """The packages of Docker in the fact packages."""

    docker_ce: tuple[Version, ...] = field(default=(), metadata={"name": "docker-ce"})
    docker_io: tuple[Version, ...] = field(default=(), metadata={"name": "docker.io"})
    moby_engine: tuple[Version, ...] = field(default=(), metadata={"name": "moby-engine"})


@dataclass(frozen=True)
class Facts:
    """Of the facts of a host what a run shows at its end."""

    packages: Packages | None = None
    nvidia_smi: Listed | None = None
    cuda: Cuda | None = None
    gpu_fleet_managed: Mapping[str, Record] | None = None
    gpu_health_result: RoleHealth | None = None
    nvidia_container_toolkit_seen: Seen | None = None


@dataclass(frozen=True)
class Work:
    """The plan of host_facts."""

    work: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """What a task has changed, and why."""

    changed: Scalar = None
    reason: Scalar = None
    commands: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Done(Change):
    """The result of a task of our modules, as far as it is shown at the end of a run."""

    ansible_facts: Facts | None = None
    plan: Work | None = None
    results: tuple[Change, ...] | None = None


def read(document: type[_Document], value: object) -> _Document:
    """What the dataclass has of a document; raises FormError."""
    form: Any = document
    found: _Document = _read(_form_of_class(form), value, _Budget())
    return found


@cache
def _form_of_class(document: Any) -> Form:
    hints = get_type_hints(document)
    members = {
        one.name: replace(
            _form_of_hint(one.name, hints[one.name]),
            optional=one.default is not MISSING or one.default_factory is not MISSING,
            name=one.metadata.get("name", ""),
        )
        for one in fields(document)
    }
    return Form("dict", members=members, make=document)


def _form_of_hint(name: str, hint: Any) -> Form:
    if hint == Scalar:
        return Form("scalar", True, most=_LONGEST_TEXT)
    (kind,) = [one for one in get_args(hint) if one is not NoneType] if isinstance(hint, UnionType) else [hint]
    is_nullable = isinstance(hint, UnionType)
    if get_origin(kind) is tuple:
        element = _form_of_hint(name, get_args(kind)[0])
        return Form("list", is_nullable, element=element, make=tuple, most=_MOST.get(name, _MOST_ELEMENTS))
    if get_origin(kind) is Mapping and get_args(kind)[1] is not str:
        return Form("dict", is_nullable, element=_form_of_hint(name, get_args(kind)[1]), most=_MOST_LINKS)
    if get_origin(kind) is Mapping:
        return Form("links", is_nullable)
    if is_dataclass(kind):
        document: Any = kind
        return replace(_form_of_class(document), is_nullable=is_nullable)
    return _bounded(name, kind.__name__, is_nullable)


# Reading


def _read(form: Form, value: Any, budget: _Budget) -> Any:
    budget.take(len(value) if isinstance(value, str) else 0)
    if value is None and form.is_nullable:
        return None
    # In Python true is a number.
    is_other = isinstance(value, bool) is not (form.kind == "bool") and form.kind != "scalar"
    if is_other or not isinstance(value, _TYPES[form.kind]):
        raise FormError(f"is {shown(value)}, not {_WORDS.get(form.kind, 'a dictionary')}")
    if form.members is not None:
        read_members = dict(_members(form.members, value, budget))
        return read_members if form.make is dict else form.make(**read_members)
    if form.kind == "links":
        return dict(_links(value, budget))
    if form.element is not None:
        if len(value) > form.most:
            raise FormError(f"has {len(value)} elements, more than {form.most}")
        if form.kind == "dict":
            return {_name(name): _inner(form.element, item, name, budget) for name, item in value.items()}
        return form.make([_inner(form.element, item, place, budget) for place, item in enumerate(value)])
    wrong = _wrong(form, value)
    if wrong:
        raise FormError(f"is {shown(value)}, {wrong}")
    return value


def _inner(form: Form, value: Any, name: object, budget: _Budget) -> Any:
    try:
        return _read(form, value, budget)
    except FormError as error:
        raise error.within(name) from None


def _members(forms: Mapping[str, Form], value: Mapping[Any, Any], budget: _Budget) -> Iterator[tuple[str, Any]]:
    """What has a form; whatever else there is, Ansible's own keys among it, is left out."""
    for name, form in forms.items():
        key = form.name or name
        if key in value:
            yield name, _inner(form, value[key], key, budget)
        elif not form.optional:
            raise FormError("is missing", key)


def _name(name: object) -> str:
    if not isinstance(name, str) or len(name) > _LONGEST_LINK or _is_no_unicode(name):
        raise FormError(f"has {shown(name)}, not text of up to {_LONGEST_LINK} characters")
    return name


def _links(value: Mapping[Any, Any], budget: _Budget) -> Iterator[tuple[str, str]]:
    """A dictionary whose names are not documented, such as names of devices and hosts: text by text."""
    if len(value) > _MOST_LINKS:
        raise FormError(f"has {len(value)} elements, more than {_MOST_LINKS}")
    for name, text in value.items():
        budget.take()
        budget.take()
        yield _name(name), _name(text)


def _wrong(form: Form, value: Scalar) -> str:
    """What is wrong with a value of the right type, empty for nothing."""
    if isinstance(value, str):
        return _wrong_text(form, value)
    # NaN is not within them either.
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not form.least <= value <= form.most:
        return f"which nothing can have, from {form.least:g} to {form.most:g}"
    return ""


def _wrong_text(form: Form, value: str) -> str:
    if len(value) > form.most:
        return f"which has {len(value)} characters, more than {form.most}"
    if form.check not in _OUTPUT and _is_no_unicode(value):
        return "which is not Unicode"
    if form.choices and value not in form.choices:
        return f"not one of {', '.join(form.choices)}"
    if form.check == "row" and not value.isprintable():
        return "not the id of a row"
    return "not a time with its zone" if form.check == "time" and not _is_time(value) else ""


def _is_no_unicode(value: str) -> bool:
    return not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value)


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).utcoffset() is not None
    except ValueError:
        return False


def shown(value: object) -> str:
    """A value of a host in a message: one short line without control characters."""
    if isinstance(value, str):
        return ascii(value[:40]) + ("..." if len(value) > 40 else "")
    if isinstance(value, (int, float)) and not (isinstance(value, int) and abs(value) > 1 << 80):
        return repr(value)
    return "null" if value is None else "a number" if isinstance(value, int) else f"a {type(value).__name__}"
