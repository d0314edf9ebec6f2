# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with a real kubelet and containerd, whose pods are real processes, and NVIDIA's device plugin there.

The kubelet and the plugin are those of the directory in GPU_FLEET_KUBERNETES, the plugin optional; containerd, runc and
the CNI plug-ins are Debian sid's. Simplified: pods have the network of the machine, NVML is a mock with the GPUs of a
simulated host, none of them in MIG mode, and the upgrade is tried with GPUs that the test advertises, as an
administrator may. The kubelet is allowed to start on cgroup v1.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed import settings
from testbed.images import CONTAINER_IMAGE, Image
from tests.kubernetes.control_plane import VARIABLE, ControlPlane
from tests.kubernetes.nodes import hold, meanwhile, note, upgrade_nodes
from tests.unit.gpu_simulator_host.support import SimulatedHost
from tests.unit.kubernetes_node.test_kubernetes_manifests import H200, by_kind, plan, smi
from tests.unit.upgrade.test_upgrade_playbook import steps

NODE = "gpu1"
IMAGE = "localhost/gpu-fleet/pod:latest"
PROGRAM = "import signal; signal.pause()"
CONTAINERD = """\
version = 3
root = "/var/lib/node/containerd"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "native"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "localhost/gpu-fleet/pod:latest"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    snapshotter = "native"
"""
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "enforceNodeAllocatable": [],
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "address": "127.0.0.1",
    "makeIPTablesUtilChains": False,
    "localStorageCapacityIsolation": False,
    "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
    "imageGCHighThresholdPercent": 100,
    "nodeStatusReportFrequency": "5s",
    "nodeStatusUpdateFrequency": "2s",
}
# Only so that the kubelet reports a network: all pods have that of the machine.
NETWORK = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}
PREPARE = f"""
set -eu
mkdir -p /etc/cni/net.d /opt/cni /var/lib/node/kubelet /var/lib/kubelet
mount --bind /var/lib/node/kubelet /var/lib/kubelet
mount --make-rshared /
apt-get -qq update
apt-get -qq -y install --no-install-recommends containerd containernetworking-plugins runc
ln -s /usr/lib/cni /opt/cni/bin
cp /node/network.conflist /etc/cni/net.d/
setsid containerd -c /node/containerd.toml >/node/containerd.log 2>&1 &
for _ in $(seq 60); do ctr version >/dev/null 2>&1 && break; sleep 1; done
ctr -n k8s.io images import --local --snapshotter native /node/pod.tar
setsid /kubernetes/kubelet --config=/node/kubelet.json --kubeconfig=/node/kubeconfig --hostname-override={NODE} \
    --cgroup-root=/ >/node/kubelet.log 2>&1 &
"""


@dataclass(frozen=True)
class Node:
    """A container with a kubelet: its name, what it sees as /node, and the programs of Kubernetes."""

    name: str
    directory: Path
    programs: Path

    def run(self, script: str) -> str:
        """What a shell prints there."""
        return podman("exec", self.name, "sh", "-c", script)

    def processes(self, word: str) -> list[str]:
        """Numbers of the processes of containers that have this word as an argument."""
        return self.run(f"pgrep -f 'pause.* {word}$' || true").split()


