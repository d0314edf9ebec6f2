# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply the parts of a declaration in order, with the code of the modules. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

from .._common.bounds import listed
from .._common.errors import ChangeError, RunError
from .._ecc import run as ecc_run
from .._mig import run as mig_run
from .._mig.request import Item
from .._mig.rules import DesiredMig, parse_rules
from .._mig.state import GpuState, Host
from .._nvidia_smi.client import RetryPolicy, Smi
from .._settings import run as settings_run
from .mps import chosen_gpus
from .plan import PlannedDevice, PlannedGpu, PlannedMig, StatePlan, place_of
from .request import MIG_DEFAULTS, Declaration

ECC, SETTINGS, MIG = "ecc", "settings", "mig"
STAGES = (ECC, SETTINGS, MIG)
ORDER_WITHOUT_MIG = (ECC, MIG, SETTINGS)
"""Compute modes and accounting are incompatible with MIG, so where they are declared MIG is disabled first."""

# With it a process that does not reach the daemon fails; without it, it uses the GPU next to MPS, without its limits.
_OF_MPS = {"compute_mode": "exclusive_process"}

Result = Mapping[str, Any]
Run = Callable[[Mapping[str, Any], bool, bool], Mapping[str, Any]]


@dataclass(frozen=True)
class Preview:
    """Prediction of what the modules would do. `needs` has the stages with changes, `results` the result of each stage.

    `unknown` names the stages that could not be predicted, because they depend on an earlier one.
    """

    results: Mapping[str, Result]
    needs: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    def rows(self, stage: str) -> Sequence[Mapping[str, Any]]:
        """The GPUs of one stage; empty when nothing is declared for it."""
        rows: Sequence[Mapping[str, Any]] = self.results.get(stage, {}).get("gpus", ())
        return rows


