# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the module gpu_reset, from its options to its result. Private to this collection."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Mapping, Sequence

from .._common import resets
from .._common.errors import ChangeError, RunError
from .._common.gpu_clients import clients, running, stopped
from .._common.systemd import Systemd
from .._nvidia_smi.blockers import Blocker
from .._nvidia_smi.client import explain
from .._nvidia_smi.failures import code_of
from .._nvidia_smi.gpu import Gpu
from .._nvidia_smi.remedies import unresponsive
from .._nvidia_smi.selection import SelectionError, select
from .context import Access, access
from .locked_clocks import invalidate_clocks
from .reset import NOT_NAMED, Resetter, may_have_reset

CACHE_FILE = "/run/gpu-fleet/reset.json"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
_MIG = "is in MIG mode, and a reset destroys its instances; reboot the host: gpu-fleet-state.service restores them"


def run(params: Mapping[str, Any], check_mode: bool, _with_diff: bool) -> dict[str, Any]:
    """Reset as the module's options `params` ask for. Raises RunError; returns the module's result."""
    return converge(params, access(params, CACHE_FILE, check_mode), Systemd(), check_mode)


def converge(params: Mapping[str, Any], host: Access, systemd: Systemd, check_mode: bool) -> dict[str, Any]:
    """The run on a given host; see `run`."""
    result: dict[str, Any] = {
        "changed": False,
        "gpus": [],
        "reset": [],
        "blockers": [],
        "stopped_services": [],
        "warnings": [],
    }

    def note_stop(names: Sequence[str]) -> None:
        result.update(changed=True, stopped_services=list(names))

    fabric = params["fabric"]
    if not fabric and not params["gpus"]:
        raise RunError("gpus is empty: it names no GPU to reset; use all for all GPUs of the host", result)
    names = (*clients(params["clients"]), *((FABRIC_MANAGER,) if fabric else ()))
    try:
        with host.lock:
            found = host.smi.document().gpus
            gpus = tuple(found) if fabric else select(found, params["gpus"])
            result["gpus"] = [gpu.identity for gpu in gpus]
            _refuse_impossible(gpus, fabric)
            units = list(systemd.show(names).values())
            if check_mode:
                return {**result, "changed": True, "reset": result["gpus"], "stopped_services": list(running(units))}
            with stopped(systemd, units, begin=note_stop):
                # Without the units that have just let go of the GPUs.
                _reset(host, gpus, fabric, result)
            _verify(host, gpus)
    except SelectionError as error:
        raise RunError(str(error), result) from None
    except ChangeError as error:
        raise RunError(str(error), result) from error
    return result


def _refuse_impossible(gpus: Sequence[Gpu], fabric: bool) -> None:
    """Refuse GPUs with instances, and lost ones: with one that asks for a reset instead, nvidia-smi decides."""
    for gpu in gpus:
        if not fabric and gpu.error is not None and code_of(gpu.error) == "gpu_lost":
            raise ChangeError(unresponsive(gpu.label, gpu.error))
        if gpu.basics.mig_mode_current == "enabled" or gpu.mig_devices:
            raise ChangeError(f"{gpu.label} {_MIG}")


def _reset(host: Access, gpus: Sequence[Gpu], fabric: bool, result: dict[str, Any]) -> None:
    """Reset what nothing uses; ChangeError names the processes that use one of the GPUs."""
    held = {gpu.label: [one for one in host.find_blockers(gpu) if one.pid is not None] for gpu in gpus}
    _refuse(result, {label: blockers for label, blockers in held.items() if blockers})
    if fabric:
        for gpu in gpus:
            invalidate_clocks(gpu.identity)
        reply = host.smi.change("--gpu-reset")
        if may_have_reset(reply):
            _note_reset(result, [gpu.identity for gpu in gpus])
        if reply.rc != 0:
            raise ChangeError(explain(reply))
        resets.record(gpu.identity for gpu in gpus)
        return
    named = {gpu.identity for gpu in gpus}
    resetter = Resetter(
        host.smi,
        host.find_blockers,
        lambda: host.smi.document().gpus,
        lambda gpu: None if gpu.identity in named else NOT_NAMED,
    )
    for gpu in gpus:
        # The call for another GPU of its group has reset it.
        if gpu.identity in result["reset"]:
            continue
        outcome = resetter.reset([gpu])[gpu.identity]
        before = [other.label for other in gpus if other.identity in result["reset"]]
        _note_reset(result, outcome.touched)
        if outcome.note is None:
            continue
        try:
            _refuse(result, {gpu.label: [one for one in outcome.blockers if one.pid is not None]})
            raise ChangeError(f"{gpu.label}: {outcome.note}")
        except ChangeError as error:
            if not before:
                raise
            raise ChangeError(f"{error}; already reset: {', '.join(before)}") from error


def _note_reset(result: dict[str, Any], identities: Sequence[str]) -> None:
    """Note GPUs that were reset, or may have been."""
    result["reset"] += identities
    result["changed"] = result["changed"] or bool(identities)


def _refuse(result: dict[str, Any], held: Mapping[str, Sequence[Blocker]]) -> None:
    blockers = [blocker for found in held.values() for blocker in found]
    if blockers:
        result["blockers"] = [asdict(blocker) for blocker in dict.fromkeys(blockers)]
        users = "; ".join(f"{label}: {', '.join(map(str, found))}" for label, found in held.items() if found)
        raise ChangeError(f"not reset, since it is in use: {users}; wait until that has ended, then run this again")


def _verify(host: Access, gpus: Sequence[Gpu]) -> None:
    """Read the GPUs again: that nvidia-smi reports a reset proves nothing."""
    found = {gpu.identity for gpu in host.smi.document().gpus if gpu.error is None}
    lost = [gpu.label for gpu in gpus if gpu.identity not in found]
    if lost:
        raise ChangeError(f"after the reset {', '.join(lost)} did not respond any more; reboot the host")
