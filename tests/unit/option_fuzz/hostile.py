# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values for options, generated from a module's argument spec: valid, borderline and hostile ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

Spec = Mapping[str, Mapping[str, Any]]

FULL_WIDTH, ARABIC, SUPERSCRIPT = "\uff11\uff12", "\u0663", "\u00b2"
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 2**31, 2**63, 2**64, -(2**63), 10**8, 10**18, 10**400, True),
    *(0.0, -0.0, 0.5, -1.5, 1e-9, 5e-324, 1e9, 1e300, float("nan"), float("inf"), float("-inf")),
)
STRINGS: tuple[str, ...] = (
    *("", " ", "\0", "a\0b", "\n", "a\nb", "\t", "\ud800", "\udc80", "\ufeff", "\u202e", "x" * 100_000, "é" * 300),
    *(FULL_WIDTH, ARABIC, SUPERSCRIPT, f"{FULL_WIDTH}g.{FULL_WIDTH}gb", f"1000-{ARABIC}000"),
    *("0", "-1", "1", "00", "007", "+1", "1_000", "1e3", "1e400", "nan", "inf", "-inf", "0x10", "9" * 400, "9" * 5000),
    *("null", "None", "true", "b'0'", "{{ x }}", "{}", "[]", "%s%n", "80%", "-80%", f"{FULL_WIDTH}%", "1%%", "nan%"),
    *("all", "All", "all ", "*", "**", "*" * 60, "?" * 60, "[", "[!", "[z-a]", "(", "(a+)+$", "\\", "'", '"', "$(id)"),
    *(
        "-",
        "--",
        "--help",
        "-q",
        "-o",
        "--yes",
        ",",
        "0,1",
        ":",
        "::",
        "GPU-",
        "GPU-0",
        "0000:00:00.0",
        "00000000:06:00.0",
    ),
    *(
        "1g.10gb:0",
        "1g.10gb:-1",
        "1g.10gb:99",
        "1g.10gb:",
        ":1g.10gb",
        "1c.1g.10gb",
        "9g.10gb",
        "1g.10gb+me",
        "1g.10gb+",
    ),
    *(
        ".",
        "..",
        "../..",
        "/",
        "//",
        "/..",
        "/dev/null",
        "/proc/self/mem",
        "relative/path",
        "~",
        "~root",
        "/" + "a" * 300,
    ),
    *("/a/" * 2000, "1000-100", "1000-", "-1000", "100-200-300", "nan-inf", "enabled", "default", "exclusive_process"),
)
KEYS: tuple[str, ...] = (
    "",
    "gpus",
    "a",
    "0",
    "\0",
    "\ud800",
    "x" * 10_000,
    "__proto__",
    "mig-configs",
    FULL_WIDTH,
    "/",
)

strings = st.sampled_from(STRINGS) | st.text(st.characters(), max_size=20)
numbers = st.sampled_from(NUMBERS) | st.integers() | st.floats()
scalars = st.none() | st.booleans() | numbers | strings
keys = st.sampled_from(KEYS) | st.text(max_size=10)


def _nested(depth: int, key: str, is_list: bool) -> Any:
    value: Any = 1
    for _level in range(depth):
        value = [value] if is_list else {key: value}
    return value


nested = st.builds(_nested, st.sampled_from((2, 20, 150)), st.sampled_from(("a", "gpus", "mig-configs")), st.booleans())
# Of small values: input that a controller could not send tests nothing.
many = st.builds(lambda item, count: [item] * count, st.booleans() | st.text(max_size=10), st.sampled_from((2, 3000)))
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=8
)
hostile = anything | nested | many


def of_option(option: Mapping[str, Any], words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Values for an option of an argument spec: of its type, of other types, and its choices.

    `words` are strings with a meaning to the module, such as existing paths and names.
    """
    typed = _of_type(option, words)
    chosen = st.sampled_from(tuple(option["choices"])) if option.get("choices") else st.nothing()
    # Twice as often: only values that pass Ansible's own type check reach the module.
    return typed | typed | chosen | hostile


def _of_type(option: Mapping[str, Any], words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    kind = option.get("type", "str")
    if kind in ("int", "float"):
        return numbers
    if kind == "bool":
        return st.sampled_from((True, False, "yes", "no", "maybe", 2, None))
    if kind == "list":
        return st.lists(_element(option, words), max_size=4)
    if kind == "dict":
        return _dictionary(option, words)
    if kind == "raw":
        return words | st.lists(words | strings, max_size=5) | st.dictionaries(words, numbers, max_size=4)
    return words | strings


def of_spec(spec: Spec, words: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """All options of a spec at once, each present or absent."""
    return st.fixed_dictionaries({}, optional={name: of_option(option, words) for name, option in spec.items()})


def _element(option: Mapping[str, Any], words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    if option.get("options"):
        return of_spec(option["options"], words)
    return of_option({"type": option.get("elements", "raw"), "choices": option.get("choices")}, words)


def _dictionary(option: Mapping[str, Any], words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    if option.get("options"):
        return of_spec(option["options"], words)
    return st.dictionaries(words | keys, anything, max_size=4)


Place = tuple[Any, ...]
"""Path to one option: its name, or the name of a list, an index and the name of a suboption."""


def places(spec: Spec, options: Mapping[str, Any]) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Every option of the spec, and every suboption of the list items in `options`, with its specification."""
    for name, option in spec.items():
        yield (name,), option
        if option.get("options") and isinstance(options.get(name), list):
            for number in range(len(options[name])):
                for inner, suboption in option["options"].items():
                    yield (name, number, inner), suboption


def replaced(options: Any, place: Place, value: Any) -> Any:
    """A copy of the options with another value at one place."""
    if not place:
        return value
    copy = list(options) if isinstance(options, list) else dict(options)
    inner = copy[place[0]] if len(place) > 1 else None
    copy[place[0]] = replaced(inner, place[1:], value)
    return copy
