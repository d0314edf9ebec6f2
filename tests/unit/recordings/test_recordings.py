# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of modules on real GPU hosts, in check mode: RETURN documents them, and the modules still return them.

A recording has the output of nvidia-smi. Other sources of results (installed programs, the PCI bus, processes that hold
device files) are not recorded: modules that use them are only compared with their documentation.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._change import context as change_context
from ansible_collections.gpu.fleet.plugins.module_utils._change import locked_clocks
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._ecc import run as ecc_run
from ansible_collections.gpu.fleet.plugins.module_utils._mig import run as mig_run
from ansible_collections.gpu.fleet.plugins.module_utils._state import run as state_run
from ansible_collections.gpu.fleet.plugins.modules import gpu_state

from tests.unit.module_runs import check_documented, disagreements, run_module
from tests.unit.nvidia_smi.facts_support import Replay
from tests.unit.recordings.record import describe, plain, replace_identifiers
from tests.unit.recordings.recording import DIRECTORY, Call, Recording, dump, load, read

NAMES = sorted(path.stem for path in DIRECTORY.glob("*.json"))
RECORDINGS = {name: load(name) for name in NAMES}

REPLAYED = ("mig_profile", "ecc_mode", "gpu_settings", "gpu_state")
"""Modules whose results depend only on nvidia-smi, and on the units of a host, of which the recorded ones had none."""

NEWER = {
    # The results of this one were recorded below the level of Ansible's module.
    "h200x4-requests-580.159.04": {"diff", "evidence", "failed", "gpus_changed", "interrupts", "mig.profiles"},
    "h200x4-facts-580.159.04": {
        "nvidia_smi.timestamp",
        "nvidia_smi.gpus.nvlinks.remote_pci_bus_id",
        "nvidia_smi.gpus.nvlinks.remote_link",
        "nvidia_smi.gpus.nvlinks.error_counters",
    },
    "h100x2-results-580.159.04": {"evidence_due"},
}
"""Keys that results have only since a recording was made, by recording; `list.key` in the rows of a list."""

NEWER_THAN_ALL = {
    "fabric_facts": tuple(
        f"ansible_facts.nvlink_fabric.{name}"
        for name in ("missing_modules", "imex_in_pods", "imex_nodes_exist", "ofed", "peermem")
    ),
    "gpu_state": ("mps", "evidence_due"),
    "gpu_health": ("gpus.fabric_cluster_uuid", "gpus.fabric_clique_id"),
    "report_facts": ("host.gpus.fabric_cluster_uuid", "host.gpus.fabric_clique_id", "host.imex"),
}
"""The same of all recordings but the latest ones, by module and as paths."""

NEWEST = {
    "nvidia_smi_facts": tuple(f"ansible_facts.nvidia_smi.pci_gpus.{name}" for name in ("passed_through", "excluded")),
    "gpu_health": ("repaired",),
}
"""The same of all recordings but the last one."""

LATEST = ("h100x2-results-580.159.04", "h200x2-results-580.159.04")

ROWS = {"ecc": "ecc_mode", "settings": "gpu_settings", "mig": "mig_profile"}
"""Lists of gpu_state whose rows are documented by other modules."""

OWN_FILES = ("/usr/", "/etc/systemd/")
"""Where gpu_state installs this collection's own files, which change with its version, not with the host."""


def _cases(modules: tuple[str, ...] = ()) -> list[Any]:
    return [
        pytest.param(name, module, entry, id=f"{name} {module} {json.dumps(entry['request'])}")
        for name, recording in RECORDINGS.items()
        for module, entries in recording.results.items()
        for entry in entries
        if not modules or module in modules
    ]


def _module(name: str) -> Any:
    return importlib.import_module(f"ansible_collections.gpu.fleet.plugins.modules.{name}")


def _no_units(commands: Any, _timeout: float) -> list[CommandResult]:
    """A systemd that has none of the queried units."""
    return [CommandResult(tuple(command), 0, b"", b"", 0.01) for command in commands]


