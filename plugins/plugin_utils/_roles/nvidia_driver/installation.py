# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known once the driver is installed: pins, files, units, the record. Private to this collection. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._planning.contract import RequestError
from .change import SAVED, requested_pattern
from .companions import IMEX_NODES_FILE
from .host import Host
from .kernel_packages import kernel_packages
from .module_signatures import signature_problems
from .persistence_daemon import OWN, UNIT_DIRECTORIES, daemon_files
from .plan import needs_activation
from .request import Request

BLACKLIST = "__nvidia_driver_blacklist_file"
EXCLUSION = "__nvidia_driver_exclusion_file"
KERNEL_EXCLUSION = "__nvidia_driver_kernel_exclusion_file"
PREFERENCES = "__nvidia_driver_preferences_file"
DROPIN = "__nvidia_driver_dropin"
DAEMON = "__nvidia_driver_daemon_unit"
RULE = "__nvidia_driver_udev_rule"
OPTIONS = "__nvidia_driver_options_file"
MODULES = "__nvidia_driver_modules_file"
SIGNING = "__nvidia_driver_dkms_file"
REBOOT = "__nvidia_driver_reboot_file"
COMPONENTS = "__nvidia_driver_components_file"
EPEL = "__nvidia_driver_epel_file"
EPEL_KEY = "__nvidia_driver_epel_key_file"
RUNFILES = "__nvidia_driver_runfile_directory"
FINGERPRINTS = "__nvidia_driver_epel_fingerprints"
"""Variables of the role with paths, and with the fingerprints of EPEL's keys by release."""
_OWN = (
    *(COMPONENTS, EPEL, EPEL_KEY, DROPIN, RULE, MODULES, OPTIONS, SIGNING, REBOOT, PREFERENCES, EXCLUSION),
    KERNEL_EXCLUSION,
)
_LEFT_TO_OTHERS = (REBOOT, EPEL, EPEL_KEY)
TABLES = (*_OWN, BLACKLIST, DAEMON, RUNFILES, FINGERPRINTS, SAVED)
_OF_PROBE = re.compile("(?:[0-9]+:)?([0-9]{3}(?:[.][0-9]+)+)")
_BUILD_TOOLS = ("dkms", "gcc", "make", "kmod")
_LONGEST_ERROR = 400
_AS_IS = (
    "nothing was rolled back, as it is unknown how far the change went; run this playbook again, which continues it or "
    "reports how to repair the packages first"
)
_CHANGES = re.compile("(?:Inst|Remv) ([^ ]+)")
_BUILD = re.compile("(?m)^(nvidia[^/,]*)[/,] ?([^,]+), ([^,]+), [^:]+: installed")
_DAEMON_UNIT, _IMEX_UNIT = "nvidia-persistenced.service", "nvidia-imex.service"
_RULE_TEXT = (
    f"{OWN}\n"
    'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", TAG+="systemd", '
    'ENV{SYSTEMD_WANTS}+="nvidia-persistenced.service"\n'
)

Paths = Mapping[str, Any]


def installed_version(host: Host, selected: Mapping[str, Any]) -> str:
    """The version of the package by which the driver is known, empty where it is not installed."""
    found = _OF_PROBE.match(host.installed.get(str(selected["packages"]["probe"]), ""))
    return found[1] if found else ""


def installed(request: Request, host: Host, selected: Mapping[str, Any], kernels: Sequence[str]) -> dict[str, Any]:
    """What the packages on the host are: their version, those that are pinned, and what is wrong with them.

    `selected` is the plan of the driver, `kernels` are those that need modules.
    """
    own, recorded = installed_version(host, selected), host.recorded
    version = str(selected["version"]) or own
    of_version = re.compile(f"(^|:){re.escape(version)}(-|$)")
    pinned = (
        [] if request.uses_runfile else sorted(name for name in host.family if of_version.search(host.installed[name]))
    )
    held = kernel_packages(host.installed, kernels) if request.hold_kernel else []
    held_before = list(recorded.get("kernel_held", []))
    return {
        "version": version,
        "pinned": pinned,
        "held": pinned if request.pin else [],
        "pin_state": "present" if request.pin else "absent",
        "kernel_held": held,
        "kernel_exclusion": kernel_exclusion(held),
        "holds_kernel": request.hold_kernel or bool(held_before),
        "kernel_locks": held_before,
        "refusals": list(_against_packages(host, selected, own)),
    }


