# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known before the driver changes: kernels, what is wrong, what is replaced. Private to this collection."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....module_utils._common.masking import masked
from ..._planning.contract import Reading, command
from .driver_users import decide_change
from .host import Host
from .kernel_packages import headers_metapackages, headers_package
from .packages import is_of_driver
from .request import DKMS, ENROLL, Request
from .selection import DriverPlan
from .sources import DISTRIBUTION

_DEFAULT_KERNEL = re.compile("vmlinuz-(.+)")
# Of the modules of a distribution, with the key of its kernels.
_SIGNERS: Mapping[str, str] = {"Ubuntu": "Canonical", "RedHat": "Red Hat", "AlmaLinux": "AlmaLinux"}
# The status is reported with the rest; 0 and -1 mean no response at all.
_RESPONSES = [-1, 0, 200, 301, 302, 307, 308, 400, 401, 403, 404, 405, 410, 429, 500, 501, 502, 503, 504]
# No response, or one that another try does not change.
_NOT_DOWNLOADED = (-1, 0, 401, 403, 404, 410, 500, 502, 503, 504)
_BRANCH_NAMES_TYPE = 560
"""The first branch whose installer takes a kind of modules by its name."""
_BOOT_MIB = 200
SAVED = "__nvidia_driver_saved_directory"
"""The variable of the role with the directory of packages for a rollback."""
SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""The firmware's variable."""


def readings(request: Request, host: Host) -> dict[str, Reading]:
    """What the kernels and the driver that is there are found by.

    Packages of CUDA and of GPUDirect Storage have names like packages of a driver; their source distinguishes them.
    """
    found: dict[str, Reading] = {}
    if host.uses_apt:
        found["sources"] = command("dpkg-query", "--show", "--showformat", r"${Package}\t${source:Package}\n")
    if host.may_be_removed:
        found["removal"] = ("stat", {"path": host.marker, "get_checksum": False, "get_mime": False})
    return {**found, **(readings_of_boot(request, host) if request.is_present else {})}


def readings_of_boot(request: Request, host: Host) -> dict[str, Reading]:
    """What the kernel that boots next is found by."""
    if request.boot_kernel:
        return {}
    where = {"paths": ["/boot"], "patterns": ["vmlinuz-*"], "excludes": ["*rescue*"], "file_type": "any"}
    grubby = {} if host.uses_apt else {"grubby": command("grubby", "--default-kernel")}
    return {"boot": ("find", where), **grubby}


def readings_of_kernels(request: Request, names: Sequence[str]) -> dict[str, Reading | list[Reading]]:
    """What shows the compilers of these kernels and of the host, where modules are built.

    Of installed headers: those that are still to be installed depend on their compiler, where the packages do so.
    """
    if not request.is_present or request.module_build != DKMS:
        return {}
    files = [f"/lib/modules/{name}/build/.config" for name in names]
    compilers = {"paths": ["/usr/bin"], "patterns": ["^gcc-[0-9]+$"], "use_regex": True, "file_type": "any"}
    return {
        "kernel_options": [command("grep", "^CONFIG_GCC_VERSION=", path) for path in files],
        "gcc": command("gcc", "-dumpversion"),
        "compilers": ("find", compilers),
    }


def offers(request: Request, selected: Mapping[str, Any], with_companions: bool) -> dict[str, Reading]:
    """What decides how the versions in repositories are listed, and which one is recommended."""
    found = {"shown": command(*selected["show_command"])} if selected["show_command"] else {}
    if request.version == "recommended" and with_companions:
        series = ["--gpgpu"] if request.ubuntu_series == "server" else []
        found["recommended"] = command("ubuntu-drivers", "list", "--recommended", *series)
    return found


def readings_of_preflight(request: Request, host: Host) -> dict[str, Reading | list[Reading]]:
    """What `problems` needs: free space, and whether there is what is downloaded."""
    url = request.download(host.architecture)
    paths = [one["path"] for one in disk_space(request)]
    found: dict[str, Reading | list[Reading]] = {
        "disks": [command("df", "--output=avail", "--block-size=1M", path) for path in paths]
    }
    if re.match("https?://", url):
        found["download"] = ("uri", {"url": url, "method": "HEAD", "timeout": 20, "status_code": _RESPONSES})
    return found


