# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which companions a driver needs on a host: Fabric Manager, nvlsm, IMEX. Private to this collection.

Pure: options of the role and facts of the host in, parts of packages, units and kernel modules out.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# GPUs of the multi-node NVLink systems GB200 and GB300: https://pci-ids.ucw.cz/read/PC/10de
MULTI_NODE_GPUS = frozenset(("0x2941", "0x31c0", "0x31c2", "0x31c3"))
# https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/config.html. The socket is where a unit with
# ProtectSystem=full may write: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/pull/1236 expects one.
IMEX_SETTINGS: Mapping[str, str] = {
    "IMEX_CMD_ENABLED": "1",
    "IMEX_CMD_UNIX_DOMAIN_PATH": "/var/run/nvidia-imex-ctrl.sock",
}
IMEX_NODES_FILE = "/etc/nvidia-imex/nodes_config.cfg"
# What GPUDirect needs, by what is requested: https://docs.nvidia.com/cuda/gpudirect-rdma, and the README files of
# https://github.com/NVIDIA/gdrcopy and https://github.com/NVIDIA/gds-nvidia-fs.
GPUDIRECT: Mapping[str, str] = {"peermem": "nvidia_peermem", "gdrcopy": "gdrdrv", "storage": "nvidia_fs"}
_PORTS = ("SERVER_PORT", "IMEX_CMD_PORT")
_OF_THE_ROLE = ("IMEX_NODE_CONFIG_FILE",)
_SETTING, _LONGEST_SETTING = re.compile(r"[A-Z][A-Z0-9_]*"), 256
_LAST_PORT = 65_535
PERSISTENCED, FABRIC_MANAGER, IMEX = (f"nvidia-{name}.service" for name in ("persistenced", "fabricmanager", "imex"))
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*\.?")


@dataclass(frozen=True)
class Needs:
    """What the companions depend on.

    `fabric_manager`, `imex` and `nvlink5` are `auto`, `present` or `absent`, `imex` also `masked`. `server`: Ubuntu's
    own packages are of its server series. `gpus` are PCI device ids, `fabric` the fact nvlink_fabric.
    `imex_nodes` are declared, `imex_domain` are the nodes that the inventory has in the domain of the host;
    `written` are files that the role has written. `imex_settings` go to IMEX' config.cfg. `kernel` is the
    running one, of a host with Ubuntu where `has_extra_modules`; with `is_image` it does not matter. `gpudirect` are of
    GPUDIRECT.
    """

    source: str
    server: bool = True
    fabric_manager: str = "auto"
    imex: str = "auto"
    nvlink5: str = "auto"
    persistence_daemon: bool = True
    gpus: tuple[str, ...] = ()
    fabric: Mapping[str, Any] | None = None
    imex_nodes: tuple[str, ...] = ()
    imex_domain: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    imex_settings: Mapping[str, Any] = field(default_factory=dict)
    gpudirect: tuple[str, ...] = ()
    kernel: str = ""
    is_image: bool = False
    has_extra_modules: bool = False


@dataclass(frozen=True)
class Companions:
    """`parts` of the package table; units that run and those that are masked; kernel modules; reasons against it.

    `module_packages` have kernel modules that are missing. `imex_nodes` are the lines of IMEX' nodes_config.cfg, none
    where the file of the site stays, and `imex_settings` the settings in its config.cfg.
    """

    parts: tuple[str, ...]
    units: tuple[str, ...]
    masked: tuple[str, ...] = ()
    kernel_modules: tuple[str, ...] = ()
    module_packages: tuple[str, ...] = ()
    imex_nodes: tuple[str, ...] = ()
    imex_settings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        return {name: list(values) for name, values in asdict(self).items()}


