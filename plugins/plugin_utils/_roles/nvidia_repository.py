# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's repositories and the keys that sign them, on one host. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ...module_utils._common.masking import masked
from .._machines import against_repository, machine_of
from .._planning.contract import Ask, Plan, RolePlanner, command, is_true, unread
from .._planning.platforms import platform_of
from .._planning.variable_forms import shown

CUDA, TOOLKIT, PPA, LOCAL = "cuda", "container_toolkit", "graphics_drivers", "local"
INSTALL, RECORD_USERS, REMOVE = "install", "record_users", "remove"
"""Steps: add or repair the repository; record another role that needs it; remove it."""
APT, DNF = "apt", "dnf"

# By the kernel's name of an architecture: its directory in the CUDA repository, and Debian's name.
_ARCHITECTURES = {"x86_64": ("x86_64", "amd64"), "aarch64": ("sbsa", "arm64")}
_TITLES = {CUDA: "NVIDIA CUDA", TOOLKIT: "NVIDIA Container Toolkit", PPA: "Graphics Drivers PPA"}
# Entries for the same repository in the sources of apt and dnf.
_OLD = {
    CUDA: r"//[^/\s]*nvidia\.(com|cn)/compute/cuda/repos/",
    TOOLKIT: r"//nvidia\.github\.io/(libnvidia-container|nvidia-container-runtime|nvidia-docker)/",
    PPA: r"//ppa\.launchpad(content)?\.net/graphics-drivers/ppa/",
}
# Debian 13 and newer reject this key since 2026-02-01. It signs the repositories for Debian 12 and Ubuntu.
_SHA1_KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"
_SIGNED_WITH_SHA1 = re.compile(r"/repos/(debian1[0-2]|ubuntu[0-9]+)/")
_FIRST_WITHOUT_SHA1 = 13
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_URL = re.compile(r"(https?|file)://.+")
_ATTEMPTS = (1, 2, 3, 4, 5)
_TRUTH = ("gpgcheck", "repo_gpgcheck")
# Nothing that they change is on the host after the run: how often to try, and what finds entries of others.
_RUN_ONLY = ("attempts", "old_line", "entry_files")
# What the record's hash counts besides the options of signed_repository.
_OF_RECORD = ("old", "sha256", "verified")
_KEYRING = re.compile(r"/var/[^/]+/[^/]+-keyring\.gpg$")
_ENTRY = re.compile(r"/etc/(apt/sources\.list\.d|yum\.repos\.d)/.")

_KEYS = "__nvidia_repository_keys"
# The repository package of a driver.
_OF_DRIVER = ("nvidia_driver_local_repository", "nvidia_driver_local_repository_sha256")
Keys = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Request:
    """The variables of the role for one repository; `given` are the user's values, without null."""

    name: str
    is_present: bool = True
    given: Mapping[str, Any] = field(default_factory=dict)
    local: Sequence[Mapping[str, Any]] = ()
    needed_by: str = ""
    attempts: Any = 4

    @classmethod
    def read(cls, variables: Mapping[str, Any], name: str) -> Request:
        """The request of the repository `name`."""
        return cls(
            name,
            variables.get("nvidia_repository_state", "present") == "present",
            {
                key: is_true(value) if key in _TRUTH else value
                for key, value in (variables.get(f"nvidia_repository_{name}") or {}).items()
                if value is not None
            }
            if name != LOCAL
            else {},
            variables["nvidia_repository_local"] if name == LOCAL else (),
            variables.get("nvidia_repository_needed_by", ""),
            variables["nvidia_repository_attempts"],
        )

    @classmethod
    def of_role(cls, variables: Mapping[str, Any], name: str, role: str) -> Request:
        """The request of a role that needs the repository, also where the user's variable has the state absent."""
        return cls.read({**variables, "nvidia_repository_state": "present", "nvidia_repository_needed_by": role}, name)

    @property
    def option(self) -> str:
        """The user's variable."""
        return f"nvidia_repository_{self.name}"

    @property
    def is_signed(self) -> bool:
        """Whether it is a repository with a key, and not packages that contain one."""
        return self.name != LOCAL


