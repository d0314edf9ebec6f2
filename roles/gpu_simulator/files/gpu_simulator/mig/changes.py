# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verbs of ``nvidia-smi mig`` that create and destroy instances; changes before a failure stay."""

from __future__ import annotations

from ..state import nvml
from . import instances as mig_instances
from .lists import NO_COMPUTE_INSTANCES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..state.shapes import Gpu, GpuInstance, Reply
    from .profiles import Profile
    from .request import Session

DEFAULT = "default"
"""Placeholder for a profile that was not named."""


def create_gpu_instances(session: Session) -> Reply:
    """Handle ``-cgi [-C]``: instance by instance, GPU by GPU, until one fails."""
    desired = session.request.value
    if not desired:
        return "", 0
    for index, gpu in session.gpus:
        for chosen in desired.split(","):
            name, _unused, place = chosen.partition(":")
            if not name:
                session.log(
                    f"Unable to create a GPU instace on GPU {index:>2} using profile {chosen}: invalid placement syntax"
                )
                return session.fail(nvml.NvmlError(nvml.INVALID_ARGUMENT), "Failed to create GPU instances: {}")
            blamed = f"Unable to create a GPU instance on GPU {index:>2} using profile {chosen}"
            try:
                profile = find_profile(mig_instances.profiles_of(gpu, session.version), name)
                session.begin("create_gpu_instance", index)
                instance = mig_instances.create_gpu_instance(gpu, session.version, profile, read_start(place))
                session.log(
                    f"Successfully created GPU instance ID {instance['id']:>2} on GPU {index:>2} "
                    f"using profile MIG {profile['name']} (ID {profile['id']:>2})"
                )
                if "-C" in session.request.options:
                    blamed = _compute_blame(index, instance, DEFAULT)
                    _create_compute_instance(session, index, gpu, instance, "")
            except nvml.NvmlError as error:
                session.log(f"{blamed}: {error}")
                return session.fail(error, "Failed to create GPU instances: {}")
    return session.text, 0


def create_compute_instances(session: Session) -> Reply:
    """Handle ``-cci``."""
    desired = session.request.value.split(",") if session.request.value else [""]
    for index, gpu, _unused, instance in session.instances():
        for name in desired:
            try:
                _create_compute_instance(session, index, gpu, instance, name)
            except nvml.NvmlError as error:
                session.log(f"{_compute_blame(index, instance, name or DEFAULT)}: {error}")
                return session.fail(error, "Failed to create compute instances: {}")
    return session.text, 0


def _compute_blame(index: int, instance: GpuInstance, name: str) -> str:
    place = f"GPU {index:>2} GPU instance ID {instance['id']:>2}"
    return f"Unable to create a compute instance on {place} using profile {name}"


def _create_compute_instance(session: Session, index: int, gpu: Gpu, instance: GpuInstance, name: str) -> None:
    profiles = mig_instances.compute_profiles_of(gpu, instance)
    default = next(candidate for candidate in profiles if candidate["default"])
    profile = find_profile(profiles, name) if name else default
    session.begin("create_compute_instance", index)
    slices = max(candidate["slices"] for candidate in profiles)
    compute = mig_instances.create_compute_instance(instance, profile, slices)
    session.log(
        f"Successfully created compute instance ID {compute['id']:>2} on GPU {index:>2} "
        f"GPU instance ID {instance['id']:>2} using profile MIG {profile['name']} (ID {profile['id']:>2})"
    )


def destroy_gpu_instances(session: Session) -> Reply:
    """Handle ``-dgi``."""
    for index, gpu, _unused, instance in session.instances():
        what = f"GPU instance ID {instance['id']:>2} from GPU {index:>2}"
        try:
            session.begin("destroy_gpu_instance", index)
            mig_instances.destroy_gpu_instance(gpu, instance)
        except nvml.NvmlError as error:
            session.log(f"Unable to destroy {what}: {error}")
            return session.fail(error, "Failed to destroy GPU instances: {}")
        session.log(f"Successfully destroyed {what}")
    return session.text, 0


def destroy_compute_instances(session: Session) -> Reply:
    """Handle ``-dci``."""
    for index, gpu, _unused, instance in session.instances():
        for compute in list(instance["compute_instances"]):
            if not session.request.selects("-ci", compute["id"]):
                continue
            what = f"compute instance ID {compute['id']:>2} from GPU {index:>2} GPU instance ID {instance['id']:>2}"
            try:
                session.begin("destroy_compute_instance", index)
                mig_instances.destroy_compute_instance(gpu, instance, compute)
            except nvml.NvmlError as error:
                session.log(f"Unable to destroy {what}: {error}")
                return session.fail(error, "Failed to destroy compute instances: {}")
            session.log(f"Successfully destroyed {what}")
    if not session.text:
        return session.fail(nvml.NvmlError(nvml.NOT_FOUND), NO_COMPUTE_INSTANCES)
    return session.text, 0


def find_profile(profiles: list[Profile], name: str) -> Profile:
    """Find a profile by its number (leading zeros allowed) or its name, with or without ``MIG``; raises NvmlError."""
    for profile in profiles:
        if name in (profile["name"], "MIG " + profile["name"]) or (_is_number(name) and int(name) == profile["id"]):
            return profile
    raise nvml.NvmlError(nvml.INVALID_ARGUMENT)


def read_start(text: str) -> int | None:
    """Parse a start as strtol does: leading digits; None, the driver's choice, without any or below zero."""
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    return int(digits) if digits else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