def _without(value: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    """A copy without these keys; `list.key` names a key in the rows of a list."""
    left = {key: item for key, item in value.items() if key not in keys}
    for key in keys:
        name, _dot, inner = key.partition(".")
        if inner and left.get(name):
            left[name] = [_without(row, {inner}) for row in left[name]]
    return left


def _comparable(result: dict[str, Any]) -> dict[str, Any]:
    """A result with its warnings, and without names and content of this collection's own files."""
    result = {key: value for key, value in result.items() if key not in NEWER_THAN_ALL["gpu_state"]}
    if "service" not in result:
        return {"warnings": [], **result}
    files = [path for path in result["service"]["files"] if not path.startswith(OWN_FILES)]
    left = {"warnings": [], **result, "service": {**result["service"], "files": files}}
    if "diff" in result:
        left["diff"] = [part for part in result["diff"] if not part["before_header"].startswith(OWN_FILES)]
    return left


@pytest.mark.parametrize(("name", "module", "entry"), _cases())
def test_return_documents_what_a_real_host_gave(name: str, module: str, entry: dict[str, Any]) -> None:
    documented = yaml.safe_load(_module(module).RETURN)
    newer = NEWER.get(name, set())
    lacking = (*NEWER_THAN_ALL.get(module, ()), *NEWEST.get(module, ())) if name not in LATEST else ()
    for path in lacking or (NEWEST.get(module, ()) if name != LATEST[-1] else ()):
        *outer, key = path.split(".")
        del functools.reduce(lambda part, each: part[each]["contains"], outer, documented)[key]
    if "ansible_facts" in documented:
        assert set(entry["result"]) - {"changed", "missing_users", "prediction", "gpu_operator"} == {"ansible_facts"}
        for facts, value in entry["result"]["ansible_facts"].items():
            found = disagreements(documented["ansible_facts"]["contains"][facts], value, facts)
            missing = {f"{key}: documented, but not returned" for key in newer}
            assert [line for line in found if line not in missing] == []
        return
    for key, owner in ROWS.items() if module == "gpu_state" else ():
        documented[key]["contains"] = _without(
            yaml.safe_load(_module(owner).RETURN)["gpus"]["contains"],
            {each.partition(".")[2] for each in newer if each.startswith(f"{key}.")},
        )
    always = {"changed", "failed", "msg", "warnings", "diff", "exception"}
    result = {key: value for key, value in entry["result"].items() if key not in always}
    if entry["result"].get("msg"):
        # A refusal before the GPUs were read has only a message.
        result = {key: value for key, value in result.items() if value}
        documented = {key: value for key, value in documented.items() if key in result}
    check_documented(result, {key: value for key, value in documented.items() if key not in always | newer}, module)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        (name, entry)
        for name, recording in RECORDINGS.items()
        for entry in recording.results.get("host_facts", ())
        if "gpu_state" in entry["request"]
    ],
)
def test_the_prediction_of_host_facts_is_what_gpu_state_gave_in_check_mode(name: str, entry: dict[str, Any]) -> None:
    (expected,) = (
        one["result"]
        for one in RECORDINGS[name].results["gpu_state"]
        if one["request"] == entry["request"]["gpu_state"]
    )
    assert expected["changed"]
    # It shows no diff: what is applied later does.
    assert {"warnings": [], **entry["result"]["prediction"]} == {"warnings": [], **_without(expected, {"diff"})}


@pytest.mark.parametrize(("name", "module", "entry"), _cases(REPLAYED))
def test_a_module_returns_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, entry: dict[str, Any]
) -> None:
    for owner in (ecc_run, mig_run, locked_clocks, state_run):
        monkeypatch.setattr(owner, "CACHE_FILE", str(tmp_path / f"{owner.__name__}.json"))
    # No process held the GPUs of the recorded host; those of this machine must not count.
    monkeypatch.setattr(change_context, "blockers_of", lambda _gpus: ())
    root = tmp_path / "root"
    programs = root / "usr" / "bin"
    programs.mkdir(parents=True)
    (programs / "python3.11").touch(mode=0o755)
    (programs / "python3").symlink_to("python3.11")

    def run_in_root(options: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
        systemd = Systemd(_no_units, str(root))
        return state_run.StateRun(options, check_mode, with_diff, systemd, str(root)).run()

    monkeypatch.setattr(gpu_state, "run", run_in_root)
    smi = Replay(tmp_path, RECORDINGS[name].replies())
    options = {"executable": str(smi.path), **entry["request"]}
    result = plain(run_module(_module(module), monkeypatch, options, check=True))
    again = json.loads(json.dumps(result).replace(str(smi.path), "nvidia-smi"))
    assert _without(_comparable(again), NEWER.get(name, set())) == _comparable(entry["result"])


def test_all_changing_modules_were_recorded() -> None:
    assert {module for recording in RECORDINGS.values() for module in recording.results} >= set(REPLAYED)


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_stored_as_dump_writes_it(name: str) -> None:
    text = (DIRECTORY / f"{name}.json").read_text(encoding="utf-8")
    assert dump(load(name)) == text
    assert read(json.loads(text)) == load(name)


def test_identical_output_is_stored_once() -> None:
    calls = (
        Call("-L", "GPU 0\n\n"),
        Call("-L -i 0", "GPU 0\n\n", milliseconds=3),
        Call("foo", stderr="GPU 0\n\n", rc=2, user="nobody", environment={"LC_ALL": "C"}, processes=1),
        Call("bar"),
    )
    recording = Recording("a host", {"gpus": []}, calls, {"/a": "GPU 0\n\n", "/b": "x"}, {"ecc_mode": []})
    document = json.loads(dump(recording))
    assert document["outputs"] == {"1": ["GPU 0", "", ""], "2": ["x"]}
    assert document["calls"][3] == {"arguments": "bar"}
    assert read(document) == recording


def test_replies_are_those_to_root() -> None:
    calls = (
        Call("-L", "to nobody", user="nobody"),
        Call("-L", "without libraries", environment={"LD_LIBRARY_PATH": "/nonexistent"}),
        Call("-L", "to root"),
        Call("-L", "later"),
    )
    assert Recording("a host", {}, calls).replies() == {"-L": {"out": "to root", "err": "", "rc": 0}}


@pytest.mark.parametrize("name", ["h200x1-facts", "h200x2", "h200x4-facts", "h200x4-requests"])
def test_the_host_is_described_from_its_document(name: str) -> None:
    recording = RECORDINGS[f"{name}-580.159.04"]
    assert describe(recording.output("-q -x")) == recording.host


def test_identifiers_are_replaced_throughout() -> None:
    uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    call = Call("-q -x", f"<serial>1650123456789</serial>\n<uuid>{uuid}</uuid>\n")
    recording = Recording("a host", {"gpus": [{"uuid": uuid, "serial": "1650123456789"}]}, (call,))
    replaced = read(json.loads(replace_identifiers(dump(recording))))
    assert replaced.host == {"gpus": [{"uuid": "GPU-5ee00000-0000-4000-8000-000000000000", "serial": "1655000000000"}]}
    assert replaced.calls[0].stdout == (
        "<serial>1655000000000</serial>\n<uuid>GPU-5ee00000-0000-4000-8000-000000000000</uuid>\n"
    )
