# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A full or read-only /run: the lock fails with a hint, caches are optional, no temporary files remain."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change import context as change_context
from ansible_collections.gpu.fleet.plugins.module_utils._change import locked_clocks
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.lock import host_lock
from ansible_collections.gpu.fleet.plugins.module_utils._mig import run as mig_run
from ansible_collections.gpu.fleet.plugins.module_utils._state import boot as boot_entry
from ansible_collections.gpu.fleet.plugins.module_utils._state import plan as state_plan
from ansible_collections.gpu.fleet.plugins.modules import ecc_mode, gpu_settings, mig_profile
from gpu_simulator.state import store

from tests.conftest import ROOT
from tests.unit.module_runs import executable, run_module
from tests.unit.settings.settings_host import SettingsHost

MODULES: dict[str, tuple[Any, dict[str, Any]]] = {
    "ecc_mode": (ecc_mode, {"enabled": False}),
    "gpu_settings": (gpu_settings, {"gpu_clocks_mhz": 1200}),
    "mig_profile": (mig_profile, {"profiles": ["1g.5gb"]}),
}
Break = Callable[[str], None]


@pytest.fixture
def run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that replaces /run/gpu-fleet in all modules."""
    directory = tmp_path / "gpu-fleet"
    monkeypatch.setattr(change_context, "LOCK", str(directory / "lock"))
    monkeypatch.setattr(change_context, "blockers_of", lambda _gpus: ())
    monkeypatch.setattr(locked_clocks, "CACHE_FILE", str(directory / "clocks.json"))
    monkeypatch.setattr(mig_run, "CACHE_FILE", str(directory / "mig.json"))
    return directory


@pytest.fixture
def break_at(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Let one kind of call fail with ENOSPC: `pwrite`, `mkstemp`, `write` or `replace`."""

    def fail(*_arguments: Any, **_named: Any) -> Any:
        _raise(errno.ENOSPC)

    def write(descriptor: int, *_more: Any, **_named: Any) -> Any:
        os.close(descriptor)
        _raise(errno.ENOSPC)

    def arm(site: str) -> None:
        owner: Any = tempfile if site == "mkstemp" else os
        monkeypatch.setattr(owner, "fdopen" if site == "write" else site, write if site == "write" else fail)

    return arm


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("number", "needed"), [(errno.ENOSPC, "make room in"), (errno.EROFS, "writable")])
def test_without_a_lock_nothing_is_changed(
    run_directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, needed: str
) -> None:
    host = SettingsHost.with_gpus(run_directory.parent, "a100_40gb")
    before = host.snapshot()
    module, options = MODULES[name]
    smi = executable(host.root)
    with monkeypatch.context() as patch:
        patch.setattr(os, "makedirs", lambda *_arguments, **_named: _raise(number))
        result = run_module(module, monkeypatch, {"executable": str(smi), **options})
        check = run_module(module, monkeypatch, {"executable": str(smi), **options}, check=True)
    assert result["failed"] and result["changed"] is False and "exception" not in result.get("msg", "")
    assert "nothing was changed" in result["msg"] and needed in result["msg"] and str(run_directory) in result["msg"]
    assert host.state == before and check.get("failed", False) is False


def _raise(number: int) -> None:
    raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("site", ["pwrite", "mkstemp", "write", "replace"])
def test_without_room_for_caches_the_change_is_made(
    run_directory: Path, break_at: Break, monkeypatch: pytest.MonkeyPatch, name: str, site: str
) -> None:
    host = SettingsHost.with_gpus(run_directory.parent, "a100_40gb")
    module, options = MODULES[name]
    if name == "mig_profile":
        host.change(0, mig_mode={"current": True, "pending": True})
    arguments = {"executable": str(executable(host.root)), **options}
    break_at(site)
    result = run_module(module, monkeypatch, arguments)
    assert result.get("failed", False) is False and result["changed"] is True, result.get("msg")
    assert not [path for path in run_directory.iterdir() if path.name.startswith((".gpu-fleet-", "tmp"))]


