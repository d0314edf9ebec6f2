# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of a role's variable, as its argument specification has it. Private to this collection. Pure.

Stricter than Ansible's own validation, which converts a value for itself and leaves the role with the original: `ops`
passes as a list of strings, and the role fails later, at its first list operation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeGuard, cast

from ansible.module_utils.parsing.convert_bool import BOOLEANS, BOOLEANS_TRUE

from ...module_utils._common.bounds import Number

Spec = Mapping[str, Any]

_SHOWN = 60
_MOST_CHOICES = 12
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TIMEOUTS = ("reboot_timeout", "boot_timeout", "workload_timeout", "agent_timeout")
_EXAMPLES = {"str": "text", "path": "/path", "int": "1", "bool": "true", "dict": "{key: value}", "raw": "value"}
_FORMS = {
    "str": "text",
    "path": "an absolute path",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "dict": "a dictionary",
    "list": "a list",
}


_ADDRESS = (r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252})|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", "an IP address or the name of a host")
_UNIT = (r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,254}", "the name of a unit of systemd, such as my-exporter.service")
_IMAGE = (r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}", "the name of an image, such as registry.example.com/cuda:13.0")
_NAMED: Mapping[str, tuple[str, str]] = {
    "backend_ai_agent_address": _ADDRESS,
    "nvidia_driver_imex_address": _ADDRESS,
    "gpu_state_clients": _UNIT,
    "docker_images.name": _IMAGE,
    "docker_image_exports.image": _IMAGE,
    "gpu_containers_declared.image": _IMAGE,
    "gpu_health_container_image": _IMAGE,
    "gpu_workload_tests.image": _IMAGE,
    "kubernetes_node_device_plugin_image": _IMAGE,
    "kubernetes_node_dra_driver_image": _IMAGE,
    "nvidia_container_toolkit_smoke_image": _IMAGE,
}
"""By variable, or by variable and suboption: the form of a text that is not empty, and that in words."""


