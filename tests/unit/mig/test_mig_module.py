# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it: options, documented results, concurrent runs, and a killed run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.lock import host_lock
from ansible_collections.gpu.fleet.plugins.module_utils._mig.cache_keys import TABLES
from ansible_collections.gpu.fleet.plugins.modules import mig_profile

from tests.conftest import COLLECTIONS
from tests.unit.mig.mig_host import RunModule, SimulatedHost, names
from tests.unit.module_runs import COMMON, check_documented, executable


def test_results_are_as_documented(tmp_path: Path, run_module: RunModule) -> None:
    documented = yaml.safe_load(mig_profile.RETURN)
    host = SimulatedHost.make(tmp_path, "h200", "t4", mig=False)
    layout = ["3g.71gb", "1c.2g.35gb", "1c.2g.35gb"]
    results = [
        run_module(host, check=True, gpus=["0"], profiles=layout),
        run_module(host, gpus=["0"], profiles=layout),
        run_module(host, gpus=["0"], profiles=layout),
        run_module(host, gpus=["0"], profiles=["1g.18gb"]),
        run_module(host, profiles=["1g.18gb"]),
        run_module(host, profiles=["1g.18gb"], on_unsupported="skip"),
        run_module(host, gpus=["0"], profiles=["3g.71gb"] * 3),
    ]
    assert [result.get("failed", False) for result in results] == [False, False, False, False, True, False, True]
    assert [result["changed"] for result in results] == [True, True, False, True, False, False, False]
    for result in results:
        check_documented({key: item for key, item in result.items() if key not in COMMON}, documented, "result")
    filled = {key for result in results for gpu in result["gpus"] for key, item in gpu.items() if item}
    assert {"instances", "kept", "destroyed", "created"} <= filled


def test_documented_options_are_those_of_the_module() -> None:
    documented = yaml.safe_load(mig_profile.DOCUMENTATION)["options"]
    shared = {"executable"}
    assert set(documented) == set(mig_profile.ARGUMENT_SPEC) - shared
    for name, option in documented.items():
        spec = mig_profile.ARGUMENT_SPEC[name]
        assert (option["type"], option.get("default"), option.get("choices"), option.get("elements")) == (
            spec["type"],
            spec.get("default"),
            spec.get("choices"),
            spec.get("elements"),
        ), name


@pytest.mark.parametrize("place", range(7))
def test_examples_work(tmp_path: Path, run_module: RunModule, place: int) -> None:
    options = yaml.safe_load(mig_profile.EXAMPLES)[place]["gpu.fleet.mig_profile"]
    host = SimulatedHost.make(tmp_path, "h200", "h200", mig=False)
    if "config" in options:
        options["config"] = yaml.safe_load((Path(__file__).parent / "fixtures" / "mig-parted.yaml").read_text())
    result = run_module(host, **options)
    assert not result.get("failed"), result["msg"]
    assert run_module(host, **options)["changed"] is False


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"profiles": [], "layouts": []}, "mutually exclusive"),
        ({"profiles": [], "config": {}}, "mutually exclusive"),
        ({"selected": "x"}, "config"),
        ({"enabled": False, "profiles": ["1g.18gb"]}, "profiles need MIG mode"),
        ({"gpus": ["9"], "profiles": []}, "no GPU matches '9'"),
        ({"gpus": ["GPU-nonsense"], "profiles": []}, "no GPU matches"),
        ({"executable": "/nonexistent/nvidia-smi"}, "No such file"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, run_module: RunModule, options: Any, reported: str) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    before = host.snapshot()
    result = run_module(host, **options)
    assert result["failed"] and reported in result["msg"] and host.state == before


def test_a_hanging_nvidia_smi_is_ended(tmp_path: Path, run_module: RunModule) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    hanging = tmp_path / "hanging-smi"
    hanging.write_text("#!/bin/sh\nsleep 60\n")
    hanging.chmod(0o755)
    started = time.monotonic()
    result = run_module(host, executable=str(hanging), timeout=0.3, profiles=[])
    assert result["failed"] and "did not respond within" in result["msg"]
    assert time.monotonic() - started < 10


def test_the_lock_keeps_others_out(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "mig.lock")
    with host_lock(path, 1):
        with pytest.raises(ChangeError, match=f"PID {os.getpid()}"), host_lock(path, 0.3):
            pass
        waits: list[float] = []

        def give_up_waiting(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) > 3:
                raise TimeoutError

        with pytest.raises(TimeoutError), host_lock(path, 100, give_up_waiting):
            pass
    with host_lock(path, 0):
        pass


def test_without_rights_the_lock_states_what_is_needed(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ChangeError, match="cannot open the lock file"), host_lock(str(blocked / "mig.lock"), 0):
        pass


