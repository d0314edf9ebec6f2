# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the GPUs to the saved plan at boot, with the very code of the modules. Private to this collection.

The service runs this program without Ansible. A GPU that fails does not keep the others from being served, and what it
did or could not do stands in the journal, one line each. It ends with 0 only when everything was read back as saved.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping, Sequence

from . import _mig_run, _settings_run, _state_plan
from ._errors import ChangeError, RunError
from ._gpu import Gpu
from ._runner import find_executable
from ._smi import Patience, Smi
from ._state_plan import Mig, Plan, PlannedGpu, place_of
from ._state_request import MIG_DEFAULTS

# The driver is loaded by udev, side by side with this program.
WAIT_SECONDS = 60.0
_POLL_SECONDS = 2.0
# Another run of the collection may hold the GPUs; the service's own limit is longer.
LOCK_SECONDS = 120.0

Run = Callable[[Mapping[str, Any], bool, bool], Mapping[str, Any]]
Say = Callable[[str], None]


@dataclass
class Boot:
    """One run of the program. `problems` has a line for everything that is not as saved."""

    plan: Plan
    say: Say
    run_settings: Run = _settings_run.run
    run_mig: Run = _mig_run.run
    problems: list[str] = field(default_factory=list)
    _labels: dict[str, str] = field(default_factory=dict)

    def run(self, gpus: Sequence[Gpu]) -> None:
        """Serve the planned ones of `gpus`, which are all that the host has."""
        present = self._present(gpus)
        self._serve("settings", [gpu for gpu in present if gpu.settings], self._settings)
        changed = self._serve("MIG", [gpu for gpu in present if gpu.mig is not None], self._mig)
        if changed:
            # A change of MIG mode takes settings away.
            self._serve("settings", [gpu for gpu in present if gpu.settings], self._settings)

    def _present(self, gpus: Sequence[Gpu]) -> list[PlannedGpu]:
        """The planned GPUs that are there; the others, and what is not planned, are named."""
        there = {gpu.basics.uuid: gpu for gpu in gpus}
        self._labels = {uuid: gpu.label for uuid, gpu in there.items() if uuid is not None}
        planned = {gpu.uuid for gpu in self.plan.gpus}
        new = {gpu.basics.pci_bus_id: gpu for gpu in gpus if gpu.basics.uuid not in planned}
        found = []
        for gpu in self.plan.gpus:
            if gpu.uuid in there:
                found.append(gpu)
                self._check_ecc(gpu, there[gpu.uuid])
                continue
            successor = new.get(gpu.pci_bus_id)
            if successor is not None and successor.error is not None:
                self._note(f"{gpu.label} does not answer: {successor.error}")
            elif successor is not None:
                self._note(f"{gpu.label} was replaced by {successor.basics.uuid}; run gpu_state again")
            else:
                self._note(f"{gpu.label} has gone")
        for gpu_there in new.values():
            if gpu_there.error is None:
                self.say(f"{gpu_there.label}: not in the plan, left as it is")
        return found

    def _check_ecc(self, planned: PlannedGpu, there: Gpu) -> None:
        """ECC stays over reboots by itself, and takes one to change: it is only compared."""
        wanted = None if planned.ecc is None else ("enabled" if planned.ecc else "disabled")
        if wanted is not None and there.basics.ecc_mode_current != wanted:
            self._note(f"{there.label}: ECC is {there.basics.ecc_mode_current}, declared {wanted}; run gpu_state again")

    def _serve(self, what: str, gpus: Sequence[PlannedGpu], run: Callable[[Sequence[PlannedGpu]], bool]) -> bool:
        """All GPUs at once; when that fails each by itself. Tells whether anything was changed."""
        if not gpus:
            return False
        try:
            return run(gpus)
        except ChangeError as error:
            if isinstance(error, RunError):
                self._tell(error.result)
            if len(gpus) == 1:
                self._note(f"{self._labels[gpus[0].uuid]}: {what} failed: {error}")
                return True
        for gpu in gpus:
            self._serve(what, (gpu,), run)
        return True

    def _settings(self, gpus: Sequence[PlannedGpu]) -> bool:
        entries = [{"gpus": [gpu.uuid], **gpu.settings} for gpu in gpus]
        result = self.run_settings({"settings": entries, **self._common()}, False, False)
        self._tell(result)
        return bool(result["changed"])

    def _mig(self, gpus: Sequence[PlannedGpu]) -> bool:
        result = self.run_mig(
            {
                **MIG_DEFAULTS,
                "layouts": [_layout(gpu.uuid, gpu.mig) for gpu in gpus if gpu.mig is not None],
                "reset": "if_required" if self.plan.reset else "never",
                **self._common(),
            },
            False,
            False,
        )
        self._tell(result)
        saved = {gpu.uuid: gpu.mig for gpu in gpus}
        for row in result["gpus"]:
            if row["status"] not in ("changed", "unchanged"):
                why = row["message"] or "MIG mode takes effect only after a reset of the GPU"
                self._note(f"{self._labels[row['uuid']]}: MIG is {row['status']}: {why}")
                continue
            self._compare_devices(row, saved[row["uuid"]])
        return bool(result["changed"])

    def _compare_devices(self, row: Mapping[str, Any], mig: Mig | None) -> None:
        """Say when an instance came back with another UUID: whoever names it by UUID has to know."""
        if mig is None or mig.profiles is None:
            return
        label = self._labels[row["uuid"]]
        self.say(
            f"{label}: MIG {'enabled' if mig.enabled else 'disabled'}, {', '.join(mig.profiles) or 'no instances'}"
        )
        now = Counter((place_of(instance), instance["uuid"]) for instance in row["instances"])
        before = Counter((device.place, device.uuid) for device in mig.devices if device.uuid is not None)
        lost = before - now
        if lost:
            self.say(
                f"{label}: other UUIDs than before: {', '.join(str(uuid) for _place, uuid in sorted(lost))} are gone"
            )

    def _common(self) -> dict[str, Any]:
        return {"executable": self.plan.executable, "timeout": self.plan.timeout, "lock_timeout": LOCK_SECONDS}

    def _tell(self, result: Mapping[str, Any]) -> None:
        """What was called to change something, under the GPU that it was for."""
        for command in result["commands"]:
            uuid = next((word for word in command.split() if word in self._labels), None)
            self.say(f"{self._labels[uuid]}: {command}" if uuid is not None else command)

    def _note(self, problem: str) -> None:
        self.problems.append(problem)
        self.say(f"FAILED: {problem}")


