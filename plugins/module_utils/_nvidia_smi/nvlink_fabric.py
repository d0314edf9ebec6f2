# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVSwitches and NVLink 5 of a host, and what manages them; no driver has to be there. Private to this collection."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass
from typing import Any, Callable

from .._common.host_files import HostFiles
from .._common.runner import CommandResult, find_executable, run
from .._common.services import IMEX_STATE, IMEX_UNIT, parse_imex_domain
from .._common.systemd import Systemd
from .pci import DEVICES
from .values import bus_id

_NVIDIA, _MELLANOX = "0x10de", "0x15b3"
_BRIDGE_CLASS = "0x0680"
# https://pci-ids.ucw.cz/read/PC/10de: NVSwitches of the systems with V100, A100 and H100.
_NVSWITCHES = frozenset(("0x1ac0", "0x1ac1", "0x1ac2", "0x1af1", "0x22a3"))
# "SMDL=SW_MNG", the submodel: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/. NVIDIA's driver
# container searches for the value alone.
_MARKER = b"SW_MNG"
# Through them Fabric Manager and nvlsm find the switches of NVLink 5, whose bridges are adapters of ConnectX.
_MODULES = ("mlx5_ib", "ib_umad")
_OFED = "/usr/bin/ofed_info"
_OFED_VERSION = re.compile(r"(?:MLNX_OFED_LINUX|MLNX_EN|OFED-internal)-(\d[\d.]*(?:-\d[\d.]*)?)")
_PEERMEM = re.compile(r"(?m)^\S*/nvidia-peermem\.ko\S*:(.*)$")
_PARAMETERS = "/proc/driver/nvidia/params"
_CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
_SECONDS, _PAUSE = 10.0, 2.0
_SHOWN_NODES = 4
_IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"


@dataclass(frozen=True)
class NvlinkFabric:
    """PCI addresses of NVSwitches, of the ConnectX bridges to switches of NVLink 5, and of unreadable ConnectX devices.

    `missing_modules` are modules for NVLink 5 that the running kernel lacks. `imex_in_pods`: Kubernetes runs IMEX.
    `imex_nodes_exist`: the host has a list of the nodes of its domain. `ofed` is the version of DOCA-OFED or MLNX_OFED,
    and `peermem` whether the module nvidia_peermem was `built` with the interface of adapters, or is a `stub` without
    it, which does not load; both are empty for none.
    """

    nvswitches: tuple[str, ...] = ()
    nvlink5_bridges: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    missing_modules: tuple[str, ...] = ()
    imex_in_pods: bool = False
    imex_nodes_exist: bool = False
    ofed: str = ""
    peermem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The facts."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def is_nvlink5_bridge(vpd: bytes) -> bool:
    """Whether these vital product data are of a ConnectX that leads to the NVSwitches of NVLink 5.

    They are bytes: resource tags, two-byte lengths and a checksum stand between the strings, and may be cut off.
    """
    return _MARKER in vpd


def read_fabric(files: HostFiles) -> NvlinkFabric:
    """Read the PCI bus; virtual functions have no vital product data of their own."""
    nvswitches, bridges, unreadable = [], [], []
    for name in files.names(DEVICES):
        try:
            address = bus_id(name)
        except ValueError:
            continue
        path = f"{DEVICES}/{name}"
        vendor, device, kind = (
            (files.read(f"{path}/{entry}") or "").strip() for entry in ("vendor", "device", "class")
        )
        if vendor == _NVIDIA and (device in _NVSWITCHES or kind.startswith(_BRIDGE_CLASS)):
            nvswitches.append(address)
        elif vendor == _MELLANOX and files.exists(f"{path}/vpd") and not files.exists(f"{path}/physfn"):
            vpd = files.read_bytes(f"{path}/vpd")
            if is_nvlink5_bridge(vpd):
                bridges.append(address)
            elif not vpd:
                unreadable.append(address)
    return NvlinkFabric(
        tuple(nvswitches),
        tuple(bridges),
        tuple(unreadable),
        missing_modules(files),
        is_imex_in_pods(files),
        files.exists(_IMEX_NODES),
        ofed_version(files),
        peermem(files),
    )


