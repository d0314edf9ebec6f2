# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a host's GPUs: what the module gpu_state gets, and the hooks, the reboot and what else follows its run.

Private to this collection. Pure: the variables of the role, and the results of the module, which are of the host.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from ...module_utils._common.errors import ChangeError
from ...module_utils._common.json_text import parse_json
from ...module_utils._common.plain_text import one_line
from ...module_utils._settings.request import NAMES as SETTINGS
from ...module_utils._settings.request import parse_settings
from ...module_utils._state.request import parse_declaration
from .._planning.contract import Ask, Plan, RolePlanner, unread
from .._planning.variable_forms import is_list, read_truth, shown

APPLY, PREDICT = "apply", "predict"
"""Steps of a plan: run the module, or have it predict what the hooks have to know before the change."""
FETCH_EVIDENCE, READ_GPUS, RESTART_CDI_REFRESH = "fetch_evidence", "read_gpus", "restart_cdi_refresh"
GENERATE_CDI, HOOKS, REBOOT, REPORT = "generate_cdi", "hooks", "reboot", "report"
"""Steps after a run of the module: evidence to the controller, what depends on the GPUs, and the rest of the change."""

STATE_OPTIONS: Mapping[str, str] = {
    "ecc": "gpu_state_ecc",
    "persistence_mode": "gpu_state_persistence_mode",
    "compute_mode": "gpu_state_compute_mode",
    "power_limit_w": "gpu_state_power_limit",
    "gpu_clocks_mhz": "gpu_state_gpu_clocks",
    "memory_clocks_mhz": "gpu_state_memory_clocks",
    "accounting_mode": "gpu_state_accounting_mode",
    "mig": "gpu_state_mig",
    "mig_layouts": "gpu_state_mig_layouts",
    "mps": "gpu_state_mps",
    "on_unsupported": "gpu_state_on_unsupported",
    "boot_timeout": "gpu_state_boot_timeout",
    "clients": "gpu_state_clients",
    "gpus": "gpu_state_gpus",
}
"""The variables of the role by the options of the module, which converts their values."""

_IF_REQUIRED = "if_required"
_LOCAL = ("local", "ansible.builtin.local")
_LONGEST_REASON = 300
_EVIDENCE, _EVIDENCE_DIRECTORY = "gpu_fleet_evidence", "gpu_fleet_evidence_directory"
_FETCH_TO = "gpu_fleet_evidence_fetch_to"

# Words that are also words of a message are options only where a statement about them begins.
_PLAIN_WORDS = ("ecc", "mig", "mps", "clients", "gpus")
_OPTION = re.compile(
    rf"\b(?:{'|'.join(name for name in STATE_OPTIONS if name not in _PLAIN_WORDS)})\b"
    rf"|(?<![\w.-])(?:{'|'.join(_PLAIN_WORDS)})(?=:| is | has |\.gpus\b)"
    r"|(?<= in )gpus(?=[,;.]|$)"
)


def in_words_of_the_role(message: str) -> str:
    """A message of the module gpu_state with the role's variables for the module's options."""
    return _OPTION.sub(lambda found: STATE_OPTIONS[found[0]], message)


@dataclass(frozen=True)
class Request:
    """The variables of the role.

    `options` are for the module. `before` and `after` are the hooks, task files. `specification` is the file of
    CDI that is generated, empty for none.
    """

    options: Mapping[str, Any]
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    reboot: str = "never"
    specification: str = ""
    fetches_evidence: bool = False
    refusals: tuple[str, ...] = ()

    @classmethod
    def read(cls, variables: Mapping[str, Any], gpu_count: int = 0) -> Request:
        """The request in the variables of the role, with what is wrong in them; `gpu_count` is 0 where unknown."""
        return cls(
            options={
                "state": variables["gpu_state_state"],
                **{option: variables[name] for option, name in STATE_OPTIONS.items()},
                "reset": variables["gpu_state_reset"],
                "evidence": variables.get(_EVIDENCE, "when_unhealthy"),
                "evidence_directory": variables.get(_EVIDENCE_DIRECTORY, "/var/lib/gpu-fleet/evidence"),
            },
            before=variables["gpu_state_hooks_before"],
            after=variables["gpu_state_hooks_after"],
            reboot=variables["gpu_state_reboot"],
            specification=variables["gpu_state_cdi_specification"],
            fetches_evidence=bool(variables.get(_FETCH_TO)),
            refusals=tuple(_refusals(variables, gpu_count)),
        )

    @property
    def has_hooks(self) -> bool:
        """Whether the module has to predict before it changes anything."""
        return bool([*self.before, *self.after])


