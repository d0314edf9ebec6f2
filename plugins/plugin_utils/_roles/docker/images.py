# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requested images, by the names that Docker lists, and errors of engines. Private to this collection. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .request import Request

_REASON = 1_000
"""Characters of an error: runc's reason is behind the addresses and the request of Docker."""


def missing_images(request: Request, there: Sequence[str]) -> dict[str, Any]:
    """The requested images that are not `there`: those to load, and the names of those to pull."""
    missing = [image for image in request.images if listed_image(str(image["name"])) not in there]
    return {
        "load": [image for image in missing if image.get("archive")],
        "pull": [str(image["name"]) for image in missing if not image.get("archive")],
    }


def listed_image(name: str) -> str:
    """The name by which Docker lists an image: without its default registry and namespace, with the default tag."""
    short = re.sub(r"^docker[.]io/(library/)?", "", name)
    return short if "@" in short or ":" in short.rpartition("/")[2] else f"{short}:latest"


def pull_error(result: Mapping[str, Any]) -> str:
    """Why images could not be pulled, from the result of a task with a loop, and what helps where that is known."""
    items = [item for item in result.get("results") or [result] if item.get("failed")]
    messages = [" ".join(str(item.get("msg", "no reason given")).split()) for item in items]
    text = "; ".join(dict.fromkeys(messages))
    # docker-ce 29.5.0 with nvcr.io.
    if "incorrect repository format" in text.lower():
        text += (
            "; Docker 29 stores images in containerd, and some releases (29.5.0) "
            "cannot pull from nvcr.io that way: set "
            "docker_daemon_options to {features: {containerd-snapshotter: false}}, which hides images pulled before, "
            "or docker_version to another one"
        )
    return text


def run_errors(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why an engine ran no container, from the results of its module in a loop over names; one that succeeded has none.

    The last line that podman prints is its error, those before are warnings. Docker's module returns no container where
    there is none yet in check mode, and then what it would do.
    """
    errors = []
    for result in results:
        if not result.keys() & {"container", "actions", "skipped"}:
            printed = str(result.get("stderr") or result.get("msg") or "no reason given").strip().splitlines()
            errors.append(f"container {result.get('item')}: {printed[-1][:_REASON]}")
    return errors
