# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""framework_test.py with a stub of PyTorch: right, wrong and failing GPUs, MIG devices, crashes."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / "roles" / "gpu_workload" / "files" / "framework_test.py"
STUB = Path(__file__).parent / "stub_torch.py"
FIRST, SECOND, MIG = "GPU-00000000-1111", "GPU-00000000-2222", "MIG-00000000-3333"


def document_of(directory: Path, *arguments: str, status: int = 0, **host: Any) -> dict[str, Any]:
    """The document of the script on a host that STUB_TORCH describes."""
    shutil.copy(STUB, directory / "torch.py")
    done = subprocess.run(
        [sys.executable, SCRIPT, "--framework=pytorch", "--size=8", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(directory), "STUB_TORCH": json.dumps(host)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def gpus(*uuids: str) -> list[dict[str, str]]:
    """The description of GPUs that are right."""
    return [{"uuid": uuid} for uuid in uuids]


@pytest.fixture(scope="module", name="script")
def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("framework_test", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_gpus_compute_and_add_up(tmp_path: Path) -> None:
    document = document_of(tmp_path, gpus=gpus(FIRST, SECOND))
    assert [(device["uuid"], device["rows_wrong"], device["error"]) for device in document["devices"]] == [
        (FIRST.removeprefix("GPU-"), 0, None),
        (SECOND.removeprefix("GPU-"), 0, None),
    ]
    reduced = document["all_reduce"]
    assert (reduced["backend"], reduced["ranks"], reduced["correct"], reduced["errors"]) == ("nccl", 2, True, [])
    versions = {name: document[name] for name in ("version", "cuda", "cudnn", "nccl")}
    assert versions == {"version": "2.5.1", "cuda": "12.4", "cudnn": "9.1.0", "nccl": "2.21.5"}


def test_a_gpu_that_computes_wrong_numbers_is_named(tmp_path: Path) -> None:
    document = document_of(tmp_path, status=1, gpus=[{"uuid": FIRST}, {"uuid": SECOND, "wrong_by": 1}])
    assert [device["rows_wrong"] for device in document["devices"]] == [0, 1]


def test_an_error_of_one_gpu_is_its_own_and_one_line(tmp_path: Path) -> None:
    document = document_of(tmp_path, status=1, gpus=[{"uuid": FIRST, "error": "no kernel image"}, {"uuid": SECOND}])
    assert [device["error"] for device in document["devices"]] == ["RuntimeError: no kernel image", None]


@pytest.mark.parametrize(("fault", "errors"), [("wrong", 0), ("fails", 1)])
def test_an_all_reduce_that_is_wrong_or_fails(fault: str, errors: int, tmp_path: Path) -> None:
    reduced = document_of(tmp_path, status=1, gpus=gpus(FIRST, SECOND), all_reduce=fault)["all_reduce"]
    assert (reduced["correct"], len(reduced["errors"])) == (False, errors)


def test_only_the_given_gpus_are_used(tmp_path: Path) -> None:
    document = document_of(tmp_path, f"--devices={SECOND}", gpus=gpus(FIRST, SECOND))
    assert [device["uuid"] for device in document["devices"]] == [SECOND.removeprefix("GPU-")]
    assert document["all_reduce"] is None


def test_each_mig_device_has_a_process_of_its_own(tmp_path: Path) -> None:
    document = document_of(tmp_path, f"--devices={MIG},{FIRST}", gpus=gpus(FIRST, MIG))
    assert [(device["index"], device["uuid"]) for device in document["devices"]] == [
        (0, FIRST.removeprefix("GPU-")),
        (0, MIG.removeprefix("MIG-")),
    ]
    assert document["all_reduce"] is None


def test_a_host_without_a_gpu_computes_on_the_cpu(tmp_path: Path) -> None:
    document = document_of(tmp_path, cuda=None)
    assert [(device["kind"], device["rows_wrong"]) for device in document["devices"]] == [("cpu", 0)]
    assert (document["all_reduce"]["backend"], document["all_reduce"]["correct"]) == ("gloo", True)


def test_why_cuda_cannot_be_used(tmp_path: Path) -> None:
    reason = "The NVIDIA driver on your system is too old (found version 11040)"
    document = document_of(tmp_path, f"--devices={FIRST}", status=1, gpus=gpus(FIRST), unavailable=reason)
    assert (document["unavailable"], document["devices"]) == (f"RuntimeError: {reason}", [])


@pytest.mark.parametrize(
    ("fault", "timeout", "error"),
    [("abort", 300, "the process was ended by signal 6"), ("hang", 1, "no result in time")],
)
def test_a_framework_that_crashes_or_hangs_is_a_result(fault: str, timeout: int, error: str, tmp_path: Path) -> None:
    (found,) = document_of(tmp_path, f"--timeout={timeout}", status=1, at_import=fault, gpus=gpus(FIRST))["errors"]
    assert found.startswith(error)


def test_a_framework_that_is_not_there(tmp_path: Path) -> None:
    (error,) = document_of(tmp_path, "--framework=tensorflow", status=1)["errors"]
    assert error == "ModuleNotFoundError: No module named 'tensorflow'"


def test_one_wrong_element_is_a_wrong_row(script: ModuleType) -> None:
    product = script.Product(16)
    assert product.wrong(product.rows) == 0
    for row in range(16):
        assert product.wrong([number + (index == row) for index, number in enumerate(product.rows)]) == 1
    assert product.wrong(product.rows[:-1]) == 1
    # float32 holds every element, and float64 every row, exactly.
    largest = script.Product(2048)
    assert max(map(max, (*largest.left, *largest.right))) ** 2 * 2048 < 2**24
    assert max(largest.rows) < 2**53


@pytest.mark.parametrize(
    ("number", "expected"), [(90100, "9.1.0"), (91002, "9.10.2"), (8902, "8.9.2"), (7605, "7.6.5"), (None, None)]
)
def test_versions_of_cudnn(number: int | None, expected: str | None, script: ModuleType) -> None:
    assert script.cudnn_version(number) == expected


class Driver:
    """libcuda with one device; `status` is of every call."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def __getattr__(self, name: str) -> Any:
        return {
            "cuInit": lambda flags: self.status,
            "cuDeviceGetCount": lambda count: self._set(count, ctypes.c_int, 1),
            "cuDeviceGet": lambda device, index: self._set(device, ctypes.c_int, 7),
            "cuDeviceGetUuid_v2": lambda data, device: self._copy(data, device.value),
        }[name]

    def _set(self, pointer: Any, kind: Any, value: int) -> int:
        ctypes.cast(pointer, ctypes.POINTER(kind))[0] = value
        return self.status

    def _copy(self, pointer: Any, value: int) -> int:
        ctypes.memmove(pointer, bytes(15) + bytes([value]), 16)
        return self.status


def test_uuids_of_the_driver(script: ModuleType) -> None:
    assert script.cuda_uuids(lambda name: Driver()) == ["00000000-0000-0000-0000-000000000007"]
    assert script.cuda_uuids(lambda name: Driver(100)) == []

    def missing(name: str) -> SimpleNamespace:
        raise OSError(name)

    assert script.cuda_uuids(missing) == []
