# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of the role docker hand to modules, from a first run to the removal, on hosts of mock modules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.site.mock_host import DEBIAN_12, MockHost, SiteRun, run_site

pytestmark = pytest.mark.plays

# Of a host where facts were read: the action package asks for it.
APT: Mapping[str, Any] = {**DEBIAN_12, "ansible_pkg_mgr": "apt"}
DNF: Mapping[str, Any] = {
    **DEBIAN_12,
    "ansible_pkg_mgr": "dnf",
    "ansible_distribution": "Rocky",
    "ansible_distribution_version": "9.6",
    "ansible_distribution_major_version": "9",
    "ansible_os_family": "RedHat",
}
ENGINE = {"docker-ce": "5:28.5.1-1", "docker-ce-cli": "5:28.5.1-1", "containerd.io": "1.7.27-1"}
INSTALLED = {**ENGINE, "docker-buildx-plugin": "1", "docker-compose-plugin": "2", "python3-requests": "2"}
DONE = {
    "changed": False,
    "rc": 0,
    "stdout": "",
    "stdout_lines": [],
    "stderr": "",
    "stat": {"exists": False},
    "files": [],
}
MODULES = (
    *("file", "copy", "command", "stat", "find", "systemd_service", "managed_record", "apt", "dnf", "group", "user"),
    *("package_transaction", "package", "package_pin", "docker_login", "docker_image_pull"),
    *("docker_image_load", "docker_image_export", "signed_repository", "slurp", "uri"),
)
SECRET = "s3cret-word"
GIVEN: Mapping[str, Any] = {
    "docker_source": "docker_repository",
    "docker_version": "28.5.1",
    "docker_add_repo": False,
    "docker_users": ["ops"],
    "docker_daemon_options": {"log-driver": "local", "proxies": {"http-proxy": f"http://u:{SECRET}@proxy:3128"}},
    "docker_proxy": {"http": f"http://u:{SECRET}@proxy:3128"},
    "docker_registries": [
        {"registry": "nvcr.io", "password": SECRET},
        {"registry": "r.example", "ca": "  PEM\n\n"},
    ],
    "docker_images": [{"name": "debian:13"}, {"name": "mine:1", "archive": "/srv/mine.tar"}, {"name": "there:1"}],
    "docker_image_exports": [{"image": "debian:13", "path": "/srv/x/debian.tar"}],
}


@dataclass(frozen=True)
class Calls:
    """A run, and the arguments of each call of a module, in their order."""

    run: SiteRun
    calls: list[tuple[str, dict[str, Any]]]

    def of(self, module: str) -> list[dict[str, Any]]:
        """The arguments of the calls of one module."""
        return [arguments for name, arguments in self.calls if name == module]

    def argv(self) -> list[list[str]]:
        """The commands."""
        return [arguments["argv"] for name, arguments in self.calls if name.startswith("command")]


def role(
    directory: Path,
    host: MockHost,
    variables: Mapping[str, Any],
    *arguments: str,
    packages_after: Mapping[str, str] | None = None,
    results: Mapping[str, Any] | None = None,
    verbosity: int = 0,
) -> Calls:
    """Run the role alone."""
    playbook, log = directory / "playbook.json", directory / "log"
    include = {"ansible.builtin.include_role": {"name": "gpu.fleet.docker"}}
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [include]}]))
    known = {
        **dict.fromkeys(MODULES, DONE),
        "getent": {"ansible_facts": {"getent_passwd": {"ops": ["x"]}, "getent_group": {"docker": ["x", "9", "a"]}}},
        "daemon_json": {"changed": True, "differs": True, "backup_file": "/etc/docker/daemon.json.1~"},
        "unit_restart": {"changed": False, "reason": ""},
        "systemd_reload": {"changed": False, "containers": []},
        "systemd_service": {"changed": True, "status": {}},
        "docker_host_info": {"changed": False, "images": [{"RepoTags": ["there:1"]}]},
        "managed_facts": {"ansible_facts": {"gpu_fleet_managed": host.records}},
        **(results or {}),
    }
    facts = host.modules()["host_facts"]
    later = {name: [{"name": name, "version": version}] for name, version in (packages_after or host.packages).items()}
    after = {**facts, "ansible_facts": {**facts["ansible_facts"], "packages": later}}
    # Once more for the packages after the installation.
    known["host_facts"] = [facts, after]
    mock = MockHost(host.system, packages=host.packages, records=host.records, results=known)
    run = run_site(
        directory,
        {"host": (mock, variables)},
        *arguments,
        playbook=playbook,
        env={"GPU_FLEET_MOCK_LOG": str(log), "ANSIBLE_VERBOSITY": str(verbosity)},
    )
    lines = log.read_text().splitlines() if log.exists() else []
    return Calls(run, [(line.partition("\t")[0], json.loads(line.partition("\t")[2])) for line in lines])