@dataclass(frozen=True)
class Host:
    """What the planner knows of the host; `manager` is empty where it has neither apt nor dnf."""

    platform: Mapping[str, Any]
    architecture: str
    manager: str
    release: str = ""
    records: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Host:
        """The host with these facts of Ansible, whose names have no prefix."""
        manager = {"Debian": APT, "RedHat": DNF}.get(str(facts["os_family"]), "")
        records = facts["gpu_fleet_managed"]
        release = facts.get("distribution_release", "")
        return cls(platform_of(facts), facts["architecture"], manager, release, records, machine_of(facts))


def plan(request: Request, host: Host, keys: Keys) -> Plan:
    """Plan one repository; `keys` are the signing keys that the role knows."""
    definition = {} if request.name == LOCAL else define(request, host, keys)
    inputs = _inputs(request, definition)
    record_name = f"nvidia_repository.{request.name}"
    record = host.records.get(record_name) or {"inputs": "", "drift": [], "data": {}}
    before = list(record["data"].get("needed_by") or [])
    after = _needed_after(request, before)
    is_as_recorded = record["inputs"] == inputs and not record["drift"]
    is_converged = is_as_recorded and before == after
    step, files = "", _files(request, host)
    if not (request.is_present or after):
        step = REMOVE if record_name in host.records else ""
    elif not is_converged:
        step = RECORD_USERS if is_as_recorded and request.name != LOCAL else INSTALL
    return Plan(
        refusals=tuple(_refusals(request, host, definition)) if request.is_present and not is_converged else (),
        steps=(step,) if step else (),
        reasons=_reasons(record, record_name in host.records, inputs, after),
        inputs=inputs,
        tasks={
            "name": request.name,
            "step": step,
            "is_recorded": record_name in host.records,
            "needed_by": after,
            "uses_apt": host.manager == APT,
            # The URL of a recorded repository may have a password.
            "recorded": {name: record["data"].get(name) or [] for name in ("packages", "fingerprints")},
            "keyrings": [path for path in record["data"].get("files") or [] if path.startswith("/usr/share/keyrings/")],
            "query_name": ["dpkg-deb", "--show", "--showformat=${Package}"]
            if host.manager == APT
            else ["rpm", "--query", "--queryformat=%{NAME}", "--package"],
            "removed": _removed(request, host, record["data"]),
            **{name: files[name] for name in ("files", "unwanted_files")},
        },
    )


def define(request: Request, host: Host, keys: Keys) -> dict[str, Any]:
    """The repository, with what its record counts. Its URLs may have a password: never register it."""
    vendor = _vendor(request, host, keys)
    given = request.given
    url = re.sub(r"([^/])/*$", r"\1/", str(given.get("url", vendor["url"])))
    fingerprints = [re.sub(r"\s+", "", str(one)).upper() for one in given.get("fingerprints", vendor["fingerprints"])]
    old = _OLD[request.name] + ("|" + re.escape(url.rstrip("/")) if "url" in given else "")
    files = _files(request, host)
    return {
        **vendor,
        **given,
        "fingerprints": fingerprints,
        "url": url,
        "key_sha256": "" if fingerprints else vendor.get("sha256", ""),
        "role": "nvidia_repository",
        "name": request.name,
        "source_file": files["source_file"],
        "key_file": files["key_file"],
        "old_line": rf"^[^#\n]*({old})",
        "entry_files": ["/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"]
        if host.manager == APT
        else ["/etc/yum.repos.d/*.repo"],
        "attempts": request.attempts,
        "url_option": f"{request.option}.url",
        "key_url_option": f"{request.option}.key_url",
        "fingerprints_option": f"{request.option}.fingerprints",
    }


