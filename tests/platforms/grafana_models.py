# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds a dashboard to Grafana's published models; run by the Python of a virtual environment that has them.

Reads dashboards as a list from standard input, and prints for each what the models do not have: a list of lines.
The models read any JSON without an error. What they do not know is lost when they write it again, and the types of
what they do know are stated in their annotations.
"""

from __future__ import annotations

import enum
import importlib
import json
import sys
import typing
from collections.abc import Iterator
from typing import Any

_PACKAGE = "grafana_foundation_sdk"


def _module(name: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}.{name}")


def _written(model: Any) -> str:
    text: str = _module("cog.encoder").JSONEncoder().encode(model)
    return text


def lost(given: Any, written: Any, place: str = "") -> Iterator[str]:
    """What is in `given` and not in `written`."""
    if isinstance(given, dict) and isinstance(written, dict):
        for key, value in given.items():
            if key in written:
                yield from lost(value, written[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}: no such key"
    elif isinstance(given, list) and isinstance(written, list) and len(given) == len(written):
        for number, (one, other) in enumerate(zip(given, written, strict=True)):
            yield from lost(one, other, f"{place}[{number}]")
    elif given != written:
        yield f"{place}: {given!r} is read as {written!r}"


def mistyped(value: Any, kind: Any, place: str) -> Iterator[str]:
    """Where a value, or a part of a model, has another type than the model's annotations."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        found = [list(mistyped(value, part, place)) for part in parts]
        if all(found):
            # Of the alternatives the one that has the value's own form, and something wrong within.
            yield from min(found, key=lambda errors: errors[0].startswith(f"{place}: "))
    elif origin is list and isinstance(value, list):
        for number, one in enumerate(value):
            yield from mistyped(one, parts[0], f"{place}[{number}]")
    elif origin is dict and isinstance(value, dict):
        for key, one in value.items():
            yield from mistyped(one, parts[1], f"{place}.{key}")
    elif isinstance(value, dict) and hasattr(kind, "from_json"):
        # The models read some of their parts as they are.
        yield from lost(value, json.loads(_written(kind.from_json(value))), place)
        yield from mistyped(kind.from_json(value), kind, place)
    elif not _is(value, origin or kind, parts):
        yield f"{place}: {value!r} is no {kind}"
    elif type(value).__module__.startswith(f"{_PACKAGE}.models"):
        for name, of_field in typing.get_type_hints(type(value)).items():
            yield from mistyped(getattr(value, name), of_field, f"{place}.{name}")


def _is(value: Any, kind: Any, choices: tuple[Any, ...]) -> bool:
    if kind is typing.Literal:
        return value in choices
    if kind in (Any, object):
        return True
    if issubclass(kind, enum.Enum):
        return value in [member.value for member in kind]
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def unknown_to_models(dashboard: dict[str, Any]) -> list[str]:
    """What the models do not have of a dashboard, once each."""
    runtime, units = _module("cog.runtime").Runtime(), vars(_module("models.units"))
    try:
        model = _module("models.dashboard").Dashboard.from_json(dashboard)
    except KeyError as error:
        # Where a key decides which model follows.
        return [f"the models have no {error}"]
    found = [*lost(dashboard, json.loads(_written(model))), *mistyped(model, type(model), "")]
    for panel in dashboard["panels"]:
        if panel["type"] not in runtime.panelcfg_variants:
            found.append(f"{panel['title']}: no panel {panel['type']!r}")
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
        if unit not in [value for name, value in units.items() if not name.startswith("_")]:
            found.append(f"{panel['title']}: no unit {unit!r}")
        kinds = {target["datasource"]["type"] for target in panel["targets"]} - {*runtime.dataquery_variants}
        found += [f"{panel['title']}: no data source {kind!r}" for kind in sorted(kinds)]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    _module("cog.plugins").register_default_plugins()
    print(json.dumps([unknown_to_models(dashboard) for dashboard in json.load(sys.stdin)]))