def podman(*words: str | Path) -> str:
    """What podman prints."""
    done = subprocess.run(
        ["podman", *words], env=settings.environment(), capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


@pytest.fixture(name="node", scope="module")
def _node(tmp_path_factory: pytest.TempPathFactory, plane: ControlPlane) -> Iterator[Node]:
    programs = Path(os.environ[VARIABLE]).resolve()
    if not (programs / "kubelet").exists():
        pytest.skip(f"no kubelet in the directory of {VARIABLE}")
    directory, volume = tmp_path_factory.mktemp("node"), tmp_path_factory.mktemp("volume")
    (directory / "containerd.toml").write_text(CONTAINERD)
    (directory / "kubelet.json").write_text(json.dumps(KUBELET))
    (directory / "network.conflist").write_text(json.dumps(NETWORK))
    (directory / "apiserver.crt").write_bytes(plane.certificate.read_bytes())
    kubeconfig = plane.kubeconfig(directory / "kubeconfig")
    kubeconfig.write_text(kubeconfig.read_text().replace(str(plane.certificate), "/node/apiserver.crt"))
    # Without a command the image ends at once; the sandbox of a pod is to stay.
    name = f"{settings.NETWORK}-kubelet"
    podman("rm", "--force", "--ignore", name)
    podman("create", f"--name={name}", CONTAINER_IMAGE.name, "true")
    podman("commit", "--quiet", f'--change=CMD ["python3","-c","{PROGRAM}"]', name, IMAGE)
    podman("rm", name)
    podman("save", "--quiet", "--format=docker-archive", "-o", directory / "pod.tar", IMAGE)
    podman("rmi", IMAGE)
    podman(
        *("run", "--detach", f"--name={name}", f"--label={settings.LABEL}", "--privileged"),
        *("--network=host", "--cgroupns=private", "--entrypoint=sleep"),
        *(f"--volume={directory}:/node", f"--volume={volume}:/var/lib/node"),
        *(f"--volume={programs}:/kubernetes:ro", Image("host", "sid").name, "infinity"),
    )
    plane.with_kubelet.add(NODE)
    node = Node(name, directory, programs)
    try:
        node.run(PREPARE)
        plane.wait_for(lambda: is_ready(plane), 120)
        # An extended resource that nobody's plugin manages: the kubelet keeps it.
        plane.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}})
        yield node
    except AssertionError:
        for log in ("containerd.log", "kubelet.log"):
            print((directory / log).read_text()[-5000:] if (directory / log).exists() else f"no {log}")
        raise
    finally:
        end = "pkill -x kubelet; ctr -n k8s.io tasks ls -q | xargs -r -n1 ctr -n k8s.io tasks kill -s 9; sleep 1; true"
        node.run(f"{end}; pkill -x containerd; umount /var/lib/kubelet || true")
        podman("rm", "--force", "--time=0", name)
        plane.with_kubelet.discard(NODE)


def is_ready(plane: ControlPlane) -> bool:
    """Whether the kubelet has reported that its node is ready."""
    if not plane.exists(f"/api/v1/nodes/{NODE}"):
        return False
    conditions = plane.node(NODE)["status"].get("conditions", ())
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def workload(kind: str, word: str, *, gpus: int) -> dict[str, Any]:
    """A Deployment or DaemonSet whose pod is a process with this word as its last argument."""
    program = ["python3", "-c", PROGRAM, word]
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": program}
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 2,
        "containers": [{**container, "resources": resources}],
    }
    template = {"metadata": {"labels": {"app": word}}, "spec": pod}
    return {
        "kind": kind,
        "metadata": {"name": word},
        "spec": {"selector": {"matchLabels": {"app": word}}, "template": template},
    }


def test_pods_of_gpus_end_before_the_change_and_come_back(
    tmp_path: Path, node: Node, cluster: ControlPlane, token: str
) -> None:
    cluster.create("/apis/apps/v1/namespaces/default/deployments", workload("Deployment", "train", gpus=2))
    cluster.create("/apis/apps/v1/namespaces/default/daemonsets", workload("DaemonSet", "agent", gpus=0))
    cluster.wait_for(lambda: node.processes("train") and node.processes("agent"), 120)
    trained, agent = node.processes("train"), node.processes("agent")
    seen = tmp_path / "seen"
    script = f"podman exec {node.name} pgrep -fa signal.pause >{seen}"
    look = {"name": "Look", "ansible.builtin.command": {"argv": ["sh", "-c", script]}, "delegate_to": "localhost"}
    (tmp_path / "look.yml").write_text(json.dumps([look]))
    hooks = ("-e", json.dumps({"gpu_state_hooks_before": [str(tmp_path / "look.yml")]}))

    predicted = upgrade_nodes(tmp_path, cluster, token, {NODE: {}}, *hooks, "--check")
    assert predicted.rc == 0 and node.processes("train") == trained, predicted.output

    done = upgrade_nodes(tmp_path, cluster, token, {NODE: {"idle_timeout_s": 60}}, *hooks)
    assert done.rc == 0 and steps(tmp_path) == {NODE: "in_service"}, done.output
    there = [line.split()[-1] for line in seen.read_text().splitlines()]
    assert "train" not in there and "agent" in there, there
    assert cluster.cordoned(NODE) == set() and note(cluster, NODE) == ""
    # Its owner has made another one, which waited for the node; a DaemonSet's pod goes on.
    cluster.wait_for(lambda: node.processes("train"), 120)
    assert set(node.processes("train")).isdisjoint(trained)
    assert node.processes("agent") == agent