def _options(request: Request, host: Host, keys: Keys) -> dict[str, Any]:
    """The repository of signed_repository."""
    definition = define(request, host, keys)
    # The next version of NVIDIA's package would restore its entry, its key and its pin.
    has_package = request.name == CUDA and host.manager == APT
    return {
        **{name: value for name, value in definition.items() if name not in _OF_RECORD},
        "preferences_file": _files(request, host)["preferences_file"],
        "old_packages": ["cuda-keyring"] if has_package else [],
        "old_files": ["/etc/apt/preferences.d/cuda-repository-pin-600"] if has_package else [],
    }


def files_of_packages(listed: Sequence[str], uses_apt: bool) -> dict[str, list[str]]:
    """Of the files of repository packages: what must not change, and for apt the keys to copy and its new sources."""
    entries = [path for path in listed if _ENTRY.match(path)]
    keyrings = [path for path in listed if _KEYRING.match(path)] if uses_apt else []
    copies = [f"/usr/share/keyrings/{PurePosixPath(path).name}" for path in keyrings]
    return {"keyrings": keyrings, "files": entries + copies, "sources": entries if uses_apt else []}


def _vendor(request: Request, host: Host, keys: Keys) -> dict[str, Any]:
    directory, debian = _ARCHITECTURES.get(host.architecture, ("", ""))
    shared: dict[str, Any] = {"title": _TITLES[request.name]}
    if request.name == CUDA:
        release = host.platform["cuda_repository"]
        unknown: Mapping[str, Any] = {"file": "", "fingerprints": [], "verified": False}
        key = keys[host.platform["cuda_key"]] if host.platform["supported"] else unknown
        url = (
            f"https://developer.download.nvidia.com/compute/cuda/repos/{release}/{directory}/"
            if release and directory
            else ""
        )
        if "url" in request.given:
            url = f"{str(request.given['url']).rstrip('/')}/"
        return {
            **shared,
            "id": f"cuda-{release}-{directory}",
            "url": url,
            "key_url": f"{url}{key['file']}" if key["file"] else "",
            "fingerprints": key["fingerprints"],
            "sha256": key.get("sha256", ""),
            "verified": key["verified"],
            "suite": "/",
            "component": "",
            "old": _OLD[CUDA],
        }
    key = keys[request.name]
    if request.name == TOOLKIT:
        below = f"deb/{debian}/" if host.manager == APT else f"rpm/{host.architecture}/"
        identifier, suite, component = "nvidia-container-toolkit", "/", ""
        url = f"https://nvidia.github.io/libnvidia-container/stable/{below}"
        key_url = "https://nvidia.github.io/libnvidia-container/gpgkey"
    else:
        identifier, suite, component = "graphics-drivers", host.release, "main"
        url = "https://ppa.launchpadcontent.net/graphics-drivers/ppa/ubuntu/"
        key_url = f"https://keyserver.ubuntu.com/pks/lookup?op=get&options=mr&search=0x{key['fingerprints'][0]}"
    return {
        **shared,
        "id": identifier,
        "url": url,
        "key_url": key_url,
        "fingerprints": key["fingerprints"],
        "verified": key["verified"],
        "suite": suite,
        "component": component,
        "old": _OLD[request.name],
    }