def kernels(request: Request, host: Host, default: str, files: Iterable[str]) -> dict[str, Any]:
    """The kernel that boots next, and all that need modules: they must exist before a reboot.

    `default` is what grubby prints, `files` are the kernels in /boot.
    """
    found = _DEFAULT_KERNEL.search(default)
    names = sorted((re.sub("^.*/vmlinuz-", "", path) for path in files), key=_kernel_key)
    boot = request.boot_kernel or (found[1] if found else "") or (names or [host.kernel])[-1]
    # An image is not running: the kernel of the build machine does not matter.
    return {"boot": boot, "all": [boot] if request.image_build else list(dict.fromkeys((host.kernel, boot)))}


def _kernel_key(kernel: str) -> list[tuple[bool, int, str]]:
    parts = re.findall(r"\d+|[a-z]+|[^a-z0-9.]+", kernel)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def headers(host: Host, missing: Sequence[str]) -> dict[str, list[str]]:
    """The packages with the headers of the kernels that lack them.

    A kernel metapackage installs new kernels: the metapackage of headers has to match it.
    """
    found = [headers_package(kernel, "apt" if host.uses_apt else "dnf") for kernel in missing]
    if host.distribution == "Amazon":
        # drm, which nvidia-drm needs: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/.
        found += [name.replace("-devel-", "-modules-extra-") for name in found]
    return {
        "kernels": list(missing),
        "packages": [*found, *headers_metapackages(host.installed)],
    }


# Secure Boot