def test_a_node_whose_engine_is_down_is_not_returned(
    tmp_path: Path, node: Node, cluster: ControlPlane, token: str
) -> None:
    cluster.wait_for(lambda: is_ready(cluster), 120)
    hook, held, free = hold(tmp_path)
    back: list[set[str]] = []

    def fail_meanwhile() -> None:
        cluster.wait_for(held.exists, 120)
        node.run("pkill -STOP -x containerd")
        cluster.wait_for(lambda: not is_ready(cluster), 180)
        free.touch()
        time.sleep(10)
        back.append(cluster.cordoned(NODE))
        node.run("pkill -CONT -x containerd")

    with meanwhile(fail_meanwhile):
        hooks = ("-e", json.dumps({"gpu_state_hooks_before": [hook]}))
        done = upgrade_nodes(tmp_path, cluster, token, {NODE: {"idle_timeout_s": 60}}, *hooks)
    assert done.rc == 0 and steps(tmp_path) == {NODE: "in_service"}, done.output
    assert back == [{NODE}] and cluster.cordoned(NODE) == set()


def test_pods_see_exactly_the_gpus_that_the_device_plugin_gives_them(
    tmp_path: Path, node: Node, cluster: ControlPlane
) -> None:
    if not (node.programs / "nvidia-device-plugin").exists() or not shutil.which("cc"):
        pytest.skip(f"needs nvidia-device-plugin in the directory of {VARIABLE}, and a C compiler")
    # Its NVML is a mock that has the GPUs of a simulated host; their device nodes are those of no driver.
    simulated = SimulatedHost(tmp_path / "simulated", [{"model": "h200", "count": 8}])
    assert simulated.run("up") == 0
    printed, _status = simulated.smi("--query-gpu=uuid,pci.bus_id,name --format=csv,noheader")
    gpus = [line.split(", ") for line in printed.splitlines()]
    lines = (f"{uuid} {minor} {bus} {name}\n" for minor, (uuid, bus, name) in enumerate(gpus))
    (node.directory / "gpus").write_text("".join(lines))
    source = Path(__file__).with_name("nvml.c")
    library = node.directory / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, source], check=True)
    node.run("for n in 0 1 2 3 4 5 6 7 255; do mknod /dev/nvidia$n c 195 $n; done; mv /dev/nvidia255 /dev/nvidiactl")

    def serve(*options: str) -> None:
        settings = "LD_LIBRARY_PATH=/node NVML_GPUS=/node/gpus DP_DISABLE_HEALTHCHECKS=all"
        plugin = f"/kubernetes/nvidia-device-plugin --pass-device-specs {' '.join(options)}"
        node.run(f"pkill -x nvidia-device-p || true; {settings} setsid {plugin} >>/node/plugin.log 2>&1 &")

    def allocatable(resource: str) -> str:
        return str(cluster.node(NODE)["status"]["allocatable"].get(resource, ""))

    serve()
    cluster.wait_for(lambda: allocatable("nvidia.com/gpu") == "8", 60)
    for word, count in (("two", 2), ("six", 6), ("none", 1)):
        cluster.create("/apis/apps/v1/namespaces/default/deployments", workload("Deployment", word, gpus=count))
        cluster.wait_for(lambda word=word: word == "none" or node.processes(word), 120)
    seen = {}
    for word in ("two", "six"):
        (process,) = node.processes(word)
        nodes = {name for name in node.run(f"ls /proc/{process}/root/dev").split() if name[len("nvidia") :].isdigit()}
        environment = node.run(f"tr '\\0' '\\n' </proc/{process}/environ").splitlines()
        (given,) = (line.partition("=")[2] for line in environment if line.startswith("NVIDIA_VISIBLE_DEVICES="))
        assert {f"nvidia{minor}" for minor, (uuid, *_more) in enumerate(gpus) if uuid in given.split(",")} == nodes
        seen[word] = nodes
    assert [len(nodes) for nodes in seen.values()] == [2, 6] and not seen["two"] & seen["six"]
    assert not node.processes("none")

    # Shared by the configuration that the role writes.
    planned = plan(smi(*[H200] * 8), node=NODE, time_slicing={"nvidia.com/gpu": 4}, time_slicing_rename=True)
    (content,) = by_kind(planned, "ConfigMap")["data"].values()
    (node.directory / "shared.yaml").write_text(content)
    serve("--config-file=/node/shared.yaml")
    cluster.wait_for(lambda: allocatable("nvidia.com/gpu.shared") == "32", 60)
