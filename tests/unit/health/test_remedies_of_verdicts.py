# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each error states what to do: problems of GPUs, failures of nvidia-smi, errors of the operating system."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.os_errors import advice
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import failures, health
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import RetryPolicy, Smi
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.remedies import REMEDIES
from ansible_collections.gpu.fleet.plugins.modules import nvidia_smi_facts
from gpu_simulator.state import store

from tests.unit.faults import result
from tests.unit.state.state_host import StateHost, in_this_process

LOST = "Unable to determine the device handle for GPU1: GPU is lost.  Reboot the system to recover this GPU"


def test_each_problem_and_each_reason_has_a_remedy() -> None:
    documented = yaml.safe_load(nvidia_smi_facts.RETURN)["ansible_facts"]["contains"]["nvidia_smi"]["contains"]
    reasons = set(re.findall(r"V\((\w+)\)", " ".join(documented["reason"]["description"])))
    problems = {code for code, _test, _message in health._RULES}
    problems |= {"gpu_missing", "gpu_unused", "driver_library_mismatch"}
    # A host that keeps no GPU for itself has no problem.
    assert (problems | reasons) - {"passed_through", "excluded"} == set(REMEDIES)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (
            result(("-q", "-x"), 255, "Killed by the watchdog"),
            "exit status 255); run nvidia-smi on the host, and look for",
        ),
        (
            result(("-q", "-x"), 9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"),
            "see why modprobe",
        ),
        (result(("-q", "-x"), 15, LOST), "check its power, its seat"),
        (result(("-q", "-x"), 4, "Insufficient Permissions"), "this needs root (become: true)"),
    ],
)
def test_a_failed_reading_states_what_to_do(reply: object, expected: str) -> None:
    smi = Smi("nvidia-smi", RetryPolicy(retries=0), run=lambda *_: [reply])
    with pytest.raises(ChangeError) as failure:
        smi.document()
    assert expected in str(failure.value)
    assert "no <nvidia_smi_log>" not in str(failure.value)


@pytest.mark.parametrize("declared", [{"persistence_mode": True}, {"ecc": True}, {"mig": {"3g.71gb": 1}}], ids=str)
def test_gpu_state_reports_a_lost_gpu_as_the_facts_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: dict[str, Any]
) -> None:
    host = StateHost.with_gpus(tmp_path, "h200", "h200")
    with store.transaction(str(host.root)) as state:
        state["gpus"][1]["health"] = "lost"
    with in_this_process(monkeypatch, host):
        error = host.state_run(**declared).error
    assert error is not None
    assert "GPU 1 does not respond: GPU is lost" in error and "<" not in error
    assert error.endswith(REMEDIES["gpu_lost"])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "; make room there (df -h, df -i), then run again"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "; make room there (df -h, df -i), then run again"),
        (OSError(errno.EROFS, "Read-only file system"), "; mount it writable, then run again"),
        (PermissionError(errno.EACCES, "Permission denied"), "; this needs root (become: true)"),
        (OSError("timed out"), ""),
        (UnicodeError("surrogates not allowed"), ""),
    ],
)
def test_an_error_of_the_operating_system_states_what_to_do(
    error: Exception, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert advice(error) == expected


def test_root_is_not_advised_to_become_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "become" not in advice(PermissionError(errno.EPERM, "Operation not permitted"))


def test_reasons_are_found_in_the_output() -> None:
    assert failures.reason_in(LOST) == "gpu_lost"
    assert failures.reason_in("Killed") is None