def test_what_cannot_be_written_does_not_stay_as_it_was(
    tmp_path: Path, run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locked clocks are known only from the cache, so a stale one would be trusted."""
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
    program = str(executable(host.root))
    run_module(gpu_settings, monkeypatch, {"executable": program, "gpu_clocks_mhz": 1300})
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", lambda *_arguments, **_named: _raise(errno.ENOSPC))
        assert run_module(gpu_settings, monkeypatch, {"executable": program, "gpu_clocks_mhz": 1200})["changed"]
    back = run_module(gpu_settings, monkeypatch, {"executable": program, "gpu_clocks_mhz": 1300})
    assert back["changed"] is True and host.there()["gpu_clocks_mhz"] == "1300"


def test_what_cannot_be_invalidated_is_refused_before_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BootCache(str(tmp_path / "cache" / "clocks.json"))
    cache.put(("clock",), None, ("1200",))
    monkeypatch.setattr(tempfile, "mkstemp", lambda *_arguments, **_named: _raise(errno.EROFS))
    monkeypatch.setattr(os, "unlink", lambda *_arguments, **_named: _raise(errno.EROFS))
    with pytest.raises(ChangeError, match=r"clocks\.json cannot be written or removed"):
        cache.invalidate(("clock",))


def test_a_lock_that_the_file_system_does_not_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_arguments: _raise(errno.ENOLCK))
    with pytest.raises(ChangeError, match="cannot lock"), host_lock(str(tmp_path / "lock"), 0):
        pass


def test_the_boot_program_states_what_to_do(
    tmp_path: Path, run_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
    uuid = host.call("--query-gpu=uuid", "--format=csv,noheader")[0].strip()
    gpu = state_plan.PlannedGpu(uuid, settings={"accounting_mode": True})
    plan = tmp_path / "plan.json"
    plan.write_text(state_plan.render(state_plan.StatePlan(str(executable(host.root)), gpus=(gpu,))))
    monkeypatch.setattr(os, "makedirs", lambda *_arguments, **_named: _raise(errno.EROFS))
    assert boot_entry.main([str(plan)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "FAILED" in line]
    assert "Read-only file system" in line and f"make {run_directory} writable" in line
    assert host.there()["accounting_mode"] == "disabled"


_ON_A_REAL_FILE_SYSTEM = """
mount -t tmpfs -o "$1" gpu-fleet /run/gpu-fleet
[ "$1" = ro ] || dd if=/dev/zero of=/run/gpu-fleet/filler bs=1k count=64 2>/dev/null
printf '%s' "$2" | "$3" -m tests.unit.settings.run_module_alone
status=$?
ls -A /run/gpu-fleet >&2
exit $status
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a full or read-only /run takes root")
@pytest.mark.parametrize(("mounted", "works"), [("size=4k,nr_inodes=8", True), ("ro", False)])
@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("mig_profile", {"profiles": ["1g.18gb"]}),
        ("gpu_settings", {"power_limit_w": 500}),
        ("ecc_mode", {"enabled": False}),
    ],
)
def test_on_a_real_file_system_that_is_full_or_read_only(
    tmp_path: Path, module: str, options: dict[str, Any], mounted: str, works: bool
) -> None:
    description: Any = {"driver_version": "580.159.04", "virtualization": "None", "gpus": [{"model": "h200"}]}
    store.initialise(description, root=str(tmp_path), device_nodes=True)
    request = json.dumps({"module": module, "options": {"executable": str(executable(tmp_path)), **options}})
    Path("/run/gpu-fleet").mkdir(mode=0o700, exist_ok=True)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _ON_A_REAL_FILE_SYSTEM, "sh", mounted, request, sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result.get("failed", False) is not works, result.get("msg")
    assert works or "cannot open the lock file /run/gpu-fleet/lock: Read-only file system" in result["msg"]
    assert result["changed"] is works
    # No temporary file is left, nor a cache that was cut off.
    assert set(done.stderr.split()) <= ({"lock", "filler"} if works else set()), done.stderr
