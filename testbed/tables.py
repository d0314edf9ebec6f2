# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of variables and plugins in the guides, from argument_specs and DOCUMENTATION: `make tables` writes them.

A table stands between two comments of its page, `<!-- NAME: made by "make tables" -->` and `<!-- end -->`. The name is
`variables of ENTRY` in the README of a role, where ENTRY is an entry point, or the name of a table of _TABLES.
tests/checks/test_tables.py holds that they are current.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed import fleet_picture

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r'(<!-- ([\w ]+): made by "make tables" -->\n).*?(<!-- end -->)', re.DOTALL)
_RUN_ONLY = "Run-only; a new value alone is no work on a converged host."
_BLOB = "https://github.com/gpu-fleet/gpu.fleet/blob/main/"
_MARKUP = re.compile(r"\b(RV|[VCOEMPLUIB])\(((?:[^)\\]|\\.)+)\)")
_PAGE = re.compile(r"(?<![\w/(])docs/([\w-]+\.md(?:#[\w-]+)?)")
_GUIDES = {
    **dict.fromkeys(("nvidia_smi_facts", "cuda_facts", "select_gpus"), "facts"),
    **dict.fromkeys(("mig_profile", "mig_layouts", "mig_parted", "mig_combinations"), "mig"),
    **dict.fromkeys(("ecc_mode", "gpu_settings"), "settings"),
    **dict.fromkeys(("gpu_health", "health_junit", "health_metrics"), "health"),
    **dict.fromkeys(("managed_record", "managed_facts"), "drift"),
    **dict.fromkeys(("report_facts", "fleet_report"), "report"),
    **dict.fromkeys(("slurm_node", "kubernetes_evict", "run_lock"), "upgrade-fleet"),
    **dict.fromkeys(("driver_reload", "fabric_facts"), "driver"),
    **dict.fromkeys(("compatible", "compatibility"), "compatibility"),
    **dict.fromkeys(("fleet_table", "progress", "host_facts"), "site"),
    **{"gpu_reset": "remediate", "gpu_state": "gpu-state", "fleet_acceptance": "accept", "run_result": "run-result"},
}
"""The page of docs that explains a plugin; ansible-doc has its options."""


def _code(text: str) -> str:
    return f"`{text}`"


def markdown(text: str, page: Path) -> str:
    """A text of Ansible's documentation in Markdown, for a cell of a table on this page."""
    up = "../" * (len(page.parts) - 1)

    def plain(match: re.Match[str]) -> str:
        kind, content = match[1], re.sub(r"\\(.)", r"\1", match[2])
        if kind in ("O", "RV"):
            plugin, _type, name = content.rpartition(":")
            module = re.fullmatch(r"gpu\.fleet\.(\w+)#module", plugin)
            return f"`{name}` of the module `{module[1]}`" if module else _code(name)
        if kind == "M":
            return _code(content.removeprefix("gpu.fleet."))
        if kind == "P":
            role = re.fullmatch(r"gpu\.fleet\.(\w+)#role", content)
            return f"[`{role[1]}`]({up}roles/{role[1]}/README.md)" if role else _code(content.partition("#")[0])
        if kind == "L":
            name, _comma, address = content.rpartition(",")
            return f"[{name}]({address.strip().replace(_BLOB, up)})"
        if kind == "U":
            return f"<{content}>"
        return {"I": f"*{content}*", "B": f"**{content}**"}.get(kind, _code(content))

    shown = _PAGE.sub(lambda match: f"[{match[0]}]({up}{match[0]})", _MARKUP.sub(plain, text))
    return shown.replace("|", "\\|")