def _refusals(variables: Mapping[str, Any], gpu_count: int) -> Iterator[str]:
    if variables["gpu_state_state"] != "present":
        return
    options = {option: variables[name] for option, name in STATE_OPTIONS.items()}
    for name in ("ecc", "persistence_mode", "accounting_mode"):
        options[name] = read_truth(options[name])
    settings = {name: options[name] for name in SETTINGS if options[name] not in (None, "")}
    wrong = []
    for name, value in settings.items():
        try:
            # As the module's type does.
            parse_settings({name: str(value) if name == "power_limit_w" else value})
        except ChangeError as error:
            wrong.append(name)
            yield in_words_of_the_role(str(error))
    gpus = options["gpus"]
    options["gpus"] = [str(item) for item in (gpus if is_list(gpus) else str(gpus).split(","))]
    if options["gpus"] != ["all"] and _names_gpus(options["mig"], options["mig_layouts"]):
        yield (
            f"gpu_state_gpus is {shown(gpus)}, and gpu_state_mig has gpus of its own; leave out gpu_state_gpus, or "
            "gpus in gpu_state_mig"
        )
    try:
        declaration = parse_declaration({**options, **dict.fromkeys(wrong)})
        layouts = [one["gpus"] for one in (declaration.mig or {}).get("layouts") or ()]
        for variable, named in (("gpu_state_gpus", declaration.gpus), ("gpu_state_mig", [*chain(*layouts)])):
            missing = [one for one in named if one.isdigit() and int(one) >= gpu_count]
            # A list of layouts often serves different hosts, but one of which nothing fits is a mistake.
            if gpu_count and missing and (variable == "gpu_state_gpus" or len(missing) == len(named)):
                yield (
                    f"{variable} names GPU {', '.join(missing)[:60]}, and the host has {gpu_count} GPU"
                    f"{'' if gpu_count == 1 else 's'}; the first has the index 0"
                )
    except ChangeError as error:
        message = in_words_of_the_role(str(error))
        yield message if message.startswith("gpu_state_") else f"gpu_state_mig: {message}"
    yield from _against_layouts(options["mig"], options["mig_layouts"])


def _against_layouts(mig: object, layouts: object) -> Iterator[str]:
    """What is wrong with layouts that the host does not use, which a changed name would bring on a running fleet."""
    names = layouts if isinstance(layouts, Mapping) else ()
    for name in list(names["mig-configs"])[:1] if isinstance(names, Mapping) and "mig-configs" in names else names:
        try:
            parse_declaration({**dict.fromkeys(STATE_OPTIONS), "gpus": ["all"], "mig": name, "mig_layouts": layouts})
        except ChangeError as error:
            if name != mig:
                yield f"gpu_state_mig_layouts has {shown(name)}: {str(error).removeprefix('mig: ')}"


def _names_gpus(mig: object, layouts: object) -> bool:
    """Whether a declaration of MIG, or the layout of its name, has entries with GPUs of their own."""
    if isinstance(mig, str) and isinstance(layouts, Mapping):
        mig = layouts.get(mig)
    return any(isinstance(entry, Mapping) and "gpus" in entry for entry in (mig if is_list(mig) else [mig]))