def missing_modules(files: HostFiles) -> tuple[str, ...]:
    """The modules of NVLink 5 that the running kernel does not have; none where it lists no module at all."""
    directory = _modules_directory(files)
    listed = [files.read(f"{directory}/modules.{kind}") or "" for kind in ("dep", "builtin")]
    paths = [line.partition(":")[0] for text in listed for line in text.splitlines()]
    names = {path.rpartition("/")[2].partition(".")[0].replace("-", "_") for path in paths}
    return tuple(name for name in _MODULES if name not in names) if names else ()


def ofed_version(files: HostFiles, run_program: Callable[..., CommandResult] = run) -> str:
    """What `ofed_info -s` prints, such as `OFED-internal-24.10-1.1.4:` of DOCA-OFED; "unknown" for another form.

    https://github.com/NVIDIA/gds-nvidia-fs reads its version so; nothing runs where it is not installed.
    """
    if not files.exists(_OFED):
        return ""
    found = _OFED_VERSION.search(run_program((_OFED, "-s"), _SECONDS).text)
    return found[1] if found else "unknown"


def peermem(files: HostFiles) -> str:
    """Whether nvidia_peermem of the running kernel registers with adapters, for which it depends on ib_core.

    Without their interface when it was built, it is compiled to a module that refuses to load:
    https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia-peermem/nvidia-peermem.c
    """
    found = _PEERMEM.search(files.read(f"{_modules_directory(files)}/modules.dep") or "")
    return "" if found is None else "built" if "ib_core" in found[1] else "stub"


def _modules_directory(files: HostFiles) -> str:
    return f"/lib/modules/{(files.read('/proc/sys/kernel/osrelease') or '').strip()}"


def is_imex_in_pods(files: HostFiles) -> bool:
    """Whether a process of IMEX is in a pod, as those that NVIDIA's DRA driver starts are."""
    return any(
        (files.read(f"/proc/{name}/comm") or "").strip() == "nvidia-imex"
        and "kubepods" in (files.read(f"/proc/{name}/cgroup") or "")
        for name in files.names("/proc")
        if name.isdigit()
    )


@dataclass(frozen=True)
class ImexState:
    """IMEX of this host: `problem`, why it does not work, and `notes`, what is not ready or not known."""

    problem: str = ""
    notes: tuple[str, ...] = ()


def imex_domain(run_program: Callable[..., CommandResult]) -> str:
    """What IMEX of this host knows of its domain where that is not up; "unknown" where it does not state it."""
    result = run_program((find_executable(IMEX_STATE[0]), *IMEX_STATE[1:]), _SECONDS)
    status, waiting = parse_imex_domain(result.text if result.rc == 0 else "")
    if status in ("UP", None):
        return "" if status else "unknown"
    nodes = [f"{host} is {state}" for host, state in list(waiting.items())[:_SHOWN_NODES]]
    more = f" and {len(waiting) - _SHOWN_NODES} more" if len(waiting) > _SHOWN_NODES else ""
    return f"{status}{': ' if nodes else ''}{', '.join(nodes)}{more}"


def wait_for_imex(
    seconds: float,
    files: HostFiles,
    systemd: Systemd,
    run_program: Callable[..., CommandResult],
    sleep: Callable[[float], None] = time.sleep,
) -> ImexState:
    """Wait until the domain is up, at most so long. Nodes that another run starts later are no fault of this host."""
    if not systemd.is_running:
        return ImexState(notes=("systemd does not run here, so that the state of IMEX is not known",))
    found = "unknown"
    for turn in range(int(seconds / _PAUSE) + 1):
        if turn:
            sleep(_PAUSE)
        unit = systemd.unit(IMEX_UNIT)
        if unit.active == "failed":
            break
        found = imex_domain(run_program) if unit.is_active else found
        if unit.is_active and not found:
            break
    if not unit.is_active:
        return ImexState(f"{IMEX_UNIT} is {unit.active} after its start; see `journalctl -u {IMEX_UNIT}` on the host")
    asked = "CreateImexChannel0: 1" in (files.read(_PARAMETERS) or "").splitlines()
    if asked and not files.exists(_CHANNEL):
        return ImexState(
            f"NVreg_CreateImexChannel0 is set, and there is no {_CHANNEL}, without which jobs cannot use IMEX"
        )
    if found == "unknown":
        return ImexState(notes=("the state of the IMEX domain cannot be read by nvidia-imex-ctl",))
    return ImexState(
        notes=(f"the IMEX domain is {found}, {seconds:.0f} s after the start of this host",) if found else ()
    )
