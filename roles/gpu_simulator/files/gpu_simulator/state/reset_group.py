# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups of GPUs that can only be reset together, by the nvidia-smi manual page on ``--gpu-reset``."""

from __future__ import annotations

from . import catalogue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .shapes import State

BEFORE_AMPERE = ("Pascal", "Volta", "Turing")
AMPERE = "Ampere"


def members(state: State, index: int) -> tuple[int, ...]:
    """Return the indexes of the GPUs that are reset together with this one, including its own.

    GPUs with NVLink are reset together if older than Ampere, or of Ampere without a running Fabric Manager; newer ones
    are reset individually.
    """
    links = [place for place in range(len(state["gpus"])) if _is_linked(state, place)]
    return tuple(links) if index in links else (index,)


def _is_linked(state: State, index: int) -> bool:
    host, model = state["host"], catalogue.load(state["gpus"][index]["model"])
    if not model["nvlink"] or not host["fabric"]:
        return False
    managed = host.get("fabric_manager", True)
    return model["architecture"] in BEFORE_AMPERE or (model["architecture"] == AMPERE and not managed)