def build_tools(host: Host) -> list[str]:
    """The packages by which a runfile builds modules, as far as the host lacks them."""
    return [name for name in _BUILD_TOOLS if name not in host.installed]


def _against_packages(host: Host, selected: Mapping[str, Any], own: str) -> Iterator[str]:
    """That another version was installed than planned, or a mixture of versions."""
    version, requested = str(selected["version"]), str(selected["requested"])
    expected = f"{re.escape(version)}$" if version else requested_pattern(requested)
    there = host.installed
    others = [name for name in selected["packages"]["driver"] if name not in there or own not in there[name]]
    if others or not re.match(expected, own):
        mixed = f"; of another version: {', '.join(others)}" if others else ""
        yield f"the packages installed {own} instead of {version or requested}{mixed}"


def dkms(lines: Sequence[str], version: str, kernels: Sequence[str]) -> dict[str, Any]:
    """For which of the kernels DKMS has not installed the modules of a version, and what it has.

    dkms 2 prints "nvidia, 580.95.05, ...", dkms 3 "nvidia/580.95.05, ...".
    """
    pattern = re.compile(rf"^nvidia[^,/]*(?:/|, *){re.escape(version)}, *([^,]+), [^:]*: installed")
    built = [match[1] for line in lines if (match := pattern.search(str(line)))]
    return {
        "missing": [kernel for kernel in kernels if kernel not in built],
        "status": "; ".join(line for line in map(str, lines) if line.startswith("nvidia")) or "nothing",
        "builds": [[*match.groups()] for match in _BUILD.finditer("\n".join(map(str, lines)))],
    }


def against_build(found: Mapping[str, Any], version: str) -> Iterator[str]:
    """That DKMS did not build all modules; `found` is what `dkms` returns."""
    if found["missing"]:
        yield (
            f"DKMS did not build the modules of driver {version} for kernel {' and '.join(found['missing'])} (dkms "
            f"status: {found['status']})"
        )


def against_signatures(
    kernels: Sequence[str], modules: Mapping[str, Any], serials: Mapping[str, Any], trusted: Sequence[str]
) -> Iterator[str]:
    """That the kernel would not load modules: results of modinfo by kernel, and of openssl by trusted certificate."""
    printed = [str(one.get("stdout") or "") for one in modules["results"]]
    # Without openssl there is nothing to compare with.
    numbers = [str(one.get("stdout") or "") for one in serials["results"]]
    problems = signature_problems(dict(zip(kernels, printed, strict=True)), numbers)
    if problems:
        yield (
            f"Secure Boot is on, and the module {'; '.join(problems)}: the kernel would not load it. Trusted is "
            f"{', '.join(trusted)}; set nvidia_driver_secure_boot to enroll with nvidia_driver_mok_key and "
            "nvidia_driver_mok_certificate"
        )


def against_runfile(host: Host, selected: Mapping[str, Any]) -> Iterator[str]:
    """That the runfile installed another version."""
    library = host.driver["library_version"]
    if library != selected["version"]:
        yield f"the runfile installed {library or 'no libraries'}, not {selected['version']}"


def against_libraries(driver: Mapping[str, Any], version: str) -> Iterator[str]:
    """That another driver was installed over the packages of a version; `driver` is from the facts of CUDA."""
    if driver["library_version"] not in (None, version):
        yield (
            f"the libraries are of driver {driver['library_version']} ({driver['library_path']}), the packages of "
            f"{version}: another driver was installed over them"
        )