def _files(request: Request, host: Host) -> dict[str, Any]:
    name = request.name.replace("_", "-") if request.name == PPA else f"nvidia-{request.name.replace('_', '-')}"
    source, key, preferences = (
        (f"/etc/apt/sources.list.d/{name}.sources", f"/etc/apt/keyrings/{name}.asc", f"/etc/apt/preferences.d/{name}")
        if host.manager == APT
        else (f"/etc/yum.repos.d/{name}.repo", f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{name}", "")
    )
    has_preferences = bool(preferences) and bool(request.given.get("exclude") or "priority" in request.given)
    return {
        "source_file": source,
        "key_file": key,
        "preferences_file": preferences,
        "files": [source, key, *([preferences] if has_preferences else [])],
        "unwanted_files": [preferences] if preferences and not has_preferences else [],
    }


def _removed(request: Request, host: Host, data: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded repository as signed_repository removes it. Names of lists leave out the user of a URL."""
    files = _files(request, host)
    return {
        "name": request.name,
        "id": str(data.get("id", "")),
        "url": re.sub(r"(?<=://)[^/]*@", "", str(data.get("url", ""))),
        "fingerprints": [one for one in data.get("fingerprints") or [] if _FINGERPRINT.fullmatch(str(one))],
        **{name: files[name] for name in ("source_file", "key_file", "preferences_file")},
    }


def _inputs(request: Request, definition: Mapping[str, Any]) -> str:
    """The hash that the record keeps."""
    kept: Any = {name: value for name, value in definition.items() if name not in _RUN_ONLY}
    return hashlib.sha256(
        json.dumps(list(request.local) if request.name == LOCAL else kept, sort_keys=True).encode()
    ).hexdigest()


def _needed_after(request: Request, before: Sequence[str]) -> list[str]:
    """The roles that need the repository after this run."""
    if request.is_present:
        return sorted({*before, *([request.needed_by] if request.needed_by else [])})
    return [name for name in before if name != request.needed_by] if request.needed_by else []


def _reasons(record: Mapping[str, Any], is_recorded: bool, inputs: str, needed: Sequence[str]) -> tuple[str, ...]:
    if record["drift"]:
        return tuple(found["message"] for found in record["drift"])
    if not is_recorded:
        return ("it is not configured yet",)
    if record["inputs"] != inputs:
        return ("its variables differ from the last run",)
    return (f"it is needed by {', '.join(needed) or 'no named role'}",)


# Refusals


def _refusals(request: Request, host: Host, definition: Mapping[str, Any]) -> Iterator[str]:
    if request.name == LOCAL:
        if not request.local or not all(_SHA256.fullmatch(str(one.get("sha256", ""))) for one in request.local):
            yield (
                "nvidia_repository_local has to name at least one repository package, each with its source and its "
                "sha256 of 64 hexadecimal digits"
            )
    elif request.name == PPA and not host.platform["name"].startswith("Ubuntu "):
        instead = (
            "set nvidia_driver_source to cuda_repository or distribution"
            if request.needed_by == "nvidia_driver"
            else "use cuda in nvidia_repository_repositories"
        )
        yield f"the graphics-drivers PPA is for Ubuntu, and this is {host.platform['name']}; {instead}"
    elif (
        request.name in (CUDA, PPA) and "url" not in request.given and against_repository(host.machine, request.option)
    ):
        yield against_repository(host.machine, request.option)
    elif not host.manager or (
        "url" not in request.given and not (host.platform["supported"] and host.architecture in _ARCHITECTURES)
    ):
        yield (
            f"no repository {request.name} is known for {host.platform['name']} on {host.architecture}; supported: "
            f"{', '.join(host.platform['known'])} on {', '.join(_ARCHITECTURES)}; for another set url, key_url and "
            f"fingerprints in {request.option}"
        )
    else:
        yield from _key_refusals(request, host, definition)
        yield from _url_refusals(request, definition)
    if request.attempts not in _ATTEMPTS or isinstance(request.attempts, bool):
        yield f"nvidia_repository_attempts has to be 1 to 5, and is {shown(request.attempts)}"


def _key_refusals(request: Request, host: Host, definition: Mapping[str, Any]) -> Iterator[str]:
    fingerprints, option = definition["fingerprints"], request.option
    is_signed_with_sha1 = _SHA1_KEY in fingerprints or (
        "fingerprints" not in request.given and _SIGNED_WITH_SHA1.search(definition["url"])
    )
    if _rejects_sha1(host.platform["name"]) and is_signed_with_sha1:
        yield (
            f"{host.platform['name']} rejects NVIDIA's key 3BF863CC since 2026-02-01, because its self-signature was "
            f"made with SHA-1, and it signs the repositories for Debian 12 and Ubuntu; leave {option}.url out for the "
            f"one for {host.platform['name']}, or set the fingerprint of another key"
        )
    wrong = [one for one in fingerprints if not _FINGERPRINT.fullmatch(one)]
    if wrong or not (fingerprints or definition["key_sha256"]):
        what = (
            f"these are not fingerprints: {', '.join(wrong)[:60]}"
            if wrong
            else "this collection knows none; get it from NVIDIA, not from the server that has the key"
        )
        yield f"set the fingerprint of the repository's key, 40 hexadecimal digits, in {option}.fingerprints ({what})"


def _rejects_sha1(platform: str) -> bool:
    debian = re.fullmatch(r"Debian ([0-9]+)([.].*)?", platform)
    return debian is not None and int(debian[1]) >= _FIRST_WITHOUT_SHA1


def _url_refusals(request: Request, definition: Mapping[str, Any]) -> Iterator[str]:
    option, key_url = request.option, str(definition["key_url"])
    if not _URL.fullmatch(definition["url"]):
        given = request.given.get("url", definition["url"])
        yield f"{option}.url is {_shown(given)}; it has to be a URL (https, http or file)"
    elif "key" in definition:
        return
    elif not _URL.fullmatch(key_url):
        # Where no fingerprint is known either, only this collection lacks it, and its refusal names what to set.
        if key_url or definition["fingerprints"]:
            what = "it has to be a URL (https, http or file)"
            yield f"{option}.key_url is {_shown(key_url)}; {what}, or set {option}.key"
    elif key_url.startswith("http://") and not (definition["verified"] or "fingerprints" in request.given):
        # A fingerprint published by third parties only must not be the only check.
        yield (
            "NVIDIA has not published the fingerprint of this key, so it has to come over https or from a file, not "
            f"from {_shown(key_url)}; or set the fingerprint that you have verified in {option}.fingerprints"
        )


def _shown(url: str) -> str:
    return shown(masked(url))


# For the tasks


def _requests(variables: Mapping[str, Any], given: Mapping[str, Any]) -> list[Request]:
    """The requests of the role's variables, or the `needed` ones of an including role, which no -e can change."""
    needed = {f"nvidia_repository_{name}": value for name, value in (given.get("needed") or {}).items()}
    if needed.get("nvidia_repository_state") == "present" and LOCAL in needed["nvidia_repository_repositories"]:
        source, sha256 = (variables[name] for name in _OF_DRIVER)
        needed["nvidia_repository_local"] = [{"source": source, "sha256": sha256}]
    values = {**variables, **needed}
    return [Request.read(values, name) for name in values["nvidia_repository_repositories"]]


def _plans(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> list[Plan]:
    host = Host.of(facts)
    return [plan(one, host, variables[_KEYS]) for one in _requests(variables, given)]


def _definitions(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    host, requests = Host.of(facts), _requests(variables, given)
    found = {one.name: _options(one, host, variables[_KEYS]) for one in requests if one.is_signed}
    return {"definitions": found, "local": [dict(package) for one in requests for package in one.local]}


def _sorted(
    _variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]
) -> Plan | dict[str, list[str]] | Ask:
    uses_apt = Host.of(facts).manager == APT
    lists = ("dpkg-query", "--listfiles") if uses_apt else ("rpm", "--query", "--list")
    asked = unread(given, {"listed": command(*lists, *map(str, given["names"]))})
    if asked:
        return asked
    listed = given["listed"]
    if listed.get("rc") != 0:
        why = str(listed.get("stderr") or listed.get("msg")).strip()
        return Plan((f"the files of {', '.join(given['names'])} cannot be listed: {why}",))
    return files_of_packages(listed["stdout"].splitlines(), uses_apt)


PLANNER = RolePlanner(
    "nvidia_repository",
    {"plan": _plans, "definitions": _definitions, "packages": _sorted},
    tables=(_KEYS,),
    secret=("definitions",),
    others=_OF_DRIVER,
    reads=("nvidia_repository_attempts",),
)