@dataclass(frozen=True)
class Run:
    """What is known of the run.

    `is_first`: the role has not run the module yet. `is_rebooted`: an earlier role has rebooted the host. `connection`
    is the name of Ansible's plugin.
    """

    check_mode: bool = False
    is_first: bool = False
    is_rebooted: bool = False
    connection: str = "ssh"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Run:
        """The run in what a task has given, or as a plan has it."""
        names = ("check_mode", "is_first", "is_rebooted")
        flags = {name: bool(given.get(name)) for name in names}
        return cls(**flags, connection=str(given.get("connection", "ssh")))

    @property
    def is_local(self) -> bool:
        """Whether a reboot would end this run."""
        return self.connection in _LOCAL

    def may_reboot(self, request: Request) -> bool:
        """Whether the role would reboot the host: at most once a run, also where an earlier role did."""
        return request.reboot == _IF_REQUIRED and not self.is_local and not self.is_rebooted


def options(request: Request, run: Run) -> dict[str, Any]:
    """The options of the module."""
    return {**request.options, "stop_for_reboot": run.may_reboot(request)}


def plan(request: Request, run: Run) -> Plan:
    """How the module is run. Where hooks are declared its first run predicts, as they come before the change."""
    if request.refusals:
        return Plan(refusals=request.refusals)
    predicts = run.check_mode or (run.is_first and request.has_hooks)
    return Plan(
        steps=(PREDICT if predicts else APPLY,),
        tasks={"options": options(request, run), "predicts": predicts, "run": asdict(run)},
    )


def follow_up(request: Request, run: Run, result: Mapping[str, Any], has_facts: bool = False) -> Plan:
    """The steps after a run of the module; `has_facts`: the play has facts of nvidia_smi_facts, which later roles use.

    Check mode and a prediction are followed by no change, and only what is really pending justifies a reboot.
    """
    is_changed, is_pending = bool(result.get("changed")), bool(result["reboot_required"])
    must_reboot = is_pending and not result["reboot_tried"] and run.may_reboot(request)
    # A justified reboot counts as a change.
    has_hooks = run.is_first and request.has_hooks and (is_changed or must_reboot)
    is_applied = is_changed and not result["awaits_reboot"] and not (run.is_first and request.has_hooks)
    steps = {
        READ_GPUS: is_applied and has_facts,
        RESTART_CDI_REFRESH: is_applied and result["mig_changed"] and result["cdi_refresh"],
        GENERATE_CDI: is_applied
        and result["mig_changed"]
        and not result["cdi_refresh"]
        and bool(request.specification),
        HOOKS: has_hooks,
        REBOOT: must_reboot and not has_hooks,
        REPORT: is_pending and not must_reboot and not has_hooks,
    }
    found = [step for step, is_due in steps.items() if is_due and not run.check_mode]
    pending = one_line(", ".join(map(str, result["pending"]))) if REPORT in found else ""
    # Where only the boot service differs no hook runs.
    runs_hooks = result["gpus_changed"] or is_pending
    note = f"an ECC or MIG mode is pending on {pending}; {_why_pending(request, run, result)}"
    return Plan(
        steps=(*((FETCH_EVIDENCE,) if request.fetches_evidence else ()), *found),
        notes=(note,) if REPORT in found else (),
        tasks={
            "hooks": {"before": request.before if runs_hooks else [], "after": request.after if runs_hooks else []},
            "refreshes": not {*found}.isdisjoint((READ_GPUS, RESTART_CDI_REFRESH, GENERATE_CDI)),
            "goes_on": not {*found}.isdisjoint((HOOKS, REBOOT, REPORT)),
        },
    )


def _why_pending(request: Request, run: Run, result: Mapping[str, Any]) -> str:
    if result["reboot_tried"]:
        return "a reboot for it did not help: see dmesg and nvidia-smi -q"
    if request.reboot == "never":
        return "gpu_state_reboot is never, so reboot the host yourself"
    if run.is_rebooted:
        return "this run has already rebooted the host, for its driver, so run it again"
    return "a host is never rebooted over a local connection, so reboot it yourself"


