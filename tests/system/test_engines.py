# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers on real engines of three ages: what each sees of the GPUs, by each way to request them.

The image has NVIDIA_VISIBLE_DEVICES=all, as NVIDIA's have: a container without a request could get all GPUs.

No archive of the tests has CRI-O. It is tried where GPU_FLEET_CRIO names a directory with `crio` and `pinns`, built
from CRI-O's source on Debian sid with the tags libsqlite3 seccomp containers_image_openpgp exclude_graphdriver_btrfs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from testbed import settings
from tests.system.support import Result, run

DIRECTORY = "tests/system/engines"
IMAGE = "localhost/gpu-fleet/demo:latest"
DEBIAN_12, DEBIAN_13, SID = HOSTS = ("en-deb12", "en-deb13", "en-sid")
NEWER = (DEBIAN_13, SID)
CRIO = os.environ.get("GPU_FLEET_CRIO", "")
WITH_CRIO = (SID,) if CRIO else ()

# The host's second GPU is in MIG mode: it is given by its MIG devices.
ALL = ("0", "1:0", "1:1", "2", "3")
REQUESTS: dict[str, tuple[str, ...]] = {
    "none": (),
    "one": ("2",),
    "list": ("0", "3"),
    "all": ("all",),
    "MIG device": ("1:1",),
}

# What raw devices lack: the driver's programs and libraries, which come from the host then.
_DRIVER = ("/usr/bin/nvidia-smi", "/usr/lib/gpu-simulator", "/var/lib/gpu-simulator")
# Device files count as well: a container without nvidia-smi may still have some.
_LOOK = "echo /dev/nvidia* /dev/nvidia-caps/*; ! command -v nvidia-smi >/dev/null || nvidia-smi -L"
_GPU_FILE = re.compile(r"/dev/nvidia\d+|/dev/nvidia-caps/nvidia-cap\d+")


@dataclass(frozen=True)
class Host:
    """Names of GPUs and MIG devices by UUID, and the device nodes of each name."""

    names: dict[str, str]
    nodes: dict[str, tuple[str, ...]]


Command = Callable[[Host, Sequence[str]], list[str]]


@dataclass(frozen=True)
class Way:
    """How a container of an engine gets GPUs: the command up to the one inside, for requested names.

    without: what a container sees that requests nothing.
    """

    engine: str
    mechanism: str
    command: Command
    hosts: tuple[str, ...] = HOSTS
    without: tuple[str, ...] = ()


def _cdi(option: str, names: Sequence[str]) -> list[str]:
    return [f"{option}=nvidia.com/gpu={name}" for name in names]


def _variable(names: Sequence[str]) -> list[str]:
    return [f"--env=NVIDIA_VISIBLE_DEVICES={','.join(names)}"] if names else []