def plan_companions(needs: Needs) -> Companions:
    """The companions for these needs.

    NVLink 5 needs Fabric Manager as older NVSwitches do, and the subnet manager nvlsm, which Fabric Manager starts and
    which finds the switches through ib_umad, of adapters of mlx5_ib.
    """
    fabric = {**(needs.fabric or {}), **({"missing_modules": ()} if needs.is_image else {})}
    nvlink5 = _decided(needs.nvlink5, bool(fabric.get("nvlink5_bridges")))
    fabric_manager = _decided(needs.fabric_manager, nvlink5 or bool(fabric.get("nvswitches")))
    imex = _decided(needs.imex, not MULTI_NODE_GPUS.isdisjoint(needs.gpus))
    masked = imex and needs.imex == "masked"
    nodes = (needs.imex_nodes or needs.imex_domain) if imex else ()
    parts = {
        "persistence_daemon": needs.persistence_daemon,
        "fabric_manager": fabric_manager,
        "imex": imex,
        "nvlink5": nvlink5,
        **{part: part in needs.gpudirect for part in GPUDIRECT if part != "peermem"},
    }
    units = {PERSISTENCED: needs.persistence_daemon, FABRIC_MANAGER: fabric_manager, IMEX: imex and not masked}
    return Companions(
        parts=_chosen(parts),
        units=_chosen(units),
        masked=(IMEX,) if masked else (),
        kernel_modules=(
            *(("mlx5_ib", "ib_umad") if nvlink5 else ()),
            *(module for name, module in GPUDIRECT.items() if name in needs.gpudirect),
        ),
        module_packages=_module_packages(needs, fabric) if nvlink5 else (),
        imex_nodes=nodes,
        imex_settings=_imex_settings(needs) if nodes and not masked else (),
        refusals=(
            *_refusals(needs, parts),
            *(_wrong_imex(needs, fabric, nodes) if imex and not masked else _wrong_nodes(needs.imex_nodes)),
            *_wrong_settings(needs.imex_settings),
            *_missing_modules(needs, fabric, nvlink5=nvlink5),
            *_wrong_gpudirect(needs, fabric),
        ),
        notes=tuple(_notes(needs, fabric, nvlink5=nvlink5)),
    )


def _decided(option: str, needed: bool) -> bool:
    return needed if option == "auto" else option != "absent"


def _chosen(desired: Mapping[str, bool]) -> tuple[str, ...]:
    return tuple(name for name, is_desired in desired.items() if is_desired)


def _refusals(needs: Needs, parts: Mapping[str, bool]) -> Iterator[str]:
    missing = [name for name in ("fabric_manager", "imex", "nvlink5") if parts[name]]
    if needs.source == "runfile" and missing:
        options = " and ".join(f"nvidia_driver_{name}" for name in missing)
        yield (
            "a runfile brings no Fabric Manager, no IMEX and no subnet manager of NVLink 5, which this host needs; "
            f"use another nvidia_driver_source, or set {options} to absent"
        )
    if needs.source == "distribution" and not needs.server and (parts["fabric_manager"] or parts["imex"]):
        yield (
            "Ubuntu's Fabric Manager and IMEX go with the packages of the server series only; set "
            "nvidia_driver_ubuntu_series to server"
        )


def _wrong_nodes(nodes: Sequence[str], of: str = "nvidia_driver_imex_nodes") -> Iterator[str]:
    twice = ", ".join(sorted({node for node in nodes if nodes.count(node) > 1}))
    if twice:
        yield f"{of} has {twice} more than once"
    wrong = ", ".join(repr(node) for node in nodes if not _is_address(node))
    if wrong:
        yield f"{of} has {wrong}, which is neither an IP address nor a host name"


def _wrong_imex(needs: Needs, fabric: Mapping[str, Any], nodes: Sequence[str]) -> Iterator[str]:
    """Why the host cannot run IMEX. Kubernetes' own has other nodes."""
    if needs.imex_nodes:
        yield from _wrong_nodes(nodes)
    else:
        yield from _wrong_nodes(nodes, "the NVLink domain of this host (gpu_fleet_nvlink_domain)")
    is_there = fabric.get("imex_nodes_exist") and IMEX_NODES_FILE not in needs.written
    if not nodes and not is_there:
        yield (
            "IMEX has to know the compute nodes of its NVLink domain: name the domain with gpu_fleet_nvlink_domain on "
            "all of them, or set nvidia_driver_imex_nodes to their addresses, the same everywhere; set "
            "nvidia_driver_imex to masked where Kubernetes starts IMEX itself, or to absent"
        )
    if fabric.get("imex_in_pods"):
        yield (
            "Kubernetes runs IMEX in a pod of this host, and the GPUs can have only one: set nvidia_driver_imex to "
            "masked, or have the DRA driver use the host's (feature gate HostManagedIMEXDaemon, imex.mode hostManaged) "
            "and end its pods"
        )


