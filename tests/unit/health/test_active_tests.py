# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests on request: when they are run, and what is read from their outputs."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._health import run as health_run
from ansible_collections.gpu.fleet.plugins.module_utils._health.active_tests import (
    TOOLS,
    command,
    dcgm,
    nccl,
    nvbandwidth,
    run_tests,
    why_not,
)
from ansible_collections.gpu.fleet.plugins.module_utils._health.outcome import (
    CONFIGURATION,
    FAILED,
    UNKNOWN,
    WARNED,
    Outcome,
)
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
from gpu_simulator.control import dcgmi

from tests.unit.health.health_host import HealthHost
from tests.unit.health.simulated import DCGM_RUNS

PERSISTENCE = (
    "Persistence Mode: Persistence mode for GPU 0 is disabled. Enable persistence mode by running "
    '"nvidia-smi -i <gpuId> -pm 1 " as root.'
)


def document(*results: dict[str, Any], root: str = "DCGM Diagnostic", **test: Any) -> str:
    tests = [{"name": "memory", "results": list(results), **test}]
    return json.dumps({root: {"test_categories": [{"category": "Hardware", "tests": tests}]}})


def result(status: str, *severities: int, **fields: Any) -> dict[str, Any]:
    warnings = [{"warning": f"w{severity}", "error_severity": severity} for severity in severities]
    return {"status": status, **({"warnings": warnings} if warnings else {}), **fields}


DCGM: dict[str, tuple[str, tuple[Outcome, ...] | None]] = {
    # DCGM 4.2.3 with driver 580.82.09 on a real GB10; exit status 226.
    "4.2.3, persistence mode": (
        json.dumps(
            {
                "DCGM Diagnostic": {
                    "test_categories": [
                        {
                            "category": "Deployment",
                            "tests": [
                                {
                                    "name": "software",
                                    "results": [
                                        {
                                            "entity_group": "GPU",
                                            "entity_group_id": 1,
                                            "entity_id": 0,
                                            "status": "Fail",
                                            "warnings": [
                                                {
                                                    "error_category": 8,
                                                    "error_id": 29,
                                                    "error_severity": 5,
                                                    "warning": PERSISTENCE,
                                                }
                                            ],
                                        }
                                    ],
                                    "test_summary": {
                                        "status": "Fail",
                                        "info": ["SRAM Threshold checking was skipped."],
                                    },
                                }
                            ],
                        }
                    ]
                },
                "metadata": {"Driver Version Detected": "580.82.09", "version": "4.2.3"},
            }
        ),
        (Outcome(CONFIGURATION, f"software: {PERSISTENCE}"),),
    ),
    # DCGM 3 on a real T400: every test of level 3 is skipped.
    "3.x, skipped": (document(result("Skip", gpu_id="0"), root="DCGM GPU Diagnostic"), ()),
    "4.x, passed": (document(result("Pass", entity_group="GPU", entity_id=0), test_summary={"status": "Pass"}), ()),
    "not run": (document(result("Not Run")), ()),
    # The form of 2.x and 3.x, with and without GPUs.
    "3.x, GPUs as text": (
        document(result("Fail", gpu_ids="0,3"), root="DCGM GPU Diagnostic"),
        (Outcome(FAILED, "memory: Fail", 0), Outcome(FAILED, "memory: Fail", 3)),
    ),
    "host": (document(result("Warn"), root="DCGM GPU Diagnostic"), (Outcome(WARNED, "memory: Warn"),)),
    # 4.5.3: a warning is an object with a text only.
    "4.5.3": (
        document({"status": "Fail", "warnings": [{"warning": "bad"}]}, test_summary={"status": "Fail"}),
        (Outcome(FAILED, "memory: bad"),),
    ),
    "a text as warning": (document({"status": "Fail", "warnings": "bad"}), (Outcome(FAILED, "memory: bad"),)),
    "severities": (
        document(result("Fail", 5, 6, entity_id=1), result("Warn", 5, entity_id=1)),
        (Outcome(FAILED, "memory: w5; w6", 1), Outcome(CONFIGURATION, "memory: w5")),
    ),
    "another entity": (
        document(result("Fail", entity_group="Switch", entity_id=1)),
        (Outcome(FAILED, "memory: Fail"),),
    ),
    "summary only": (document(test_summary={"status": "Fail"}), (Outcome(FAILED, "memory: Fail"),)),
    "worse summary": (
        document(result("Pass"), test_summary={"status": "Fail"}),
        (Outcome(FAILED, "memory: Fail"),),
    ),
    "new status": (document(result("Aborted")), (Outcome(UNKNOWN, "memory: Aborted"),)),
    "no status": (document({"entity_id": 0}), (Outcome(UNKNOWN, "memory: None"),)),
    "lines before and after": (f"Successfully ran.\n{document(result('Pass'))}\ndone {{", ()),
    "another root": (document(result("Pass"), root="DCGM 5"), ()),
    "text": ("Error: unable to establish a connection to the specified host: localhost", None),
    "empty": ("", None),
    "broken": ('{"DCGM Diagnostic": {"test_categories": [', None),
    "no tests": (json.dumps({"DCGM Diagnostic": {"test_categories": []}}), None),
    "other types": (json.dumps({"DCGM Diagnostic": {"test_categories": [1, {"tests": {"a": 1}}]}}), None),
    "a list": ("[]", None),
}