def _gpus(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return ["--gpus=all" if list(names) == ["all"] else f'--gpus="device={",".join(names)}"']


def _raw(host: Host, names: Sequence[str]) -> list[str]:
    nodes = dict.fromkeys(node for name in names for node in host.nodes[name])
    return [f"--device={node}" for node in ([*nodes, "/dev/nvidiactl"] if nodes else [])]


_DOCKER = ["docker", "run", "--rm", "--network=none"]
_PODMAN = ["podman", "run", "--rm", "--network=none"]
# A host that is a container itself has mounts below /proc and /sys: the kernel refuses an unprivileged user new ones.
_USER = ["runuser", "-u", "ordinary", "--", "env", "HOME=/home/ordinary", "XDG_RUNTIME_DIR=/run/user/1000"]
_ROOTLESS_DOCKER = [
    "docker",
    "--context=rootless",
    *_DOCKER[1:],
    "--pid=host",
    "--volume=/sys:/sys:ro",
]
_ROOTLESS_PODMAN = ["podman", "--storage-driver=vfs", *_PODMAN[1:], "--pid=host"]
_CTR = ["ctr", "run", "--rm"]
_CTR_IMAGE = [IMAGE, "look"]  # the container has to have a name
_CRI = ["python3", "/root/cri.py"]
_CRIO = ["env", "CONTAINER_RUNTIME_ENDPOINT=/run/crio/crio.sock", *_CRI]
_VOLUMES = [f"--volume={path}:{path}:ro" for path in _DRIVER]
_MOUNTS = [f"--mount=type=bind,src={path},dst={path},options=rbind:ro" for path in _DRIVER]
_RUNTIME = "--runc-binary=/usr/bin/nvidia-container-runtime"

WAYS = (
    Way("Docker", "CDI", lambda _, names: [*_DOCKER, *_cdi("--device", names), IMAGE], NEWER),
    Way("Docker", "hook, `--gpus`", lambda _, names: [*_DOCKER, *_gpus(names), IMAGE]),
    Way(
        "Docker",
        "hook, runtime `nvidia`",
        lambda _, names: [*_DOCKER, "--runtime=nvidia", *_variable(names), IMAGE],
        without=ALL,
    ),
    Way("Docker", "raw devices", lambda host, names: [*_DOCKER, *_raw(host, names), *_VOLUMES, IMAGE]),
    Way(
        "Docker, rootless",
        "CDI",
        lambda _, names: [*_USER, *_ROOTLESS_DOCKER, *_cdi("--device", names), IMAGE],
        NEWER,
    ),
    Way("podman", "CDI", lambda _, names: [*_PODMAN, *_cdi("--device", names), IMAGE]),
    Way("podman, rootless", "CDI", lambda _, names: [*_USER, *_ROOTLESS_PODMAN, *_cdi("--device", names), IMAGE]),
    Way("podman", "raw devices", lambda host, names: [*_PODMAN, *_raw(host, names), *_VOLUMES, IMAGE]),
    Way("containerd, `ctr`", "CDI", lambda _, names: [*_CTR, *_cdi("--device", names), *_CTR_IMAGE], (SID,)),
    Way(
        "containerd, `ctr`",
        "hook",
        lambda _, names: [*_CTR, _RUNTIME, *_variable(names), *_CTR_IMAGE],
        without=ALL,
    ),
    Way("containerd, `ctr`", "raw devices", lambda host, names: [*_CTR, *_raw(host, names), *_MOUNTS, *_CTR_IMAGE]),
    Way("containerd, CRI", "CDI", lambda _, names: [*_CRI, *_cdi("--device", names), IMAGE], NEWER),
    Way(
        "containerd, CRI",
        "hook, handler `nvidia`",
        lambda _, names: [*_CRI, "--runtime=nvidia", *_variable(names), IMAGE],
        without=ALL,
    ),
    Way("CRI-O", "CDI", lambda _, names: [*_CRIO, *_cdi("--device", names), IMAGE], WITH_CRIO),
    Way(
        "CRI-O",
        "hook, handler `nvidia`",
        lambda _, names: [*_CRIO, "--runtime=nvidia", *_variable(names), IMAGE],
        WITH_CRIO,
        without=ALL,
    ),
)

CASES = [(host, way, request) for host in HOSTS for way in WAYS if host in way.hosts for request in REQUESTS]


def play(name: str, *extra: str) -> Result:
    """Run a playbook on the hosts of this test."""
    path = name if "/" in name else f"{DIRECTORY}/{name}"
    return run(
        ["ansible-playbook", "-i", f"{DIRECTORY}/hosts.yml", path, *extra],
        env={"GPU_FLEET_TESTBED_INVENTORY": "engines"},
    )


def on_host(host: str, *argv: str) -> Result:
    """Run a command on a host."""
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", *argv])


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    """The hosts with their engines configured by the roles."""
    play("testbed/playbooks/create.yml")
    result = play("converge.yml")
    assert result.status == 0, result.output[-6000:]
    if CRIO:
        result = play("crio.yml", "--extra-vars", json.dumps({"crio_directory": CRIO}))
        assert result.status == 0, result.output[-6000:]
    yield
    play("testbed/playbooks/destroy.yml")


def described(host: str) -> Host:
    """The GPUs and MIG devices of a host."""
    names: dict[str, str] = {}
    index = ""
    for line in on_host(host, "nvidia-smi", "-L").output.splitlines():
        found = re.match(r"(?:GPU (\d+)|  MIG .* Device +(\d+)): .*\(?UUID: ([\w-]+)\)", line)
        assert found, line
        index = found[1] or index
        names[found[3]] = found[1] or f"{index}:{found[2]}"
    # As many driver's nodes as the specification names: of a MIG device, those of its capabilities too.
    listed = on_host(host, "sh", "-c", "nvidia-ctk cdi generate --format=json 2>/dev/null")
    devices = json.loads(listed.output)["devices"]
    nodes = {each["name"]: tuple(node["path"] for node in each["containerEdits"]["deviceNodes"]) for each in devices}
    return Host(names, nodes)


def changed_tasks(output: str, host: str) -> int:
    """How many tasks in a part of ansible-playbook's output have changed a host."""
    return sum(f"changed: [{host}]" in task for task in output.split("\nTASK ["))


def seen(output: str, names: dict[str, str]) -> tuple[str, ...]:
    """Names of the GPUs and MIG devices in the output of a container; of a GPU in MIG mode only the MIG devices."""
    found = [names[uuid] for uuid in re.findall(r"UUID: ([\w-]+)", output)]
    return tuple(name for name in found if not any(other.startswith(f"{name}:") for other in found))


@dataclass(frozen=True)
class Seen:
    """What a container saw: names, device files of GPUs and MIG devices. `expected` are the files for these names."""

    names: tuple[str, ...]
    files: frozenset[str]
    expected: frozenset[str]
    output: str


def look(host: str, described: Host, command: Sequence[str]) -> Seen:
    """Run a container that looks at its GPUs. One that did not start is run again: some releases of runc fail at times
    on a busy machine ("connection reset by peer"). A wrong command fails twice."""
    argv = [*command, "sh", "-c", _LOOK]
    result = on_host(host, *argv)
    if result.status:
        result = on_host(host, *argv)
    names = seen(result.output, described.names)
    listed = " ".join(line for line in result.output.splitlines() if line.startswith("/dev/"))
    expected = frozenset(node for name in names for node in described.nodes[name])
    return Seen(names, frozenset(re.findall(_GPU_FILE, listed)), expected, result.output)


@pytest.fixture(scope="module")
def results(hosts: None) -> dict[tuple[str, Way, str], Seen]:
    """What each container saw. Hosts are independent, so each has its own thread."""

    def of_host(name: str) -> dict[tuple[str, Way, str], Seen]:
        host = described(name)
        cases = [case for case in CASES if case[0] == name]
        return {case: look(name, host, case[1].command(host, REQUESTS[case[2]])) for case in cases}

    with ThreadPoolExecutor() as pool:
        return {case: result for part in pool.map(of_host, HOSTS) for case, result in part.items()}


def _expected(way: Way, request: str) -> tuple[str, ...]:
    names = REQUESTS[request] or way.without
    return ALL if names == ("all",) else names


@pytest.mark.parametrize(
    ("host", "way", "request_name"),
    CASES,
    ids=[f"{host}-{way.engine}-{way.mechanism}-{request}" for host, way, request in CASES],
)
def test_a_container_sees_exactly_what_it_requests(
    results: dict[tuple[str, Way, str], Seen], host: str, way: Way, request_name: str
) -> None:
    found = results[host, way, request_name]
    assert found.names == _expected(way, request_name), found.output
    assert found.files == found.expected, found.output


def _version(host: str, engine: str) -> str:
    command = {"Docker": "docker", "podman": "podman", "CRI-O": "crio"}.get(engine.partition(",")[0], "containerd")
    found = re.search(r"\d+\.\d+\.\d+", on_host(host, command, "--version").output)
    assert found
    return found[0]


def test_the_guide_has_the_table(results: dict[tuple[str, Way, str], Seen]) -> None:
    rows = []
    for way in WAYS:
        for host in way.hosts:
            cells = [", ".join(results[host, way, request].names) or "none" for request in REQUESTS]
            rows.append(f"| {way.engine} | {_version(host, way.engine)} | {way.mechanism} | {' | '.join(cells)} |")
    print("\n".join(rows))
    guide = (settings.ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
    tried = guide[guide.index("| engine | version |") :].split("\n\n", 1)[0].splitlines()[2:]
    tried = [line for line in tried if CRIO or not line.startswith("| CRI-O |")]
    # Debian's archive moves on: the guide's versions are those that were tried.
    without_version = re.compile(r"(?<=\|) [\d.]+ \|")
    assert [without_version.sub("", row, count=1) for row in rows] == [
        without_version.sub("", line, count=1) for line in tried
    ]


@pytest.fixture
def no_variable(results: dict[tuple[str, Way, str], Seen]) -> Iterator[None]:
    """The variable NVIDIA_VISIBLE_DEVICES does not count on the host with the newest engines."""
    directory = "/etc/nvidia-container-runtime"
    on_host(SID, "sh", "-ec", f"mkdir -p {directory}; touch {directory}/config.toml; cp {directory}/config.toml /root/")
    option = "accept-nvidia-visible-devices-envvar-when-unprivileged = false"
    on_host(SID, "sh", "-c", f"echo '{option}' >{directory}/config.toml")
    yield
    on_host(SID, "cp", "/root/config.toml", f"{directory}/config.toml")


def test_a_variable_that_does_not_count_gives_nothing(no_variable: None) -> None:
    host = described(SID)
    by_variable = [way for way in WAYS if way.mechanism.startswith("hook") and SID in way.hosts]
    given = {way.engine: look(SID, host, way.command(host, ["all"])).names for way in by_variable}
    assert given == dict.fromkeys(["Docker", "containerd, `ctr`", "containerd, CRI", *(["CRI-O"] if CRIO else [])], ())
    by_device = WAYS[0].command(host, ["2"])
    assert look(SID, host, by_device).names == ("2",)


def test_declared_containers_run_with_podman(hosts: None) -> None:
    limit = ["--limit", f"{DEBIAN_12},{SID}"]
    for host in (DEBIAN_12, SID):
        assert on_host(host, "systemctl", "disable", "podman-restart.service").status == 0
    extra = ["--extra-vars", f"@{DIRECTORY}/declared_vars.yml"]
    predicted = play("playbooks/run_container.yml", "--check", *extra, *limit)
    assert predicted.status == 0, predicted.output[-6000:]
    for host in (DEBIAN_12, SID):
        assert on_host(host, "podman", "container", "exists", "notebook").status == 1
    done = play("declared.yml", *limit)
    assert done.status == 0, done.output[-6000:]
    first, rest = done.output.split("\nTASK [Read what the containers see]")
    second = rest.partition("\nTASK [Run the containers again]")[2].partition("\nTASK [Read when they were started]")[0]
    for host in (DEBIAN_12, SID):
        # The directory and its token, the unit, the containers of both engines.
        assert changed_tasks(predicted.output, host) == 5
        assert changed_tasks(first, host) == 1 + 5, "before them, containers that are not the role's"
        assert changed_tasks(second, host) == 0
    assert "hunter2" not in done.output


# NVIDIA's registry

API_KEY = "nvapi-s3cret-word"
CUDA = "nvcr.io/nvidia/cuda:12.9.1-base-ubuntu24.04"
PRIVATE = "nvcr.io/team/trainer:1"
DOCKER_ROLE = "tests/system/docker/docker.yml"


def docker_role(**variables: object) -> Result:
    """Run the role docker on the hosts with the oldest and the newest engine."""
    given = {"docker_source": "distribution", **variables}
    return play(DOCKER_ROLE, "--limit", f"{DEBIAN_12},{SID}", "--extra-vars", json.dumps(given))


@pytest.fixture(scope="module")
def ngc(results: dict[tuple[str, Way, str], Seen]) -> None:
    """A registry named nvcr.io, with an image of NVIDIA's and a private one. No host is logged in."""
    started = play("ngc.yml", "--extra-vars", json.dumps({"ngc_key": API_KEY}))
    assert started.status == 0, started.output[-6000:]
    commands = [f"docker login --username '$oauthtoken' --password {API_KEY} nvcr.io"]
    for name in (CUDA, PRIVATE):
        commands += [f"docker tag {IMAGE} {name}", f"docker push --quiet {name}", f"docker rmi {name}"]
    pushed = on_host(DEBIAN_13, "sh", "-ec", "; ".join([*commands, "docker logout nvcr.io"]))
    assert pushed.status == 0, pushed.output


@pytest.mark.parametrize(("engine", "limit"), [("docker", HOSTS), ("podman", (SID,))], ids=["docker", "podman"])
def test_an_image_of_nvidia_is_pulled_and_run(ngc: None, engine: str, limit: tuple[str, ...]) -> None:
    given = json.dumps({"run_container_engine": engine})
    ran = play("playbooks/run_container.yml", "--extra-vars", given, "--limit", ",".join(limit))
    assert ran.status == 0, ran.output[-6000:]
    assert set(ran.recap) == set(limit)
    assert all(on_host(host, engine, "image", "inspect", CUDA).status == 0 for host in limit)


def test_a_declared_container_of_podman_pulls_its_image(ngc: None) -> None:
    on_host(SID, "podman", "rmi", "--force", CUDA)
    pulled = {"name": "pulled", "image": CUDA, "gpus": "none", "entrypoint": ["sh"], "command": ["-c", "exit 0"]}
    job = {**pulled, "restart_policy": "no", "ulimits": {"memlock": 65536, "nofile": 4096, "nproc": 4096}}
    given = json.dumps({"gpu_containers_engine": "podman", "gpu_containers_declared": [job]})
    ran = play("playbooks/run_container.yml", "--extra-vars", given, "--limit", SID)
    assert ran.status == 0, ran.output[-6000:]
    assert changed_tasks(ran.output, SID) == 2, "the image and the container"
    assert on_host(SID, "podman", "rm", "pulled").status == 0


def test_a_private_image_needs_the_key(ngc: None) -> None:
    oldest_and_newest = (DEBIAN_12, SID)
    for host in oldest_and_newest:
        assert "denied" in on_host(host, "docker", "pull", PRIVATE).output
    wrong = docker_role(docker_registries=[{"registry": "nvcr.io", "password": "an0ther-word"}])
    assert {host: counts.failed for host, counts in wrong.recap.items()} == dict.fromkeys(oldest_and_newest, 1)
    assert "nvcr.io" in wrong.output
    assert "an0ther-word" not in wrong.output
    login = {"registry": "nvcr.io", "password": API_KEY}
    pulled = docker_role(docker_registries=[login], docker_images=[{"name": PRIVATE}])
    assert pulled.status == 0, pulled.output[-6000:]
    assert API_KEY not in pulled.output
    assert all(on_host(host, "docker", "image", "inspect", PRIVATE).status == 0 for host in oldest_and_newest)
