# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host around the simulated nvidia-smi: the GPUs as kernel, driver and udev would show them.

A layout is made at each boot (``up``) and removed again (``down``): directories below /run are mounted over
``/proc/driver``, ``/proc/modules``, ``/sys/bus/pci/devices`` and ``/sys/module``, so that nothing of the host itself is
changed. A kernel module is "loaded" by creating what it would create: ``/sys/module/<name>``, ``/proc/driver/nvidia``
and the device nodes.
"""

from __future__ import annotations

import compileall
import contextlib
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys

from ..containers import capabilities
from ..control import xid
from ..state import catalogue, reset, store
from . import pci

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..state.shapes import Gpu, HostDescription, State

NVIDIA_MAJOR = 195
CONTROL_MINOR = 255
MODESET_MINOR = 254
# The kernel assigns it dynamically, as for the capabilities; most hosts have these.
UVM_MAJOR = 511

COMMON_NODES = {
    "nvidiactl": (NVIDIA_MAJOR, CONTROL_MINOR, 0o666),
    "nvidia-modeset": (NVIDIA_MAJOR, MODESET_MINOR, 0o666),
    "nvidia-uvm": (UVM_MAJOR, 0, 0o666),
    "nvidia-uvm-tools": (UVM_MAJOR, 1, 0o666),
}
"""Nodes of the driver as a whole: major, minor, mode."""

NVIDIA_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")
_SIZES = {
    "nvidia": 104165376,
    "nvidia_uvm": 4079616,
    "nvidia_modeset": 1814528,
    "nvidia_drm": 139264,
    "nouveau": 3096576,
}
"""Sizes of the modules in bytes, as lsmod prints them; roughly as in branch 580."""

_RUN = "run/gpu-simulator"
_BOOTED = _RUN + "/booted"
_PROC = _RUN + "/proc-driver"
_VFIO = "vfio-pci"
_PCI = _RUN + "/pci-devices"
_PCI_DRIVERS = _RUN + "/pci-drivers"
_MODULES = _RUN + "/sys-module"
_MODULE_LIST = _RUN + "/proc-modules"
_SETUP = "etc/gpu-simulator/setup.json"
_DESCRIBED = "var/lib/gpu-simulator/described"

_MOUNT_POINTS = ("sys/module", "sys/bus/pci/devices", "sys/bus/pci/drivers", "proc/modules", "proc/driver")

_LIBRARY_DIRECTORIES = ("usr/lib", "usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")
_LIBRARY = re.compile(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)$")
_MODULE_SOURCE = re.compile(r"nvidia(?:-open|-srv|-current)*-(\d+\.\d+(?:\.\d+)?)$")


class HostError(Exception):
    """The host cannot be laid out, or a module cannot be loaded; the message is for the user."""


class Kernel:
    """Kernel operations that need root. Tests replace it by a recorder."""

    def mount(self, *arguments: str) -> None:
        """Run mount(8)."""
        subprocess.run(["mount", *arguments], check=True)

    def unmount(self, path: str) -> None:
        """Unmount lazily, even while files are open."""
        subprocess.run(["umount", "--lazy", path], check=True)

    def make_node(self, path: str, major: int, minor: int, mode: int) -> None:
        """Make a character device; the mode is exact, whatever the umask."""
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
        os.chmod(path, mode)

    def is_mounted(self, path: str) -> bool:
        """Return whether the path itself is a mount point."""
        return os.path.ismount(path)

    def module_license(self) -> str:
        """Read the licence in the file of the module nvidia; empty where no package installed one."""
        with contextlib.suppress(OSError):
            command = ["modinfo", "--field=license", "nvidia"]
            return subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout.decode().strip()
        return ""


class Host:
    """The host below ``root``."""

    def __init__(self, root: str, kernel: Kernel | None = None) -> None:
        self.root = root
        self.kernel = kernel or Kernel()

    def path(self, *parts: str) -> str:
        """Return a path on this host."""
        return os.path.join(self.root, *parts)

    # Installed and loaded versions

    def setup(self) -> dict[str, bool]:
        """Read the role's options for the host: ``driver_installed`` and ``nouveau``."""
        setup = {"driver_installed": True, "nouveau": False}
        with contextlib.suppress(FileNotFoundError), open(self.path(_SETUP), encoding="utf-8") as file:
            setup.update(json.load(file))
        return setup

    def installed_library(self) -> str | None:
        """Return the version of the driver's libraries on disk: a package's, or the declared one, or None."""
        matches = [_LIBRARY.match(name) for directory in _LIBRARY_DIRECTORIES for name in _names(self.path(directory))]
        return max((match.group(1) for match in matches if match), key=_version, default=self._declared())

    def installed_module(self) -> str | None:
        """Return the version of the kernel module on disk, in the same order as the libraries.

        Sources stand for what DKMS builds of them. Without any, the module is one that a package brings.
        """
        found = [
            match.group(1) for name in _names(self.path("usr/src")) for match in [_MODULE_SOURCE.match(name)] if match
        ]
        return max(found, key=_version, default=self._prebuilt() or self._declared())

    def _prebuilt(self) -> str | None:
        directory = self.path("lib/modules", platform.release())
        for pattern in ("extra/nvidia*/nvidia.ko", "kernel/nvidia-*/nvidia.ko"):
            for path in glob.glob(os.path.join(glob.escape(directory), pattern)):
                with open(path, "rb") as file:
                    match = re.search(rb"\0version=([0-9.]+)\0", b"\0" + file.read())
                if match:
                    return match.group(1).decode()
        return None

    def _declared(self) -> str | None:
        return store.read_description(self.root)["driver_version"] if self.setup()["driver_installed"] else None

    def loaded(self, module: str) -> bool:
        """Return whether a module is loaded."""
        return os.path.isdir(self.path("sys/module", module))

    def refresh(self) -> None:
        """Update the state with libraries that packages have installed or replaced since."""
        library = self.installed_library()
        if library is not None:
            with store.transaction(self.root) as state:
                state["driver"]["installed"] = library

    # The layout

    def up(self) -> None:
        """Set the host up as after a boot. On the first call after a boot, pending modes become current."""
        if not os.path.isdir(self.path(_RUN)) and os.path.exists(self.path("proc/driver/nvidia/version")):
            raise HostError("this host has a real NVIDIA driver: there is nothing to simulate here")
        self.down()
        # Callers of nvidia-smi without write permission here find it compiled.
        compileall.compile_dir(self.path("usr/lib/gpu-simulator"), quiet=2)
        self._start_state()
        os.makedirs(self.path(_RUN), exist_ok=True)
        self._mount_proc()
        self._mount_pci()
        self._mount_overlay(_MODULES, "sys/module")
        self._mount_module_list()
        if self.setup()["nouveau"] and not self._is_blacklisted("nouveau"):
            self.load("nouveau")
        elif self.installed_module() is not None:
            self.load("nvidia")
        with open(self.path(_BOOTED), "w", encoding="utf-8"):
            pass

    def down(self) -> None:
        """Remove the layout; the state stays."""
        self._remove_nodes()
        for place in _MOUNT_POINTS:
            if os.path.isdir(self.path(_RUN)) and self.kernel.is_mounted(self.path(place)):
                self.kernel.unmount(self.path(place))
        for directory in (_PROC, _PCI, _PCI_DRIVERS, _MODULES, _MODULE_LIST):
            shutil.rmtree(self.path(directory), ignore_errors=True)

    def _start_state(self) -> None:
        """Create a new state when the description or the state's format changed; else boot the state, once per boot."""
        description = store.read_description(self.root)
        state = store.new_state(description)
        described = _fingerprint(description, state)
        with contextlib.suppress(FileNotFoundError), open(self.path(_DESCRIBED), encoding="utf-8") as file:
            if file.read() == described and store.read(self.root) is not None:
                if not os.path.exists(self.path(_BOOTED)):
                    with store.transaction(self.root) as kept:
                        reset.boot(kept)
                self._set_loaded(None)
                return
        state["driver"]["loaded"] = None
        store.write_file(store.state_path(self.root), json.dumps(state, indent=1) + "\n")
        store.write_file(self.path(_DESCRIBED), described)

    def _set_loaded(self, version: str | None) -> None:
        with store.transaction(self.root) as state:
            state["driver"]["loaded"] = version
            state["driver"]["installed"] = self.installed_library() or state["driver"]["installed"]
            xid.write_boot_log(self.root, state)

    def _mount_proc(self) -> None:
        source, target = self.path(_PROC), self.path("proc/driver")
        os.makedirs(source)
        for name in _names(target):
            # Entries of the host's own drivers stay visible: the clock, on most machines.
            own = os.path.join(source, name)
            if os.path.isdir(os.path.join(target, name)):
                os.mkdir(own)
            else:
                with open(own, "w", encoding="utf-8"):
                    pass
            self.kernel.mount("--bind", os.path.join(target, name), own)
        self.kernel.mount("--rbind", source, target)

    def _mount_pci(self) -> None:
        source, target = self.path(_PCI), self.path("sys/bus/pci/devices")
        if not os.path.isdir(target):
            return  # a machine without a PCI bus
        os.makedirs(source)
        for name in _names(target):
            # The links are relative to /sys/bus/pci/devices, over which the directory is mounted.
            os.symlink(os.readlink(os.path.join(target, name)), os.path.join(source, name))
        for device in self._devices():
            directory = os.path.join(source, device.address)
            if os.path.islink(directory):
                os.unlink(directory)
                print(
                    f"gpu-simulator: the simulated GPU hides the host's own PCI device {device.address}",
                    file=sys.stderr,
                )
            os.mkdir(directory)
            for name, content in {**device.files(), "local_cpulist": self._local_cpus()}.items():
                with open(os.path.join(directory, name), "wb") as file:
                    file.write(content)
            os.symlink("../../../../bus/pci", os.path.join(directory, "subsystem"))
        self.kernel.mount("--bind", source, target)
        self._mount_overlay(_PCI_DRIVERS, "sys/bus/pci/drivers")

    def _local_cpus(self) -> bytes:
        """The CPUs next to a device without a NUMA node: all that are online. slurmd needs the list of each GPU."""
        try:
            with open(self.path("sys/devices/system/cpu/online"), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b"0\n"

    def _mount_overlay(self, name: str, place: str) -> None:
        """Mount a directory of sysfs in which entries can be made."""
        target, upper, work = self.path(place), self.path(name, "upper"), self.path(name, "work")
        os.makedirs(upper)
        os.makedirs(work)
        self.kernel.mount(
            "-t", "overlay", "-o", f"lowerdir={target},upperdir={upper},workdir={work}", "gpu-simulator", target
        )

    def _mount_module_list(self) -> None:
        """Mount a copy of /proc/modules, to which simulated modules can be added; some kernels have none."""
        target = self.path("proc/modules")
        if os.path.exists(target):
            with open(target, encoding="utf-8") as file:
                own = file.read()
            _write_all(self.path(_MODULE_LIST), {"own": own, "shown": own})
            self.kernel.mount("--bind", self.path(_MODULE_LIST, "shown"), target)

    def _list_modules(self) -> None:
        if os.path.isdir(self.path(_MODULE_LIST)):
            with open(self.path(_MODULE_LIST, "own"), encoding="utf-8") as file:
                text = file.read()
            loaded = [name for name in _SIZES if self.loaded(name)]
            text = "".join(f"{name} {_SIZES[name]} 0 - Live 0x0000000000000000 (OE)\n" for name in loaded) + text
            # In place: a new inode would not be visible through the mount.
            _write_all(self.path(_MODULE_LIST), {"shown": text})

    def _gpus(self) -> list[Gpu]:
        state = store.read(self.root)
        return state["gpus"] if state else []

    def _driven(self) -> list[Gpu]:
        """The GPUs that a driver for them can have."""
        return [gpu for gpu in self._gpus() if gpu["health"] != "passthrough"]

    def _devices(self) -> Iterator[pci.PciDevice]:
        for gpu in self._gpus():
            yield pci.PciDevice(gpu, catalogue.load(gpu["model"]))

    def _is_blacklisted(self, module: str) -> bool:
        line = re.compile(rf"^\s*(?:blacklist\s+{module}|install\s+{module}\s+/bin/(?:true|false))\s*$", re.MULTILINE)
        for directory in ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"):
            for name in _names(self.path(directory)):
                if name.endswith(".conf"):
                    with open(self.path(directory, name), encoding="utf-8", errors="replace") as file:
                        if line.search(file.read()):
                            return True
        return False

    # Modules

    def load(self, module: str) -> None:
        """Load a module as ``modprobe`` would; raises HostError with modprobe's message where it would fail."""
        module = module.replace("-", "_")
        if not self.loaded(module):
            self._load(module)
            self._list_modules()

    def _load(self, module: str) -> None:
        if module == "nouveau":
            self._show_module("nouveau", None)
            self._bind_devices("nouveau")
            return
        version = self.installed_module()
        if version is None:
            release = platform.release()
            raise HostError(f"modprobe: FATAL: Module {module} not found in directory /lib/modules/{release}")
        if self.loaded("nouveau"):
            raise HostError(f"modprobe: ERROR: could not insert '{module}': No such device")
        # Whichever module is requested, the others follow, by dependency or by the driver's soft dependencies.
        for name in NVIDIA_MODULES:
            if not self.loaded(name):
                self._show_module(name, version)
        self._show_proc(version)
        self._bind_devices("nvidia")
        self._make_nodes()
        self.show_mig_instances(self._gpus())
        self._set_loaded(version)

    def unload(self, module: str) -> None:
        """Unload a module as ``modprobe -r`` would; raises HostError as ``load`` does."""
        module = module.replace("-", "_")
        if self.loaded(module):
            self._unload(module)
            self._list_modules()

    def _unload(self, module: str) -> None:
        if module == "nouveau":
            shutil.rmtree(self.path("sys/module/nouveau"))
            self._bind_devices(None)
            return
        if module != "nvidia":
            shutil.rmtree(self.path("sys/module", module))
            return
        state = store.read(self.root)
        if state and any(gpu["processes"] or gpu["persistence_mode"] for gpu in state["gpus"]):
            raise HostError("modprobe: FATAL: Module nvidia is in use.")
        with store.transaction(self.root) as state:
            reset.boot(state)
        self._remove_nodes()
        for name in NVIDIA_MODULES:
            shutil.rmtree(self.path("sys/module", name), ignore_errors=True)
        for name in ("nvidia", "nvidia-caps"):
            shutil.rmtree(self.path(_PROC, name), ignore_errors=True)
        self._bind_devices(None)
        self._set_loaded(None)

    def _show_module(self, name: str, version: str | None) -> None:
        files = {"initstate": "live", "refcnt": "0", "taint": "OE" if version else ""}
        if version:
            files["version"] = version
        directory = self.path("sys/module", name)
        os.mkdir(directory)
        _write_all(directory, {key: text + "\n" for key, text in files.items()})
        for empty in ("parameters", "holders"):
            os.mkdir(os.path.join(directory, empty))

    def _show_proc(self, version: str) -> None:
        _write_all(self.path(_PROC, "nvidia"), proc_files(self._driven(), version, self.kernel.module_license()))
        _write_all(self.path(_PROC, "nvidia-caps"), {"mig-minors": capabilities.minors()})

    def _bind_devices(self, native: str | None) -> None:
        for device in self._devices():
            driver = _VFIO if device.passed_through else native
            directory = self.path(_PCI, device.address)
            if not os.path.isdir(directory):
                continue
            link = os.path.join(directory, "driver")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(link)
            if driver:
                os.symlink(f"../../../../bus/pci/drivers/{driver}", link)
            _write_all(directory, {"uevent": "\n".join(device.uevent(driver)) + "\n"})
        self._show_driver(native)

    def _show_driver(self, driver: str | None) -> None:
        """Show which of its drivers the devices have in the directory of the drivers."""
        drivers = self.path("sys/bus/pci/drivers")
        if not os.path.isdir(drivers):
            return  # a machine without a PCI bus
        for name in ("nouveau", "nvidia"):
            shutil.rmtree(os.path.join(drivers, name), ignore_errors=True)
        if driver:
            os.makedirs(os.path.join(drivers, driver), exist_ok=True)
            # The directory of vfio-pci may be the host's own.
            for device in (device for device in self._devices() if not device.passed_through):
                os.symlink(f"../../devices/{device.address}", os.path.join(drivers, driver, device.address))

    def _nodes(self) -> dict[str, tuple[int, int, int]]:
        nodes = dict(COMMON_NODES)
        nodes["nvidia-caps/nvidia-cap1"] = (capabilities.MAJOR, capabilities.CONFIG, 0o400)
        nodes["nvidia-caps/nvidia-cap2"] = (capabilities.MAJOR, capabilities.MONITOR, 0o444)
        for gpu in self._driven():
            nodes["nvidia{}".format(gpu["minor"])] = (NVIDIA_MAJOR, gpu["minor"], 0o666)
        return nodes

    def _make_nodes(self) -> None:
        os.makedirs(self.path("dev/nvidia-caps"), exist_ok=True)
        for name, (major, minor, mode) in self._nodes().items():
            if not os.path.exists(self.path("dev", name)):
                self.kernel.make_node(self.path("dev", name), major, minor, mode)

    def show_mig_instances(self, gpus: list[Gpu]) -> None:
        """Show the MIG instances that exist in /proc, and make the nodes of their devices."""
        directory = self.path(_PROC, "nvidia", "capabilities")
        if os.path.isdir(directory):
            for gpu in [gpu for gpu in gpus if gpu["mig_mode"]]:
                shutil.rmtree(os.path.join(directory, f"gpu{gpu['minor']}"), ignore_errors=True)
                os.makedirs(os.path.join(directory, f"gpu{gpu['minor']}", "mig"))
            _write_all(directory, capabilities.access_files(gpus))
        self.make_capability_nodes(gpus)

    def make_capability_nodes(self, gpus: list[Gpu]) -> None:
        """Make the nodes of the MIG devices that have none. A host keeps nodes of devices that are gone."""
        for number in capabilities.numbers(gpus):
            place = self.path(capabilities.node(number)[1:])
            if not os.path.exists(place):
                self.kernel.make_node(place, capabilities.MAJOR, number, 0o444)

    def _remove_nodes(self) -> None:
        """Remove every node of the driver, including nodes of an earlier description."""
        for name in _names(self.path("dev")):
            if name in ("nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools") or re.match(
                r"nvidia\d+$", name
            ):
                os.unlink(self.path("dev", name))
        shutil.rmtree(self.path("dev/nvidia-caps"), ignore_errors=True)


def proc_files(gpus: list[Gpu], version: str, module_license: str = "") -> dict[str, str]:
    """Return the contents of /proc/driver/nvidia by path below it, as driver 580 has them."""
    files = {
        "version": (
            f"NVRM version: {_flavour(gpus, version, module_license)}\n"
            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14) \n"
        ),
        "params": catalogue.read_text("host", "params"),
        "registry": 'Binary: ""\n',
        "suspend": "suspend hibernate resume\n",
        "suspend_depth": "default modeset uvm\n",
        "capabilities/mig/config": "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
        "capabilities/mig/monitor": "DeviceFileMinor: 2\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
    }
    for gpu in gpus:
        model = catalogue.load(gpu["model"])
        address = pci.PciDevice(gpu, model).address
        directory = f"gpus/{address}/"
        files[directory + "information"] = (
            f"Model: \t\t {model['name']}\n"
            "IRQ:   \t\t 41\n"
            f"GPU UUID: \t {gpu['uuid']}\n"
            f"Video BIOS: \t {model['vbios'].lower()}\n"
            "Bus Type: \t PCIe\n"
            "DMA Size: \t 52 bits\n"
            "DMA Mask: \t 0xfffffffffffff\n"
            f"Bus Location: \t {address}\n"
            f"Device Minor: \t {gpu['minor']}\n"
            f"GPU Firmware: \t {version if model['gsp'] else 'N/A'}\n"
            "GPU Excluded:\t No\n"
        )
        files[directory + "power"] = catalogue.read_text("host", "power")
        files[directory + "registry"] = 'Binary: ""\n'
    return files


