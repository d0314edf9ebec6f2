# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The declaration for a host's GPUs, as options of the modules that apply it. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .._common.bounds import Number, listed, shown
from .._common.errors import ChangeError
from .._mig.rules import parse_rules
from .._settings.request import NAMES, parse_settings

_LAYOUT = ("gpus", "enabled", "profiles")
_PERCENTAGE = Number("float", 1, 100)
_LIMIT = re.compile(r"[1-9][0-9]{0,6}[MG]")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
# An index, a PCI bus id of digits, or what has a letter or a wildcard; not -1, 0-3 or 0,1.
_SELECTOR = re.compile(r"[0-9]+|[0-9:]+:[0-9]{2}(?:\.[0-9])?|(?=.*[A-Za-z*?])[^,\n]+")
_OPTIONS = ("gpus", "pinned_memory_limit", "active_thread_percentage", "user", "multi_user")


@dataclass(frozen=True)
class Mps:
    """What is declared. `user`: whose processes may connect, by default everybody's; `multi_user`: at the same time."""

    gpus: tuple[str, ...] = ("all",)
    pinned_memory_limit: str | None = None
    active_thread_percentage: float | None = None
    user: str | None = None
    multi_user: bool = False


@dataclass(frozen=True)
class Declaration:
    """`ecc` None, no `settings`, `mig` None: left unchanged. `mps` None: none.

    `settings` has options of gpu_settings, `mig` either `layouts` or `config` and `selected` of mig_profile.
    """

    gpus: tuple[str, ...] = ("all",)
    ecc: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    mig: Mapping[str, Any] | None = None
    mps: Mps | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is declared."""
        return self.ecc is None and not self.settings and self.mig is None and self.mps is None


def _selectors(where: str, given: Sequence[object]) -> tuple[str, ...]:
    """The GPUs that an option names; raises ChangeError where it names none, or something that no GPU can be."""
    found = tuple(map(str, given))
    if not found:
        # Often the result of a filter without a match, which never means all.
        raise ChangeError(f"{where} is empty: it names no GPU; leave it out for all GPUs of the host")
    for one in found:
        if not _SELECTOR.fullmatch(one.strip()):
            raise ChangeError(
                f"{where}: {shown(one)} is no GPU; give each by its index, UUID, PCI bus id, or product name with "
                "* and ?"
            )
    return found


def parse_declaration(options: Mapping[str, Any]) -> Declaration:
    """Parse the options of the module gpu_state; raises ChangeError for impossible values."""
    gpus = _selectors("gpus", options["gpus"])
    mig = _mig_options(options["mig"], options["mig_layouts"] or {}, gpus)
    if mig is not None:
        parse_rules({**MIG_DEFAULTS, **mig})
    settings = {name: options[name] for name in NAMES if options[name] not in (None, "")}
    if settings:
        parse_settings(settings)
    return Declaration(gpus, options["ecc"], settings, mig, parse_mps(options["mps"], gpus))


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
        raise ChangeError(f"mig_layouts: {shown(name)} has to be a layout, not the text {shown(named[name])}")
    return {"layouts": _layouts(named[name], gpus)}


def _layouts(value: object, gpus: Sequence[str]) -> list[dict[str, Any]]:
    """A layout in any of its forms, as the list that mig_profile accepts."""
    if isinstance(value, bool):
        return [_layout({"enabled": value}, gpus)]
    if isinstance(value, Mapping) and value:
        return [_layout(value if any(key in _LAYOUT for key in value) else {"profiles": value}, gpus)]
    if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str):
        if not value:
            kind = "map" if isinstance(value, Mapping) else "list"
            raise ChangeError(
                f"mig: an empty {kind} declares nothing; leave mig out to leave MIG as it is, or write "
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
    if isinstance(chosen, bool) or not isinstance(chosen, (str, int, list, tuple)):
        raise ChangeError(f"mig.gpus is a list of GPUs, not {shown(chosen)}")
    enabled = entry.get("enabled", True)
    if not isinstance(enabled, bool):
        raise ChangeError(f"mig: enabled is true or false, not {shown(enabled)}")
    return {
        "gpus": list(_selectors("mig.gpus", [chosen] if isinstance(chosen, (str, int)) else chosen)),
        "enabled": enabled,
        "profiles": entry.get("profiles"),
    }


def _is_mig_parted(value: object) -> bool:
    return isinstance(value, Mapping) and "mig-configs" in value


def parse_mps(value: object, within: Sequence[str]) -> Mps | None:
    """The option mps, None where it declares nothing; `within` are the GPUs of the whole declaration."""
    if value is None or value in ("", {}):
        return None
    if not isinstance(value, Mapping):
        raise ChangeError(f"mps: it takes {', '.join(_OPTIONS)}, not {shown(value)}")
    unknown = [key for key in value if key not in _OPTIONS]
    if unknown:
        raise ChangeError(f"mps: there is no {listed(unknown)}; it has {', '.join(_OPTIONS)}")
    gpus = value.get("gpus")
    chosen = within if gpus is None else [gpus] if isinstance(gpus, (str, int)) else gpus
    if not isinstance(chosen, Sequence) or isinstance(gpus, bool) or not chosen:
        raise ChangeError(f"mps.gpus is all or a list of GPUs, not {shown(gpus)}; leave mps out for none")
    limit, percentage = value.get("pinned_memory_limit"), value.get("active_thread_percentage")
    if limit is not None and not _LIMIT.fullmatch(str(limit)):
        raise ChangeError(f"mps: pinned_memory_limit is a number with M or G, such as 8G, not {shown(limit)}")
    user = value.get("user") or None
    if user is not None and not _USER.fullmatch(str(user)):
        raise ChangeError(f"mps: user is the name of a user, not {shown(user)}")
    multi_user = _boolean(value.get("multi_user", False))
    if multi_user and user not in (None, "root"):
        raise ChangeError(f"mps: with user {user} only that user connects; leave out user or multi_user")
    try:
        share = None if percentage is None else float(_PERCENTAGE(percentage))
    except TypeError as error:
        raise ChangeError(f"mps: active_thread_percentage: {error}") from error
    return Mps(
        gpus=_selectors("mps.gpus", chosen),
        pinned_memory_limit=None if limit is None else str(limit),
        active_thread_percentage=share,
        user=None if user in (None, "root") else str(user),
        multi_user=multi_user,
    )


def _boolean(value: object) -> bool:
    # Templates and extra variables give strings.
    value = value.lower() == "true" if isinstance(value, str) and value.lower() in ("true", "false") else value
    if not isinstance(value, bool):
        raise ChangeError(f"mps: multi_user is true or false, not {shown(value)}")
    return value
