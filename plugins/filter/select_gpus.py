# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Select GPUs of one host or of all by a JMESPath expression, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: select_gpus
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: Choose GPUs of one host or of all by an expression
description:
  - Searches the GPUs that M(gpu.fleet.nvidia_smi_facts) found with a JMESPath expression.
  - Fails with the position of the error where the expression is invalid, or has a reading that no GPU has.
requirements:
  - jmespath (Python library, on the controller)
positional: query
options:
  _input:
    description:
      - A list of GPUs, the facts of M(gpu.fleet.nvidia_smi_facts), a host's facts, or C(hostvars).
      - Out of C(hostvars), each GPU gets the name of its host as C(host). Hosts without these facts count as
        hosts without GPUs; facts that are null are refused.
    type: raw
    required: true
  query:
    description:
      - The JMESPath expression. Its readings are those that M(gpu.fleet.nvidia_smi_facts) returns for a GPU.
      - Numbers and booleans are written in backticks, strings in single quotes.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Name the GPUs with much memory that can be divided
  ansible.builtin.debug:
    msg: "{{ ansible_facts['nvidia_smi']['gpus']
      | gpu.fleet.select_gpus('[?memory_total_mib > `40000` && mig_capable].uuid') }}"

- name: Name each GPU of the fleet that waits for a reboot to change its ECC mode
  ansible.builtin.debug:
    msg: "{{ hostvars | gpu.fleet.select_gpus('[?ecc_mode_current != ecc_mode_pending].[host, index]') }}"

- name: Count the GPUs of each host by model
  ansible.builtin.debug:
    msg: "{{ hostvars | gpu.fleet.select_gpus('[].{host: host, name: name}') }}"
"""

RETURN = r"""
_value:
  description: What the expression finds, most often a list.
  type: raw
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import pairwise
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import gpu as gpu_schema
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import topology as gpu_topology
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.cores import specified
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.observe import Observation
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.variable_forms import shown

try:
    import jmespath  # type: ignore[import-untyped]  # it comes without type information
    from jmespath import exceptions, lexer, visitor

    JMESPATH_MISSING: ImportError | None = None
except ImportError as error:
    JMESPATH_MISSING = error

_ORDERED = ("lt", "lte", "gt", "gte")
# Of a line of the expression, to both sides of the error.
_SHOWN = 80


def select_gpus(data: Any, query: Any = None) -> Any:
    """Search the GPUs in `data` with a JMESPath expression.

    `data` is a list of GPUs, the facts of nvidia_smi_facts, a host's facts or variables, or hostvars. GPUs of several
    hosts get their host's name as `host`. Raises AnsibleFilterError with the position of an error in `query`.
    """
    if JMESPATH_MISSING is not None:
        raise AnsibleFilterError(
            "gpu.fleet.select_gpus needs the Python library jmespath on the controller: pip install jmespath, in the "
            "environment of ansible-core"
        ) from JMESPATH_MISSING
    if not isinstance(query, str):
        raise AnsibleFilterError(f"gpu.fleet.select_gpus takes its query as a string, but got {type(query).__name__}")
    gpus = _plain(_gpus(data))
    try:
        expression = jmespath.compile(query)
        _check_steps(query)
        _check_names(query, expression.parsed, gpus)
        return _interpreter(query, expression.parsed).visit(expression.parsed, gpus)
    except exceptions.JMESPathError as error:
        raise AnsibleFilterError(_explain(query, error)) from None
    except RecursionError:
        raise AnsibleFilterError(_mark(query, _deepest(query), "it is nested too deeply")) from None


def _gpus(data: Any, where: str = "") -> list[Any]:
    """The list of GPUs in each of the shapes that facts come in; `where` is the name under which `data` was found."""
    if isinstance(data, Mapping):
        for name in ("gpus", "nvidia_smi", "ansible_facts"):
            if name in data:
                return _gpus(data[name], name)
        found = []
        for host, variables in data.items():
            if not isinstance(variables, Mapping):
                raise _wrong_data(data, where)
            found += [{**gpu, "host": host} for gpu in _gpus_of_host(host, variables)]
        return found
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return list(data)
    raise _wrong_data(data, where)


def _gpus_of_host(host: Any, variables: Mapping[Any, Any]) -> Sequence[Any]:
    """The GPUs in a host's variables: none if facts were not gathered or are empty; null facts are an error."""
    value: Any = variables
    for name in ("ansible_facts", "nvidia_smi", "gpus"):
        value = value.get(name, ())
        if value == ():
            return ()
        is_right = isinstance(value, Sequence) if name == "gpus" else isinstance(value, Mapping)
        if not is_right or isinstance(value, str):
            raise AnsibleFilterError(
                f"gpu.fleet.select_gpus: {name} of host {host} is {_kind_of(value)}, not facts of "
                "gpu.fleet.nvidia_smi_facts; was it set by something else, or does it come from a task that failed?"
            )
    gpus: Sequence[Any] = value
    return gpus


