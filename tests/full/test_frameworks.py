# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real frameworks for the CPU: Debian's PyTorch, and TensorFlow of the package index in a virtual environment.

Each is tested twice by the role gpu_workload, and removed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.full.conftest import INVENTORY
from tests.system.support import Result, run

HOST = "full-deb12"
# A network may have an authority of its own, which pip does not find on the hosts: they trust what this machine does.
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
CERTIFICATES = "/etc/ssl/gpu-fleet-testbed.pem"
ROLE = {"ansible.builtin.include_role": {"name": "gpu.fleet.gpu_workload"}}
TENSORFLOW = {"framework": "tensorflow", "virtualenv": "/opt/tensorflow", "requirements": ["tensorflow-cpu==2.21.0"]}


def _is_tested_and_removed(directory: Path, tasks: list[dict[str, Any]], test: dict[str, Any]) -> str:
    """What the first of the runs printed."""
    path = directory / "frameworks.json"
    play = {
        "hosts": HOST,
        "gather_facts": False,
        "environment": {"PIP_CERT": CERTIFICATES},
        "tasks": [*tasks, ROLE],
        "vars": {"gpu_workload_tests": [test]},
    }
    path.write_text(json.dumps([play]))

    def played(*extra: str) -> Result:
        result = run(["ansible-playbook", "-i", INVENTORY, str(path), *extra])
        assert result.status == 0, result.output[-6000:]
        return result

    first = played()
    assert first.changed[HOST] > 0
    assert played().changed[HOST] == 0
    absent = ("--extra-vars", "gpu_workload_state=absent")
    assert played(*absent).changed[HOST] > 0
    assert played(*absent).changed[HOST] == 0
    return first.output


def test_debians_pytorch_computes_on_the_cpu(tmp_path: Path) -> None:
    package = {"ansible.builtin.apt": {"name": "python3-torch", "install_recommends": False, "update_cache": True}}
    output = _is_tested_and_removed(tmp_path, [package], {"framework": "pytorch"})
    assert "the host has no GPU, so it computed on the CPU only" in output


def test_tensorflow_of_the_package_index_computes_on_the_cpu(tmp_path: Path) -> None:
    trusted = {"ansible.builtin.copy": {"src": AUTHORITIES, "dest": CERTIFICATES, "mode": "0644"}}
    output = _is_tested_and_removed(tmp_path, [trusted], TENSORFLOW)
    assert "the host has no GPU, so it computed on the CPU only" in output
