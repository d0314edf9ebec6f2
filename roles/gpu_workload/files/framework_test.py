# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute on each GPU with PyTorch or TensorFlow, check the numbers, and print one JSON document.

    python3 framework_test.py --framework pytorch
    python3 framework_test.py --framework tensorflow --devices GPU-...,MIG-...

It reads and computes only; files in a temporary directory are all that it writes. Each step runs in a process of its
own, so that a framework that crashes or hangs is a result as well. A process of CUDA can use one MIG device only:
each MIG device gets one. The exit status is 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import timedelta
from typing import Any, Callable, Dict, Sequence

Document = Dict[str, Any]

CPU_RANKS = 2
"""Members of the all-reduce on a host without a GPU."""


class Product:
    """A product of two matrices of small integers, which float32 and TF32 represent exactly in any order of adding.

    Each row of the product is multiplied by a vector, so that one wrong element is a wrong row.
    """

    def __init__(self, size: int) -> None:
        """Matrices with `size` rows and columns."""
        numbers = range(size)
        self.left = [[(row + 3 * column) % 7 for column in numbers] for row in numbers]
        self.right = [[(2 * row + column) % 5 for column in numbers] for row in numbers]
        self.vector = [number % 11 + 1 for number in numbers]
        between = [_dot(row, self.vector) for row in self.right]
        self.rows = [_dot(row, between) for row in self.left]

    def wrong(self, rows: Sequence[float]) -> int:
        """How many rows are not as they have to be."""
        return sum(found != expected for found, expected in zip(rows, self.rows)) + abs(len(rows) - len(self.rows))


def _dot(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(one * other for one, other in zip(left, right))


class PyTorch:
    """What is asked of PyTorch."""

    def __init__(self) -> None:
        """Import it."""
        self.torch: Any = importlib.import_module("torch")

    def versions(self) -> Document:
        """Versions of the framework and of what it was built with; `architectures` are compiled into its kernels."""
        torch = self.torch
        cuda = torch.version.cuda
        distributed = getattr(torch, "distributed", None)
        has_nccl = bool(cuda and distributed and distributed.is_available() and distributed.is_nccl_available())
        return {
            "version": str(torch.__version__),
            "cuda": cuda,
            "cudnn": cudnn_version(torch.backends.cudnn.version()) if cuda else None,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,
            "architectures": list(torch.cuda.get_arch_list()) if cuda else [],
        }

    def gpus(self) -> list[Document]:
        """The GPUs and MIG devices, in the order of CUDA; raises RuntimeError where CUDA cannot be used."""
        torch = self.torch
        if torch.version.cuda and not torch.cuda.is_available():
            torch.cuda.init()
        return [self._gpu(torch.cuda.get_device_properties(index)) for index in range(torch.cuda.device_count())]

    @staticmethod
    def _gpu(properties: Any) -> Document:
        return {
            "name": properties.name,
            "uuid": str(getattr(properties, "uuid", "")) or None,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "memory_mib": properties.total_memory // 2**20,
        }

    def rows(self, product: Product, index: int | None) -> list[float]:
        """The rows of the product, computed on a GPU, or on the CPU for None."""
        torch = self.torch
        device = "cpu" if index is None else f"cuda:{index}"
        left, right = (
            torch.tensor(matrix, dtype=torch.float32, device=device) for matrix in (product.left, product.right)
        )
        result = torch.matmul(left, right).to("cpu", torch.float64)
        rows: list[float] = torch.mv(result, torch.tensor(product.vector, dtype=torch.float64)).tolist()
        return rows

    def all_reduce(self, rank: int, ranks: int, on_gpu: bool, meeting: str, timeout: int) -> Document:
        """The sum over all ranks, of which this process is one."""
        torch = self.torch
        distributed: Any = importlib.import_module("torch.distributed")
        backend = "nccl" if on_gpu else "gloo"
        if on_gpu:
            torch.cuda.set_device(rank)
        distributed.init_process_group(
            backend, init_method=f"file://{meeting}", rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout)
        )
        numbers = torch.full((1024,), float(rank + 1), device=f"cuda:{rank}" if on_gpu else "cpu")
        distributed.all_reduce(numbers)
        values = sorted(set(numbers.tolist()))
        distributed.destroy_process_group()
        return {"backend": backend, "values": values}


