# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's own CUDA toolkit: installed, verified with its real compiler, and removed. Downloads 2 GB."""

from __future__ import annotations

from testbed import settings
from tests.full.conftest import INVENTORY
from tests.system.support import Result, run

HOST = "full-deb12"


def _play(*extra: str) -> Result:
    variables = ["--extra-vars", "host=full-deb12 cuda_source=distribution", "--extra-vars", '{"parts": ["cuda"]}']
    result = run(["ansible-playbook", "-i", INVENTORY, "tests/system/cuda/converge.yml", *variables, *extra])
    assert result.status == 0, result.output[-6000:]
    return result


def _on_host(script: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{HOST}", "sh", "-c", script]).output.strip()


def test_debians_toolkit_is_installed_compiles_and_goes_again() -> None:
    predicted = _play("--check")
    assert "nvidia-cuda-toolkit" in predicted.output
    assert _play().changed[HOST] > 0
    assert "release 11.8" in _on_host("nvcc --version")
    # Debian's toolkit depends on libcuda1, the driver's user-space library; it installs no kernel modules.
    drivers = "^(nvidia-(driver|kernel|smi|persistenced|open)|dkms|xserver|linux-headers|firmware-nvidia)"
    assert _on_host(f"dpkg-query -W -f '${{Package}}\\n' | grep -E '{drivers}' | grep -v opencl || true") == ""
    assert _on_host("dpkg-query -W -f '${Package}\\n' libcuda1") == "libcuda1"
    assert _play().changed[HOST] == 0
    _play("--extra-vars", "cuda_state=absent")
    assert _on_host("dpkg-query -W -f '${Package}\\n' | grep -E 'cuda|cublas|nvrtc|npp|nvidia' || true") == ""
    assert _on_host("find /etc /var/lib -name '*cuda*'") == ""