def _layout(uuid: str, mig: Mig) -> dict[str, Any]:
    return {
        "gpus": [uuid],
        "enabled": mig.enabled,
        "profiles": None if mig.profiles is None else list(mig.profiles),
    }


def wait_for_gpus(
    plan: Plan, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> tuple[Gpu, ...]:
    """All GPUs of the host, as soon as the driver answers; raises ChangeError when it does not in time."""
    if not os.path.exists(find_executable(plan.executable)):
        raise ChangeError(f"{plan.executable} is not there; install the driver, or run gpu_state again")
    smi = Smi(plan.executable, Patience(timeout=plan.timeout))
    deadline = clock() + WAIT_SECONDS
    while True:
        try:
            return smi.document().gpus
        except ChangeError:
            if clock() >= deadline:
                raise
        sleep(_POLL_SECONDS)


def say(line: str) -> None:
    """Write a line to the journal."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def notify(status: str, address: str | None = None) -> None:
    """Have `systemctl status` show a line, as sd_notify(3) does."""
    address = address or os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    # Nothing depends on it: the journal has it all.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
        stream.connect(address)
        stream.sendall(("STATUS=" + " ".join(status.split())).encode("utf-8", "replace"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with the path of the plan; 0 when the GPUs are as saved, else 1."""
    (path,) = sys.argv[1:] if arguments is None else arguments
    problems: Iterable[str]
    try:
        with open(path, encoding="utf-8") as stream:
            plan = _state_plan.parse(stream.read())
        boot = Boot(plan, say)
        boot.run(wait_for_gpus(plan))
        problems = boot.problems
    except (ChangeError, OSError, UnicodeDecodeError) as error:
        problems = [str(error)]
        say(f"FAILED: {error}")
    summary = "; ".join(problems)
    notify(summary or f"{len(plan.gpus)} GPUs are as declared")
    return 1 if summary else 0
