# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The declaration for a host's GPUs, as options of the modules that apply it. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .._common.bounds import listed, shown
from .._common.errors import ChangeError
from .._mig.rules import parse_rules
from .._settings.request import NAMES, parse_settings

_LAYOUT = ("gpus", "enabled", "profiles")


@dataclass(frozen=True)
class Declaration:
    """`ecc` None, no `settings`, `mig` None: left unchanged.

    `settings` has options of gpu_settings, `mig` either `layouts` or `config` and `selected` of mig_profile.
    """

    gpus: tuple[str, ...] = ("all",)
    ecc: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    mig: Mapping[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is declared."""
        return self.ecc is None and not self.settings and self.mig is None


def parse_declaration(options: Mapping[str, Any]) -> Declaration:
    """Parse the options of the module gpu_state; raises ChangeError for impossible values."""
    gpus = tuple(options["gpus"])
    mig = _mig_options(options["mig"], options["mig_layouts"] or {}, gpus)
    if mig is not None:
        parse_rules({**MIG_DEFAULTS, **mig})
    settings = {name: options[name] for name in NAMES if options[name] not in (None, "")}
    if settings:
        parse_settings(settings)
    return Declaration(gpus=gpus, ecc=options["ecc"], settings=settings, mig=mig)


MIG_DEFAULTS: Mapping[str, Any] = {
    "gpus": ["all"],
    "enabled": None,
    "profiles": None,
    "layouts": None,
    "config": None,
    "selected": None,
    "mode_only": False,
    "reset": "never",
    "force": False,
    "on_unsupported": "fail",
    "executable": "nvidia-smi",
    "timeout": 60.0,
    "retries": 5,
    "lock_timeout": 300.0,
}
"""The options of mig_profile with their defaults."""


def _mig_options(value: object, named: Mapping[str, Any], gpus: Sequence[str]) -> dict[str, Any] | None:
    """The options of mig_profile for an inline or a named layout."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.lower() in ("true", "false"):
        # Templates and extra variables give strings.
        value = value.lower() == "true"
    if isinstance(value, str):
        return _named(value, named, gpus)
    if _is_mig_parted(value):
        return {"config": value, "selected": None}
    return {"layouts": _layouts(value, gpus)}


def _named(name: str, named: Mapping[str, Any], gpus: Sequence[str]) -> dict[str, Any]:
    if _is_mig_parted(named):
        return {"config": named, "selected": name}
    if name not in named:
        known = listed(sorted(map(str, named)))
        raise ChangeError(f"mig: there is no layout named {shown(name)} in mig_layouts; it has: {known}")
    if isinstance(named[name], str):
        raise ChangeError(f"mig_layouts: {shown(name)} is to be a layout, not the text {shown(named[name])}")
    return {"layouts": _layouts(named[name], gpus)}


def _layouts(value: object, gpus: Sequence[str]) -> list[dict[str, Any]]:
    """A layout in any of its forms, as the list that mig_profile accepts."""
    if isinstance(value, bool):
        return [_layout({"enabled": value}, gpus)]
    if isinstance(value, Mapping):
        return [_layout(value if any(key in _LAYOUT for key in value) else {"profiles": value}, gpus)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            raise ChangeError(
                "mig: an empty list declares nothing; leave mig out to leave MIG as it is, or write "
                "{enabled: false} for no MIG and {profiles: []} for MIG mode without instances"
            )
        if all(isinstance(entry, str) for entry in value):
            return [_layout({"profiles": list(value)}, gpus)]
        if all(isinstance(entry, Mapping) for entry in value):
            return [_layout(entry, gpus) for entry in value]
    raise ChangeError(f"mig is a list of profiles, a map of them to counts, or a list of layouts, not {shown(value)}")


def _layout(entry: Mapping[str, Any], gpus: Sequence[str]) -> dict[str, Any]:
    unknown = [key for key in entry if key not in _LAYOUT]
    if unknown:
        raise ChangeError(f"mig: a layout has no {listed(unknown)}; it has {', '.join(_LAYOUT)}")
    chosen = entry.get("gpus", gpus)
    enabled = entry.get("enabled", True)
    if not isinstance(enabled, bool):
        raise ChangeError(f"mig: enabled is true or false, not {shown(enabled)}")
    return {
        "gpus": [str(item) for item in ([chosen] if isinstance(chosen, (str, int)) else chosen)],
        "enabled": enabled,
        "profiles": entry.get("profiles"),
    }


def _is_mig_parted(value: object) -> bool:
    return isinstance(value, Mapping) and "mig-configs" in value
