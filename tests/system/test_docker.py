# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role docker with real engines: daemon.json in many states, and a private registry. The tests run in order."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import settings
from tests.system.support import Result, run

DIRECTORY = "tests/system/docker"
HOSTS = ("dk-deb12", "dk-deb13")
OPTIONS = {"live-restore": True, "log-driver": "local"}
DAEMON_FILE = "/etc/docker/daemon.json"
DROP_IN = "/run/systemd/system/docker.service.d/50-test.conf"
IMAGE = "localhost/gpu-fleet/demo:latest"
JOB = ("python3", "-c", "import time; time.sleep(86400)")
ARCHIVED = {"docker_images": [{"name": IMAGE, "archive": "/opt/testbed/container.tar"}]}
SECRET = "s3cret-word"


def play(name: str, *extra: str) -> Result:
    """Run a playbook on the hosts of this test."""
    path = name if "/" in name else f"{DIRECTORY}/{name}"
    return run(
        ["ansible-playbook", "-i", f"{DIRECTORY}/hosts.yml", path, *extra],
        env={"GPU_FLEET_TESTBED_INVENTORY": "docker"},
    )


def docker(options: dict[str, Any] | None = None, **variables: Any) -> Result:
    """Run the role with these daemon options and other variables."""
    given = {**ARCHIVED, "docker_daemon_options": OPTIONS if options is None else options, **variables}
    return play("docker.yml", "--extra-vars", json.dumps(given))


def on_host(host: str, *argv: str, text: str | None = None) -> str:
    """Run a command on a host with `text` on stdin; return its stdout."""
    command = ["podman", "exec", "--interactive", f"gpu-fleet-{settings.TESTBED_ID}-{host}", *argv]
    if text is not None:
        command = ["sh", "-c", 'printf %s "$0" | "$@"', text, *command]
    return run(command).output.strip()


def lay(text: str) -> None:
    """Write daemon.json on both hosts, as another tool would."""
    for host in HOSTS:
        on_host(host, "tee", DAEMON_FILE, text=text)


def daemon_options(host: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(on_host(host, "cat", DAEMON_FILE))
    return found


def message(result: Result) -> str:
    """The output as one line: Ansible folds messages."""
    return " ".join(result.output.split())


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    """Both hosts with Docker, each with a container that must keep running through all tests."""
    play("testbed/playbooks/create.yml")
    result = docker()
    assert result.status == 0, result.output[-6000:]
    for host in HOSTS:
        on_host(host, "docker", "rm", "--force", "job")
        on_host(host, "docker", "run", "--detach", "--name", "job", "--network", "none", IMAGE, *JOB)
    yield
    play("testbed/playbooks/destroy.yml")


@pytest.fixture(autouse=True)
def running_job(hosts: None) -> Iterator[None]:
    """No test may stop the container: live-restore is on."""
    before = {host: on_host(host, "docker", "inspect", "--format", "{{.State.Pid}}", "job") for host in HOSTS}
    assert all(int(pid) > 0 for pid in before.values())
    yield
    after = {host: on_host(host, "docker", "inspect", "--format", "{{.State.Pid}}", "job") for host in HOSTS}
    assert after == before


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("", {}),
        ('{"features": {"buildkit": true}, "runtimes": {"kata": {"path": "/opt/kata"}}}', None),
    ],
    ids=["empty", "unmanaged features and runtimes"],
)
def test_options_come_back_next_to_those_of_others(text: str, others: dict[str, Any] | None) -> None:
    lay(text)
    result = docker()
    assert result.status == 0, result.output[-6000:]
    expected = {**(json.loads(text) if others is None else others), **OPTIONS}
    assert [daemon_options(host) for host in HOSTS] == [expected, expected]
    assert all(on_host(host, "docker", "info", "--format", "{{.LiveRestoreEnabled}}") == "true" for host in HOSTS)
    assert docker().changed == dict.fromkeys(HOSTS, 0)