def failed_hooks(failures: Sequence[Mapping[str, Any]]) -> Plan:
    """Refuses a host on which hooks after the change have failed; each has `hook`, `task` and `message`."""
    reasons = []
    for one in failures:
        message = one_line(str(one["message"] or "it did not succeed"), _LONGEST_REASON)
        reasons.append(f"{one['hook']}: {one['task']}: {message}")
    return Plan(refusals=(f"gpu_state_hooks_after: {'; '.join(reasons)}",) if reasons else ())


# The removal of everything


_BOOT_PLAN = "/var/lib/gpu-fleet/state/plan.json"
_CONFIRM = "gpu_fleet_decommission_confirm"
_OF_A_REMOVAL: tuple[Any, ...] = ("absent", False, None, {})
"""What decommission.yml sets variables to, in place of the inventory."""


def contradicting(given: Mapping[str, Any]) -> Plan:
    """Refuses variables of the command line, which precede variables of the playbook."""
    names = [name for name, value in given.items() if value not in _OF_A_REMOVAL and name != _CONFIRM]
    refusal = (
        f"{', '.join(names)} of the command line (-e) would keep what gpu.fleet.decommission removes; nothing was "
        "changed. Run again without it; variables of the inventory do not matter"
    )
    return Plan((refusal,) if names else (), tasks={"is_confirmed": read_truth(given.get(_CONFIRM)) is True})


def mig_declared(plan_file: str, gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """The UUIDs of GPUs that the role has put in MIG mode, by its plan for the boot, and that are in it."""
    declared = parse_json(base64.b64decode(plan_file))["gpus"] if plan_file else []
    ours = {one["uuid"] for one in declared if (one.get("mig") or {}).get("enabled")}
    return [str(gpu["uuid"]) for gpu in gpus if gpu["uuid"] in ours and gpu["mig_mode_current"] == "enabled"]


def mig_left(declared: Sequence[str], gpus: Sequence[Mapping[str, Any]]) -> Plan:
    """Refuses to go on where MIG is still on; without the driver nobody could turn it off."""
    left = [str(gpu["uuid"]) for gpu in gpus if gpu["uuid"] in declared and gpu["mig_mode_current"] == "enabled"]
    refusal = (
        f"MIG is still on for {', '.join(left)}; the driver and the records stay. Where the command line has variables "
        "of gpu_state, such as -e gpu_state_gpus or -e gpu_state_reset, run again without them"
    )
    return Plan((refusal,) if left else ())


# For the tasks


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    found = facts.get("nvidia_smi") or {}
    count = max(len(found.get("gpus") or ()), len(found.get("pci_gpus") or ()))
    return plan(Request.read(variables, count), Run.of(given))


def _follow_up(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    return follow_up(Request.read(variables), Run.of(given["run"]), given["result"], "nvidia_smi" in facts)


def _hooked(_variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    return failed_hooks(given["failures"])


def _removal(_variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    return contradicting(given["given"])


def _mig_declared(_variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    asked = unread(given, {"file": ("slurp", {"src": _BOOT_PLAN})})
    if asked:
        return asked
    read = given["file"]
    if read.get("failed") and "not found" not in str(read.get("msg")):
        return Plan((f"{_BOOT_PLAN} cannot be read: {read.get('msg')}",))
    declared = mig_declared(str(read.get("content") or ""), facts["nvidia_smi"]["gpus"])
    return Plan(tasks={"gpus": declared})


def _mig_left(_variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    asked = unread(given, {"smi": ("gpu.fleet.nvidia_smi_facts", {})})
    return asked or mig_left(given["declared"], facts["nvidia_smi"]["gpus"])


PLANNER = RolePlanner(
    "gpu_state",
    {
        "plan": _plan,
        "follow_up": _follow_up,
        "hooked": _hooked,
        "removal": _removal,
        "mig_declared": _mig_declared,
        "mig_left": _mig_left,
    },
    others=(_EVIDENCE, _EVIDENCE_DIRECTORY, _FETCH_TO),
    reads=("gpu_state_cdi_specification", "gpu_state_reboot_timeout"),
    runs_by_default=True,
    is_disruptive=True,
)