@pytest.mark.parametrize("system", [APT, DNF], ids=["apt", "dnf"])
def test_a_first_run_hands_on_what_is_planned_and_prints_no_secret(system: Mapping[str, Any], tmp_path: Path) -> None:
    found = role(tmp_path, MockHost(system), GIVEN, packages_after=INSTALLED, verbosity=3)
    assert found.run.rc == 0, found.run.output[-3000:]
    assert SECRET not in found.run.output
    uses_apt = system is APT
    preview, installation = found.of("package_transaction")
    version = "docker-ce=5:28.5.1[-+~]*[0-9a-z]" if uses_apt else "docker-ce=28.5.1-*"
    assert version in installation["install"] and preview["install"] == installation["install"]
    assert installation["release_holds"] == ["docker-ce", "docker-ce-cli"]
    copies = {copy["dest"]: copy for copy in found.of("copy")}
    assert copies["/etc/systemd/system/docker.service.d/gpu-fleet-proxy.conf"]["mode"] == "0600"
    (pin,) = found.of("package_pin")
    assert {name: value for name, value in pin.items() if not name.startswith("_")} == {
        "host": "host",
        "role": "docker",
        "state": "present",
        "hold": ["docker-ce", "docker-ce-cli"],
        "preferences_file": "/etc/apt/preferences.d/gpu-fleet-docker",
    }
    assert [one["options"] for one in found.of("daemon_json")][-1] == GIVEN["docker_daemon_options"]
    assert ["gpasswd", "--add", "ops", "docker"] in found.argv()
    (login,) = found.of("docker_login")
    assert (login["registry_url"], login["username"], login["password"]) == ("nvcr.io", "$oauthtoken", SECRET)
    assert [one["name"] for one in found.of("docker_image_pull")] == ["debian:13", "debian:13"]
    assert [one["path"] for one in found.of("docker_image_load")] == ["/srv/mine.tar"]
    *begun, record = found.of("managed_record")
    assert [one["data"]["installed"] for one in begun] == [[], [*INSTALLED]] and "inputs" not in begun[0]
    assert SECRET not in str(begun)
    assert SECRET in record["secrets"] and len(record["inputs"]) == 64
    assert record["data"]["installed"] == [*INSTALLED]
    assert record["data"]["registries"] == ["nvcr.io"] and record["group_members"] == {"docker": ["ops"]}
    assert record["held_packages"] == ["docker-ce", "docker-ce-cli"]
    assert "/etc/docker/certs.d/r.example/ca.crt" in record["files"]
    assert SECRET not in str({name: value for name, value in record.items() if name != "secrets"})


def test_check_mode_of_a_bare_host_names_what_would_be_installed(tmp_path: Path) -> None:
    found = role(tmp_path, MockHost(), GIVEN, "--check")
    assert found.run.rc == 0, found.run.output[-3000:]
    assert "Would install docker-ce, docker-ce-cli, containerd.io" in found.run.output
    assert {name for name, _arguments in found.calls} <= {"host_facts", "find", "getent", "command"}


def _record(inputs: str, **data: Any) -> dict[str, Any]:
    return {"docker": {"inputs": inputs, "data": data, "drift": []}}


def test_a_converged_host_compares_passwords_and_lists_images_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    first = role(tmp_path / "first", MockHost(APT, packages=INSTALLED), GIVEN)
    inputs = first.of("managed_record")[-1]["inputs"]
    found = role(tmp_path, MockHost(APT, packages=INSTALLED, records=_record(inputs)), GIVEN, verbosity=3)
    assert found.run.rc == 0, found.run.output[-3000:]
    assert [name for name, _arguments in found.calls] == [
        *("host_facts", "managed_facts", "docker_host_info", "docker_image_load", "docker_image_pull")
    ]
    (compared,) = found.of("managed_facts")
    assert SECRET in compared["secrets"]["docker"] and SECRET not in found.run.output


def test_a_restart_that_would_stop_containers_is_refused_before_a_change(tmp_path: Path) -> None:
    running = {**DONE, "stdout": "job", "stdout_lines": ["job"]}
    given = {name: value for name, value in GIVEN.items() if name != "docker_version"}
    found = role(tmp_path, MockHost(APT, packages=INSTALLED), given, results={"command timeout 60": running})
    assert found.run.failure("host").startswith(
        "host: Docker has to be restarted (daemon.json changes; its proxy changes)"
    )
    assert {name for name, _arguments in found.calls} & {
        "copy",
        "file",
        "package_transaction",
        "systemd_service",
    } == set()


def test_options_that_docker_does_not_start_with_are_rolled_back(tmp_path: Path) -> None:
    journal = {**DONE, "stdout_lines": ["failed to start daemon: no such driver", "bye"]}
    results = {"command journalctl --unit=docker.service": journal, "systemd_service": {"failed": True, "msg": "no"}}
    found = role(tmp_path, MockHost(APT, packages=INSTALLED), GIVEN, results=results)
    failure = found.run.failure("host")
    assert failure.startswith(
        "host: Docker does not start with the new /etc/docker/daemon.json: failed to start daemon"
    )
    assert "does not start with that one either" in failure
    assert "/etc/docker/daemon.json.1~" in [copy.get("src") for copy in found.of("copy")]