def _value(value: Any) -> str:
    """A default as it is written in YAML."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).removesuffix("...\n").strip()


def _default(name: str, option: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    if option.get("required"):
        return "required"
    value = defaults.get(name, option.get("default"))
    if value is None or value == "{{ none }}":
        return ""
    return _code('""' if value == "" else _value(value) if not isinstance(value, str) else value)


def _meaning(option: Mapping[str, Any], page: Path) -> str:
    """All that is written about an option, an item of its description in each line."""
    description = option["description"]
    items = [description] if isinstance(description, str) else list(description)
    items = ["Run-only." if item == _RUN_ONLY else item for item in items]
    choices = [str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in option.get("choices", ())]
    if [choice for choice in choices if f"V({choice})" not in " ".join(items)]:
        items.append(f"One of {', '.join(f'V({choice})' for choice in choices)}.")
    return "<br>".join(markdown(item, page) for item in items)


def _rows(options: Mapping[str, Any], page: Path, defaults: Mapping[str, Any]) -> list[str]:
    cells = [(_code(name), _default(name, one, defaults), _meaning(one, page)) for name, one in options.items()]
    return [f"| {' | '.join(row)} |" for row in cells]


@functools.cache
def _specs(role: str) -> dict[str, Any]:
    specs: dict[str, Any] = _yaml(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    return specs


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def entry_points(role: str) -> list[str]:
    """Entry points with variables that no earlier one has."""
    return [entry for entry in _specs(role) if _own(role, entry)]


def _own(role: str, entry: str) -> dict[str, Any]:
    """The variables of an entry point; those that an earlier entry point has are described there."""
    specs = _specs(role)
    entries = list(specs)
    earlier = {name for one in entries[: entries.index(entry)] for name in specs[one].get("options") or {}}
    return {name: option for name, option in (specs[entry].get("options") or {}).items() if name not in earlier}


def variables(role: str, entry: str, page: Path) -> list[str]:
    """The table of an entry point, and one for the keys of each variable that has keys."""
    options = _own(role, entry)
    defaults = _yaml(ROOT / "roles" / role / "defaults" / "main.yml") or {}
    lines = ["| variable | default | meaning |", "| --- | --- | --- |", *_rows(options, page, defaults)]
    keys: list[tuple[list[str], dict[str, Any]]] = []
    for name, option in options.items():
        if inner := option.get("options"):
            same = next((names for names, known in keys if known == inner), None)
            if same is None:
                keys.append(([name], inner))
            else:
                same.append(name)
    for names, inner in keys:
        title = f"| key of {', '.join(map(_code, names))} | default | meaning |"
        lines += ["", title, "| --- | --- | --- |", *_rows(inner, page, {})]
    return lines


def _documentation(path: Path) -> dict[str, Any]:
    """The DOCUMENTATION of a plugin."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = re.findall(r'^DOCUMENTATION = r?"""(.*?)"""', text, re.MULTILINE | re.DOTALL)[0]
        documentation: dict[str, Any] = yaml.safe_load(text)
    else:
        documentation = yaml.safe_load(text)["DOCUMENTATION"]
    return documentation


def _is_of_roles(documentation: Mapping[str, Any]) -> bool:
    return str(documentation["description"][0]).startswith("Made for ")


def _plugins(kind: str, pattern: str, *, of_roles: bool) -> Iterator[tuple[str, str]]:
    """Names and short descriptions of plugins, those made for roles and playbooks of the collection or all others."""
    for path in sorted((ROOT / "plugins" / kind).glob(pattern)):
        if path.stem != "__init__" and _is_of_roles(documentation := _documentation(path)) is of_roles:
            yield path.stem, documentation["short_description"]


def _for_playbooks(kind: str, pattern: str, page: Path) -> Iterator[str]:
    for name, short in _plugins(kind, pattern, of_roles=False):
        guide = _GUIDES[name]
        yield f"| `{name}` | {markdown(short, page)} | [{guide}]({os.path.relpath(f'docs/{guide}.md', page.parent)}) |"


def _modules(page: Path) -> list[str]:
    head = ["| module | what it does | guide |", "| --- | --- | --- |"]
    return [*head, *_for_playbooks("modules", "*.py", page)]


def _others(page: Path) -> list[str]:
    lines = ["| filter, test, callback | what it does | guide |", "| --- | --- | --- |"]
    for kind, pattern in (("filter", "*.yml"), ("test", "*.yml"), ("callback", "*.py")):
        lines += _for_playbooks(kind, pattern, page)
    return lines


_PLANNERS = ROOT / "plugins" / "plugin_utils" / "_roles"
_SOURCES = {ROOT / "roles": "*/*/**/*.yml", _PLANNERS: "**/*.py"}


def _modules_of_roles(page: Path) -> list[str]:
    lines = ["| module | roles | what it does |", "| --- | --- | --- |"]
    for name, short in _plugins("modules", "*.py", of_roles=True):
        # By its tasks, or by its planner, which asks for a reading.
        used = re.compile(rf"\bgpu\.fleet\.{name}(:|\")")
        found = [(place, path) for place, files in _SOURCES.items() for path in place.glob(files)]
        roles = sorted(
            {
                path.relative_to(place).parts[0].partition(".")[0]
                for place, path in found
                if used.search(path.read_text("utf-8"))
            }
        )
        named = ", ".join(map(_code, roles)) if len(roles) < 8 else f"{len(roles)} roles"
        lines.append(f"| `{name}` | {named} | {markdown(short, page)} |")
    return lines


def _roles(page: Path) -> list[str]:
    """Each role with the first guide that its README links to."""
    lines = ["| role | what it does | guide |", "| --- | --- | --- |"]
    for path in sorted(ROOT.glob("roles/*/README.md")):
        role = path.parent.name
        guides = re.findall(r"\(\.\./\.\./docs/([\w-]+)\.md[#)]", BLOCK.sub("", path.read_text(encoding="utf-8")))
        guide = f"[{guides[0]}]({guides[0]}.md)" if guides else ""
        short = markdown(_specs(role)["main"]["short_description"], page)
        lines.append(f"| [`{role}`](../roles/{role}/README.md) | {short} | {guide} |")
    return lines


_TABLES: dict[str, Callable[[Path], list[str]]] = {
    "roles": _roles,
    "modules": _modules,
    "filters tests callbacks": _others,
    "modules of the roles": _modules_of_roles,
}


def current(page: Path) -> str:
    """A page, relative to the checkout, with its tables as they have to be."""

    def block(match: re.Match[str]) -> str:
        name = match[2]
        if name.startswith("variables of "):
            lines = variables(page.parts[1], name.removeprefix("variables of "), page)
        else:
            lines = _TABLES[name](page)
        return "\n".join([match[1], *lines, "", match[3]])

    return BLOCK.sub(block, (ROOT / page).read_text(encoding="utf-8"))


def pages() -> list[Path]:
    """The pages that have such tables."""
    found = [*ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md")]
    return sorted(path.relative_to(ROOT) for path in found if BLOCK.search(path.read_text(encoding="utf-8")))


def write() -> list[Path]:
    """Write all tables; returns the pages that have changed."""
    changed = []
    for page in pages():
        text = current(page)
        if text != (ROOT / page).read_text(encoding="utf-8"):
            (ROOT / page).write_text(text, encoding="utf-8")
            changed.append(page)
    return changed


if __name__ == "__main__":
    print("\n".join(map(str, write())))
    fleet_picture.PICTURE.write_text(fleet_picture.picture(), encoding="utf-8")
