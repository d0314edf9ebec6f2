# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi mig``: the GPUs it acts on, and the functions that handle its options."""

from __future__ import annotations

import contextlib

from .. import cli, lazy
from ..command_line import subcommand
from ..queries import listing
from ..state import health, nvml, store
from . import changes as mig_changes
from . import instances as mig_instances
from . import lists as mig_lists
from . import request as mig_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..command_line.verbs import Call
    from ..state.shapes import Reply
    from .request import Request, Session

NOT_SUPPORTED = "No MIG-supported devices found.\n"
NOT_ENABLED = "No MIG-enabled devices found.\n"
MODE_OFF_IS_NO_ERROR_SINCE = 550


def mig(call: Call) -> Reply:
    """Handle ``nvidia-smi mig ...``."""
    request = mig_request.parse(call.arguments)
    if "-h" in request.options or set(request.options) <= {"-i"}:
        return listing.help_text("help-mig")
    if request.action in CHANGES and call.root_user:
        try:
            with store.transaction(call.root) as state:
                changed = _act(cli.new_call(call.arguments, call.root, state, call.root_user), request)
                # nvidia-modprobe is what makes the nodes on a real host, and ends in silence where it cannot.
                with contextlib.suppress(OSError):
                    lazy.load("host.kernel").Host(call.root).show_mig_instances(state["gpus"])
            return changed
        except store.StoreError:
            # In a container the state is read-only, even for root.
            call.root_user = False
    return _act(call, request)


def _act(call: Call, request: Request) -> Reply:
    options = {"id": request.options["-i"]} if "-i" in request.options else {}
    refusal = subcommand.select(call, options) or health.lost(call.gpus)
    if refusal:
        return refusal
    branch = call.version[0]
    capable = [(index, gpu) for index, gpu in call.gpus if gpu["mig_mode"]]
    if not capable:
        return (NOT_SUPPORTED if branch >= MODE_OFF_IS_NO_ERROR_SINCE else NOT_ENABLED), nvml.NOT_FOUND
    enabled = [(index, gpu) for index, gpu in capable if mig_instances.in_mig_mode(gpu)]
    if request.action in ("-lgip", "-lgipp") and branch >= MODE_OFF_IS_NO_ERROR_SINCE:
        enabled = capable
    if not enabled:
        return NOT_ENABLED, (0 if branch >= MODE_OFF_IS_NO_ERROR_SINCE else nvml.NOT_FOUND)
    if request.action is None:
        return listing.help_text("help-mig")
    return ACTIONS[request.action](mig_request.Session(call, request, enabled))


def _needs_instances(action: Callable[[Session], Reply]) -> Callable[[Session], Reply]:
    """Make an action end with "No GPU instances found" when there is none, or none visible to the user."""

    def result(session: Session) -> Reply:
        try:
            return action(session)
        except nvml.NvmlError as error:
            return session.fail(error, mig_lists.NO_GPU_INSTANCES)

    return result


ACTIONS: dict[str, Callable[[Session], Reply]] = {
    "-lgip": mig_lists.list_gpu_profiles,
    "-lgipp": mig_lists.list_gpu_placements,
    "-lgi": mig_lists.list_gpu_instances,
    "-lci": _needs_instances(mig_lists.list_compute_instances),
    "-lcip": _needs_instances(mig_lists.list_compute_profiles),
    "-lcipp": _needs_instances(mig_lists.list_compute_placements),
    "-cgi": mig_changes.create_gpu_instances,
    "-cci": _needs_instances(mig_changes.create_compute_instances),
    "-dgi": _needs_instances(mig_changes.destroy_gpu_instances),
    "-dci": _needs_instances(mig_changes.destroy_compute_instances),
}
CHANGES = ("-cgi", "-cci", "-dgi", "-dci")
