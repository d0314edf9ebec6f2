# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated GPU host in this process, on which the work of mig_profile runs."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._mig import converge as mig_converge
from ansible_collections.gpu.fleet.plugins.module_utils._mig import report as mig_report
from ansible_collections.gpu.fleet.plugins.module_utils._mig.observe import Observer
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import Table, tables
from ansible_collections.gpu.fleet.plugins.module_utils._mig.rules import parse_rules
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import client
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.blockers import Blocker
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import RetryPolicy, Smi
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.gpu import Gpu
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.listing import (
    parse_gpu_instance_profiles,
    parse_placements,
)
from gpu_simulator.state import catalogue, store

from tests.unit import simulated_smi

DRIVERS = ("535.261.03", "550.163.01", "580.159.04", "610.57.04")
NOTHING = {
    "gpus": ["all"],
    "enabled": None,
    "profiles": None,
    "layouts": None,
    "config": None,
    "selected": None,
    "mode_only": False,
}

Layout = Counter[tuple[str, int, tuple[int, ...]]]
"""GPU instances of one GPU: profile name, start, slices of the compute instances."""

Intercept = Callable[[Sequence[str], Callable[[], CommandResult]], CommandResult]
"""Intercepts calls of nvidia-smi: gets the arguments and a function that makes the call."""


RunModule = Callable[..., dict[str, Any]]
"""Runs the module on a host: takes the host, `check`, and the module's options."""


@dataclass
class Run:
    """Result of one run of the module's work. `error` None: it succeeded. `jobs` have the plans."""

    result: dict[str, Any]
    error: str | None
    calls: list[list[str]]
    jobs: Sequence[mig_converge.MigJob] = ()

    @property
    def changes(self) -> list[list[str]]:
        """The calls that change state."""
        return [call for call in self.calls if is_change(call)]


def is_change(call: Sequence[str]) -> bool:
    """Whether a call changes state."""
    return any(word in ("-mig", "-cgi", "-cci", "-dgi", "-dci", "--gpu-reset") for word in call)


