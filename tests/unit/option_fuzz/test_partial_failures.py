# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each module that changes a host, stopped at each of its steps: `changed` is true where something took effect.

A step is a call of a program that changes something, a change of a file, or a request to an API server. It is refused,
or carried out without the module learning of it. What there is before and after is compared.
"""

from __future__ import annotations

import copy
import dataclasses
import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common import atomic_write
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from gpu_simulator.state import store

from tests.unit.option_fuzz.subjects import MODULES, SUBJECTS, Bench, Ran, Subject, run
from tests.unit.state.state_host import StateHost

READS = {
    "nvidia-smi": ("-q", "-L", "-lgi", "-lci", "-lgip", "-lgipp", "-lcip", "-lcipp"),
    "systemctl": ("show", "daemon-reload"),
    "apt-get": ("--simulate", "--download-only", "update"),
    "dnf": ("--assumeno", "makecache"),
    "scontrol": ("show",),
    "modprobe": (),
    "scancel": (),
}
"""By program that can change something, the arguments with which it does not."""

FILE_STEPS = ("replace", "rename", "unlink", "rmdir")
FACTS = {
    "cuda_facts",
    "fabric_facts",
    "gpu_health",
    "host_facts",
    "managed_facts",
    "nvidia_smi_facts",
    "report_facts",
}
"""They change nothing, but for the history and the evidence of gpu_health, which are no change."""

IN_DOUBT = ("package_transaction (dnf)",)
"""Modules that take a failed call for one that may have begun."""

NO_CHANGE = ("run", "gpus/run", "resets.json")
"""Caches of a run."""

_SIMULATION = Path(store.state_path("gpus")).parent

REFUSED, UNKNOWN = "refused", "carried out, and not known"


@dataclass
class Steps:
    """The steps of a run. The one with this number fails, and with `lasts` all that follow it."""

    number: int = 0
    kind: str = REFUSED
    lasts: bool = False
    seen: list[str] = field(default_factory=list)
    effects: int = 0
    """How many took effect."""

    def strikes(self, step: str, is_atomic: bool = False) -> bool:
        """Count a step: whether it fails. An atomic one that fails has done nothing."""
        self.seen.append(step)
        place = len(self.seen)
        struck = bool(self.number) and (place == self.number or (self.lasts and place > self.number))
        self.effects += not struck or (self.kind == UNKNOWN and not is_atomic)
        return struck


def _is_change(command: Sequence[str]) -> bool:
    program = Path(command[0]).name
    reads = READS.get(program)
    return reads is not None and not any(word.startswith("--query") or word in reads for word in command[1:])


def _with_steps(subject: Subject, steps: Steps) -> tuple[Subject, list[Bench]]:
    """The module on a host whose steps are counted and fail; and the host, once it was made."""
    benches: list[Bench] = []

    def make(root: Path) -> Bench:
        bench = subject.make(root)
        really = bench._run

        def one(command: Sequence[str], timeout: float) -> CommandResult:
            return call(command, timeout, really)

        def call(
            command: Sequence[str], timeout: float, really: Callable[[Sequence[str], float], CommandResult]
        ) -> CommandResult:
            if not _is_change(command) or not steps.strikes(" ".join(command)):
                return really(command, timeout)
            if steps.kind == REFUSED:
                return CommandResult(tuple(command), 4, b"Insufficient Permissions\n", b"", 0.1)
            really(command, timeout)
            return CommandResult(tuple(command), None, b"", b"", timeout, timed_out=True)

        bench._run = one  # type: ignore[method-assign]
        if isinstance(bench.gpus, StateHost):
            units = bench.gpus.units
            calls = units.run
            units.run = lambda commands, timeout: [  # type: ignore[method-assign]
                call(command, timeout, lambda words, limit: calls([words], limit)[0]) for command in commands
            ]
        benches[:] = [bench, copy.deepcopy(Bench(root, results=bench.results))]
        return bench

    def patch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        subject.patch(bench, monkeypatch)
        for name in FILE_STEPS:
            monkeypatch.setattr(os, name, _file_step(getattr(os, name), name, bench.root, steps))
        if subject.name == "kubernetes_evict":
            _patch_requests(monkeypatch, steps)

    return dataclasses.replace(subject, make=make, patch=patch), benches


def _file_step(really: Callable[..., Any], name: str, root: Path, steps: Steps) -> Callable[..., Any]:
    def change(*paths: Any, **options: Any) -> Any:
        path = str(paths[-1] if name in ("replace", "rename") else paths[0])
        if _is_of_the_host(path, root, options) and steps.strikes(f"{name} {path}", is_atomic=True):
            raise OSError(errno.EIO, "Input/output error", path)
        return really(*paths, **options)

    return change


def _is_of_the_host(text: str, root: Path, options: Mapping[str, Any]) -> bool:
    """Whether a module changes it, and not the test, the simulator or a cache of a run."""
    path = Path(text)
    if "dir_fd" in options or not path.is_relative_to(root) or path.name.startswith(atomic_write.PREFIX):
        return False
    return not any(path.is_relative_to(root / place) for place in (*NO_CHANGE, "tmp", _SIMULATION))


def _patch_requests(monkeypatch: pytest.MonkeyPatch, steps: Steps) -> None:
    """An API server with three pods, which are evicted."""

    def send(method: str, path: str, _query: Mapping[str, str], _body: Mapping[str, Any] | None) -> tuple[int, str]:
        if method == "GET":
            owner = [{"kind": "Job"}]
            pods = [
                {"metadata": {"name": name, "namespace": "ml", "uid": name, "ownerReferences": owner}, "spec": {}}
                for name in ("a", "b", "c")
            ]
            return 200, str({"items": pods} if path == "/api/v1/pods" else {}).replace("'", '"')
        if not steps.strikes(f"{method} {path}"):
            return 201, "{}"
        if steps.kind == REFUSED:
            return 401, '{"message": "Unauthorized"}'
        raise MODULES["kubernetes_evict"].ChangeError("the API server did not respond")

    monkeypatch.setattr(MODULES["kubernetes_evict"], "connect", lambda _module, _timeout: send)


def _is_different(ran: Ran, benches: Sequence[Bench]) -> bool:
    """Whether the host is another one after the run; caches of a run, and directories, do not count."""
    root = ran.bench.root
    bench, at_first = benches

    def shown(contents: Mapping[str, Any]) -> dict[str, Any]:
        return {
            path: entry
            for path, entry in contents.items()
            if not (stat.S_ISDIR(entry[0]) or path.endswith("~"))
            and not any(Path(path).is_relative_to(root / place) for place in NO_CHANGE)
        }

    return shown(ran.before) != shown(ran.after) or bench.results != at_first.results


def _restarted(bench: Bench) -> bool:
    """Whether a unit was stopped, started or restarted."""
    host = bench.gpus
    return isinstance(host, StateHost) and any(not line.startswith("daemon-reload") for line in host.units.log)


CASES = [
    pytest.param(subject, options, id=f"{subject} {number}")
    for subject in SUBJECTS
    if subject.name not in FACTS
    for number, options in enumerate(subject.bases)
]


@pytest.mark.parametrize(("subject", "options"), CASES)
def test_changed_is_true_where_something_took_effect(
    tmp_path: Path, subject: Subject, options: Mapping[str, Any]
) -> None:
    whole = Steps()
    found, benches = _with_steps(subject, whole)
    ran = run(found, tmp_path, options, check=False)
    assert ran.escaped is None and not ran.result.get("failed"), ran.result
    for number, step in _of_each_kind(whole.seen):
        is_atomic = step.startswith(FILE_STEPS)
        for kind, lasts in ((REFUSED, False), (REFUSED, True), *(() if is_atomic else ((UNKNOWN, False),))):
            steps = Steps(number, kind, lasts)
            found, benches = _with_steps(subject, steps)
            ran = run(found, tmp_path, options, check=False)
            where = f"{step} is {kind}{', and all that follows' if lasts else ''}: {ran.result.get('msg')}"
            assert ran.escaped is None, where
            # The API server keeps no pods; what it was asked for is what took effect.
            if _is_different(ran, benches) or (subject.name == "kubernetes_evict" and steps.effects):
                assert ran.result.get("changed", False), where
            elif not steps.effects and not _restarted(benches[0]) and str(subject) not in IN_DOUBT:
                assert not ran.result.get("changed", False), where


def _of_each_kind(steps: Sequence[str]) -> list[tuple[int, str]]:
    """The numbers of the steps that are to fail: of the files of the boot program the first and the last."""
    numbered = list(enumerate(steps, 1))
    program = [number for number, step in numbered if step.endswith(".py")]
    return [(number, step) for number, step in numbered if number not in program[1:-1]]


def test_most_modules_have_steps_that_can_fail(tmp_path: Path) -> None:
    counts: dict[str, int] = {}
    for case in CASES:
        subject, options = case.values
        assert isinstance(subject, Subject)
        whole = Steps()
        run(_with_steps(subject, whole)[0], tmp_path, dict(options), check=False)  # type: ignore[call-overload]
        counts[subject.name] = max(len(whole.seen), counts.get(subject.name, 0))
    several = {name for name, count in counts.items() if count > 1}
    assert several >= {"mig_profile", "gpu_reset", "gpu_settings", "gpu_state", "slurm_node", "file_set"}, counts
    assert [name for name, count in counts.items() if not count] == ["systemd_reload"], counts