def _wrong_data(data: Any, where: str) -> AnsibleFilterError:
    return AnsibleFilterError(
        "gpu.fleet.select_gpus takes a list of GPUs, facts of gpu.fleet.nvidia_smi_facts, or hostvars, "
        f"but got {type(data).__name__}"
        + (f" as {where}" if where else "")
        + ("; have the facts been gathered on this host?" if data is None else "")
    )


def _kind_of(value: Any) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


def _interpreter(query: str, tree: Mapping[str, Any]) -> Any:
    """What evaluates an expression, and names the position of what JMESPath itself leaves to Python's errors."""

    class Interpreter(visitor.TreeInterpreter):  # type: ignore[misc]  # it comes without type information
        def visit_comparator(self, node: Mapping[str, Any], value: Any) -> Any:
            try:
                return super().visit_comparator(node, value)
            except TypeError:
                places = [token["start"] for token in lexer.Lexer().tokenize(query) if token["type"] in _ORDERED]
                number = next(place for place, other in enumerate(_comparisons(tree)) if other is node)
                reason = "a number is compared with text; a number is written in backticks, and text in single quotes"
                raise AnsibleFilterError(_mark(query, places[number], reason)) from None

        def visit_function_expression(self, node: Mapping[str, Any], value: Any) -> Any:
            try:
                return super().visit_function_expression(node, value)
            except exceptions.JMESPathError:
                raise
            except (TypeError, ValueError, ArithmeticError) as error:
                reason = f"In function {node['value']}(), {str(error)[:_SHOWN]}"
                if node["value"] == "contains":
                    reason = "contains() looks for text in text, which is written in single quotes"
                raise AnsibleFilterError(_mark(query, _place_of_function(query, node["value"]), reason)) from None

    return Interpreter()


