# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host's part of an all-reduce over several hosts, by PyTorch; prints one line of JSON.

accept.yml hands it to the host's interpreter on standard input, so that no file is left on the host. Each GPU has a
process of its own, which ends with its parent; without GPUs (gloo) there is one.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import importlib
import json
import os
import signal
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1
# Of the values in a tensor, so that a shifted result is a wrong one, and of the values of processes: small, since a
# sum of single precision is exact up to 2**24 only.
_PERIOD = 7


def main() -> int:
    """Run the processes of this host; the exit status is 0 where all have computed, right or wrong."""
    options = _options()
    # Whatever hangs ends here, also where nobody waits for it any more.
    signal.alarm(options.timeout)
    if options.interface:
        os.environ["NCCL_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    # PyTorch from 2.4 on takes libuv, which builds of distributions may lack: Debian's 2.6 does.
    os.environ.setdefault("USE_LIBUV", "0")
    parent = os.getpid()
    children = []
    for local in range(1, options.processes):
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            signal.alarm(options.timeout)
            os._exit(_failed(options, local))
        children.append(child)
    result = _reduce(options, 0)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    result["wrong"] += sum(os.WEXITSTATUS(status) == 2 for status in statuses)
    broken = sum(status != 0 and os.WEXITSTATUS(status) != 2 for status in statuses)
    if broken:
        sys.exit(f"{broken} of the processes of this host failed")
    print(json.dumps(result))
    return 0


def _failed(options: argparse.Namespace, local: int) -> int:
    """The exit status of a child: 0, 2 where it has computed a wrong sum, 1 where it has failed."""
    try:
        return 2 if _reduce(options, local)["wrong"] else 0
    except Exception as error:  # pylint: disable=broad-except
        print(f"GPU {local}: {error}", file=sys.stderr)
        return 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=["gloo", "nccl"], required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--interface", default="")
    for name in ("port", "first", "processes", "world", "mib", "iterations", "timeout"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def _reduce(options: argparse.Namespace, local: int) -> dict[str, Any]:
    """Sum tensors of all processes some times; how long each took, and how many sums were wrong."""
    torch = importlib.import_module("torch")  # after the fork: a process with CUDA must not fork
    distributed = importlib.import_module("torch.distributed")
    device = torch.device("cuda", local) if options.backend == "nccl" else torch.device("cpu")
    if options.backend == "nccl":
        torch.cuda.set_device(device)
    rank = options.first + local
    distributed.init_process_group(
        options.backend,
        init_method=f"tcp://{options.master}:{options.port}",
        rank=rank,
        world_size=options.world,
        timeout=datetime.timedelta(seconds=options.timeout),
    )
    count = options.mib * 2**20 // 4
    pattern = (torch.arange(count, dtype=torch.float32, device=device) % _PERIOD) + 1
    weights = [one % _PERIOD + 1 for one in range(options.world)]
    expected = pattern * sum(weights)
    tensor = torch.empty_like(pattern)
    seconds = []
    wrong = 0
    # The first makes the connections.
    for number in range(options.iterations + 1):
        torch.mul(pattern, weights[rank], out=tensor)
        distributed.barrier()
        if options.backend == "nccl":
            torch.cuda.synchronize()
        began = time.monotonic()
        distributed.all_reduce(tensor)
        if options.backend == "nccl":
            torch.cuda.synchronize()
        if number:
            seconds.append(time.monotonic() - began)
        wrong += not torch.equal(tensor, expected)
    distributed.destroy_process_group()
    return {
        "seconds": seconds,
        "wrong": wrong,
        "bytes": count * 4,
        "world": options.world,
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    sys.exit(main())
