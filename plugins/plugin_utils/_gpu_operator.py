# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and nodes next to NVIDIA's GPU Operator: what is left to it, and its operands in an upgrade. Private.

Pure: what the operator has left on a host, and labels and annotations of its node in, refusals and patches out. Each
operand is a DaemonSet that selects nodes by one label nvidia.com/gpu.deploy.*: the operator sets a label that is
missing and keeps any other value (https://github.com/NVIDIA/gpu-operator, controllers/state_manager.go). To pause an
operand by its label is what NVIDIA does itself (https://github.com/NVIDIA/k8s-driver-manager,
cmd/driver-manager/main.go). Both as of August 2026.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..module_utils._common.json_text import parse_json
from ..module_utils._kubernetes.pods import OPERAND

PAUSED = "paused-for-driver-upgrade"
KEPT = "gpu.fleet/paused-operands"
"""Annotation of a node: the labels of the operands that an upgrade has paused, as they were."""
UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
DRA_DRIVER = f"{OPERAND}dra-driver"
_MIG_MANAGER, _MIG_CONFIG = f"{OPERAND}mig-manager", "nvidia.com/mig.config"
# Operands of the drivers, which are not ours to stop, and the one that removes all others.
_NEVER = (f"{OPERAND}driver", f"{OPERAND}vgpu-manager", f"{OPERAND}operands")
_SETTLED = ("", "upgrade-done")


@dataclass(frozen=True)
class OnHost:
    """Which parts of the operator run on a host, by what they leave below /run/nvidia."""

    driver: bool = False
    container_toolkit: bool = False
    device_plugin: bool = False


def host_refusals(roles: Collection[str], found: OnHost) -> Iterator[str]:
    """Why these roles, which would be set up, are left to the operator on this host."""
    for role, is_found, part, setting in (
        ("nvidia_driver", found.driver, "driver container", "driver.enabled"),
        ("nvidia_container_toolkit", found.container_toolkit, "container toolkit", "toolkit.enabled"),
        ("kubernetes_node", found.device_plugin, "device plugin", "devicePlugin.enabled"),
    ):
        if is_found and role in roles:
            yield (
                f"the {part} of NVIDIA's GPU Operator runs on this host, and {role} would fight it; set "
                f"{setting}=false in the values of the operator's chart to have it done by this role, or take {role} "
                "out of gpu_fleet_roles to leave it to the operator"
            )


def mig_refusal(metadata: Mapping[str, Any]) -> str:
    """Why a MIG layout cannot be declared for this node: the operator's MIG manager applies its own; empty otherwise.

    It applies the layout that the label names, at each start as well. The operator keeps the label where it is given
    none, and sets it by default.
    """
    labels = metadata.get("labels") or {}
    named = labels.get(_MIG_CONFIG, "")
    if not named or labels.get(_MIG_MANAGER) in (None, "", "false"):
        return ""
    return (
        f"the MIG manager of NVIDIA's GPU Operator applies its layout {named} to it ({_MIG_CONFIG}), and gpu_state_mig "
        "would fight it; set migManager.enabled=false in the values of the operator's chart, and remove that label "
        f"from the node, or set its label {_MIG_MANAGER}=false, to have it done by gpu_state, or leave out "
        "gpu_state_mig to leave it to the operator"
    )


def node_refusal(metadata: Mapping[str, Any]) -> str:
    """Why the operator is to finish with this node first; empty where nothing is under way."""
    labels = metadata.get("labels") or {}
    state = labels.get(UPGRADE_STATE, "")
    if state not in _SETTLED:
        return (
            f"NVIDIA's GPU Operator is upgrading its driver ({UPGRADE_STATE} is {state}); let it end, or set "
            "driver.upgradePolicy.autoUpgrade=false in the values of its chart"
        )
    theirs = sorted(name for name in _operands(labels) if PAUSED in labels[name] and name not in _kept(metadata))
    if theirs:
        return (
            f"NVIDIA's k8s-driver-manager has paused operands on it: {', '.join(theirs)}; wait until the driver "
            "container is ready, which restores them"
        )
    return ""


def pause(metadata: Mapping[str, Any], *, dra_driver: bool) -> dict[str, Any]:
    """The metadata to patch so that the operands leave the node, empty where none is to; what they were is kept.

    dra_driver: of the DRA driver alone. It is the last, since without it no pod with a claim can end.
    """
    labels, kept = metadata.get("labels") or {}, _kept(metadata)
    changed = {
        name: value
        for name in _operands(labels)
        if (name == DRA_DRIVER) == dra_driver and (value := _paused(labels[name])) != labels[name]
    }
    if not changed:
        return {}
    was = {**{name: labels[name] for name in changed}, **{name: kept[name] for name in kept if name not in changed}}
    return {"labels": changed, "annotations": {KEPT: json.dumps(was, sort_keys=True)}}


def resume(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata to patch so that the operands are as they were; what others have changed since stays."""
    labels = metadata.get("labels") or {}
    if KEPT not in (metadata.get("annotations") or {}):
        return {}
    back = {name: value for name, value in _kept(metadata).items() if labels.get(name) == _paused(value)}
    return {"labels": back, "annotations": {KEPT: None}}


def has_dra_driver(metadata: Mapping[str, Any]) -> bool:
    """Whether the operator's DRA driver is on the node, or is paused there."""
    return (metadata.get("labels") or {}).get(DRA_DRIVER, "false") not in ("", "false")


def _operands(labels: Mapping[str, str]) -> list[str]:
    return sorted(name for name in labels if name.startswith(OPERAND) and name not in _NEVER)


def _paused(value: str) -> str:
    """As k8s-driver-manager writes it: an operand that is off stays off, and a value of its own is kept in it."""
    if value in ("", "false") or PAUSED in value:
        return value
    return PAUSED if value == "true" else f"{value}_{PAUSED}"


def _kept(metadata: Mapping[str, Any]) -> dict[str, str]:
    try:
        found = parse_json((metadata.get("annotations") or {}).get(KEPT, "{}"))
    except ValueError:
        return {}
    # Whoever may annotate the node may also label it, but no other label is touched.
    return {name: str(found[name]) for name in _operands(found)} if isinstance(found, dict) else {}