def secure_boot(request: Request, host: Host, variable: str, keys: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Whether the kernel will load the modules.

    `variable` is the firmware's SecureBoot in base 64: four bytes of attributes, then one of value, 1 for on (UEFI
    Specification, 3.3 "Globally Defined Variables", and https://docs.kernel.org/filesystems/efivarfs.html). `keys` are
    results of mokutil for each certificate.
    """
    is_on = base64.b64decode(variable)[4:] == b"\x01"
    certificates = request.certificates(host.platform)
    tested = zip(certificates, keys, strict=False)
    enrolled = [path for path, one in tested if "already enrolled" in str(one.get("stdout") or "")]
    is_signed = request.source == DISTRIBUTION and host.system in ("Ubuntu", "RedHat")
    is_trusted = bool(enrolled) if request.module_build == DKMS else is_signed
    enrolls = request.secure_boot == ENROLL
    return {
        "is_on": is_on,
        "certificates": certificates,
        "is_trusted": is_trusted,
        # Those that the firmware trusts, or will at the next boot.
        "trusted": list(dict.fromkeys([*enrolled, *([request.mok_certificate] if enrolls else [])])),
        "awaits_enrollment": enrolls and is_on and not is_trusted,
        "lacks_mokutil": any("No such file" in str(one.get("stderr") or "") for one in keys),
        "checks_key": request.mok_key != "" and request.module_build == DKMS,
        "configures_signing": request.configures_signing(host.platform),
        "has_dkms": "dkms" in host.installed,
    }


# All that is wrong, before anything is changed


def disk_space(request: Request) -> list[dict[str, Any]]:
    """Free space in MiB: programs and sources in /usr, packages and builds in /var, a new initramfs in /boot."""
    mib = request.disk_space_mib
    needed = {"/usr": mib, "/var": mib // 3, "/boot": min(mib, _BOOT_MIB)}
    return [{"path": path, "mib": number} for path, number in needed.items()]


def problems(request: Request, host: Host, reasons: Sequence[str], found: Mapping[str, Any]) -> Iterator[str]:
    """Why the driver cannot be installed; `reasons` are about its packages.

    `disks` of `found` are results of df, `secure_boot` is what this module returns, `download` a result of uri.
    """
    if not host.gpus and not request.image_build:
        yield (
            "no NVIDIA GPU is on the PCI bus; take the host out of the play, or set nvidia_driver_image_build to true "
            "to prepare an image"
        )
    yield from reasons
    for needed, disk in zip(disk_space(request), found["disks"]["results"], strict=True):
        # A missing directory needs no space.
        free = str(disk["stdout_lines"][-1]).strip() if disk.get("rc") == 0 and disk.get("stdout_lines") else ""
        if free.isdecimal() and int(free) < needed["mib"]:
            yield f"{needed['path']} has {free} MiB free, and {needed['mib']} are needed"
    if found["secure_boot"]["is_on"] and not found["secure_boot"]["is_trusted"]:
        yield from _unsigned(request, host)
    download = found.get("download", {})
    if download.get("failed") or download.get("status", 200) in _NOT_DOWNLOADED:
        source, message = request.download(host.architecture), download.get("msg", "")
        yield f"{masked(source)} cannot be downloaded: {masked(str(message))}"


def _unsigned(request: Request, host: Host) -> Iterator[str]:
    """What is missing so that the kernel loads the modules with Secure Boot."""
    if request.secure_boot == "refuse":
        signer = _SIGNERS.get(host.distribution, "")
        instead = (
            "use nvidia_driver_source distribution with nvidia_driver_module_build precompiled, whose modules "
            f"{signer} signs, or "
        )
        yield (
            "Secure Boot is on, and the kernel loads no module that is not signed with an enrolled key; "
            f"{instead if signer else ''}set nvidia_driver_secure_boot to enroll with nvidia_driver_mok_key, "
            "nvidia_driver_mok_certificate and nvidia_driver_mok_password"
        )
    elif request.module_build != DKMS:
        yield (
            "nvidia_driver_secure_boot is enroll, which signs modules that are built on the host: set "
            "nvidia_driver_module_build to dkms"
        )
    elif not request.has_mok_password:
        yield (
            "nvidia_driver_secure_boot is enroll, and the key is not enrolled yet: set nvidia_driver_mok_password, for "
            "which the firmware asks at the next boot"
        )


# The runfile


def runfile(request: Request, host: Host, kind: str, directory: str) -> dict[str, Any]:
    """The installer and its input; `kind` is the kind of the kernel modules.

    https://download.nvidia.com/XFree86/Linux-x86_64/580.95.05/README/installdriver.html and `sh NVIDIA-Linux-*.run -A`
    """
    version = request.runfile_version(host.architecture)
    branch = version.partition(".")[0]
    options = ["--silent", "--dkms", "--no-x-check", "--no-nouveau-check", f"--kernel-name={host.boot_kernel}"]
    if branch.isdecimal() and int(branch) >= _BRANCH_NAMES_TYPE:
        options.append(f"--kernel-module-type={kind}")
    else:
        options.append(f"-m={'kernel-open' if kind == 'open' else 'kernel'}")
    options += ["--no-opengl-files", "--no-drm"] if request.headless else []
    path = f"{directory}/{request.runfile(host.architecture).rpartition('/')[2]}"
    previous = str(host.recorded.get("runfile", ""))
    is_there = _has_runfile(request, host, kind)
    return {
        "path": path,
        "command": ["/bin/sh", path, *options],
        "previous": ["/bin/sh", previous, *options] if previous not in ("", path) else [],
        "is_due": not is_there or bool(host.drift(request)) or host.was_interrupted,
    }


def _has_runfile(request: Request, host: Host, kind: str) -> bool:
    """Whether the runfile's driver is on the host, with this kind of modules."""
    version = request.runfile_version(host.architecture)
    return bool(host.driver["library_version"] == version and host.recorded.get("kind", kind) == kind)


# The change


def requested_pattern(requested: str) -> str:
    """What a version has to match: dnf takes the newest of a branch, whose version the plan does not know."""
    return "." if requested in ("newest", "recommended") else f"{re.escape(requested)}([.]|$)"


def preview(request: Request, host: Host, selected: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """The options of package_transaction for a change; it does not know a repository that is still to be added."""
    return {
        "install": selected["install"],
        "remove": selected["removals"],
        "stream": selected["stream"],
        "upgrade": request.upgrade,
        "release_holds": selected["releasable"],
        "rollback": tables["nvidia_driver_rollback"],
        "save_directory": tables[SAVED],
        "preferences": selected["preferences"],
        "preferences_file": selected["preferences_file"],
        "repair": host.was_interrupted,
        "lock_timeout": tables["nvidia_driver_lock_timeout"],
    }


def change(request: Request, host: Host, selected: Mapping[str, Any], preview: Mapping[str, Any]) -> dict[str, Any]:
    """What the change replaces or removes of the driver that is there: packages, and files of a runfile.

    `selected` is the plan of the driver, `preview` a result of package_transaction: without one, as for a repository
    that is still to be added, what may go.
    """
    is_known, removals = "msg" not in preview, list(selected["removals"])
    if is_known:
        names = (re.sub("=.*$", "", str(one)) for one in preview["undo"]["install"])
        replaced = [name for name in dict.fromkeys(names) if name in host.family]
        gone = sorted(map(str, preview["removed"]))
        removal = f"would remove {', '.join(gone)}" if gone else ""
    else:
        replaced = removals
        may_go = f"would remove, unless the new packages depend on them: {', '.join(removals)}"
        removal = may_go if removals else ""
    is_kept = request.uses_runfile and _has_runfile(request, host, selected["kernel_modules"])
    is_other = not is_known and not re.match(requested_pattern(selected["requested"]), host.version)
    if host.version and ((host.is_of_runfile and not is_kept) or is_other):
        replaced = [*replaced, f"driver {host.version}"]
    packages = [*selected["packages"]["driver"], *selected["packages"]["others"]]
    what = f"the runfile {masked(request.runfile(host.architecture))}" if request.uses_runfile else ", ".join(packages)
    return {
        "replaced": replaced,
        "removal": removal,
        "would": (
            f"would install driver {request.version} from {request.source} with {selected['kernel_modules']} kernel "
            f"modules: {what}{'; ' if removal else ''}{removal}"
        ),
    }


def decision(request: Request, replaced: Sequence[str], users: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Whether the driver may change now; `users` is what driver_reload returns."""
    decided = decide_change(replaced, users, request.when_busy, request.reboot == "if_required")
    return {**decided.as_dict(), "is_deferred": decided.action == "defer"}


def looks_for_users(request: Request, host: Host, replaced: Sequence[str]) -> bool:
    """Whether it matters what uses the loaded driver."""
    is_loaded = bool(host.driver["loaded"]) and not request.image_build
    return request.when_busy != "proceed" and bool(replaced) and is_loaded


def selected(request: Request, host: Host, found: DriverPlan, directory: str) -> dict[str, Any]:
    """What the tasks read of the plan of a driver."""
    apt = host.uses_apt
    return {
        **found.as_dict(),
        "family": host.family,
        "is_kept": found.existing == "kept",
        "is_refused": found.existing == "refused",
        "show_command": ["apt-cache", "show", *found.queries] if apt and found.queries else [],
        # With a record, this role has set the holds; one that was only begun has none of packages that were there.
        "releasable": _releasable(request, host),
        "preferences_text": preferences(host, [vars(pin) for pin in found.pins]),
        "uninstalls": host.recorded.get("source") == "runfile" or host.is_unmanaged,
        "runfile": runfile(request, host, found.kernel_modules, directory) if request.uses_runfile else {},
    }


def listing(host: Host, found: Mapping[str, Any], shown: str) -> list[str]:
    """The command that lists versions by repository; `shown` is the output of the plan's `show_command`."""
    if host.uses_apt:
        names = re.findall("(?m)^Package: (.+)$", shown)
        return ["apt-cache", "policy", *dict.fromkeys(names)]
    options = ["--quiet", "repoquery", "--setopt=*.module_hotfixes=true", f"--queryformat={found['query_format']}"]
    return ["dnf", *options, *found["queries"]]


def _releasable(request: Request, host: Host) -> list[str]:
    if not host.record:
        return []
    kept = host.unmanaged(request) if host.was_interrupted else []
    return [name for name in host.family if name not in kept]


def preferences(host: Host, pins: Sequence[Mapping[str, Any]]) -> str:
    """apt's preferences, empty for none: packages depend on "this version or newer" of each other.

    Without one apt would mix branches, and sources.
    """
    if not host.uses_apt or not pins:
        return ""
    records = (f"Package: {pin['packages']}\nPin: {pin['pin']}\nPin-Priority: {pin['priority']}\n\n" for pin in pins)
    return "# Managed by Ansible (gpu.fleet.nvidia_driver): only this role changes the driver's version.\n" + "".join(
        records
    )


# The removal


def removal(request: Request, host: Host) -> dict[str, Any]:
    """What of the driver is removed: only what this role has recorded, unless it may remove an unmanaged driver."""
    is_removed = bool(host.record) or (request.replace_unmanaged and host.version != "" and not host.is_only_loaded)
    kept, recorded = host.unmanaged(request), host.recorded
    # What dpkg did not finish has files as well, and what depends on it goes with it.
    unfinished = [name for name in host.unfinished if is_of_driver(name, host.sources.get(name, ""))]
    packages = [name for name in dict.fromkeys((*host.family, *unfinished)) if name not in kept]
    report = ""
    if not host.record and host.version and not request.replace_unmanaged:
        state = (
            "was already removed, but stays loaded until the next boot"
            if host.is_only_loaded
            else "was not installed by this role and stays; set nvidia_driver_replace_unmanaged to true to have it "
            "removed"
        )
        report = f"driver {host.version} {state}"
    own = [f"driver {host.version}"] if host.is_of_runfile else []
    return {
        "report": report,
        "is_removed": is_removed,
        "replaced": [*packages, *own] if is_removed else [],
        "packages": [*packages, *(name for name in recorded.get("gpudirect", []) if name in host.installed)],
        "family": host.family,
        "releasable": _releasable(request, host),
        "uninstalls": recorded.get("source") == "runfile" or not host.record,
        "kernel_locks": list(recorded.get("kernel_held", [])),
        "former_units": list(recorded.get("units", [])),
        "former_masks": list(recorded.get("masked", [])),
        "marks": bool(host.driver["loaded"]),
    }