def _comparisons(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The comparisons by order in an expression, as they stand in it."""
    children = [child for child in tree.get("children", ()) if isinstance(child, Mapping)]
    if tree["type"] == "filter_projection":
        # What is done with the result is before its condition.
        children = [children[0], children[2], children[1]]
    for place, child in enumerate(children):
        if place == 1 and tree["type"] == "comparator" and tree["value"] in _ORDERED:
            yield tree
        yield from _comparisons(child)


def _check_steps(query: str) -> None:
    """Refuse a step of 0, as in `[::0]`."""
    tokens = list(lexer.Lexer().tokenize(query))
    colons = 0
    for token, following in pairwise(tokens):
        colons = 0 if token["type"] in ("lbracket", "rbracket") else colons + (token["type"] == "colon")
        if colons == 2 and following["type"] == "number" and following["value"] == 0:
            raise AnsibleFilterError(_mark(query, following["start"], "the step of a slice cannot be 0"))


def _deepest(query: str) -> int:
    """The position of the innermost bracket, 0 without any."""
    depth, most, position = 0, 0, 0
    for place, letter in enumerate(query):
        depth += (letter in "([{") - (letter in ")]}")
        if depth > most:
            most, position = depth, place
    return position


# Literals of Python and YAML that JMESPath takes for field names. A bare null is such a name as well, and works.
_LITERALS = {"None": "null", "none": "null", "True": "true", "False": "false", "true": "true", "false": "false"}
# Readings whose keys are free-form: labels, paths, names of settings.
_FREE = frozenset(("links", "other", "power_smoothing", "unknown", "error_counters"))


def _check_names(query: str, tree: Mapping[str, Any], gpus: Sequence[Any]) -> None:
    """Refuse a name that no GPU has: JMESPath would evaluate it to null and silently find nothing."""
    given = frozenset(_keys(gpus))
    if not given:
        return
    known = _readings() | given | set(_chosen_names(tree))
    for name in _names(tree):
        if name in known or name == "null":
            continue
        quoted = f'"{name}"' in query
        position = query.find(f'"{name}"') if quoted else _place_of(query, name)
        if name in _LITERALS and not quoted:
            reason = f"{name} is not a reading of a GPU; the value is written in backticks: `{_LITERALS[name]}`"
        elif quoted:
            reason = f"double quotes enclose the name of a reading; a string is written in single quotes: '{name}'"
            close = difflib.get_close_matches(name, known, 1)
            reason += f", or do you mean the reading {close[0]}?" if close else ""
        else:
            close = difflib.get_close_matches(name, sorted(known), 3, 0.6)
            reason = f"{name} is not a reading of a GPU" + (f"; do you mean {' or '.join(close)}?" if close else "")
            reason += "" if close else "; ansible-doc gpu.fleet.nvidia_smi_facts lists them"
        raise AnsibleFilterError(_mark(query, max(position, 0), reason))


def _names(tree: Mapping[str, Any]) -> Iterator[str]:
    """The names that an expression looks up in GPUs and their nested readings."""
    if tree["type"] == "field":
        yield tree["value"]
    children = [child for child in tree.get("children", ()) if isinstance(child, Mapping)]
    for child in children:
        yield from _names(child)
        if tree["type"] in ("subexpression", "index_expression", "projection", "value_projection") and _is_free(child):
            break


def _is_free(tree: Mapping[str, Any]) -> bool:
    """Whether the names after an expression are free-form instead of readings."""
    children = [child for child in tree.get("children", ()) if isinstance(child, Mapping)]
    return tree.get("value") in _FREE if tree["type"] == "field" else any(map(_is_free, children[-1:]))


def _chosen_names(tree: Mapping[str, Any]) -> Iterator[str]:
    """The names that an expression defines: `[].{host: host}`."""
    if tree["type"] == "key_val_pair":
        yield tree["value"]
    for child in tree.get("children", ()):
        if isinstance(child, Mapping):
            yield from _chosen_names(child)


def _keys(value: Any) -> Iterator[str]:
    """All keys in a structure."""
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _keys(item)


@lru_cache(maxsize=1)
def _readings() -> frozenset[str]:
    """The names of all readings of nvidia_smi_facts, whether gathered or not."""
    empty, subsets = gpu_schema.Gpu(0, gpu_schema.Basics()), frozenset(smi_facts.SUBSETS)
    facts = smi_facts.gpu_facts(empty, Observation(), subsets, specify=specified)
    parts = (
        gpu_schema.RetiredPage,
        gpu_schema.Process,
        gpu_schema.AccountedProcess,
        gpu_schema.SupportedClocks,
        gpu_schema.MigDevice,
        gpu_topology.NvLink,
    )
    instances = ("profile_id", "compute_instances", "host")
    return frozenset((*_keys(facts), *(item.name for part in parts for item in fields(part)), *instances))


def _place_of(query: str, name: str) -> int:
    found = re.search(rf"(?<![\w'\"]){re.escape(name)}(?![\w'\"])", query)
    return found.start() if found else 0


def _plain(value: Any) -> Any:
    """The same data in built-in types: JMESPath checks type names, and Ansible has its own subclasses."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value


def _explain(query: str, error: Exception) -> str:
    """The error message about an expression, with a mark below the position."""
    if isinstance(error, exceptions.JMESPathTypeError):
        # JMESPath names the whole value, which may be all readings of all GPUs.
        reason = (
            f"In function {error.function_name}(), invalid type for value: {shown(error.current_value)}, expected one "
            f"of: {', '.join(error.expected_types)}, received: {error.actual_type}"
        )
        return _mark(query, _position(query, error), reason)
    reason = str(error).partition("\n")[0].partition(": Parse error")[0].rstrip(":")
    if getattr(error, "token_type", None) == "NUMBER":
        reason = f"a number is written in backticks: `{getattr(error, 'token_value', '')}`"
    return _mark(query, _position(query, error), reason)


def _mark(query: str, position: int, reason: str) -> str:
    """A message about one position in the expression, with a mark below it."""
    line_start = max(query.rfind("\n", 0, position) + 1, position - _SHOWN)
    line = query[line_start : position + _SHOWN].partition("\n")[0]
    mark = " " * (position - line_start) + "^"
    return f"wrong GPU query at position {position + 1}: {reason}\n  {line}\n  {mark}"


def _position(query: str, error: Exception) -> int:
    """The position of the error, from 0: of an unknown function its name, of an incomplete expression its end."""
    for name in ("lex_position", "lexer_position"):
        position = getattr(error, name, None)
        if isinstance(position, int):
            return min(position, len(query))
    function = getattr(error, "function_name", None) or "".join(re.findall(r"Unknown function: (\w+)", str(error)))
    return _place_of_function(query, function)


def _place_of_function(query: str, function: str) -> int:
    """Where a function is called, the end where it is not found."""
    found = re.search(rf"\b{re.escape(function)}\s*\(", query) if function else None
    return found.start() if found else len(query)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"select_gpus": select_gpus}