@dataclass
class Stages:
    """The stages of one declaration. `done` has the results of the stages that were run, in order.

    `no_reset` has the UUIDs of GPUs that cannot be reset, so that they require a reboot. `mps` has the UUIDs of GPUs
    for MPS, once there was a preview.
    """

    declaration: Declaration
    options: Mapping[str, Any]
    with_diff: bool = False
    runs: Mapping[str, Run] = field(
        default_factory=lambda: {ECC: ecc_run.run, SETTINGS: settings_run.run, MIG: mig_run.run}
    )
    done: list[tuple[str, Result]] = field(default_factory=list)
    no_reset: frozenset[str] = frozenset()
    mps: tuple[str, ...] = ()

    @property
    def may_reset(self) -> bool:
        """Whether GPUs may be reset."""
        return bool(self.options["reset"] == "if_required")

    @property
    def declared(self) -> tuple[str, ...]:
        """The stages with declared options."""
        requested = {
            ECC: self.declaration.ecc is not None,
            SETTINGS: bool(self.declaration.settings) or self.declaration.mps is not None,
            MIG: self.declaration.mig is not None,
        }
        return tuple(stage for stage in (ORDER_WITHOUT_MIG if self.needs_no_mig else STAGES) if requested[stage])

    @property
    def needs_no_mig(self) -> bool:
        """Whether settings are declared that are available only while MIG mode is off."""
        return self._settings_need_no_mig or self.declaration.mps is not None

    @property
    def _settings_need_no_mig(self) -> bool:
        settings = self.declaration.settings
        return settings.get("compute_mode", "default") != "default" or bool(settings.get("accounting_mode"))

    def preview(self) -> Preview:
        """Run all stages in check mode; raises ChangeError for impossible ones."""
        self._refuse_conflict()
        results: dict[str, Result] = {}
        needs: list[str] = []
        unknown: list[str] = []
        for stage in self.declared:
            try:
                result = self.runs[stage](self._arguments(stage, is_preview=True), True, self.with_diff)
            except ChangeError as error:
                # Another ECC mode changes the memory size, and with it the names of MIG profiles.
                waits_for_ecc = stage == MIG and _is_moving(results.get(ECC))
                waits_for_mig = stage == SETTINGS and MIG in needs
                if not (waits_for_ecc or waits_for_mig):
                    raise
                needs.append(stage)
                unknown.append(f"{stage}: known only when what comes before is in effect: {error}")
                continue
            results[stage] = result
            if result["changed"] or any(self.needs_reset(row) for row in result["gpus"]):
                needs.append(stage)
        return Preview(results, tuple(needs), tuple(unknown))

    def needs_reset(self, row: Mapping[str, Any]) -> bool:
        """Whether this GPU has a pending mode that a reset may apply."""
        return self.may_reset and bool(row.get("reset_required")) and row["uuid"] not in self.no_reset

    def _refuse_conflict(self) -> None:
        """Refuse settings that are incompatible with MIG, before anything is changed."""
        if not self.needs_no_mig:
            return
        mig = {} if self.declaration.mig is None else self.mig_desired()
        if self.declaration.mps is not None:
            gpus, mode = self._smi().document().gpus, self.declaration.settings.get("compute_mode")
            declared = {identity: desired.enabled for identity, desired in mig.items()}
            self.mps = chosen_gpus(self.declaration.mps, gpus, self.declaration.gpus, mode, declared)
        chosen = [identity for identity, desired in mig.items() if desired.enabled and self._settings_need_no_mig]
        if chosen:
            raise ChangeError(
                "MIG excludes accounting_mode and every compute_mode but default, and both are declared for "
                f"{listed(chosen, most=2)}; declare one or the other, or name the GPUs in gpus and in the layouts of "
                "mig"
            )

    def run(self, stage: str) -> Result:
        """Run one stage if it is declared; raises ChangeError."""
        if stage not in self.declared:
            return {"changed": False, "gpus": []}
        return self._run(stage, self._arguments(stage))

    def set_mig_modes(self) -> None:
        """Set only the MIG modes: those that need a reboot are then applied by the same reboot as ECC."""
        if self.declaration.mig is None:
            return
        layouts = [
            {"gpus": [identity], "enabled": desired.enabled, "profiles": None}
            for identity, desired in self.mig_desired().items()
        ]
        if layouts:
            arguments = {**self._arguments(MIG), "config": None, "selected": None, "layouts": layouts}
            self._run(MIG, arguments)

    def _run(self, stage: str, arguments: Mapping[str, Any]) -> Result:
        try:
            result = self.runs[stage](arguments, False, self.with_diff)
        except RunError as error:
            # Record the changes it made before it failed.
            self.done.append((stage, error.result))
            raise
        self.done.append((stage, result))
        return result

    def mig_desired(self) -> dict[str, DesiredMig]:
        """The desired state, by identity, of the GPUs that have MIG."""
        document = self._smi().document()
        host = Host(document.driver_version, tuple(GpuState(gpu) for gpu in document.gpus))
        rules = parse_rules({**MIG_DEFAULTS, **self._arguments(MIG)})
        return {gpu.identity: desired for gpu, desired in rules.assign(host).gpus if gpu.is_capable}

    def plan(self, preview: Preview) -> StatePlan:
        """The plan for the next boot, from a `look` that found everything as declared."""
        served = {
            stage: {row["uuid"]: row for row in preview.rows(stage) if row["status"] != "skipped"} for stage in STAGES
        }
        layouts = (self.declaration.mig or {}).get("layouts") or ()
        pending = any(row["status"] == "pending" for row in served[MIG].values())
        # Where only the mode is declared, or a layout is pending, the result does not have the desired profiles.
        desired = self.mig_desired() if pending or any(entry["profiles"] is None for entry in layouts) else {}
        rows = {uuid: row for stage in STAGES for uuid, row in served[stage].items()}
        return StatePlan(
            executable=self._smi().executable,
            timeout=self.options["timeout"],
            reset=self.may_reset,
            boot_timeout=self.options["boot_timeout"],
            clients=tuple(self.options["clients"]),
            gpus=tuple(
                PlannedGpu(
                    uuid=uuid,
                    pci_bus_id=row["pci_bus_id"],
                    name=row["name"],
                    ecc=self.declaration.ecc if uuid in served[ECC] else None,
                    settings=_settings(self._settings_of(uuid), served[SETTINGS].get(uuid)),
                    mig=_mig(served[MIG][uuid], desired.get(uuid)) if uuid in served[MIG] else None,
                )
                for uuid, row in sorted(rows.items(), key=lambda item: str(item[1]["pci_bus_id"]))
            ),
        )

    def _settings_of(self, uuid: str) -> Mapping[str, Any]:
        return {**self.declaration.settings, **(_OF_MPS if uuid in self.mps else {})}

    def _smi(self) -> Smi:
        return Smi(self.options["executable"], RetryPolicy(timeout=self.options["timeout"]))

    def _arguments(self, stage: str, is_preview: bool = False) -> dict[str, Any]:
        common = {name: self.options[name] for name in ("executable", "timeout", "lock_timeout")}
        gpus = list(self.declaration.gpus)
        skip = self.options["on_unsupported"]
        # Whether to try a reset is decided here for each GPU; check mode cannot predict whether it will work.
        reset = "never" if is_preview else self.options["reset"]
        if stage == ECC:
            return {**common, "gpus": gpus, "enabled": self.declaration.ecc, "reset": reset, "on_unsupported": skip}
        if stage == SETTINGS:
            settings = self.declaration.settings
            if not self.mps:
                return {**common, "gpus": gpus, **settings, "on_unsupported": skip}
            entries = [{"gpus": gpus, **settings}] if settings else []
            entries.append({"gpus": list(self.mps), **_OF_MPS})
            return {**common, "gpus": gpus, "settings": entries, "on_unsupported": skip}
        mig = self.declaration.mig or {}
        return {**MIG_DEFAULTS, **common, "gpus": gpus, **mig, "reset": reset, "on_unsupported": skip}


def _settings(declared: Mapping[str, Any], row: Mapping[str, Any] | None) -> dict[str, Any]:
    """The declared settings of one GPU, without those that it lacks."""
    if row is None:
        return {}
    missing = {item["setting"] for item in row["skipped"]}
    return {name: value for name, value in declared.items() if name not in missing}


def _mig(row: Mapping[str, Any], desired: DesiredMig | None) -> PlannedMig:
    """MIG of one GPU: its instances with their places, or the declared ones while they do not exist."""
    enabled = bool(row["mig_mode_pending"] == "enabled") if desired is None else desired.enabled
    if not enabled:
        return PlannedMig(False)
    if desired is not None and desired.items is None:
        return PlannedMig(True)
    if desired is not None and row["status"] == "pending":
        return PlannedMig(True, tuple(_as_asked(item) for item in desired.items or ()))
    devices = tuple(PlannedDevice(place_of(instance), instance["uuid"]) for instance in row["instances"])
    return PlannedMig(True, tuple(device.place for device in devices), devices)


def _as_asked(item: Item) -> str:
    return str(item.name) if item.start is None else f"{item.name}:{item.start}"


def _is_moving(ecc: Result | None) -> bool:
    """Whether an ECC mode other than the current one is pending."""
    return ecc is not None and any(row["ecc_mode_current"] != row["ecc_mode_pending"] for row in ecc["gpus"])