def against_options(request: Request, lines: Sequence[str], version: str) -> Iterator[str]:
    """Options that the kernel module does not have; a module without any list of them is not NVIDIA's.

    `lines` are what modinfo prints of its parameters.
    """
    known = [str(line).partition(":")[0] for line in lines]
    unknown = [name for name in request.options.parameters if known and name not in known]
    if unknown:
        yield (
            f"driver {version} has no option {', '.join(unknown)}, which nvidia_driver_module_options sets; `modinfo "
            "-F parm nvidia` on the host lists those that it has"
        )


def daemon(host: Host, units: Sequence[Mapping[str, Any]], paths: Paths) -> dict[str, Any]:
    """The files of the persistence daemon; `units` are results of slurp for UNIT_DIRECTORIES.

    Each source brings another unit: a static one that leaves persistence mode off, one that lacks a condition, none.
    """
    there = {
        f"{directory}/{_DAEMON_UNIT}": base64.b64decode(str(one["content"])).decode(errors="replace")
        for directory, one in zip(UNIT_DIRECTORIES, units, strict=True)
        if "content" in one
    }
    try:
        found = daemon_files(there)
    except ValueError as error:
        raise RequestError(f"ExecStart of {', '.join(there)} cannot be read: {error}") from None
    files = {paths[DAEMON]: found.unit, paths[DROPIN]: found.dropin, paths[RULE]: _RULE_TEXT}
    return {
        "files": [{"path": path, "content": content} for path, content in files.items() if content],
        "has_unit": found.unit != "",
        # Otherwise the unit of a runfile would replace the one that a package brings.
        "removes_unit": found.unit == "" and paths[DAEMON] in host.recorded.get("written", ()),
    }


def companions(request: Request, host: Host) -> dict[str, Any]:
    """What the driver needs besides, and the contents of its files."""
    found, recorded = host.companions(request), host.recorded
    return {
        **found.as_dict(),
        "former_units": [name for name in recorded.get("units", []) if name not in found.units],
        "former_masks": [name for name in recorded.get("masked", []) if name not in found.masked],
        "modules_text": "\n".join([OWN, *found.kernel_modules, ""]) if found.kernel_modules else "",
        "nodes_text": "".join(f"{node}\n" for node in found.imex_nodes),
        "settings": [{"name": line.partition("=")[0], "line": line} for line in found.imex_settings],
    }


# Pins


def against_upgrade(lines: Sequence[str], held: Sequence[str], kernel: Sequence[str]) -> Iterator[str]:
    """That a simulated upgrade of apt would change packages of the driver or of the kernel."""
    changed = dict.fromkeys(match[1] for line in lines if (match := _CHANGES.match(str(line))))
    driver, of_kernel = (", ".join(name for name in changed if name in names) for names in (held, kernel))
    if driver:
        yield (
            f"the driver is pinned, but an upgrade would change {driver}; check for a preference of a higher priority "
            "in /etc/apt/preferences.d on the host"
        )
    if of_kernel:
        yield (
            f"nvidia_driver_hold_kernel is set, but an upgrade would change {of_kernel}; see `apt-mark showhold` and "
            "`apt-get --simulate dist-upgrade` on the host"
        )


def against_locks(lines: Sequence[str]) -> Iterator[str]:
    """That dnf lists updates of locked packages."""
    yield (
        f"the driver is locked, but an upgrade would change it: {'; '.join(filter(None, map(str, lines)))}; check that "
        "the plugin is enabled in /etc/dnf/plugins/versionlock.conf on the host"
    )


def kernel_exclusion(held: Sequence[str]) -> str:
    """What leaves packages of the kernel out of unattended upgrades."""
    names = (name.replace(".", "[.]").replace("+", "[+]") for name in held)
    return (
        "// Managed by Ansible (gpu.fleet.nvidia_driver): the kernel stays with the driver whose modules were "
        "built for it.\nUnattended-Upgrade::Package-Blacklist {\n"
        + "".join(f'  "^{name}$";\n' for name in names)
        + "};\n"
    )


# EPEL


_EPEL = "gpu-fleet-epel-dkms"
"""The repository's id."""


