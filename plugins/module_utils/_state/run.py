# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the module gpu_state, from its options to its result. Private to this collection."""

from __future__ import annotations

import pwd
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Sequence

from .._common import runner
from .._common import trust as state_trust
from .._common.boot_cache import BootCache
from .._common.bounds import listed
from .._common.errors import ChangeError, RunError
from .._common.evidence_options import NEVER
from .._common.gpu_clients import (
    DRIVER_UNITS,
    MPS_CONTROL,
    MPS_PIPES,
    blocking_units,
    clients,
    full_name,
    mps_clients,
    running,
    stopped,
)
from .._common.os_errors import advice
from .._common.runner import find_executable
from .._common.systemd import Systemd, Unit
from .._nvidia_smi import failures
from .._nvidia_smi.client import Smi
from .._settings import run as settings_run
from . import mps as mps_service
from . import plan as state_plan
from . import service as boot_service
from . import service_files
from .request import Mps, parse_declaration
from .service import ServicePlan
from .service_files import PLAN_FILE, UNIT, Service
from .stages import ECC, MIG, SETTINGS, Preview, Result, Stages

MIG_MANAGER = "nvidia-mig-manager.service"
CDI_REFRESH = "nvidia-cdi-refresh.service"

CACHE_FILE = "/run/gpu-fleet/state.json"
"""Cache of GPUs that cannot be reset until the next boot: clients are not stopped for another attempt."""
_NO_RESET = "no reset"

DEFAULTS: Mapping[str, Any] = {
    "persistence_mode": False,
    "compute_mode": "default",
    "power_limit_w": "default",
    "gpu_clocks_mhz": "default",
    "memory_clocks_mhz": "default",
    "accounting_mode": False,
}
"""Values of volatile settings after a reboot."""

MOST_SECONDS = 86400
# A unit ordered after one of these runs after everything that starts at boot.
_LATE = {"multi-user.target", "graphical.target", "default.target"}

_NO_DRIVER = ("no_driver", "not_loaded", "library_missing", "version_mismatch")
NO_EVIDENCE: Mapping[str, Any] = {"directory": None, "files": [], "notes": []}
_NOTHING: Result = {"changed": False, "gpus": ()}


