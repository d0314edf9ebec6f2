# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of ``--query-gpu``: name, other names, unit, and where the reading is."""

from __future__ import annotations

from . import catalogue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from .shapes import Version

    Field = Dict[str, Any]


def gpu_fields(version: Version) -> List[Field]:
    """List the fields that this driver knows, in the order of its help text."""
    fields: List[Field] = catalogue.read_data("fields", "query-gpu.json")
    return [field for field in fields if field.get("since", 0) <= version[0] < field.get("until", 10**6)]


def by_name(fields: List[Field]) -> Dict[str, Field]:
    """Index fields by all their names."""
    return {name: field for field in fields for name in (field["name"], *field.get("aliases", ()))}


def help_text(version: Version) -> str:
    """Give the help text of ``--help-query-gpu``, with the fields that this driver knows."""
    known = {field["name"] for field in gpu_fields(version)}
    blocks = catalogue.read_text("help", "help-query-gpu.txt").split("\n\n")
    kept = []
    for position, block in enumerate(blocks):
        if block.startswith('"') and block.split('"')[1] not in known:
            continue
        if block.startswith("Section about") and not _section_used(blocks[position + 1 :], known):
            continue
        kept.append(block)
    return "\n\n".join(kept)


def _section_used(following: List[str], known: "set[str]") -> bool:
    """Tell whether a section has a field left before the next section begins."""
    for block in following:
        if block.startswith("Section about"):
            return False
        if block.startswith('"') and block.split('"')[1] in known:
            return True
    return False