@dataclass
class SimulatedHost:
    """Simulated GPUs below `root`."""

    root: Path
    blockers: dict[str, list[Blocker]] = field(default_factory=dict)
    root_user: bool = True

    @classmethod
    def make(cls, root: Path, *models: str, driver: str = "580.159.04", mig: bool = True) -> SimulatedHost:
        """Make a bare-metal host with these GPUs, by default in MIG mode."""
        gpus = [{"model": model} for model in models]
        description: Any = {"driver_version": driver, "virtualization": "None", "gpus": gpus}
        store.initialise(description, root=str(root), device_nodes=True)
        host = cls(root)
        if mig:
            with store.transaction(str(root)) as state:
                for gpu in state["gpus"]:
                    if gpu["mig_mode"] is not None:
                        gpu["mig_mode"] = {"current": True, "pending": True}
        return host

    def call(self, *arguments: str) -> tuple[str, int]:
        """Call the simulated nvidia-smi as a user would."""
        return simulated_smi.reply(arguments, self.root, self.root_user)

    def facts(self, patch: pytest.MonkeyPatch, *subsets: str) -> dict[str, Any]:
        """The facts that nvidia_smi_facts gathers on this host, without a PCI bus."""

        def run_all(commands: Sequence[Sequence[str]], _timeout: float) -> list[CommandResult]:
            results = [(command, *self.call(*command[1:])) for command in commands]
            return [CommandResult(tuple(words), status, text.encode(), b"", 0.0) for words, text, status in results]

        patch.setattr(client, "run_all", run_all)
        patch.setattr(pci_bus, "DEVICES", str(self.root / "no-bus"))
        gathered = smi_facts.gather(smi_facts.FactsRequest(subsets=smi_facts.chosen_subsets(subsets)))
        found: dict[str, Any] = json.loads(json.dumps(gathered))
        return found

    def run(self, intercept: Intercept | None = None, **options: Any) -> Run:
        """Run the module's work with these options; `check`, `force`, `reset` and `skip` are flags."""
        calls: list[list[str]] = []

        def make_calls(commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
            del timeout
            results = []
            for command in commands:
                calls.append(list(command[1:]))
                results.append(self._result(command, intercept))
            return results

        check = options.pop("check", False)
        flags = mig_converge.MigOptions(
            check_mode=check,
            force=options.pop("force", False),
            may_reset=options.pop("reset", False),
            skip_unsupported=options.pop("skip", False),
        )
        smi = Smi("nvidia-smi", RetryPolicy(5, 3, 0), make_calls, lambda _seconds: None)
        cache = BootCache(str(self.root / "run" / "mig.json"), is_read_only=check)
        outcome, error = mig_converge.Outcome((), False, failed=True), None
        try:
            rules = parse_rules({**NOTHING, **options})
            outcome = mig_converge.Convergence(rules, smi, Observer(smi, cache), self.find_blockers, flags).run()
        except mig_converge.ConvergeError as failure:
            outcome, error = failure.outcome, str(failure)
        except ChangeError as failure:
            error = str(failure)
        return Run(mig_report.report(outcome, smi.commands, check, True), error, calls, outcome.jobs)

    def _result(self, command: Sequence[str], intercept: Intercept | None) -> CommandResult:
        arguments = list(command[1:])

        def reply() -> CommandResult:
            text, status = self.call(*arguments)
            return CommandResult(tuple(command), status, text.encode(), b"", 0.01)

        return reply() if intercept is None else intercept(arguments, reply)

    def find_blockers(self, gpu: Gpu) -> list[Blocker]:
        """Processes that hold a GPU's device file, as configured by the test."""
        return self.blockers.get(gpu.identity, [])

    @property
    def state(self) -> Any:
        """The whole state, read-only."""
        return store.read(str(self.root))

    def layout(self, index: int = 0) -> Layout:
        """The instances that really exist."""
        gpu = self.state["gpus"][index]
        profiles = {
            item["id"]: item for item in (catalogue.load(gpu["model"]).get("mig") or {"profiles": ()})["profiles"]
        }
        return Counter(
            (
                profiles[item["profile_id"]]["name"],
                item["start"],
                tuple(sorted((compute["size"] for compute in item["compute_instances"]), reverse=True)),
            )
            for item in gpu["gpu_instances"]
        )

    def occupy(self, index: int, start: int, pid: int = 4711, name: str = "python3") -> None:
        """Run a process in the GPU instance at `start`."""
        with store.transaction(str(self.root)) as state:
            gpu = state["gpus"][index]
            instance = next(item for item in gpu["gpu_instances"] if item["start"] == start)
            gpu["processes"].append(
                {
                    "pid": pid,
                    "name": name,
                    "type": "C",
                    "used_memory_mib": 512,
                    "gpu_instance_id": instance["id"],
                    "compute_instance_id": instance["compute_instances"][0]["id"],
                }
            )

    def snapshot(self) -> Any:
        """A copy of the state, to restore later."""
        return copy.deepcopy(self.state)

    def restore(self, snapshot: Any) -> None:
        """Restore a snapshot, and invalidate the module's cache."""
        Path(store.state_path(str(self.root))).write_text(json.dumps(snapshot))
        cache = self.root / "run" / "mig.json"
        if cache.exists():
            cache.unlink()


def reported(gpu: dict[str, Any]) -> Layout:
    """The layout of one GPU in a result."""
    inside: dict[tuple[str, int], list[int]] = {}
    for row in gpu["instances"]:
        sizes = inside.setdefault((row["gpu_instance_profile"], row["placement_start"]), [])
        if row["compute_instance_id"] is not None:
            sizes.append(slices_of(row["profile"]))
    return Counter((name, start, tuple(sorted(sizes, reverse=True))) for (name, start), sizes in inside.items())


def slices_of(name: str) -> int:
    """Number of compute slices of a profile, from its name."""
    return int(name.split("c.", maxsplit=1)[0] if "c." in name else name.split("g.", maxsplit=1)[0])


def names(layout: Layout) -> Counter[str]:
    """Number of instances by profile, regardless of placement."""
    counted: Counter[str] = Counter()
    for (name, _start, _sizes), count in layout.items():
        counted[name] += count
    return counted


def table_of(model: str, directory: Path, driver: str = "580.159.04") -> Table:
    """The profiles of a model as nvidia-smi lists them."""
    host = SimulatedHost.make(directory / model, model, driver=driver)
    listed = tables(
        parse_gpu_instance_profiles(host.call("mig", "-lgip")[0]), parse_placements(host.call("mig", "-lgipp")[0])
    )
    return listed[0]


def mig_models() -> list[str]:
    """Names of all simulated GPU models with MIG."""
    return [name for name in catalogue.names() if catalogue.load(name).get("mig")]