@pytest.mark.parametrize("case", DCGM)
def test_dcgm(case: str) -> None:
    text, outcomes = DCGM[case]
    assert dcgm(text) == outcomes


# In the form of nvbandwidth 0.5 to 0.8; the numbers are made up.
NVBANDWIDTH = """nvbandwidth Version: v0.8
Built from Git version: v0.8

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.63     41.05

SUM host_to_device_memcpy_ce 96.68

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     54.20     55.10

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    390.11
 1    300.25       N/A

SUM device_to_device_memcpy_read_ce 690.36
"""

# Published outputs. README.md of nvbandwidth, https://github.com/NVIDIA/nvbandwidth: eight GPUs, and a diagonal of 0.00
# where versions from 0.2 on print N/A.
PUBLISHED = """Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
          0         1         2         3         4         5         6         7
0     26.03     25.94     25.97     26.00     26.19     25.95     26.00     25.97

Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
          0         1         2         3         4         5         6         7
0      0.00    276.07    276.36    276.14    276.29    276.48    276.55    276.33
1    276.19      0.00    276.29    276.29    276.57    276.48    276.38    276.24
2    276.33    276.29      0.00    276.38    276.50    276.50    276.29    276.31
3    276.19    276.62    276.24      0.00    276.29    276.60    276.29    276.55
4    276.03    276.55    276.45    276.76      0.00    276.45    276.36    276.62
5    276.17    276.57    276.19    276.50    276.31      0.00    276.31    276.15
6    274.89    276.41    276.38    276.67    276.41    276.26      0.00    276.33
7    276.12    276.45    276.12    276.36    276.00    276.57    276.45      0.00
"""
PUBLISHED_HOST = dict(enumerate((26.03, 25.94, 25.97, 26.00, 26.19, 25.95, 26.00, 25.97)))
PUBLISHED_PEER = dict(enumerate((276.07, 276.19, 276.29, 276.19, 276.03, 276.15, 274.89, 276.00)))
# A GH200 alone, by https://github.com/microsoft/superbenchmark, tests/data/nvbandwidth_results.log.
PUBLISHED_ALONE = """nvbandwidth Version: v0.6
Built from Git version: v0.6

CUDA Runtime Version: 12040
CUDA Driver Version: 12040
Driver Version: 550.54.15

Device 0: NVIDIA GH200 480GB (00000009:01:00)

Running host_to_all_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0
 0    370.13

SUM host_to_all_memcpy_ce 370.13

Waived:
Waived:
Running all_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0
 0    295.15

SUM all_to_host_memcpy_ce 295.15

NOTE: The reported results may not reflect the full capabilities of the platform.
Performance can vary with software drivers, hardware clocks, and system topology.
"""