@dataclass
class StateRun:
    """One run. `root` is a prefix of the service's paths, for tests.

    A reset of GPUs destroys evidence of a fault. Where the options ask for evidence that nobody has kept yet, a run
    ends before its first change, with `evidence_due`: gpu_health keeps it, and this run has none of its code.
    """

    options: Mapping[str, Any]
    check_mode: bool = False
    with_diff: bool = False
    systemd: Systemd = field(default_factory=Systemd)
    root: str = ""
    units: Mapping[str, Unit] = field(default_factory=dict)
    preview: Preview = field(default_factory=lambda: Preview({}, ()))
    done: list[tuple[str, Result]] = field(default_factory=list)
    service: ServicePlan = field(default_factory=ServicePlan)
    mps: ServicePlan = field(default_factory=ServicePlan)
    mps_gpus: tuple[str, ...] = ()
    python: str = ""
    stopped: tuple[str, ...] = ()
    has_failed: bool = False
    interrupts: bool = False
    reboot_tried: bool = False
    awaits_reboot: bool = False
    done_for_units: list[str] = field(default_factory=list)
    is_predicted: bool = True
    warnings: list[str] = field(default_factory=list)
    evidence_due: bool = False
    resets: bool = False
    destroys: bool = False

    def run(self) -> dict[str, Any]:
        """Do the run; call once."""
        self.warnings += (self.options["evidence_kept"] or NO_EVIDENCE)["notes"]
        try:
            if self.options["state"] == "absent":
                self._observe_units()
                self._drop_mps(resets_mode=False)
                self._reset_settings()
                self._remove()
            else:
                self._present()
        except ChangeError as error:
            self.has_failed = True
            raise RunError(str(error), self._report()) from error
        except OSError as error:
            self.has_failed = True
            # State for the next run cannot be written: no space, or a read-only file system.
            where = f"{error.filename}: " if error.filename else ""
            raise RunError(f"{where}{error.strerror}{advice(error)}; earlier changes stay", self._report()) from error
        return self._report()

    def _present(self) -> None:
        declaration = parse_declaration(self.options)
        self._observe_units()
        if declaration.is_empty:
            self._drop_mps()
            self._remove()
            return
        if declaration.mig is not None:
            self._refuse_other_manager()
        if not (self.check_mode or self.systemd.is_running):
            raise ChangeError(
                "systemd is not running on this host, so nothing could bring the state back after a reboot"
            )
        self._refuse_untrusted()
        no_reset = frozenset(" ".join(BootCache(CACHE_FILE).get((_NO_RESET,), None) or ()).split())
        stages = Stages(declaration, self.options, self.with_diff, done=self.done, no_reset=no_reset)
        try:
            self.preview = stages.preview()
        except ChangeError:
            no_driver = self._why_no_driver() if self.check_mode else None
            if no_driver is None:
                raise
            # The driver may be installed in the same play, after this prediction.
            self.warnings.append(f"the needed changes cannot be predicted: {no_driver}")
            self.is_predicted = False
            return
        self._observe_interruptions(stages)
        if declaration.mps is None:
            self._plan_no_mps()
        to_stop = blocking_units(self.units, self.options["clients"], self.resets, self.destroys)
        self._compare_mps(declaration.mps, stages.mps, to_stop)
        self._require_evidence()
        if declaration.mps is None:
            self._end_mps("compute_mode" not in declaration.settings)
        if self.check_mode:
            self.warnings += self.preview.unknown
            self.reboot_tried = self._was_reboot_tried(self._pending())
            # The places are known only after the change.
            self._compare_service(None if self.preview.needs else stages.plan(self.preview))
            if self.preview.needs:
                self._note_stop(running(to_stop))
            return
        if self.preview.needs:
            self._change(stages, to_stop)
        if not self.awaits_reboot:
            self._compare_service(stages.plan(self.preview))
            boot_service.make_present(self.systemd, self.service, self.root, self.done_for_units)
            self._start_mps(declaration.mps)
            pending = self._pending()
            self._may_reboot_for(pending)
            if not pending:
                boot_service.note_reboot((), self.root)

    def _observe_units(self) -> None:
        names = tuple(dict.fromkeys((UNIT, MIG_MANAGER, CDI_REFRESH, *clients(self.options["clients"]), *DRIVER_UNITS)))
        self.units = self.systemd.show(names)
        if self.units.get(UNIT, Unit(UNIT)).active in ("activating", "deactivating"):
            # The host has just booted, and the service is still applying the plan.
            self.systemd.settle(UNIT, self.options["lock_timeout"])
            self.units = self.systemd.show(names)

    def _refuse_untrusted(self) -> None:
        """Refuse a boot service that users other than root could tamper with."""
        if not 1 <= self.options["boot_timeout"] <= MOST_SECONDS:
            raise ChangeError(f"boot_timeout is 1 to {MOST_SECONDS} seconds, not {self.options['boot_timeout']}")
        self.python = state_trust.system_python(self.root)
        state_trust.refuse(service_files.directories(self.root), f"what the unit {UNIT} needs", self.root)
        executable = Smi(self.options["executable"]).executable
        if executable.startswith("/"):
            state_trust.refuse((executable,), executable, self.root)

    def _refuse_other_manager(self) -> None:
        manager = self.units.get(MIG_MANAGER, Unit(MIG_MANAGER))
        if manager.is_active or manager.enabled == "enabled":
            raise ChangeError(
                f"{MIG_MANAGER} manages MIG on this host, and two managers undo each other's work; turn it off "
                f"(systemctl disable --now {MIG_MANAGER}), or declare no MIG here"
            )

    def _why_no_driver(self) -> str | None:
        """Why no driver is available to nvidia-smi; None where it works."""
        executable = Smi(self.options["executable"]).executable
        (result,) = runner.run_all([(executable, "-L")], self.options["timeout"])
        if result.rc == 0:
            return None
        reason, message = failures.explain(result)
        return message if reason in _NO_DRIVER else None

    def _change(self, stages: Stages, to_stop: Sequence[Unit]) -> None:
        """Apply the changes, up to a reboot that has to come first."""
        with stopped(self.systemd, to_stop, begin=self._note_stop):
            ecc = stages.run(ECC)
            if self._may_reboot_for(_pending(ecc)):
                # Set the MIG modes now, so that one reboot applies both.
                stages.set_mig_modes()
                self.awaits_reboot = True
                self.preview = Preview({ECC: ecc}, ())
                return
            results = {stage: stages.run(stage) for stage in stages.declared if stage != ECC}
            if results.get(MIG, _NOTHING)["changed"] and not stages.needs_no_mig:
                # A change of MIG mode drops settings, and so does a reset.
                stages.run(SETTINGS)
        if self.stopped:
            # A restart of persistenced drops them, too.
            stages.run(SETTINGS)
        self._note_impossible_resets(stages)
        self.preview = stages.preview()
        moved = [stage for stage, result in self.preview.results.items() if result["changed"]]
        if moved:
            raise ChangeError(
                f"not as declared although just applied: {', '.join(moved)}; something else on this host changes "
                "the GPUs, look for another manager of them"
            )

    def _note_stop(self, names: tuple[str, ...]) -> None:
        self.stopped = names

    def _note_impossible_resets(self, stages: Stages) -> None:
        """Cache the GPUs that the driver refused to reset on their own, until the next boot."""
        found = {
            str(row["uuid"])
            for stage, result in self.done
            for row in result["gpus"]
            if row.get("reboot_required") and (stage == MIG or not row["reset_required"])
        }
        if stages.may_reset and not found <= stages.no_reset:
            BootCache(CACHE_FILE).put((_NO_RESET,), None, (" ".join(sorted(found | stages.no_reset)),))

    def _may_reboot_for(self, pending: Sequence[str]) -> bool:
        """Whether the caller may reboot the host for these GPUs, which is allowed once."""
        if not pending or not self.options["stop_for_reboot"]:
            return False
        self.reboot_tried = self._was_reboot_tried(pending)
        if not self.reboot_tried:
            boot_service.note_reboot(pending, self.root)
        return not self.reboot_tried

    def _was_reboot_tried(self, pending: Sequence[str]) -> bool:
        """Whether the host was already rebooted for exactly these GPUs, where that is allowed."""
        allowed = bool(pending) and self.options["stop_for_reboot"]
        return allowed and boot_service.reboot_was_tried(pending, self.root)

    def _observe_interruptions(self, stages: Stages) -> None:
        """What the coming changes interrupt: whether GPUs are reset, and instances destroyed."""
        resets = any(
            stages.needs_reset(row) or (stages.may_reset and row["changed"] and row["uuid"] not in stages.no_reset)
            for row in self.preview.rows(ECC)
        )
        self.destroys = any(row["destroyed"] for row in self.preview.rows(MIG))
        moves = False
        if MIG in self.preview.needs:
            current = {row["uuid"]: row["mig_mode_current"] for row in self.preview.rows(MIG)}
            moves = any(
                current.get(identity) != ("enabled" if desired.enabled else "disabled")
                and identity not in stages.no_reset
                for identity, desired in stages.mig_desired().items()
            )
        self.resets = resets or moves
        self.interrupts = self.resets or self.destroys

    def _require_evidence(self) -> None:
        """End a run that resets GPUs without the evidence that is asked for; a prediction states that it would."""
        kept = self.options["evidence_kept"]
        self.evidence_due = self.resets and self.options["evidence"] != NEVER and kept is None
        if self.evidence_due and not self.check_mode:
            self.mps = ServicePlan()
            raise ChangeError(
                "GPUs are about to be reset, and the evidence of a fault has to be kept first; nothing was changed"
            )

    def _compare_service(self, plan: state_plan.StatePlan | None) -> None:
        """Plan the boot service; in check mode it is not applied."""
        text = None if plan is None else state_plan.render(plan)
        unit = self.units.get(UNIT, Unit(UNIT))
        service = Service(
            python=self.python,
            boot_timeout=self.options["boot_timeout"],
            clients=tuple(map(full_name, self.options["clients"])),
            # Fabric Manager of some releases is ordered after everything at boot: waiting for it would be a cycle.
            late=tuple(name for name in DRIVER_UNITS if not _LATE.isdisjoint(self.units.get(name, Unit(name)).after)),
        )
        self.service = boot_service.plan_present(text, service, unit, not self._pending(), self.root)
        self.warnings += boot_service.reload_warnings(self.service, unit, self.root)

    # MPS: its clients are never ended, so that it is refused before the first change.

    def _compare_mps(self, mps: Mps | None, gpus: Sequence[str], to_stop: Sequence[Unit]) -> None:
        """Plan the unit of MPS; nothing where none is declared."""
        unit = self.units.get(mps_service.UNIT, Unit(mps_service.UNIT))
        if mps is not None:
            control = find_executable(MPS_CONTROL)
            if not control.startswith("/"):
                raise ChangeError(
                    f"mps: {MPS_CONTROL} is not on this host; it comes with the driver, in some distributions "
                    "in a package of its own, such as nvidia-cuda-mps of Debian and nvidia-compute-utils of Ubuntu"
                )
            state_trust.refuse((control,), control, self.root)
            if mps.user is not None and not _is_user(mps.user):
                raise ChangeError(f"mps: there is no user {mps.user} on this host")
            self.mps_gpus = tuple(gpus)
            text = mps_service.unit_text(mps, gpus, control, tuple(map(full_name, self.options["clients"])))
            self.mps = mps_service.plan_service(text, unit, not self._pending(), self.root)
        if mps_service.ends_clients(self.mps) and unit.is_active:
            self._refuse_clients("its declaration has changed")
        elif unit.is_active and any(each.name == mps_service.UNIT for each in to_stop):
            self._refuse_clients("a GPU is reset or changes its MIG mode")

    def _refuse_clients(self, why: str) -> None:
        found = mps_clients()
        if self.check_mode and found:
            self.warnings.append(f"mps: {why}, and these clients have to end first: {listed(found)}")
        elif found:
            raise ChangeError(f"mps: {why}, and its clients would end with it: {listed(found)}; let them end first")

    def _start_mps(self, mps: Mps | None) -> None:
        if mps is None:
            return
        mps_service.apply(self.systemd, self.mps, self.root, self.done_for_units)
        if not self._pending():
            mps_service.verify(mps, self._run, find_executable(MPS_CONTROL))

    def _drop_mps(self, resets_mode: bool = True) -> None:
        """Remove the unit of MPS where there is one; with `resets_mode` its GPUs return to the default compute mode."""
        self._plan_no_mps()
        self._end_mps(resets_mode)

    def _plan_no_mps(self) -> None:
        """Plan the removal of the unit of MPS."""
        unit = self.units.get(mps_service.UNIT, Unit(mps_service.UNIT))
        self.mps = mps_service.plan_service(None, unit, False, self.root)
        if self.mps.is_empty:
            return
        if unit.is_active:
            self._refuse_clients("it is no longer declared")
        self.units = {name: known for name, known in self.units.items() if name != mps_service.UNIT}

    def _end_mps(self, resets_mode: bool) -> None:
        """Carry out this plan; with `resets_mode` the GPUs of the unit return to the default compute mode."""
        if self.mps.is_empty:
            return
        text = service_files.read(self.root + mps_service.UNIT_FILE)
        if not self.check_mode:
            mps_service.apply(self.systemd, self.mps, self.root, self.done_for_units)
        uuids = mps_service.uuids_of(text) if resets_mode else ()
        if uuids and self._why_no_driver() is None:
            there = {gpu.basics.uuid for gpu in Smi(self.options["executable"]).document().gpus}
            common = {name: self.options[name] for name in ("executable", "timeout", "lock_timeout")}
            entries = [{"gpus": [uuid], "compute_mode": "default"} for uuid in uuids if uuid in there]
            if entries:
                self._apply_settings({**common, "settings": entries, "on_unsupported": "skip"})

    def _run(self, command: Sequence[str]) -> runner.CommandResult:
        (result,) = runner.run_all([command], self.options["timeout"])
        return result

    # Removal of what is no longer declared, and state absent.

    def _remove(self) -> None:
        """Remove the service. The GPUs stay as they are until the next reboot."""
        unit = self.units.get(UNIT, Unit(UNIT))
        self.service = boot_service.plan_absent(unit, self.root)
        self.warnings += boot_service.reload_warnings(self.service, unit, self.root)
        if not self.check_mode:
            boot_service.note_reboot((), self.root)
            boot_service.make_absent(self.systemd, self.service, self.root, self.done_for_units)

    def _reset_settings(self) -> None:
        """Reset the volatile settings of the saved plan to their values after a reboot."""
        text = service_files.read(self.root + PLAN_FILE)
        if text is None:
            return
        try:
            saved = state_plan.parse(text)
        except ChangeError as error:
            self.warnings.append(f"settings are left as they are: {error}")
            return
        if not any(gpu.settings for gpu in saved.gpus):
            return
        no_driver = self._why_no_driver()
        if no_driver is not None:
            self.warnings.append(f"settings are left to the next reboot: {no_driver}")
            return
        common = {name: self.options[name] for name in ("executable", "timeout", "lock_timeout")}
        there = {gpu.basics.uuid for gpu in Smi(self.options["executable"]).document().gpus}
        entries = [
            {"gpus": [gpu.uuid], **{name: DEFAULTS[name] for name in gpu.settings}}
            for gpu in saved.gpus
            if gpu.settings and gpu.uuid in there
        ]
        if entries:
            result = self._apply_settings({**common, "settings": entries, "on_unsupported": "skip"})
            self.preview = Preview({SETTINGS: result}, (SETTINGS,) if result["changed"] else ())

    def _apply_settings(self, arguments: Mapping[str, Any]) -> Result:
        try:
            result = settings_run.run(arguments, self.check_mode, self.with_diff)
        except RunError as error:
            # It may have changed some before it failed.
            self.done.append((SETTINGS, error.result))
            raise
        self.done.append((SETTINGS, result))
        return result

    def _pending(self) -> list[str]:
        """UUIDs of the GPUs with a mode that waits for a reset or a reboot."""
        results = (self.preview.results.get(stage, _NOTHING) for stage in (ECC, MIG))
        return list(dict.fromkeys(uuid for result in results for uuid in _pending(result)))

    def _explained(self, rows: list[Mapping[str, Any]] | None) -> list[Mapping[str, Any]] | None:
        """The GPUs with the reason why they were not reset, known only to the stage that attempted it."""
        reasons = {row["uuid"]: row["message"] for stage, result in self.done if stage == ECC for row in result["gpus"]}
        return rows and [
            {**row, "message": row["message"] or reasons.get(row["uuid"])} if row["status"] == "pending" else row
            for row in rows
        ]

    def _report(self) -> dict[str, Any]:
        """The module's result, with the same keys in every case."""
        results = self.preview.results
        # In check mode no stage was run, and the prediction is in `look`.
        ran = list(results.items()) if self.check_mode else self.done
        changed = any(result["changed"] for _stage, result in ran)
        planned = not (self.service.is_empty and self.mps.is_empty)
        service_changed = planned if self.check_mode else bool(self.done_for_units)
        # A failed run has at least started these again.
        service_changed |= self.has_failed and bool(self.stopped)
        if self.check_mode:
            changed |= bool(self.preview.needs) or not self.is_predicted
        pending = self._pending()
        report: dict[str, Any] = {
            "changed": changed or service_changed,
            "gpus_changed": changed,
            "interrupts": self.interrupts,
            "ecc": self._explained(_rows(results, ECC)),
            "settings": _rows(results, SETTINGS),
            "mig": _rows(results, MIG),
            "mig_changed": any(stage == MIG and result["changed"] for stage, result in ran),
            "pending": pending,
            "reset_required": any(result.get("reset_required", False) for result in results.values()),
            "reboot_required": bool(pending),
            "reboot_tried": self.reboot_tried,
            "awaits_reboot": self.awaits_reboot,
            "commands": [command for _stage, result in self.done for command in result["commands"]],
            "stopped": list(self.stopped),
            "evidence_due": self.evidence_due,
            "evidence": {**NO_EVIDENCE, **(self.options["evidence_kept"] or {})},
            "service": {
                "name": UNIT,
                "was": self.units.get(UNIT, Unit(UNIT)).active,
                "status": self.units.get(UNIT, Unit(UNIT)).status,
                "files": [step.path for step in self.service.files],
                "commands": ["systemctl " + " ".join(words) for words in self.service.commands],
            },
            "mps": {
                "name": mps_service.UNIT,
                "gpus": list(self.mps_gpus),
                "pipe_directory": MPS_PIPES if self.mps_gpus else None,
                "files": [step.path for step in self.mps.files],
                "commands": ["systemctl " + " ".join(words) for words in self.mps.commands],
            },
            "cdi_refresh": CDI_REFRESH in self.units and self.units[CDI_REFRESH].is_loaded,
            # A stage may run more than once; one without changes has its warnings only in `look`.
            "warnings": list(dict.fromkeys([*self.warnings, *_warnings(ran), *_warnings(results.items())])),
        }
        if self.with_diff:
            diffs = [result["diff"] for _stage, result in ran if result["changed"] and "diff" in result]
            report["diff"] = [*diffs, *boot_service.diff(self.service), *boot_service.diff(self.mps)]
        return report


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _pending(result: Result) -> list[str]:
    """UUIDs of the GPUs with a mode that waits for a reset or a reboot."""
    return [str(row["uuid"]) for row in result["gpus"] if row.get("reset_required") or row.get("reboot_required")]


def _warnings(runs: Iterable[tuple[str, Result]]) -> list[str]:
    return [text for _stage, result in runs for text in result.get("warnings", ())]


def _rows(results: Mapping[str, Result], stage: str) -> list[Mapping[str, Any]] | None:
    """The GPUs of one stage; None when nothing is declared for it."""
    return list(results[stage]["gpus"]) if stage in results else None
