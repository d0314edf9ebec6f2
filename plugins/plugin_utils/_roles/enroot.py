# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers for jobs of Slurm by enroot and pyxis. Private to this collection. Pure: no Ansible.

The variables of the role and what was read on the host in; downloads, files and refusals out. What enroot and pyxis
need and read is of https://github.com/NVIDIA/enroot/tree/main/doc and https://github.com/NVIDIA/pyxis.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .._planning.contract import Ask, Needs, Outlook, Plan, Readings, RolePlanner, command, is_true, unread
from .nvidia_container_toolkit.plan import TOOLKIT

_DIRECTORY = "/var/cache/gpu-fleet-enroot"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,200}")
_HOOK = re.compile(r"[0-9]{2}-[a-z0-9-]{1,60}\.sh")
_SETTING = re.compile(r"ENROOT_[A-Z_]{1,60}")
_OPTION = re.compile(r"[a-z_]{1,40}")
_WORD = re.compile(r"[^\s\"'#\\]{1,200}")
_PATH = re.compile(r"/[A-Za-z0-9._+/-]{1,200}")
_VERSION = re.compile(r"\b([0-9]{2}\.[0-9]{2}(?:\.[0-9]{1,2})?)\b")
_MANAGERS = {".deb": "apt", ".rpm": "dnf"}
_SOURCE = (".tar.gz", ".tgz", ".tar.xz")
# Names of an architecture in packages, by Ansible's name.
_ARCHITECTURES = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "aarch64")}
_SYSCTL = (
    "user.max_user_namespaces",
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
)
_READ_SYSCTL = ("sysctl", "-e", *_SYSCTL)
_ENROOT = "/usr/bin/enroot"
_SMI, _CONTAINER_CLI = "/usr/bin/nvidia-smi", "/usr/bin/nvidia-container-cli"
# Where `make install` and where packages put the line for plugstack.conf.
_BUILT, _PACKAGED = "/usr/local/share/pyxis/pyxis.conf", "/usr/share/pyxis/pyxis.conf"
_STAMP = "/usr/local/share/pyxis/gpu-fleet"
_ENROOT_STAMP = "/usr/share/enroot/gpu-fleet"
_PARSER, _RESTRICTED = "/usr/sbin/apparmor_parser", _SYSCTL[2]
_SETTINGS_FILE, _HOOKS = "/etc/enroot/enroot.conf.d/50-gpu-fleet.conf", "/etc/enroot/hooks.d"
# As rpm names what no package provides; what the packages that are installed need is dnf's to resolve. A condition such
# as "(a if b)" is no name that dnf installs.
_MISSING = re.compile(r"\t(?!\()(\S.{0,200}) is needed by (?!\(installed\) )\S+")
_PLUGIN = re.compile(r"^[ \t]*(?:required|optional)\s+(/[A-Za-z0-9._/-]{1,200}/spank_pyxis\.so)\s*$", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*include\s+(/[A-Za-z0-9._/-]{1,200})/\*(?:\.conf)?\s*$", re.MULTILINE)
_BUILD_PACKAGES = {"apt": ("gcc", "libc6-dev", "make"), "dnf": ("gcc", "make")}
# What enroot's Makefile and its package depend on, by pkg/deb/control. EL has no static libbsd.
_ENROOT_LIBRARIES = ("libbsd-dev", "libmd-dev")
_ENROOT_PROGRAMS = ("bsdextrautils", "curl", "jq", "parallel", "squashfs-tools", "zstd")
# Archives of GitHub lack the submodules of git: musl, makeself and headers of Linux. Instead of them enroot is linked
# with the libraries of the distribution, by its own FORCE_GLIBC; `enroot bundle`, which needs makeself, then fails. The
# profile of AppArmor names /usr/bin.
_ENROOT_COMMANDS = (
    ("mkdir", "-p", "deps/makeself", "deps/linux-headers"),
    ("touch", "deps/makeself/.stamp", "deps/linux-headers/.stamp"),
    ("install", "-D", "-m", "755", "/bin/false", "deps/dist/makeself/bin/enroot-makeself"),
    (
        *("make", "install", "FORCE_GLIBC=1", "prefix=/usr", "sysconfdir=/etc"),
        *("LDFLAGS=-Wl,-zrelro -Wl,-znow", "LDLIBS=-l:libbsd.a -l:libmd.a"),
    ),
)
_HEADERS = {"apt": "libslurm-dev", "dnf": "slurm-devel"}
_HEADER = "# Written by the role gpu.fleet.enroot; changes are overwritten.\n"


@dataclass(frozen=True)
class Artifact:
    """A package or an archive: where it is, and where it is kept on the host."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The last component of the URL."""
        return urlsplit(self.url).path.rpartition("/")[2]

    @property
    def file(self) -> str:
        """Where the host keeps it."""
        return f"{_DIRECTORY}/{self.name}"

    @property
    def manager(self) -> str:
        """apt or dnf; "" for anything else."""
        return next((manager for end, manager in _MANAGERS.items() if self.name.endswith(end)), "")

    @property
    def is_source(self) -> bool:
        """Whether it is built on the host."""
        return self.name.endswith(_SOURCE)


@dataclass(frozen=True)
class Request:
    """The variables of the role. `pyxis` is None where it is not declared."""

    packages: tuple[Artifact, ...] = ()
    settings: Mapping[str, str] | None = None
    hooks: tuple[str, ...] = ()
    pyxis: Artifact | None = None
    options: Mapping[str, str] | None = None
    job_gpus: bool = True
    config: str = "/etc/slurm"
    directory: str = ""
    refusals: tuple[str, ...] = ()

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request of these variables, with what is wrong in them."""
        given = {
            name: variables[f"enroot_{name}"] for name in ("packages", "settings", "hooks", "pyxis", "pyxis_options")
        }
        paths = {name: str(variables[f"enroot_{name}"]) for name in ("slurm_config_directory", "slurm_directory")}
        refusals = [
            *(text for at, one in enumerate(given["packages"]) for text in _artifact(f"enroot_packages[{at}]", one)),
            *(_artifact("enroot_pyxis", given["pyxis"]) if given["pyxis"] else ()),
            *_named("enroot_settings", given["settings"], _SETTING, "names such as ENROOT_DATA_PATH"),
            *_named("enroot_pyxis_options", given["pyxis_options"], _OPTION, "names such as container_scope"),
            *(
                f"enroot_hooks has {str(hook)[:80]!r}; it takes names such as 50-slurm-pmi.sh"
                for hook in given["hooks"]
                if not _HOOK.fullmatch(str(hook))
            ),
            *(
                f"enroot_{name} is {path[:80]!r}, and has to be an absolute path"
                for name, path in paths.items()
                if not _PATH.fullmatch(path) and (path or name != "slurm_directory")
            ),
        ]
        if sum(_read(one).is_source for one in given["packages"]) > 1:
            refusals.append("enroot_packages has more than one source; it takes one, the source of enroot")
        if not given["packages"]:
            refusals.insert(0, "enroot_packages is empty; it takes the packages of enroot with url and sha256")
        return cls(
            tuple(_read(one) for one in given["packages"]),
            {name: str(value) for name, value in given["settings"].items()},
            tuple(map(str, given["hooks"])),
            _read(given["pyxis"]) if given["pyxis"] else None,
            {name: _text(value) for name, value in given["pyxis_options"].items()},
            is_true(variables["enroot_job_gpus"]),
            paths["slurm_config_directory"].rstrip("/"),
            paths["slurm_directory"].rstrip("/"),
            tuple(refusals),
        )

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """All that is downloaded."""
        return (*self.packages, *([self.pyxis] if self.pyxis else ()))

    @property
    def builds(self) -> bool:
        """Whether pyxis is built on the host."""
        return self.pyxis is not None and self.pyxis.is_source

    @property
    def source(self) -> Artifact | None:
        """The source of enroot; None where it comes in packages."""
        return next((one for one in self.packages if one.is_source), None)

    @property
    def slurmd(self) -> str:
        """Its program."""
        return f"{self.directory}/sbin/slurmd" if self.directory else "slurmd"


def _read(given: Any) -> Artifact:
    return (
        Artifact(str(given.get("url") or ""), str(given.get("sha256") or ""))
        if isinstance(given, Mapping)
        else Artifact("", "")
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _artifact(variable: str, given: Any) -> Iterator[str]:
    one = _read(given)
    scheme = urlsplit(one.url).scheme
    if scheme not in ("https", "http", "file") or not _FILE.fullmatch(one.name):
        yield f"{variable}.url is not an https, http or file URL of a file"
    elif not one.manager and not one.is_source:
        yield f"{variable}.url: {one.name} is not a .deb, .rpm or .tar.gz"
    if not _SHA256.fullmatch(one.sha256):
        yield f"{variable}.sha256 is not a sha256, which has 64 hexadecimal digits in lower case"


def _named(variable: str, given: Mapping[Any, Any], names: re.Pattern[str], requested: str) -> Iterator[str]:
    for name, value in given.items():
        if not names.fullmatch(str(name)):
            yield f"{variable} has {str(name)[:80]!r}; it takes {requested}"
        elif "settings" in variable and re.search(r"\$\{?(USER|HOME|LOGNAME|XDG_)", str(value)):
            # With container_scope=job pyxis removes containers in the epilog, where a failure drains the node.
            yield f"{variable}: the value of {name} has a variable that slurmd does not set; write $(id -u)"
        elif "\n" in str(value) or (variable == "enroot_pyxis_options" and not _WORD.fullmatch(_text(value))):
            yield f"{variable}: the value of {name} has to be one " + ("line" if "settings" in variable else "word")


def needs(variables: Mapping[str, Any]) -> Needs:
    """Readings of the host."""
    requested = Request.read(variables)
    if requested.refusals:
        return Needs()
    files = (_SMI, _CONTAINER_CLI, _STAMP, _ENROOT_STAMP, _ENROOT, _PARSER)
    version = (requested.slurmd, "-V")
    return Needs(
        (*(one.file for one in requested.artifacts), *files),
        (_READ_SYSCTL, *((version,) if requested.pyxis else ())),
    )


def refusals(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> tuple[str, ...]:
    """Refusals before the first change of the run."""
    requested, read = Request.read(variables), outlook.readings
    if requested.refusals:
        return requested.refusals
    has_driver = read.exists(_SMI) or "nvidia_driver" in outlook.coming
    return (
        *_host_refusals(requested, _manager(facts), str(facts["architecture"])),
        # Docker is installed along with apparmor.
        *_kernel_refusals(_kernel(read), read.exists(_PARSER) or "docker" in outlook.coming),
        *_gpu_refusals(has_driver, read.exists(_CONTAINER_CLI) or TOOLKIT in outlook.coming),
        *_slurm_refusals(requested, _slurm(requested, read)),
    )


def plan(variables: Mapping[str, Any], facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan:
    """What to install and to write. found: the `readings` of what the role needs, `check_mode`."""
    requested = Request.read(variables)
    if requested.refusals:
        return Plan(requested.refusals)
    read, manager = Readings.of(found["readings"]), _manager(facts)
    slurm = _slurm(requested, read)
    # In check mode the role that installs the missing one has not run.
    coming = {TOOLKIT: ()} if is_true(found["check_mode"]) else {}
    parts = {
        "enroot": _part(requested.packages, read, _enroot_build(requested, manager, read)),
        "pyxis": _part(
            (requested.pyxis,) if requested.pyxis else (),
            read,
            _pyxis_build(requested, manager, read, slurm[1] if slurm else ""),
        ),
    }
    parts["enroot"]["is_there"] &= read.exists(_ENROOT)
    tasks: dict[str, Any] = {
        "directory": _DIRECTORY,
        **parts,
        "settings": "".join([_HEADER, *(f"{name} {value}\n" for name, value in requested.settings.items())])
        if requested.settings
        else "",
        "needs_apparmor": _kernel(read).get(_RESTRICTED) == "1",
    }
    tasks["predicted"] = tuple(_predicted(requested, tasks))
    return Plan(refusals=refusals(variables, facts, Outlook(read, coming)), tasks=tasks)


def _manager(facts: Mapping[str, Any]) -> str:
    return {"Debian": "apt", "RedHat": "dnf"}.get(str(facts["os_family"]), "")


def _kernel(read: Readings) -> dict[str, str]:
    return dict(re.findall(r"^([a-z_.]{1,60}) = ([0-9]{1,20})$", read.output(_READ_SYSCTL), re.MULTILINE))


def _slurm(requested: Request, read: Readings) -> re.Match[str] | None:
    return _VERSION.search(read.output((requested.slurmd, "-V"))[:200]) if requested.pyxis else None


def _enroot_build(requested: Request, manager: str, read: Readings) -> dict[str, Any]:
    source = requested.source
    return {
        "is_needed": source is not None and not _is_built(read.sha256(_ENROOT_STAMP), f"{source.sha256}\n"),
        "what": "enroot",
        "packages": (*_BUILD_PACKAGES.get(manager, ()), *_ENROOT_LIBRARIES, *_ENROOT_PROGRAMS),
        "source": source.file if source else "",
        "commands": _ENROOT_COMMANDS,
        "stamp": f"{source.sha256 if source else ''}\n",
        "stamp_file": _ENROOT_STAMP,
    }


def _pyxis_build(requested: Request, manager: str, read: Readings, slurm: str) -> dict[str, Any]:
    stamp = f"{requested.pyxis.sha256 if requested.pyxis else ''} {slurm}\n"
    headers = (f"CPPFLAGS=-I{requested.directory}/include",) if requested.directory else ()
    return {
        "is_needed": requested.builds and not _is_built(read.sha256(_STAMP), stamp),
        "what": f"pyxis for Slurm {slurm}",
        "packages": (
            *_BUILD_PACKAGES.get(manager, ()),
            *(() if requested.directory else (_HEADERS.get(manager, ""),)),
        ),
        "source": requested.pyxis.file if requested.pyxis else "",
        "commands": (("make", "install", "prefix=/usr/local", *headers),),
        "stamp": stamp,
        "stamp_file": _STAMP,
    }


def _is_built(found: str, stamp: str) -> bool:
    return found == hashlib.sha256(stamp.encode()).hexdigest()


def _predicted(requested: Request, tasks: Mapping[str, Any]) -> Iterator[str]:
    """What a run does with what is not there yet, which check mode cannot look into."""
    files = [_SETTINGS_FILE] if tasks["settings"] else []
    files += [f"{_HOOKS}/90-gpu-fleet.sh"] if requested.job_gpus else []
    files += [f"{_HOOKS}/{hook}" for hook in requested.hooks]
    files += ["/etc/apparmor.d/enroot"] if tasks["needs_apparmor"] else []
    line = f"write the line for pyxis to {requested.config}/plugstack.conf or to the directory that it includes"
    after = {"enroot": [f"write {file}" for file in files], "pyxis": [line, "restart slurmd.service"]}
    for name, lines in after.items():
        part = tasks[name]
        if part["is_there"]:
            continue
        yield from (f"download {one['url']}" for one in part["downloads"])
        yield from (f"install {file}" for manager in ("apt", "dnf") for file in part[manager])
        if part["build"]["is_needed"]:
            yield f"install {', '.join(part['build']['packages'])}"
            yield f"build {part['build']['what']}"
        yield from lines


def _part(artifacts: Sequence[Artifact], read: Readings, build: Mapping[str, Any]) -> dict[str, Any]:
    """What to download, install and build. `is_there`: nothing of it is to be downloaded or built."""
    missing = [one for one in artifacts if read.sha256(one.file) != one.sha256]
    return {
        "is_there": not missing and not build["is_needed"],
        "downloads": [{"url": one.url, "file": one.file, "sha256": one.sha256} for one in missing],
        **{name: [one.file for one in artifacts if one.manager == name] for name in ("apt", "dnf")},
        "build": build,
    }


def _host_refusals(requested: Request, manager: str, architecture: str) -> Iterator[str]:
    others = {name for of, names in _ARCHITECTURES.items() if of != architecture for name in names}
    if requested.source and manager == "dnf":
        yield (
            f"enroot_packages: {requested.source.name} cannot be built here, as Enterprise Linux has no static "
            "libbsd; name the packages of NVIDIA"
        )
    for at, one in enumerate(requested.artifacts):
        variable = f"enroot_packages[{at}]" if at < len(requested.packages) else "enroot_pyxis"
        if one.manager and manager and one.manager != manager:
            yield f"{variable}.url: {one.name} is not a package for a host with {manager}"
        elif one.manager and any(re.search(rf"[_.]{name}\.(deb|rpm)$", one.name) for name in others):
            yield f"{variable}.url: {one.name} is of another architecture than the host, {architecture}"


def _kernel_refusals(kernel: Mapping[str, str], has_parser: bool) -> Iterator[str]:
    if kernel.get(_RESTRICTED) == "1" and not has_parser:
        yield (
            f"{_RESTRICTED} is 1, so only programs with an AppArmor profile can start a container, and there is "
            f"no {_PARSER} to load the profile of enroot; install the package apparmor"
        )
    if kernel.get(_SYSCTL[0]) == "0":
        yield f"{_SYSCTL[0]} is 0, so that no user can start a container; set it with sysctl"
    if kernel.get(_SYSCTL[1]) == "0":
        yield f"{_SYSCTL[1]} is 0, so that no user can start a container; set it to 1 with sysctl"


def _gpu_refusals(has_driver: bool, has_cli: bool) -> Iterator[str]:
    if has_driver and not has_cli:
        yield (
            f"there is no {_CONTAINER_CLI}, which enroot needs to give GPUs to containers; run the role "
            "nvidia_container_toolkit before, or install libnvidia-container-tools"
        )


def _slurm_refusals(requested: Request, slurm: re.Match[str] | None) -> Iterator[str]:
    if requested.pyxis and not slurm:
        yield (
            f"{requested.slurmd} -V printed no version, and pyxis is a plugin of slurmd; set enroot_slurm_directory "
            "to the directory of Slurm"
        )


def dependencies(_variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """What dnf installs before the `packages`. What it cannot install is refused with them."""
    asked = unread(found, {"tested": command("rpm", "--upgrade", "--test", "--replacepkgs", *found["packages"])})
    if asked:
        return asked
    matches = map(_MISSING.fullmatch, str(found["tested"].get("stderr") or "").splitlines())
    return Plan(tasks={"names": sorted({match[1] for match in matches if match})})


def plugin(variables: Mapping[str, Any], _facts: Mapping[str, Any], found: Mapping[str, Any]) -> Plan | Ask:
    """The line for pyxis and its file, by what pyxis has installed and what Slurm loads."""
    requested = Request.read(variables)
    own_file = _BUILT if requested.builds else _PACKAGED
    paths = (own_file, f"{requested.config}/plugstack.conf", f"{requested.config}/plugstack.conf.d/pyxis.conf")
    asked = unread(found, {"files": [("slurp", {"src": path}) for path in paths]})
    if asked:
        return asked
    read = found["files"]["results"]
    wrong = [one for one in read if one.get("failed") and "not found" not in str(one.get("msg")).lower()]
    if wrong:
        return Plan((f"the files of Slurm cannot be read: {wrong[0].get('msg')}",))
    own, plugstack, included = map(_content, read)
    match = _PLUGIN.search(own or "")
    path = match[1] if match else ""
    refusals = []
    if not match and not is_true(found["check_mode"]):
        refusals = [f"{own_file} names no spank_pyxis.so; is enroot_pyxis a package of pyxis?"]
    # A directory that plugstack.conf includes has the files of plugins, by their names.
    directory = f"{requested.config}/plugstack.conf.d"
    is_included = any(one == directory for one in _INCLUDE.findall(plugstack or ""))
    file = f"{directory}/pyxis.conf" if is_included else f"{requested.config}/plugstack.conf"
    words = ["required", path, *(f"{name}={value}" for name, value in (requested.options or {}).items())]
    return Plan(
        refusals=tuple(refusals),
        tasks={
            "file": file,
            "line": " ".join(words),
            "started_after": (file, *([path] if path else ())),
            "previous": {file: included if is_included else plugstack},
        },
    )


def _content(result: Mapping[str, Any]) -> str | None:
    """The text of a result of slurp; None for a file that is not there."""
    try:
        return base64.b64decode(result["content"]).decode(errors="replace") if "content" in result else None
    except binascii.Error as error:
        raise ValueError("content") from error


PLANNER = RolePlanner(
    "enroot",
    {"plan": plan, "dependencies": dependencies, "plugin": plugin},
    reads=("enroot_hooks", "enroot_job_gpus", "enroot_pyxis"),
    needs=needs,
    refuses=refusals,
    needs_gpu=False,
    # As with Slurm itself: jobs of others may use what it installed.
    is_removed=False,
)