def _start(host: SimulatedHost, **options: Any) -> subprocess.Popen[str]:
    """Start the module as a separate process."""
    program = (
        "import sys, json\n"
        "from ansible.module_utils.testing import patch_module_args\n"
        "from ansible_collections.gpu.fleet.plugins.module_utils._change import context as change_context\n"
        "from ansible_collections.gpu.fleet.plugins.module_utils._mig import run as mig_run\n"
        "from ansible_collections.gpu.fleet.plugins.modules import mig_profile\n"
        "change_context.LOCK, mig_run.CACHE_FILE = sys.argv[1:3]\n"
        "with patch_module_args(json.loads(sys.argv[3])):\n"
        "    mig_profile.main()\n"
    )
    arguments = {"executable": str(executable(host.root)), **options}
    run = host.root / "run"
    return subprocess.Popen(
        [sys.executable, "-c", program, run / "mig.lock", run / "mig.json", json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": str(COLLECTIONS)},
        stdout=subprocess.PIPE,
        text=True,
    )


def _calls(host: SimulatedHost) -> list[str]:
    """The calls of nvidia-smi that are running on the host, also those that have just been forked."""
    running = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            running.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [call for call in running if str(host.root) in call]


def test_two_runs_at_once_end_in_one_of_both_layouts(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    layouts = [{"1g.18gb": 7}, {"3g.71gb": 2}]
    processes = [_start(host, profiles=profiles) for profiles in layouts]
    results = [json.loads(process.communicate(timeout=600)[0]) for process in processes]
    assert not any(result.get("failed") for result in results), results
    assert names(host.layout()) in layouts


@pytest.mark.parametrize("seconds", [0.25, 0.5, 0.8])
def test_a_run_that_was_killed_is_finished_by_the_next(tmp_path: Path, run_module: RunModule, seconds: float) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles={"1g.18gb": 7})
    process = _start(host, profiles=["3g.71gb", "2g.35gb", "1g.18gb"])
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    # The call that it had begun goes on without it, on a busy machine for seconds.
    while _calls(host):
        time.sleep(0.05)
    result = run_module(host, profiles=["3g.71gb", "2g.35gb", "1g.18gb"])
    assert not result.get("failed"), result["msg"]
    assert names(host.layout()) == {"3g.71gb": 1, "2g.35gb": 1, "1g.18gb": 1}
    assert run_module(host, profiles=["3g.71gb", "2g.35gb", "1g.18gb"])["changed"] is False


def test_cache_has_only_what_still_holds(tmp_path: Path) -> None:
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("one\n")
    path = tmp_path / "run" / "mig.json"
    cache = BootCache(str(path), boot_id_path=str(boot_id))
    cache.put(TABLES, ["key", (1, 2)], ("profiles", "places"))
    assert cache.get(TABLES, ["key", [1, 2]]) == ("profiles", "places")
    assert cache.get(TABLES, ["other"]) is None
    assert cache.get((*TABLES, "-L"), ["key", [1, 2]]) is None
    boot_id.write_text("two\n")
    assert cache.get(TABLES, ["key", [1, 2]]) is None
    boot_id.write_text("one\n")
    cache.invalidate(TABLES[:1])
    assert cache.get(TABLES, ["key", [1, 2]]) is None
    assert cache.get(TABLES[1:], ["key", [1, 2]]) == ("places",)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"-L": 7}', '{"-L": {"key": null}}', "\udcff"])
def test_damaged_cache_is_empty(tmp_path: Path, content: str) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    first = host.run(profiles=["1g.18gb"])
    (tmp_path / "run" / "mig.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    again = host.run(profiles=["1g.18gb"])
    assert again.error is None and again.changes == []
    assert again.result["gpus"][0]["instances"] == first.result["gpus"][0]["instances"]


def test_cache_does_not_hide_what_another_hand_did(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles=["3g.71gb:0", "1g.18gb:4"])
    host.run(profiles=["3g.71gb:0", "1g.18gb:4"])
    for command in (("-dci", "-gi", "1"), ("-gi", "1", "-cci", "0,0")):
        assert host.call("mig", "-i", "0", *command)[1] == 0
    run = host.run(profiles=["3g.71gb:0", "1g.18gb:4"])
    assert run.result["changed"] is True and ("3g.71gb", 0, (3,)) in host.layout()


@pytest.mark.parametrize("check", [False, True])
def test_a_damaged_cache_is_read_around_in_check_mode_too(tmp_path: Path, check: bool) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    assert host.run(profiles=["1g.18gb"]).error is None
    path = tmp_path / "run" / "mig.json"
    entries = json.loads(path.read_text())
    assert any("1g.18gb" in entry["text"] for entry in entries.values())
    damaged = {name: {**entry, "text": entry["text"][: len(entry["text"]) // 2]} for name, entry in entries.items()}
    path.write_text(json.dumps(damaged))
    run = host.run(check=check, profiles=["1g.18gb", "2g.35gb"])
    assert (run.error, run.result["changed"]) == (None, True)