def test_a_file_that_is_not_json_is_refused_and_left_alone() -> None:
    lay('{"runtimes": {')
    result = docker()
    assert {host: result.recap[host].failed for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert f"{DAEMON_FILE} is not valid JSON" in message(result)
    assert {on_host(host, "cat", DAEMON_FILE) for host in HOSTS} == {'{"runtimes": {'}
    lay(json.dumps(OPTIONS))


@contextlib.contextmanager
def drop_in(text: str) -> Iterator[None]:
    """Lines for the section Service of docker.service on both hosts."""
    for host in HOSTS:
        on_host(host, "mkdir", "-p", str(Path(DROP_IN).parent))
        on_host(host, "tee", DROP_IN, text=f"[Service]\n{text}\n")
        on_host(host, "systemctl", "daemon-reload")
    yield
    for host in HOSTS:
        on_host(host, "rm", DROP_IN)
        on_host(host, "systemctl", "daemon-reload")


def test_options_that_the_daemon_cannot_start_with_are_rolled_back() -> None:
    broken = {**OPTIONS, "storage-driver": "nonsense"}
    # systemd waits between its own attempts; the unit is `activating` meanwhile.
    with drop_in("RestartSec=60"):
        result = docker(broken)
    assert {host: result.recap[host].failed for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert "Docker does not start with the new" in message(result)
    assert "nonsense" in message(result)
    assert [daemon_options(host) for host in HOSTS] == [OPTIONS, OPTIONS]
    assert {on_host(host, "systemctl", "is-active", "docker") for host in HOSTS} == {"active"}


def test_the_run_waits_for_a_daemon_that_systemd_still_starts() -> None:
    for host in HOSTS:
        on_host(host, "systemctl", "stop", "docker.service")
    with drop_in("ExecStartPre=/bin/sleep 40"):
        for host in HOSTS:
            on_host(host, "systemctl", "start", "--no-block", "docker.service")
        result = docker()
        assert {on_host(host, "systemctl", "is-active", "docker") for host in HOSTS} == {"active"}
    assert result.status == 0, result.output[-6000:]
    assert docker().changed == dict.fromkeys(HOSTS, 0)


def test_an_unknown_option_never_reaches_the_daemon_that_can_check() -> None:
    before = on_host("dk-deb13", "systemctl", "show", "--property=MainPID", "docker")
    result = docker({**OPTIONS, "no-such-option": True})
    assert {host: result.recap[host].failed for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert "no-such-option" in message(result)
    assert on_host("dk-deb13", "systemctl", "show", "--property=MainPID", "docker") == before
    assert [daemon_options(host) for host in HOSTS] == [OPTIONS, OPTIONS]


def test_a_conflict_is_settled_as_chosen_and_what_is_removed_goes() -> None:
    lay(json.dumps({**OPTIONS, "log-level": "warn"}))
    desired = {**OPTIONS, "log-level": "error"}
    refused = docker(desired, docker_daemon_conflict="fail")
    assert {host: refused.recap[host].failed for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert 'log-level is "warn", but "error" is requested' in message(refused).replace('\\"', '"')
    assert docker(desired).status == 0
    assert daemon_options("dk-deb12")["log-level"] == "error"
    assert docker().status == 0
    assert [daemon_options(host) for host in HOSTS] == [OPTIONS, OPTIONS]


@pytest.fixture(scope="module")
def registry(hosts: None) -> dict[str, Any]:
    """Login data of a private registry: address, user, password and certificate authority."""
    started = play("registry.yml")
    assert started.status == 0, started.output[-6000:]
    address = on_host("dk-deb13", "hostname", "-I").split()[0]
    authority = on_host("dk-deb13", "cat", "/etc/docker/registry/ca.crt")
    return {"registry": f"{address}:5000", "username": "robot", "password": SECRET, "ca": authority}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"ca": None}, "certificate"), ({"password": "an0ther-word"}, "401 Unauthorized")],
    ids=["unknown certificate", "wrong password"],
)
def test_a_login_that_fails_states_why_and_no_password(
    registry: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    login = {key: value for key, value in {**registry, **changes}.items() if value is not None}
    result = docker(docker_registries=[login])
    assert {host: result.recap[host].failed for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert registry["registry"] in message(result)
    assert reason in message(result)
    assert login["password"] not in result.output


def test_images_are_pulled_saved_and_loaded(registry: dict[str, Any], tmp_path: Path) -> None:
    name = f"{registry['registry']}/demo:1"
    logged_in = docker(docker_registries=[registry])
    assert logged_in.status == 0, logged_in.output[-6000:]
    assert SECRET not in logged_in.output
    assert registry["registry"] in on_host("dk-deb12", "cat", "/root/.docker/config.json")
    on_host("dk-deb13", "docker", "tag", IMAGE, name)
    on_host("dk-deb13", "docker", "push", "--quiet", name)

    variables: dict[str, Any] = {
        "docker_registries": [registry],
        "docker_images": [{"name": name}],
        "docker_image_exports": [{"image": name, "path": "/srv/images/demo.tar"}],
    }
    pulled = docker(**variables)
    assert pulled.status == 0, pulled.output[-6000:]
    assert name in on_host("dk-deb12", "docker", "images", "--format", "{{.Repository}}:{{.Tag}}")
    assert docker(**variables).changed == dict.fromkeys(HOSTS, 0)

    on_host("dk-deb12", "docker", "image", "rm", name)
    loaded = docker(**{**variables, "docker_images": [{"name": name, "archive": "/srv/images/demo.tar"}]})
    assert loaded.changed == {"dk-deb12": 1, "dk-deb13": 0}
    assert name in on_host("dk-deb12", "docker", "images", "--format", "{{.Repository}}:{{.Tag}}")


def test_a_registry_that_is_taken_out_is_invalidated(registry: dict[str, Any]) -> None:
    assert docker().status == 0
    assert registry["registry"] not in on_host("dk-deb12", "cat", "/root/.docker/config.json")
    assert on_host("dk-deb12", "find", "/etc/docker/certs.d", "-name", "ca.crt") == ""


def test_an_engine_of_others_goes_in_the_transaction_that_brings_docker() -> None:
    """Of podman's command docker. Images, settings and the container outlive Debian's engine, which is not purged."""
    for host in HOSTS:
        on_host(host, "apt-get", "--yes", "--no-install-recommends", "install", "podman-docker")
        assert "podman" in on_host(host, "docker", "--version")
    refused = docker()
    assert {host: refused.recap[host].failed for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert "docker_replace" in message(refused)
    given = {**ARCHIVED, "docker_daemon_options": OPTIONS, "docker_replace": ["podman-docker"]}
    predicted = play("docker.yml", "--check", "--extra-vars", json.dumps(given))
    assert predicted.status == 0, predicted.output[-6000:]
    assert all(predicted.changed[host] > 0 for host in HOSTS)
    assert all("podman" in on_host(host, "docker", "--version") for host in HOSTS)
    replaced = docker(docker_replace=["podman-docker"])
    assert replaced.status == 0, replaced.output[-6000:]
    assert docker(docker_replace=["podman-docker"]).changed == dict.fromkeys(HOSTS, 0)
    assert [daemon_options(host) for host in HOSTS] == [OPTIONS, OPTIONS]
    for host in HOSTS:
        assert "podman" not in on_host(host, "docker", "--version")
        assert IMAGE in on_host(host, "docker", "images", "--format", "{{.Repository}}:{{.Tag}}")