def adds_epel(host: Host, offered: Sequence[Mapping[str, Any]], paths: Paths) -> bool:
    """Whether EPEL is needed, which has DKMS; `offered` is what dnf lists of dkms."""
    is_damaged = any(name in (paths[EPEL], paths[EPEL_KEY]) for name in host.drifted)
    return not offered or is_damaged or any(one.get("repo") == _EPEL for one in offered)


def epel(request: Request, host: Host, paths: Paths) -> dict[str, Any]:
    """EPEL for signed_repository, for DKMS only. Its URL may have a password.

    Keys: https://getfedora.org/security (fingerprints by release).
    """
    major = host.release
    below = f"https://dl.fedoraproject.org/pub/epel/{major}/Everything/{host.architecture}"
    fingerprint = request.epel_fingerprint or str(paths[FINGERPRINTS].get(major, ""))
    return {
        "role": "nvidia_driver",
        "name": "epel",
        "id": _EPEL,
        "title": "DKMS of EPEL, for the NVIDIA driver (gpu.fleet)",
        "url": request.epel_url or below,
        "key_url": request.epel_key_url or f"https://dl.fedoraproject.org/pub/epel/RPM-GPG-KEY-EPEL-{major}",
        "fingerprints": [fingerprint.replace(" ", "").upper()],
        # Nothing else is installed from there; EPEL does not sign its metadata.
        "include": ["dkms"],
        "repo_gpgcheck": False,
        "source_file": paths[EPEL],
        "key_file": paths[EPEL_KEY],
        "attempts": 4,
        "url_option": "nvidia_driver_epel_url",
        "key_url_option": "nvidia_driver_epel_key_url",
        "fingerprints_option": "nvidia_driver_epel_fingerprint",
    }


# The rollback


def build_output(errors: Mapping[str, Any], end: Mapping[str, Any]) -> str:
    """The words of a build log for a message, empty for none: results of grep for errors, and of tail."""
    last = end.get("stdout_lines") or ()
    lines = (str(line).strip() for line in (*(errors.get("stdout_lines") or ()), *last))
    text = " / ".join(dict.fromkeys(filter(None, lines)))
    return f"; output of the last module build: {text}" if last else ""