def shown(value: object) -> str:
    """A user's value in an error message: one short line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def form_refusals(name: str, value: object, spec: Spec, converted: bool = False) -> Iterator[str]:
    """What is wrong with the form of one variable, each in one line of less than 300 characters.

    With `converted` a module converts the value: then text stands for a list as well.
    """
    if value is None and "default" not in spec and not spec.get("required"):
        return
    # true and false may be meant for one of the choices.
    is_choice = "choices" in spec and (isinstance(value, bool) or _has_type(value, spec, converted))
    if not is_choice and not _has_type(value, spec, converted):
        yield _wrong_type(name, value, spec)
    elif "choices" in spec and not _are_choices(value, spec):
        yield f"{name} is {shown(value)}; use {_among(value, spec['choices'])}"
    elif isinstance(value, Mapping) and "options" in spec:
        yield from _suboption_refusals(name, value, spec["options"], converted)
    elif is_list(value):
        yield from _element_refusals(name, value, spec, converted)


def value_refusals(name: str, value: object, spec: Spec) -> Iterator[str]:
    """What is wrong with a value of the right form, whatever the role, and on every host.

    A path may be empty where the documentation of its variable states its meaning.
    """
    kind = spec.get("type", "str")
    if value is None or spec.get("choices"):
        return
    paths = value if is_list(value) and spec.get("elements") == "path" else [value] if kind == "path" else []
    for path in map(str, paths):
        if not path.startswith("/") and not (path == "" and "Empty" in str(spec.get("description"))):
            yield f"{name} is {shown(value)}; it has to be an absolute path"
        elif path and (_CONTROL.search(path) or not path.strip("/") or ".." in path.split("/")):
            yield f"{name} is {shown(value)}; it has to be a path below /, on one line and without .."
    if kind == "int" and not isinstance(kind, Number) and int(cast("int", value)) < _least(name):
        yield f"{name} is {shown(value)}; it takes a whole number from {_least(name)}"
    elif kind == "str" and not spec.get("no_log") and _CONTROL.search(str(value)):
        yield f"{name} is {shown(value)}; it takes one line of text"
    elif kind == "str" and value != "" and _is_blank(value):
        yield f'{name} has spaces alone; write "" for none'
    else:
        yield from _named_refusals(name, value)


def _named_refusals(name: str, value: object) -> Iterator[str]:
    """Strings of a variable that cannot be what it names."""
    entries = {name: value}
    if is_list(value):
        entries = {f"{name}[{place}]": item for place, item in enumerate(value)}
    for place, entry in entries.items():
        if isinstance(entry, Mapping):
            found = {f"{place}.{key}": (f"{name}.{key}", item) for key, item in entry.items()}
        else:
            found = {place: (name, entry)}
        for where, (what, item) in found.items():
            form, meant = _NAMED.get(what, ("", ""))
            if form and item not in (None, "") and not re.fullmatch(form, str(item), re.ASCII):
                yield f"{where} is {shown(item)}; it takes {meant}"


def _least(name: str) -> int:
    """The least of a number; a run that waits for nothing fails before the host can respond."""
    return 1 if name.endswith(_TIMEOUTS) else 0


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value is a list, and not text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def read_truth(value: object) -> object:
    """The truth value that Ansible's type bool makes of a value; another one as it is, to be refused.

    `-e name=false` and an inventory in the INI format give text.
    """
    key = value.strip().lower() if isinstance(value, str) else value
    return key in BOOLEANS_TRUE if isinstance(key, Hashable) and key in BOOLEANS else value


def with_truths(values: Mapping[str, Any], specs: Mapping[str, Spec]) -> dict[str, Any]:
    """Values of variables, with truth values for those that are booleans by their specifications."""
    return {
        name: read_truth(value) if specs.get(name, {}).get("type") == "bool" else value
        for name, value in values.items()
    }


def _has_type(value: object, spec: Spec, converted: bool) -> bool:
    kind = spec.get("type", "str")
    if isinstance(kind, Number):
        return _is_within(kind, value)
    if kind == "raw":
        return value is not None
    if kind in ("str", "path"):
        # YAML reads 580 as a number, which is the same text; 28.10 as 28.1, which is not.
        return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    if kind == "bool":
        return isinstance(read_truth(value), bool)
    if kind == "int":
        return (isinstance(value, int) and not isinstance(value, bool)) or _is_digits(value)
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "dict":
        return isinstance(value, Mapping)
    return is_list(value) or (converted and isinstance(value, (str, int)))


def _is_within(kind: Number, value: object) -> bool:
    try:
        kind(value)
    except TypeError:
        return False
    return True


def _is_digits(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit()


def _are_choices(value: object, spec: Spec) -> bool:
    return all(item in spec["choices"] for item in (value if is_list(value) else [value]))


def _among(value: object, choices: Sequence[object]) -> str:
    """All choices, or of many those that are nearest to what is not one of them."""
    if len(choices) <= _MOST_CHOICES:
        return _one_of(choices)
    names = [str(choice) for choice in choices]
    unknown = [str(item) for item in (value if is_list(value) else [value]) if item not in choices]
    near = [name for item in unknown for name in get_close_matches(item, names)]
    return f"one of its {len(choices)} values, such as {_one_of(list(dict.fromkeys(near))[:3] or names[:3])}"


def _one_of(choices: Sequence[object]) -> str:
    return " or ".join(filter(None, (", ".join(map(str, choices[:-1])), str(choices[-1]))))


def _wrong_type(name: str, value: object, spec: Spec) -> str:
    kind = spec.get("type", "str")
    if kind == "str" and isinstance(value, float):
        return (
            f'{name} is {value} without quotes, which YAML reads as a number (28.10 as 28.1): write it as "{value}", '
            "in quotes"
        )
    secret = spec.get("no_log") or any(option.get("no_log") for option in spec.get("options", {}).values())
    found = "has a value of a wrong type" if secret else f"is {'null' if value is None else shown(value)}"
    hint = ""
    if kind == "list":
        hint = f": {name}: [{_example(spec)}]"
    elif value is None:
        hint = "; leave it out for its default"
    return f"{name} {found}; it takes {_form(kind)}{_of(spec)}{hint}"


def _form(kind: str) -> str:
    return kind.description if isinstance(kind, Number) else _FORMS.get(kind, "a value")


def _of(spec: Spec) -> str:
    """What a list is a list of, or what a dictionary has."""
    if spec.get("type") == "list" and spec.get("elements") == "dict" and spec.get("options"):
        return f" of dictionaries with {_names(spec['options'])}"
    return f" with {_names(spec['options'])}" if spec.get("options") else ""


def _example(spec: Spec) -> str:
    if spec.get("choices"):
        return str(spec["choices"][0])
    if spec.get("elements") == "dict" and spec.get("options"):
        needed = [name for name, option in spec["options"].items() if option.get("required")]
        return "{" + ", ".join(f"{name}: ..." for name in needed or spec["options"]) + "}"
    return _EXAMPLES.get(str(spec.get("elements")), "...")


def _names(options: Mapping[str, Spec]) -> str:
    return ", ".join(f"{name}{' (required)' if option.get('required') else ''}" for name, option in options.items())


def _element_refusals(name: str, values: Sequence[object], spec: Spec, converted: bool) -> Iterator[str]:
    """What is wrong with the elements of a list; one refusal for all of the same wrong type."""
    element = {key: item for key, item in spec.items() if key not in ("elements", "choices", "default")}
    element["type"] = spec.get("elements", "raw")
    wrong = [value for value in values if not _has_type(value, element, converted=False) or _is_blank(value)]
    if wrong:
        secret = any(option.get("no_log") for option in spec.get("options", {}).values())
        which = "an entry" if secret else shown(wrong[0])
        takes = f"{_form(element['type'])}{_of(element)}"
        yield f"{name} has {which}, and takes {takes} for each entry: {name}: [{_example(spec)}]"
        return
    for place, value in enumerate(values):
        if isinstance(value, Mapping) and "options" in spec:
            yield from _suboption_refusals(f"{name}[{place}]", value, spec["options"], converted)


def _is_blank(value: object) -> bool:
    """Whether an entry names nothing, as of a template whose variable is empty."""
    return isinstance(value, str) and not value.strip()


def _suboption_refusals(
    name: str, value: Mapping[Any, Any], options: Mapping[str, Spec], converted: bool
) -> Iterator[str]:
    unknown = [str(key) for key in value if key not in options]
    missing = [key for key, option in options.items() if option.get("required") and value.get(key) is None]
    if unknown:
        yield f"{name} has {', '.join(unknown)[:_SHOWN]}, which it does not take; it takes {_names(options)}"
    if missing:
        yield f"{name} has no {' and no '.join(missing)}; it takes {_names(options)}"
    for key, option in options.items():
        # A suboption that is null is one that is left out.
        if value.get(key) is not None:
            yield from form_refusals(f"{name}.{key}", value[key], option, converted)