def _wrong_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        text = _setting(value)
        if not _SETTING.fullmatch(str(name)) or name in _OF_THE_ROLE:
            yield (
                f"nvidia_driver_imex_settings has {name!r}, which is not a setting of IMEX' config.cfg or is the role's"
            )
        elif text is None or len(text) > _LONGEST_SETTING or not text.isprintable():
            yield f"nvidia_driver_imex_settings.{name} is {value!r}; it takes text or a number of one line"[:300]
        elif name in _PORTS and not (text.isdecimal() and 0 < int(text) <= _LAST_PORT):
            yield f"nvidia_driver_imex_settings.{name} is {value!r}; it takes a port from 1 to {_LAST_PORT}"
    ports = [_setting(settings[name]) for name in _PORTS if name in settings]
    if len(ports) > len({*ports}):
        yield f"nvidia_driver_imex_settings has the same port for {' and '.join(_PORTS)}"


def _setting(value: Any) -> str | None:
    """The value as in the file; None for one of another type."""
    if isinstance(value, bool):
        return str(int(value))
    return str(value) if isinstance(value, (str, int)) else None


def _imex_settings(needs: Needs) -> tuple[str, ...]:
    return tuple(f"{name}={_setting(value)}" for name, value in {**IMEX_SETTINGS, **needs.imex_settings}.items())


def _module_packages(needs: Needs, fabric: Mapping[str, Any]) -> tuple[str, ...]:
    """Ubuntu has them apart from the kernel."""
    is_missing = needs.has_extra_modules and needs.kernel and fabric.get("missing_modules")
    return (f"linux-modules-extra-{needs.kernel}",) if is_missing else ()


def _missing_modules(needs: Needs, fabric: Mapping[str, Any], *, nvlink5: bool) -> Iterator[str]:
    missing = fabric.get("missing_modules") or ()
    if nvlink5 and missing and not _module_packages(needs, fabric):
        yield (
            f"the kernel {needs.kernel} has no {' and no '.join(missing)}, without which NVLink 5 cannot be managed: "
            "install the package of the distribution with the other modules of this kernel, or boot a kernel that has "
            "them"
        )


def _wrong_gpudirect(needs: Needs, fabric: Mapping[str, Any]) -> Iterator[str]:
    """What is known before anything is built. The modules are loaded, which is their proof, after the driver."""
    built = [name for name in ("gdrcopy", "storage") if name in needs.gpudirect]
    if needs.source == "runfile" and built:
        yield (
            f"a runfile brings no packages for {' and '.join(built)} of nvidia_driver_gpudirect; take another "
            "nvidia_driver_source, or remove them"
        )
    if "peermem" in needs.gpudirect and fabric.get("peermem") == "stub" and not fabric.get("ofed"):
        yield (
            "nvidia_peermem of this kernel was built without the interface of adapters, which DOCA-OFED brings, and "
            "does not load: install DOCA-OFED first, or remove peermem from nvidia_driver_gpudirect, since the open "
            "kernel modules use DMA-BUF from Linux 5.12 on"
        )


def _is_address(node: str) -> bool:
    try:
        ipaddress.ip_address(node)
    except ValueError:
        # Digits and dots alone are an IP address with a mistake.
        return bool(_HOST_NAME.fullmatch(node)) and not re.fullmatch(r"[\d.]+", node)
    return True


def _notes(needs: Needs, fabric: Mapping[str, Any], *, nvlink5: bool) -> Iterator[str]:
    unreadable = fabric.get("unreadable") or ()
    if unreadable and not nvlink5 and needs.nvlink5 == "auto":
        yield (
            f"the vital product data of {', '.join(unreadable)} cannot be read, which would show whether the GPUs are "
            "connected by NVLink 5; set nvidia_driver_nvlink5 to present or absent"
        )