class TensorFlow:
    """What is asked of TensorFlow."""

    def __init__(self) -> None:
        """Import it; by default it would leave out GPUs with few multiprocessors, as small MIG devices are."""
        os.environ.setdefault("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "1")
        self.tensorflow: Any = importlib.import_module("tensorflow")
        # On another device than the requested one nothing would be proven.
        self.tensorflow.config.set_soft_device_placement(False)
        for gpu in self.tensorflow.config.list_physical_devices("GPU"):
            self.tensorflow.config.experimental.set_memory_growth(gpu, True)

    def versions(self) -> Document:
        """As for PyTorch."""
        build = self.tensorflow.sysconfig.get_build_info()
        return {
            "version": str(self.tensorflow.__version__),
            "cuda": build.get("cuda_version") if build.get("is_cuda_build") else None,
            "cudnn": build.get("cudnn_version") if build.get("is_cuda_build") else None,
            "nccl": None,
            "architectures": [str(name) for name in build.get("cuda_compute_capabilities") or ()],
        }

    def gpus(self) -> list[Document]:
        """As for PyTorch."""
        return [self._gpu(gpu) for gpu in self.tensorflow.config.list_physical_devices("GPU")]

    def _gpu(self, gpu: Any) -> Document:
        details = self.tensorflow.config.experimental.get_device_details(gpu)
        capability = ".".join(map(str, details.get("compute_capability") or ()))
        name = details.get("device_name")
        return {"name": name, "uuid": None, "compute_capability": capability or None, "memory_mib": None}

    def rows(self, product: Product, index: int | None) -> list[float]:
        """As for PyTorch."""
        tensorflow = self.tensorflow
        with tensorflow.device("/CPU:0" if index is None else f"/GPU:{index}"):
            left, right = (tensorflow.constant(matrix, "float32") for matrix in (product.left, product.right))
            result = tensorflow.linalg.matmul(left, right)
        with tensorflow.device("/CPU:0"):
            vector = tensorflow.constant(product.vector, "float64")
            rows: list[float] = tensorflow.linalg.matvec(tensorflow.cast(result, "float64"), vector).numpy().tolist()
        return rows

    def all_reduce(self, rank: int, ranks: int, on_gpu: bool, meeting: str, timeout: int) -> Document:
        """The sum over `ranks` replicas, all of them in this process."""
        tensorflow = self.tensorflow
        kind = "GPU" if on_gpu else "CPU"
        if not on_gpu:
            one = tensorflow.config.LogicalDeviceConfiguration()
            tensorflow.config.set_logical_device_configuration(
                tensorflow.config.list_physical_devices("CPU")[0], [one] * ranks
            )
        strategy = tensorflow.distribute.MirroredStrategy([f"{kind}:{index}" for index in range(ranks)])
        add = tensorflow.distribute.ReduceOp.SUM

        def reduced() -> Any:
            context = tensorflow.distribute.get_replica_context()
            number = tensorflow.cast(context.replica_id_in_sync_group + 1, "float32")
            return context.all_reduce(add, tensorflow.fill([1024], number))

        found = strategy.experimental_local_results(strategy.run(tensorflow.function(reduced)))
        values = sorted({number for replica in found for number in replica.numpy().tolist()})
        return {"backend": "mirrored", "values": values}


FRAMEWORKS: dict[str, Callable[[], Any]] = {"pytorch": PyTorch, "tensorflow": TensorFlow}


def cudnn_version(number: int | None) -> str | None:
    """9.1.0 of 90100, and 8.9.2 of 8902: the form of the number changed with version 9."""
    if not number:
        return None
    base = 10000 if number >= 90000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def cuda_uuids(load: Callable[[str], Any] = ctypes.CDLL) -> list[str]:
    """UUIDs of the devices of this process, by the driver's library, in the order of CUDA; none without a driver."""
    try:
        driver = load("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    # Before driver 470 there is the first version only; it returns the UUID of the GPU also for a MIG device.
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    found = []
    for index in range(count.value):
        device, data = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGet(ctypes.byref(device), index) != 0 or get_uuid(ctypes.byref(data), device) != 0:
            return []
        found.append(str(uuid.UUID(bytes=bytes(data))))
    return found


# Steps, each in a process of its own


def compute(framework: Any, size: int, use_cpu: bool) -> Document:
    """Devices and their products; on the CPU where there is no GPU and `use_cpu`. `unavailable`: why CUDA is not."""
    result: Document = {**framework.versions(), "python": platform.python_version(), "unavailable": None, "errors": []}
    try:
        gpus = framework.gpus()
    except Exception as error:  # whatever a framework raises is the result
        gpus = []
        result["unavailable"] = message_of(error)
    devices: list[Document] = [{"kind": "gpu", "index": index, **gpu} for index, gpu in enumerate(gpus)]
    if not all(device["uuid"] for device in devices):
        uuids = cuda_uuids()
        for device in devices if len(uuids) == len(devices) else ():
            device["uuid"] = uuids[device["index"]]
    if not devices and use_cpu:
        devices = [{"kind": "cpu", "index": None, "uuid": None, "name": platform.processor() or platform.machine()}]
    product = Product(size)
    for device in devices:
        device.update(rows=size, rows_wrong=None, seconds=None, error=None)
        begin = time.perf_counter()
        try:
            device["rows_wrong"] = product.wrong(framework.rows(product, device["index"]))
        except Exception as error:
            device["error"] = message_of(error)
        device["seconds"] = round(time.perf_counter() - begin, 3)
    result["devices"] = devices
    return result


def message_of(error: BaseException) -> str:
    """An error in one line; frameworks append pages of advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:400]


def run_step(options: argparse.Namespace) -> None:
    """The step that the parent process has requested; its result is a file."""
    try:
        framework = FRAMEWORKS[options.framework]()
        if options.step == "compute":
            result = compute(framework, options.size, options.on == "any")
        else:
            on_gpu = options.on == "gpu"
            result = framework.all_reduce(options.rank, options.ranks, on_gpu, options.meeting, options.timeout)
    except Exception as error:
        result = {"errors": [message_of(error)]}
    with open(options.result, "w", encoding="utf-8") as file:
        json.dump(result, file)


# The parent process, which imports no framework


class Step:
    """A running step."""

    def __init__(self, options: argparse.Namespace, directory: str, name: str, devices: Sequence[str], **own: Any):
        """Start it with the options of the parent and its `own`; `devices` are all that it can use, or all if empty."""
        self._result = os.path.join(directory, f"{name}.json")
        self._log = os.path.join(directory, f"{name}.log")
        arguments = {"framework": options.framework, "size": options.size, "timeout": options.timeout, **own}
        environment = dict(os.environ)
        if devices:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        # All members of an all-reduce are on this host.
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        command = [sys.executable, os.path.abspath(__file__), "--result", self._result]
        command += [f"--{key}={value}" for key, value in arguments.items()]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def wait(self, deadline: float) -> Document:
        """The result, whose `errors` name a step that ended without one."""
        try:
            status = self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return {"errors": [f"no result in time; last output: {self._last_line()}"]}
        try:
            with open(self._result, encoding="utf-8") as file:
                result: Document = json.load(file)
        except (OSError, ValueError, RecursionError):
            ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            return {"errors": [f"the process {ended}; last output: {self._last_line()}"]}
        return result

    def _last_line(self) -> str:
        with open(self._log, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        return lines[-1][:300] if lines else "none"


def groups_of(devices: Sequence[str]) -> list[list[str]]:
    """Devices that one process can use together: all whole GPUs, and each MIG device by itself."""
    whole = [device for device in devices if not device.startswith("MIG-")]
    return [group for group in (whole, *([device] for device in devices if device not in whole)) if group] or [[]]


def run_test(options: argparse.Namespace, directory: str) -> Document:
    """Run all steps; the document."""
    devices = [device for device in options.devices.split(",") if device]
    document: Document = {
        "framework": options.framework,
        "unavailable": None,
        "devices": [],
        "all_reduce": None,
        "errors": [],
    }
    for number, group in enumerate(groups_of(devices)):
        step = Step(options, directory, f"compute{number}", group, step="compute", on="gpu" if group else "any")
        result = step.wait(time.monotonic() + options.timeout)
        document["devices"] += result.pop("devices", [])
        document["errors"] += [error for error in result.pop("errors") if error not in document["errors"]]
        document.update(result)
    on_gpu = [device for device in document["devices"] if device["kind"] == "gpu"]
    is_whole = not any(device.startswith("MIG-") for device in devices)
    ranks = len(on_gpu) if on_gpu else CPU_RANKS if document["devices"] else 0
    if ranks > 1 and is_whole and not document["errors"]:
        document["all_reduce"] = all_reduce(options, directory, devices, ranks, bool(on_gpu))
    return document


def all_reduce(
    options: argparse.Namespace, directory: str, devices: Sequence[str], ranks: int, on_gpu: bool
) -> Document:
    """The sum of 1 to `ranks`, by each of them."""
    own = {"step": "all-reduce", "on": "gpu" if on_gpu else "cpu", "ranks": ranks}
    own["meeting"] = os.path.join(directory, "meeting")
    processes = ranks if options.framework == "pytorch" else 1
    begin = time.monotonic()
    steps = [Step(options, directory, f"rank{rank}", devices, rank=rank, **own) for rank in range(processes)]
    results = [step.wait(begin + options.timeout) for step in steps]
    expected = [ranks * (ranks + 1) / 2]
    return {
        "backend": next((result["backend"] for result in results if "backend" in result), None),
        "ranks": ranks,
        "correct": all(result.get("values") == expected for result in results),
        "seconds": round(time.monotonic() - begin, 3),
        "errors": sorted({error for result in results for error in result.get("errors", [])}),
    }


def is_right(document: Document) -> bool:
    """Whether all that was computed is right."""
    reduced = document["all_reduce"]
    return (
        not document["errors"]
        and document["unavailable"] is None
        and all(device["rows_wrong"] == 0 for device in document["devices"])
        and (reduced is None or reduced["correct"])
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the document; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--framework", choices=sorted(FRAMEWORKS), required=True)
    parser.add_argument("--devices", default="", help="UUIDs of GPUs and MIG devices, by commas; all GPUs if empty")
    parser.add_argument("--size", type=int, default=512, help="rows and columns of the matrices")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for each step")
    for internal in ("--step", "--result", "--on", "--meeting"):
        parser.add_argument(internal, default="", help=argparse.SUPPRESS)
    for internal in ("--rank", "--ranks"):
        parser.add_argument(internal, type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.step:
        run_step(options)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        document = run_test(options, directory)
    print(json.dumps(document))
    return 0 if is_right(document) else 1


if __name__ == "__main__":
    sys.exit(main())