def _fingerprint(description: HostDescription, state: State) -> str:
    """Return a digest of the description and of the key names in a new state, which change with the simulator."""
    names = [sorted(part) for part in (state, state["driver"], state["host"], *state["gpus"][:1])]
    return hashlib.sha256(json.dumps([description, names], sort_keys=True).encode()).hexdigest() + "\n"


def _flavour(gpus: list[Gpu], version: str, module_license: str) -> str:
    """Return the module's own name: by its licence, else open from 560 on where all GPUs are Turing or newer."""
    machine = platform.machine()
    old = any(catalogue.load(gpu["model"])["architecture"] in ("Maxwell", "Pascal", "Volta") for gpu in gpus)
    is_open = module_license != "NVIDIA" if module_license else _version(version) >= (560,) and not old
    if is_open:
        return f"NVIDIA UNIX Open Kernel Module for {machine}  {version}  Release Build  (builder@)  "
    return f"NVIDIA UNIX {machine} Kernel Module  {version}  Thu Jan  1 00:00:00 UTC 2026"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _write_all(directory: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


_USAGE = """usage: gpu-simulator up|down|refresh
       gpu-simulator modprobe|rmmod MODULE

up, down    set the simulated host up, or remove it (gpu-simulator.service does)
refresh     look at the driver libraries on disk again, after packages came or went
modprobe    load a simulated kernel module; rmmod unloads it
"""


def main(arguments: list[str], root: str | None = None, kernel: Kernel | None = None) -> int:
    """Run one of the host commands; returns the exit status."""
    host = Host(store.root_of(root), kernel)
    try:
        if arguments in (["up"], ["down"], ["refresh"]):
            getattr(host, arguments[0])()
        elif len(arguments) == 2 and arguments[0] == "modprobe":
            host.load(arguments[1])
        elif len(arguments) == 2 and arguments[0] == "rmmod":
            host.unload(arguments[1])
        else:
            print(_USAGE, end="", file=sys.stderr)
            return 2
    except (HostError, store.StoreError, catalogue.UnknownModelError) as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, subprocess.CalledProcessError) as error:
        print(
            f"gpu-simulator: {error} (root of a virtual machine or a privileged container is needed)", file=sys.stderr
        )
        return 1
    return 0
