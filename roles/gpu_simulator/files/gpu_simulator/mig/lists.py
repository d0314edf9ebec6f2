# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verbs of ``nvidia-smi mig`` that list something."""

from __future__ import annotations

from ..state import catalogue, nvml
from . import instances as mig_instances
from . import placement
from . import profiles as mig_profiles
from . import tables as mig_listing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..state.shapes import Reply
    from .request import Session

NO_GPU_INSTANCES = "No GPU instances found: {}"
NO_COMPUTE_INSTANCES = "No compute instances found: {}"
FREE_WITH_MODE_OFF_SINCE = 580


def list_gpu_profiles(session: Session) -> Reply:
    """Handle ``-lgip``."""
    rows = []
    branch = session.version[0]
    for index, gpu in session.gpus:
        profiles = mig_instances.profiles_of(gpu, session.version)
        counted = mig_instances.in_mig_mode(gpu) or branch >= FREE_WITH_MODE_OFF_SINCE
        for profile in profiles:
            free = placement.free_count(profile, profiles, gpu["gpu_instances"]) if counted else 0
            rows.append((index, profile, free))
    return mig_listing.gpu_profiles(branch, rows), 0


def list_gpu_placements(session: Session) -> Reply:
    """Handle ``-lgipp``."""
    rows = [
        (index, profile) for index, gpu in session.gpus for profile in mig_instances.profiles_of(gpu, session.version)
    ]
    return mig_listing.gpu_placements(rows), 0


def list_gpu_instances(session: Session) -> Reply:
    """Handle ``-lgi``."""
    try:
        found = session.instances()
    except nvml.NvmlError as error:
        refused = error.code == nvml.NO_PERMISSION
        return session.fail(error, "Failed to display GPU instances: {}" if refused else NO_GPU_INSTANCES)
    rows = [(index, profile, instance) for index, _unused, profile, instance in found]
    return mig_listing.gpu_instances(session.version[0], rows), 0


def list_compute_instances(session: Session) -> Reply:
    """Handle ``-lci``."""
    rows = []
    for index, gpu, profile, instance in session.instances():
        model = catalogue.load(gpu["model"])
        for compute in instance["compute_instances"]:
            compute_profile = mig_profiles.compute_profile(model, profile, compute["profile_id"])
            rows.append((index, instance["id"], compute_profile, compute))
    if not rows:
        return session.fail(nvml.NvmlError(nvml.NOT_FOUND), NO_COMPUTE_INSTANCES)
    return mig_listing.compute_instances(rows), 0


def list_compute_profiles(session: Session) -> Reply:
    """Handle ``-lcip``."""
    rows = []
    for index, gpu, profile, instance in session.instances():
        for compute in mig_instances.compute_profiles_of(gpu, instance):
            free = placement.free_compute_starts(profile["slices"], compute["slices"], instance["compute_instances"])
            rows.append((index, instance["id"], profile, compute, len(free)))
    return mig_listing.compute_profiles(rows), 0


def list_compute_placements(session: Session) -> Reply:
    """Handle ``-lcipp``."""
    rows = []
    for index, gpu, profile, instance in session.instances():
        for compute in mig_instances.compute_profiles_of(gpu, instance):
            starts = placement.compute_starts(profile["slices"], compute["slices"])
            rows.append((index, instance["id"], compute, starts))
    return mig_listing.compute_placements(rows), 0