def test_what_a_killed_installation_leaves_is_the_roles_own(tmp_path: Path) -> None:
    """Recorded before apt-get changes anything, taken over by the next run, and removed also where none follows."""
    killed = {"failed": True, "msg": "killed"}
    for part in ("killed", "next", "removal"):
        (tmp_path / part).mkdir()
    first = role(tmp_path / "killed", MockHost(APT), {}, results={"package_transaction": [DONE, killed]})
    names = [name for name, _arguments in first.calls]
    assert names.index("package_transaction", names.index("package_transaction") + 1) > names.index("managed_record")
    data = first.of("managed_record")[-1]["data"]
    assert {"docker.io", "containerd"} & {*data["installed"]} == {"docker.io"}
    left = MockHost(APT, packages={"docker.io": "26.1", "containerd": "1.7"}, records=_record("", **data))
    following = role(tmp_path / "next", left, {}, packages_after={"docker.io": "26.1", "python3-requests": "2"})
    assert "docker.io" in following.of("managed_record")[-1]["data"]["installed"], following.run.output[-2000:]
    removal = role(tmp_path / "removal", left, {"docker_state": "absent"})
    assert "docker.io" in removal.of("apt")[0]["name"], removal.run.output[-2000:]


def test_what_a_refused_simulation_would_install_is_not_the_roles_own(tmp_path: Path) -> None:
    refused = {"failed": True, "msg": "would remove podman-docker"}
    found = role(tmp_path, MockHost(APT), {}, results={"package_transaction": refused})
    assert [one["data"]["installed"] for one in found.of("managed_record")] == [[]]


def test_an_image_that_cannot_be_pulled_is_explained(tmp_path: Path) -> None:
    failed = {"failed": True, "msg": "Error pulling image - 400 Client Error (incorrect repository format)"}
    found = role(tmp_path, MockHost(APT, packages=INSTALLED), GIVEN, results={"docker_image_pull": failed})
    assert "containerd-snapshotter: false" in found.run.output


DATA: Mapping[str, Any] = {
    "installed": [*INSTALLED],
    "repository": ["/etc/apt/sources.list.d/docker.sources", "/etc/apt/keyrings/docker.asc"],
    "daemon_options": {"log-driver": "local"},
    "users": ["ops"],
    "registries": ["nvcr.io"],
    "certificates": ["/etc/docker/certs.d/r.example/ca.crt"],
    "version": "28.5.1",
}


@pytest.mark.parametrize("purge", [False, True])
def test_what_the_last_run_has_left_is_removed(purge: bool, tmp_path: Path) -> None:
    given = {**GIVEN, "docker_state": "absent", "docker_purge": purge}
    listed = {**DONE, "stdout_lines": ["c0ffee"]}
    host = MockHost(APT, packages=INSTALLED, records=_record("x", **DATA))
    found = role(tmp_path, host, given, results={"command timeout 60": listed})
    assert found.run.rc == 0, found.run.output[-3000:]
    removal = found.of("apt")[0]
    assert "docker-ce" in removal["name"] and "python3-requests" not in removal["name"]
    gone = {one["path"] for one in found.of("file") if one["state"] == "absent"}
    assert {*DATA["repository"], *DATA["certificates"]} <= gone
    assert ["gpasswd", "--delete", "ops", "docker"] in found.argv()
    assert [one["registry_url"] for one in found.of("docker_login")] == ["nvcr.io"]
    assert [(one["state"], one["hold"]) for one in found.of("package_pin")] == [
        ("absent", ["docker-ce", "docker-ce-cli"])
    ]
    (options,) = found.of("daemon_json")
    assert options["earlier"] == DATA["daemon_options"]
    assert (["docker", "rm", "--force", "c0ffee"] in found.argv()) is purge
    assert (["rmdir", "/var/lib/docker"] in found.argv()) is purge
    assert found.of("managed_record")[-1]["state"] == "absent"


def test_check_mode_takes_the_steps_of_a_removal(tmp_path: Path) -> None:
    """apt simulates no removal of held packages by itself, and the hold is still there."""
    given = {**GIVEN, "docker_state": "absent"}
    host = MockHost(APT, packages=INSTALLED, records=_record("x", **DATA))
    found = role(tmp_path, host, given, "--check", results={"file": {**DONE, "changed": True}})
    assert found.run.rc == 0, found.run.output[-3000:]
    assert "Would remove docker-ce" in found.run.output
    assert [one["allow_change_held_packages"] for one in found.of("apt")] == [True]
    assert [one["state"] for one in found.of("package_pin")] == ["absent"]
    assert len(found.of("daemon_json")) == 1
    assert {*DATA["repository"], *DATA["certificates"]} <= {one["path"] for one in found.of("file")}
    assert found.of("managed_record")[-1]["state"] == "absent"
