# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MPS as a service of the host: its clients in containers of Docker and podman, by the commands of docs/sharing.md."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import pytest

from testbed import settings
from tests.system.support import Result, playbook, run

# Of Debian 13 and 12, on the two hosts of the demo whose GPUs have MPS with limits and no MIG devices.
HOSTS = ("dgx-h200", "dual-a100")
_PLAY = """
- name: Share the first GPU by MPS
  hosts: dgx-h200:dual-a100
  gather_facts: false
  tasks:
    - name: Install podman
      ansible.builtin.apt:
        name: [crun, podman]
        install_recommends: false
        update_cache: true

    - name: Read the GPUs
      gpu.fleet.nvidia_smi_facts:

    - name: Run MPS
      ansible.builtin.include_role:
        name: gpu.fleet.gpu_state
      vars:
        gpu_state_mps: {gpus: [0], active_thread_percentage: 25}
"""
# Overlayfs does not work on top of the overlay that the host itself is.
_PODMAN = ("podman", "--root=/var/lib/podman-of-mps", "--storage-driver=vfs")
# The role has written it where Docker takes GPUs by CDI, which that of Debian 12 does not.
_CDI = "test -e /etc/cdi/nvidia.yaml || nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
_IMAGE = "localhost/gpu-fleet/demo:latest"
_CLIENT = """
import glob, json, os, socket
pipes = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(pipes + "/control")
    connection.sendall(b"get_default_active_thread_percentage\\n")
    reply = connection.recv(100).decode()
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
found = {"reply": reply, "gpus": sorted(glob.glob("/dev/nvidia[0-9]*")), "capabilities": int(status["CapBnd"], 16)}
print(json.dumps({**found, "writable": os.access(pipes, os.W_OK), "user": os.getuid()}))
"""


def _on_host(host: str, *argv: str) -> Result:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", *argv])


@pytest.fixture(scope="module", name="mps")
def _mps(demo: Result, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MPS on the first GPU of two hosts with Docker and podman; removed afterwards."""
    assert demo.status == 0, demo.output[-6000:]
    path = tmp_path_factory.mktemp("mps") / "play.yml"
    path.write_text(_PLAY, encoding="utf-8")
    done = playbook(str(path))
    assert done.status == 0, done.output[-6000:]
    again = playbook(str(path))
    assert set(again.changed.values()) == {0}, again.output[-6000:]
    for host in HOSTS:
        for argv in (("sh", "-c", _CDI), (*_PODMAN, "load", "--quiet", "--input", "/opt/testbed/container.tar")):
            prepared = _on_host(host, *argv)
            assert prepared.status == 0, prepared.output
    yield
    removed = playbook(str(path), "-e", "gpu_state_state=absent")
    assert removed.status == 0, removed.output[-6000:]
    for host in HOSTS:
        assert _on_host(host, "systemctl", "is-active", "gpu-fleet-mps").output.strip() == "inactive"


@pytest.mark.parametrize("user", ["0", "1234"])
@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize("host", HOSTS)
def test_a_container_is_a_client_as_documented(mps: None, host: str, engine: str, user: str) -> None:
    guide = (settings.ROOT / "docs" / "sharing.md").read_text(encoding="utf-8")
    (documented,) = re.findall(rf"^{engine} run .*", guide, re.MULTILINE)
    words = shlex.split(documented)
    assert words[-1] == "IMAGE" and not {"--privileged", "--ipc=host", "--cap-add"} & {*words}
    begin = ["docker"] if engine == "docker" else [*_PODMAN]
    for_test = ["--rm", "--network=none", f"--user={user}"]
    ran = _on_host(host, *begin, "run", *for_test, *words[2:-1], _IMAGE, "python3", "-c", _CLIENT)
    assert ran.status == 0, ran.output
    found = json.loads(ran.output.splitlines()[-1])
    assert float(found["reply"]) == 25 and found["gpus"] == ["/dev/nvidia0"]
    # Its sockets are open to it, their directory is not: it belongs to root.
    assert found["writable"] is (user == "0") and found["user"] == int(user)
    # Without CAP_SYS_ADMIN, which a privileged container has.
    assert not found["capabilities"] & 1 << 21
    mode = _on_host(host, "stat", "--format=%a %U", "/run/gpu-fleet-mps", "/run/gpu-fleet-mps/control").output.split()
    assert mode == ["755", "root", "666", "root"]
    assert "exclusive_process" in _on_host(host, "nvidia-smi", "-q", "-i", "0").output.lower()