def failure(found: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Why the change has failed, and what restores the packages.

    `error` of `found` is the failed result, which of package_transaction has what it began, `transaction` the result of
    the change, where it was made. After a module that was killed or crashed nobody knows how far the change went: the
    host and its record stay `as_is`, as after a lost connection.
    """
    error, transaction = found["error"], found["transaction"]
    killed = "module_stdout" in error or bool(transaction.get("failed") and "begun" not in transaction)
    # Of the message of role_plan, which begins with the host.
    message = str(error.get("msg") or "no reason given").strip().removeprefix(f"{found['host']}: ")
    if "module_stdout" in error:
        message = f"a module was killed or crashed (status {error.get('rc', 'unknown')})"
    errors = str(error.get("stderr") or "").strip() if found["with_stderr"] else ""
    if len(errors) > _LONGEST_ERROR:
        errors = errors[: _LONGEST_ERROR - 3].rsplit(" ", 1)[0] + "..."
    return {
        "version": version,
        "why": f"{message} {errors}".strip(),
        "undo": (error if "begun" in error else transaction).get("undo") or {},
        "was_changed": bool(error.get("begun", transaction.get("changed", False))),
        "as_is": _AS_IS if killed else "",
    }


# Loading


def activation(request: Request, host: Host, found: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the driver on disk has to be loaded, and whether this run has loaded another one than before, or a first.

    `options_changed` of `found`: the kernel module has new options. `selection` has the version that was loaded before,
    and is empty where nothing was installed; `reloaded` is the result of driver_reload, empty before it.
    """
    own, reloaded = host.driver, found.get("reloaded") or {}
    loaded = str(own["loaded_version"] or "")
    before = str((found.get("selection") or {}).get("loaded_before", loaded))
    is_current = bool(own["loaded"]) and not own["reboot_required"] and not request.image_build
    was_exchanged = is_current and bool(reloaded.get("changed", False) or before != loaded)
    dcgm = host.dcgm
    return {
        "is_due": needs_activation(request, host, bool(found.get("options_changed"))),
        "version": host.version,
        "reloads": request.reload == "if_possible" or not own["loaded"],
        # Daemons of another version than the loaded driver do not start; they start at the boot that loads it.
        "starts": is_current,
        "units": units(request, host, is_current),
        "was_exchanged": was_exchanged,
        # It keeps the libraries that it found when it started. The reload has restarted it where it held the driver.
        "restarts_dcgm": was_exchanged
        and dcgm.get("state") == "active"
        and dcgm.get("unit") not in (reloaded.get("stopped_services") or ()),
        "dcgm": dcgm.get("unit"),
    }


def units(request: Request, host: Host, is_started: bool) -> dict[str, dict[str, bool]]:
    """The state of the units for the record."""
    is_active = is_started and bool(host.driver["loaded"])
    state = {"enabled": True, "active": True} if is_active else {"enabled": True}
    return dict.fromkeys(host.companions(request).units, state)


def against_second_reboot(host: Host, why: str, recorded: Mapping[str, Any], paths: Paths) -> Iterator[str]:
    """That the host was rebooted for this driver before: otherwise each run would reboot one that came up without it.

    `recorded` is a result of slurp for the role's file.
    """
    if base64.b64decode(str(recorded.get("content") or "")).decode(errors="replace") == f"driver {host.version}\n":
        yield (
            f"driver {host.version} is not loaded ({why}) although the host was rebooted for it; see `journalctl "
            f"--boot --dmesg` on the host, then remove {paths[REBOOT]} to allow another reboot"
        )


def against_boot(host: Host, kernel: str, module: Mapping[str, Any]) -> Iterator[str]:
    """That the kernel that boots next has no driver; `module` is a result of modinfo for it."""
    # Where the running kernel has no module file either, the driver is from elsewhere, and only a boot can show it.
    if module.get("rc") != 0 and host.driver["module_version"] is not None:
        yield (
            f"a reboot is needed to load driver {host.version}, but the kernel that boots next, {kernel}, has no "
            "module of this driver; see `dkms status` on the host"
        )


def services(request: Request, host: Host, found: Mapping[str, Any]) -> list[dict[str, str]]:
    """The state of each unit; `imex_changed` and `daemon_changed` of `found`: what it read at its start was changed."""
    changed = {_IMEX_UNIT: found.get("imex_changed"), _DAEMON_UNIT: found.get("daemon_changed")}
    return [
        {"name": name, "state": "restarted" if changed.get(name) else "started"}
        for name in host.companions(request).units
    ]


def verifies_persistence(request: Request, started: Sequence[Mapping[str, Any]], was_exchanged: bool) -> bool:
    """Whether persistence mode has to be on: later on gpu_settings or gpu_state may have turned it off."""
    daemons = [one for one in started if (one.get("item") or {}).get("name") == _DAEMON_UNIT]
    return request.persistence_daemon and (was_exchanged or any(one.get("changed") for one in daemons))


def against_persistence(result: Mapping[str, Any]) -> Iterator[str]:
    """That persistence mode cannot be read, or is off; `result` comes from nvidia-smi."""
    printed, errors = (str(result.get(name) or "") for name in ("stdout", "stderr"))
    off = [line.partition(",")[0] for line in printed.splitlines() if "Disabled" in line]
    if result.get("rc") != 0:
        reason = f"persistence mode cannot be read: {' '.join((printed + errors).split())}"
    elif off:
        reason = f"persistence mode is off on GPU {', '.join(off)}"
    else:
        return
    yield (
        f"nvidia-persistenced.service is started, but {reason}; see `systemctl status nvidia-persistenced.service` on "
        "the host, or set nvidia_driver_persistence_daemon to false"
    )


# The record


def record(
    request: Request, host: Host, selected: Mapping[str, Any], found: Mapping[str, Any], paths: Paths
) -> dict[str, Any]:
    """What the record has, and files of this role that are no longer needed.

    `installation` of `found` is what `installed` returns. `has_unit`: the persistence daemon needed one;
    `components_enabled` and `epel_added`: this role enabled them.
    """
    now, needs = found["installation"], host.companions(request)
    written = [
        *([IMEX_NODES_FILE] if needs.imex_nodes else []),
        *([paths[DAEMON]] if request.persistence_daemon and found["has_unit"] else []),
    ]
    run = selected["runfile"]["path"] if request.uses_runfile else ""
    files = [*_files(request, host, now, found, paths), *written]
    files += [run, "/usr/bin/nvidia-smi", "/usr/bin/nvidia-uninstall"] if run else []
    left = [paths[name] for name in _LEFT_TO_OTHERS]
    own = [*(paths[name] for name in _OWN), *host.recorded.get("written", ())]
    return {
        "files": files,
        "stale_files": [name for name in dict.fromkeys(own) if name not in (*files, *left)],
        "packages": [] if request.uses_runfile else list(selected["packages"]["others"]),
        "held": [*now["held"], *(name for name in now["kernel_held"] if name not in now["held"])],
        "pinned": list(now["pinned"]),
        "units": units(request, host, is_started=False),
        "data": {
            "version": now["version"],
            "source": request.source,
            "kind": selected["kernel_modules"],
            "build": request.module_build,
            "runfile": run,
            "stream": selected["stream"],
            "pinned": list(now["pinned"]),
            # apt's preferences, for a rollback.
            "pins": selected["pins"] if request.pin else [],
            "units": list(needs.units),
            "masked": list(needs.masked),
            "written": written,
            # They depend on the driver, and are removed with it.
            "gpudirect": selected["gpudirect"],
            "held": list(now["held"]),
            "kernel_held": list(now["kernel_held"]),
            "packages": host.family,
            # Those that were there before, which a later run does not remove either.
            "unmanaged": [name for name in selected["unmanaged"] if name in host.family],
        },
    }


def begun(request: Request, host: Host, selected: Mapping[str, Any]) -> dict[str, Any]:
    """The record before the first change: the driver of a run that is interrupted after it is the next run's own."""
    kept = [name for name in host.unmanaged(request) if name in host.family]
    empty: dict[str, Any] = {"version": "", "runfile": "", "stream": ""}
    lists: dict[str, Any] = {name: [] for name in ("pinned", "pins", "units", "held", "packages")}
    kind = {"source": request.source, "kind": selected["kernel_modules"], "build": request.module_build}
    return {"begun": True, **empty, **kind, **lists, "unmanaged": kept}


def _files(
    request: Request,
    host: Host,
    now: Mapping[str, Any],
    found: Mapping[str, Any],
    paths: Paths,
) -> list[str]:
    """The files that must not change, of those whose names are the role's own."""
    of_packages = host.uses_apt and not request.uses_runfile
    has = {
        BLACKLIST: True,
        DROPIN: request.persistence_daemon,
        RULE: request.persistence_daemon,
        OPTIONS: bool(request.module_options),
        MODULES: bool(host.companions(request).kernel_modules),
        SIGNING: request.configures_signing(host.platform),
        PREFERENCES: request.pin and of_packages,
        EXCLUSION: request.pin and of_packages,
        KERNEL_EXCLUSION: host.uses_apt and bool(now["kernel_held"]),
        COMPONENTS: bool(found["components_enabled"]),
        EPEL: bool(found["epel_added"]),
        EPEL_KEY: bool(found["epel_added"]),
    }
    return [paths[name] for name, is_there in has.items() if is_there]


def own_files(host: Host, paths: Paths) -> list[str]:
    """All that the role may have written, for its removal."""
    names = [*(paths[name] for name in _OWN), *host.recorded.get("written", ()), paths[RUNFILES]]
    return list(dict.fromkeys(map(str, names)))
