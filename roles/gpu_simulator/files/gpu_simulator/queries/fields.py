# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of ``--query-gpu``: name, aliases, unit, and the path of the reading."""

from __future__ import annotations

from ..state import catalogue

SECTIONS_SINCE = {"power_smoothing": 610}
"""Sections of the help text that older drivers lack although they have some of the fields."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from ..state.shapes import Version

    Field = Dict[str, Any]


def gpu_fields(version: Version) -> list[Field]:
    """List the fields that this driver knows, in the order of its help text."""
    fields: list[Field] = catalogue.read_data("fields", "query-gpu.json")
    return [field for field in fields if field.get("since", 0) <= version[0] < field.get("until", 10**6)]


def names(field: Field, version: Version) -> list[str]:
    """List the names of a field, its own first."""
    known = version[0] >= field.get("aliases_since", 0)
    return [field["name"], *(field.get("aliases", ()) if known else ())]


def by_name(fields: list[Field], version: Version) -> dict[str, Field]:
    """Index fields by all their names."""
    return {name: field for field in fields for name in names(field, version)}


def help_text(version: Version) -> str:
    """Return the help text of ``--help-query-gpu``: the text of 580, with the fields and wording of this driver."""
    known = {field["name"]: field for field in gpu_fields(version)}
    other = {
        change["now"]: change["then"]
        for change in catalogue.read_data("help", "changes.json")
        if change.get("since", 0) <= version[0] < change.get("until", 10**6)
    }
    kept = []
    for block in catalogue.read_help("help-query-gpu").split("\n\n"):
        text = other.get(block, block)
        if block.startswith('"'):
            field = known.get(block.split('"')[1])
            if field is None:
                continue
            text = " or ".join(f'"{name}"' for name in names(field, version)) + "\n" + text.partition("\n")[2]
        if block.startswith("Section about"):
            name = block.split()[2]
            if version[0] < SECTIONS_SINCE.get(name, 0) or not any(field.startswith(name + ".") for field in known):
                continue
        kept.append(text)
    return "\n\n".join(kept)