@pytest.mark.parametrize(
    ("text", "host", "peer"),
    [
        (PUBLISHED, PUBLISHED_HOST, PUBLISHED_PEER),
        # No bandwidth at all between two GPUs is a finding, not the diagonal.
        (
            PUBLISHED.replace("0      0.00    276.07", "0      0.00      0.00"),
            PUBLISHED_HOST,
            {**PUBLISHED_PEER, 0: 0.0},
        ),
        (PUBLISHED_ALONE, {0: 295.15}, {}),
        (NVBANDWIDTH, {0: 54.20, 1: 41.05}, {0: 390.11, 1: 300.25}),
        (NVBANDWIDTH.partition("Running device_to_d")[0] + "Waived: \n", {0: 54.20, 1: 41.05}, {}),
        ("", {}, {}),
        ("Error: CUDA_ERROR_NO_DEVICE", {}, {}),
    ],
)
def test_nvbandwidth(text: str, host: dict[int, float], peer: dict[int, float]) -> None:
    assert nvbandwidth(text) == (host, peer)


# The end of the output of all_reduce_perf of nccl-tests 2; the numbers are made up.
NCCL = """ 17179869184  4294967296  float  sum  -1  62400  275.32  481.80  0  62380  275.40  481.96  0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 481.879
#
"""
# A published output: eight A100, by https://github.com/microsoft/superbenchmark, tests/data/nccl_allreduce.log.
PUBLISHED_NCCL = """# Using devices
#   Rank  0 Pid 112424 on localhost device  0 [0x00] A100-SXM4-40GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
hostname:3442:3442 [0] NCCL INFO Launch mode Parallel
           0             0   float     sum    35.20    0.00    0.00    N/A    34.05    0.00    0.00    N/A
  8589934592    2147483648   float     sum    63896  134.44  235.26    N/A    63959  134.30  235.03    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 68.4048
#
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PUBLISHED_NCCL, (68.4048, 0)),
        (NCCL, (481.879, 0)),
        (NCCL.replace(": 0 OK", ": 12 FAILED"), (481.879, 12)),
        ("", (None, 0)),
    ],
)
def test_nccl(text: str, found: tuple[float | None, int]) -> None:
    assert nccl(text) == found


# A program of the host can print anything: it ends within seconds, and is a number that JSON has, or none.
WORST = {
    "blank lines": "\n" * 200_000,
    "a test and blank lines": "Running device_to_device_memcpy_read_ce.\n" + "\n" * 200_000,
    "spaces": "Running a" + " " * 200_000 + "x",
    "one long row": "Running a.\n0" + " 1.0" * 50_000 + " x",
    "braces": '{"a":\n' * 50_000,
    "many digits": f"Running host_to_device_memcpy_ce.\n {'9' * 9_999} {'9' * 9_999}.0\n",
    "a huge number": f"# Avg bus bandwidth : {'9' * 400}\n# Out of bounds values : {'9' * 9_999} FAILED\n",
    "no number": "# Avg bus bandwidth : nan\n# Out of bounds values : -1\n",
    "no count of wrong values": "# Avg bus bandwidth : 481.8\n",
    "not ASCII": "# Avg bus bandwidth : \u0664\u0665\n",
}


@pytest.mark.parametrize("case", WORST)
@pytest.mark.parametrize("name", ["nccl", "nvbandwidth", "dcgm_1"])
def test_the_worst_that_a_program_can_print_is_no_result(name: str, case: str) -> None:
    (outcome,) = run_tests([name], facts(), ending(WORST[case])).outcomes
    assert outcome.kind == UNKNOWN and "no result" in outcome.text


def test_root_runs_no_program_that_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "all_reduce_perf"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (outcome,) = run_tests(["nccl"], facts(), ending(NCCL)).outcomes
    assert (outcome.kind, outcome.gpu) == (UNKNOWN, None)
    assert "nccl was not run: " in outcome.text and "is writable by others than root" in outcome.text


# When they are run


def facts(count: int = 2, **readings: Any) -> dict[str, Any]:
    gpu = {"processes": [], "mig_mode_current": "disabled", "name": "NVIDIA H200", **readings}
    return {"available": True, "gpus": [{**gpu, "index": index} for index in range(count)]}


@pytest.mark.parametrize(
    ("found", "name", "reason"),
    [
        (facts(), "dcgm_1", ""),
        (facts(), "nccl", ""),
        (facts(1), "nccl", "it needs two GPUs"),
        (facts(processes=None), "dcgm_1", "the processes of GPU 0 are unknown"),
        (
            facts(processes=[{"name": "python3", "pid": 7}]),
            "dcgm_2",
            "GPU 0 is in use by python3 (PID 7); run it when the jobs have ended",
        ),
        (facts(mig_mode_current="enabled"), "nvbandwidth", "it needs GPUs without MIG mode"),
        ({"available": False, "gpus": []}, "dcgm_1", "no GPU can be read"),
    ],
)
def test_a_test_disturbs_nobody(found: dict[str, Any], name: str, reason: str) -> None:
    assert why_not(name, found) == reason


def test_commands_are_lists_of_words() -> None:
    gpus = facts(8)["gpus"]
    assert [Path(command("nccl", gpus)[0]).name, *command("nccl", gpus)[-2:]] == ["all_reduce_perf", "-g", "8"]
    assert command("dcgm_3", gpus)[1:] == ("diag", "-r", "3", "-j")
    assert command("pytorch", H200["gpus"], "/opt/torch/bin/python") == (
        "/opt/torch/bin/python",
        "/usr/local/lib/gpu-fleet-workload/framework_test.py",
        "--framework=pytorch",
        f"--devices={H200['gpus'][0]['uuid']},{H200['gpus'][1]['uuid']}",
        "--timeout=300",
    )
    assert all(60 <= tool.seconds <= 7200 for tool in TOOLS.values())


def ending(text: str = "", rc: int | None = 0, **fields: Any) -> Callable[..., CommandResult]:
    return lambda argv, _limit: CommandResult(tuple(argv), rc, text.encode(), b"", 1.0, **fields)


ENDINGS: list[tuple[str, Callable[..., CommandResult], str]] = [
    (
        "dcgm_2",
        ending(rc=None, start_error=errno.ENOENT),
        "dcgm_2: it needs DCGM with its service nvidia-dcgm, which the role gpu.fleet.nvidia_dcgm",
    ),
    ("dcgm_2", ending(rc=None, timed_out=True), "dcgm_2: it did not end within 1200 s"),
    ("dcgm_1", ending("Host engine connection invalid/disconnected.", 255), "255): Host engine connection invalid"),
    ("nccl", ending("Test CUDA failure common.cu:892\n", 2), "no result (exit status 2): Test CUDA failure"),
    ("nccl", ending(NCCL, 1), "no result (exit status 1)"),
    ("nvbandwidth", ending(), "no result (exit status 0): it printed nothing"),
]


@pytest.mark.parametrize(("name", "run", "text"), ENDINGS)
def test_a_test_without_a_result_is_unknown(name: str, run: Callable[..., CommandResult], text: str) -> None:
    (outcome,) = run_tests([name], facts(), run).outcomes
    assert (outcome.kind, outcome.gpu) == (UNKNOWN, None)
    assert text in outcome.text


def test_results_of_several_tests() -> None:
    outputs = {"dcgmi": document(result("Fail", entity_id=9)), "nvbandwidth": NVBANDWIDTH, "all_reduce_perf": NCCL}
    ran: list[str] = []

    def run(argv: Any, _limit: float) -> CommandResult:
        ran.append(Path(argv[0]).name)
        return CommandResult(tuple(argv), 226 if ran[-1] == "dcgmi" else 0, outputs[ran[-1]].encode(), b"", 1.0)

    tested = run_tests(["dcgm_1", "nvbandwidth", "nccl", "dcgm_1"], facts(), run)
    assert ran == ["dcgmi", "nvbandwidth", "all_reduce_perf"]
    assert tested.outcomes == (Outcome(FAILED, "dcgm_1: memory: Fail"),), "a GPU that nvidia-smi does not list"
    assert tested.readings(None)["host_test_failed"] == "dcgm_1: memory: Fail"
    assert tested.readings(0) == {"test_failed": "", "host_bandwidth_gbps": 54.2, "peer_bandwidth_gbps": 390.11}
    assert tested.readings(None)["nccl_bandwidth_gbps"] is None, "of two GPUs it is no measure"
    assert run_tests(["nccl"], facts(8), run).readings(None)["nccl_bandwidth_gbps"] == 481.879
    wrong = NCCL.replace(": 0 OK", ": 12 FAILED")
    assert run_tests(["nccl"], facts(), ending(wrong)).outcomes == (
        Outcome(FAILED, "nccl: 12 values of the all-reduce are wrong"),
    )


@pytest.mark.parametrize(
    ("row", "model", "slow", "fast"),
    [
        ("host_bandwidth", "NVIDIA H200", 47.9, 48.0),
        ("peer_bandwidth", "NVIDIA A100-SXM4-80GB", 234.0, 235.0),
        ("nccl_bandwidth", "NVIDIA H100 80GB HBM3", 439.0, 440.0),
        ("nccl_bandwidth", "NVIDIA B200", 439.0, 440.0),
    ],
)
def test_thresholds_are_those_of_the_model(row: str, model: str, slow: float, fast: float) -> None:
    (found,) = (each for each in TABLE if each.id == row)
    assert found.holds(slow, model)
    assert not found.holds(fast, model)
    assert not found.holds(None, model)


@pytest.mark.parametrize("model", ["NVIDIA H200 NVL", "NVIDIA GB200", "Tesla T4", None])
def test_models_without_a_threshold(model: str | None) -> None:
    rows = [row for row in TABLE if row.id in ("peer_bandwidth", "nccl_bandwidth")]
    assert not any(row.holds(1.0, model) for row in rows)


# PyTorch: the output of the role's test on a real 2 x H200 host, torch 2.11.0

PYTORCH: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[1] / "workload" / "h200x2_output.json").read_text(encoding="utf-8")
)
# In the other order: that of PyTorch need not be nvidia-smi's.
H200 = facts()
for _gpu, _device in zip(H200["gpus"], reversed(PYTORCH["devices"]), strict=True):
    _gpu["uuid"] = f"GPU-{_device['uuid']}"
NAME = "pytorch: PyTorch 2.11.0+cu130"


def pytorch_output(device: dict[str, Any] | None = None, **changes: Any) -> str:
    """The output with changes, those of `device` in the first one."""
    first, second = PYTORCH["devices"]
    return json.dumps({**PYTORCH, "devices": [{**first, **(device or {})}, second], **changes})


def test_pytorch_that_computed_right_has_evidence() -> None:
    tested = run_tests(["pytorch"], H200, ending(f"a warning\n{pytorch_output()}\n"))
    assert tested.outcomes == ()
    assert tested.evidence == {
        "pytorch": "PyTorch 2.11.0+cu130, CUDA 13.0, cuDNN 9.19.0, NCCL 2.28.9: matrix products on 2 GPUs, "
        "0 of 1024 rows wrong; all-reduce over 2 GPUs by nccl right"
    }


PYTORCH_CASES: dict[str, tuple[str, tuple[Outcome, ...]]] = {
    "wrong numbers": (
        pytorch_output({"rows_wrong": 3}),
        (Outcome(FAILED, f"{NAME}: GPU 1: 3 of 512 rows of a matrix product are wrong", 1),),
    ),
    "error of a GPU": (
        pytorch_output({"rows_wrong": None, "error": "RuntimeError: out of memory"}),
        (Outcome(FAILED, f"{NAME}: GPU 1 cannot compute a matrix product: RuntimeError: out of memory", 1),),
    ),
    "no UUID": (
        pytorch_output({"rows_wrong": 3, "uuid": None}),
        (Outcome(FAILED, f"{NAME}: device 0: 3 of 512 rows of a matrix product are wrong"),),
    ),
    "wrong sum": (
        pytorch_output(all_reduce={**PYTORCH["all_reduce"], "correct": False}),
        (Outcome(FAILED, f"{NAME}: an all-reduce over 2 GPUs failed: the sum is wrong"),),
    ),
    "failed all-reduce": (
        pytorch_output(all_reduce={**PYTORCH["all_reduce"], "correct": False, "errors": ["no result in time"]}),
        (Outcome(FAILED, f"{NAME}: an all-reduce over 2 GPUs failed: no result in time"),),
    ),
    "fewer GPUs": (
        pytorch_output(devices=PYTORCH["devices"][:1], all_reduce=None),
        (Outcome(CONFIGURATION, f"{NAME} does not see GPU 0; see CUDA_VISIBLE_DEVICES"),),
    ),
    "no CUDA": (
        pytorch_output(unavailable="RuntimeError: no NVIDIA driver", devices=[]),
        (Outcome(CONFIGURATION, f"{NAME} cannot use CUDA: RuntimeError: no NVIDIA driver"),),
    ),
    "a build for the CPU": (
        pytorch_output(cuda=None, devices=[]),
        (Outcome(UNKNOWN, f"{NAME} is built without CUDA; name a Python with a build with CUDA"),),
    ),
    "no PyTorch": (
        json.dumps({"framework": "pytorch", "devices": [], "errors": ["ModuleNotFoundError: No module named 'torch'"]}),
        (
            Outcome(
                UNKNOWN,
                "pytorch: PyTorch cannot be imported (ModuleNotFoundError: No module named 'torch'); "
                "name a Python that has it",
            ),
        ),
    ),
}


@pytest.mark.parametrize("case", PYTORCH_CASES)
def test_pytorch(case: str) -> None:
    text, outcomes = PYTORCH_CASES[case]
    # The program exits with an error where something is wrong.
    assert run_tests(["pytorch"], H200, ending(text, 1)).outcomes == outcomes


def test_pytorch_without_its_program_names_the_role() -> None:
    text = "python3: can't open file '/usr/local/lib/gpu-fleet-workload/framework_test.py'"
    (outcome,) = run_tests(["pytorch"], H200, ending(text, 2)).outcomes
    assert (outcome.kind, outcome.gpu) == (UNKNOWN, None)
    assert "which the role gpu_workload installs, and a Python with PyTorch (option pytorch_python)" in outcome.text


# The module with the simulated dcgmi


@pytest.fixture(name="host")
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HealthHost:
    host = HealthHost(tmp_path, monkeypatch)

    def run(argv: Any, _limit: float) -> CommandResult:
        if Path(argv[0]).name != "dcgmi":
            return CommandResult(tuple(argv), 0, b"yes\n", b"", 0.0)
        printed: list[str] = []
        # The result of the module is taken from the built-in print.
        monkeypatch.setattr(dcgmi, "print", printed.append, raising=False)
        status = dcgmi.main(argv[1:], host.root)
        return CommandResult(tuple(argv), status, "\n".join(printed).encode(), b"", 0.0)

    monkeypatch.setattr(health_run, "run_program", run)
    return host


@pytest.mark.parametrize("case", DCGM_RUNS, ids=[case[3] or "passed" for case in DCGM_RUNS])
def test_the_module(case: tuple[list[str], str, str, str, str], host: HealthHost) -> None:
    commands, verdict, remedy, row, message = case
    for each in commands:
        host.control(*each.split())
    found = host.check(tests=["dcgm_2"])
    assert (found["verdict"], found["remedy"]) == (verdict, remedy), str(found["findings"])
    assert [finding["row"] for finding in found["findings"]] == ([row] if row else [])
    assert all(finding["message"].startswith(message) for finding in found["findings"])


def test_check_mode_runs_no_test(host: HealthHost) -> None:
    found = host.check(check_mode=True, tests=["nccl"])
    assert [finding["message"] for finding in found["findings"]] == ["nccl was not run: check mode runs no test"]
