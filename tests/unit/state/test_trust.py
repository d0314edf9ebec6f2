# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What root runs at boot: the system's Python, whatever Ansible uses, and no files that other users can change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common import trust as state_trust
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._state import service_files

from tests.unit.state.state_host import StateHost, in_this_process

_ORDINARY = 12345


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateHost]:
    """A host with an H200 and the Python of Debian 12."""
    made = StateHost.with_gpus(tmp_path, "h200")
    with in_this_process(monkeypatch, made):
        yield made


def _give(path: Path, group: int) -> None:
    """Give a file, a directory or a link to an ordinary user and a group."""
    if os.geteuid() != 0:
        pytest.skip("changing the owner of a file takes root")
    os.lchown(path, _ORDINARY, group)


def _replace(host: StateHost, path: str, target: str) -> None:
    host.path(path).unlink()
    host.path(path).symlink_to(target)


def _owned_by_a_user(host: StateHost) -> None:
    host.install_python("/opt/alice/python3")
    _give(host.path("/opt/alice/python3.11"), _ORDINARY)
    _replace(host, "/usr/bin/python3", "/opt/alice/python3.11")


def _two_links_away(host: StateHost) -> None:
    host.install_python("/opt/python/bin/python3")
    host.path("/opt/python").chmod(0o777)
    host.path("/etc/alternatives").mkdir(parents=True)
    host.path("/etc/alternatives/python3").symlink_to("../../opt/python/bin/python3")
    _replace(host, "/usr/bin/python3", "/etc/alternatives/python3")


# By name: a change of ownership, modes or links on the host, and the path in the error message.
UNTRUSTED: dict[str, tuple[Callable[[StateHost], object], str]] = {
    "Python of a user": (_owned_by_a_user, "chown -h root /opt/alice/python3.11"),
    "link of a user": (
        lambda host: _give(host.path("/usr/bin/python3"), 0),
        "chown -h root /usr/bin/pyt",
    ),
    "Python for the group": (
        lambda host: host.path("/usr/bin/python3.11").chmod(0o775),
        "chmod go-w /usr/bin/python3.11",
    ),
    "Python for all": (lambda host: host.path("/usr/bin/python3.11").chmod(0o757), "chmod go-w /usr/bin/python3.11"),
    "directory of Python": (lambda host: host.path("/usr/bin").chmod(0o775), "chmod go-w /usr/bin"),
    "directory with sticky bit": (
        lambda host: host.path("/usr/bin").chmod(0o1777),
        "install it where only root can write",
    ),
    "directory above": (lambda host: _give(host.path("/usr"), 0), "chown -h root /usr"),
    "directory behind two links": (_two_links_away, "chmod go-w /opt/python"),
    "loop of links": (lambda host: _replace(host, "/usr/bin/python3", "python3"), "loop"),
    "directory of the program": (lambda host: host.path("/usr/lib/gpu-fleet").mkdir(parents=True), ""),
    "directory of the plan": (lambda host: host.path("/var/lib/gpu-fleet/state").mkdir(parents=True), ""),
    "directory of units": (lambda host: host.path("/etc/systemd/system").mkdir(parents=True), ""),
    "directory of the command": (lambda host: host.path("/usr/sbin").mkdir(parents=True), ""),
    "directory of a part": (
        lambda host: host.path(service_files.PACKAGE + "/_mig").mkdir(parents=True),
        f"chmod go-w {service_files.PACKAGE}/_mig",
    ),
}
DIRECTORIES = {
    "directory of the program": "/usr/lib/gpu-fleet",
    "directory of the plan": "/var/lib/gpu-fleet",
    "directory of units": "/etc/systemd",
    "directory of the command": "/usr/sbin",
    "directory of a part": service_files.PACKAGE + "/_mig",
}


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("what", UNTRUSTED)
def test_what_others_could_change_is_refused_by_path_before_anything_is_touched(
    host: StateHost, what: str, check: bool
) -> None:
    prepare, reported = UNTRUSTED[what]
    prepare(host)
    if what in DIRECTORIES:
        host.path(DIRECTORIES[what]).chmod(0o777)
        reported = f"chmod go-w {DIRECTORIES[what]}"
    before = host.snapshot()
    run = host.state_run(check=check, persistence_mode=True)
    assert run.error is not None and reported in run.error, run.error
    assert host.state == before and host.units.log == [] and not host.path(service_files.PLAN_FILE).exists()


def test_the_nvidia_smi_that_root_runs_is_no_users(host: StateHost) -> None:
    program = host.path("/opt/alice/nvidia-smi")
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    _give(program, _ORDINARY)
    run = host.state_run(persistence_mode=True, executable="/opt/alice/nvidia-smi")
    assert run.error is not None and "chown -h root /opt/alice/nvidia-smi" in run.error and run.calls == []


def test_ansibles_own_python_is_never_in_the_unit(host: StateHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.install_python("/opt/alice/venv/bin/python")
    monkeypatch.setattr("sys.executable", "/opt/alice/venv/bin/python")
    assert host.state_run(persistence_mode=True).error is None
    unit, command = (host.path(path).read_text() for path in (service_files.UNIT_FILE, service_files.COMMAND))
    assert "\nExecStart=/usr/bin/python3 -I -S -B " in unit and "\nexec /usr/bin/python3 -I -S -B " in command
    assert "alice" not in unit + command
    # Another interpreter for Ansible in a later run does not change the unit.
    monkeypatch.setattr("sys.executable", "/usr/bin/python3.11")
    assert host.state_run(persistence_mode=True).result["changed"] is False


# By name: names and versions of the Python executables of a host, and the one that the unit runs.
PYTHONS: dict[str, tuple[dict[str, str], str]] = {
    "Debian 12": ({"/usr/bin/python3": "python3.11"}, "/usr/bin/python3"),
    "Debian 12 with a newer one": (
        {"/usr/bin/python3": "python3.11", "/usr/bin/python3.13": "python3.13"},
        "/usr/bin/python3",
    ),
    "Enterprise Linux 9": (
        {"/usr/bin/python3": "python3.9", "/usr/libexec/platform-python": "python3.9"},
        "/usr/bin/python3",
    ),
    "platform-python alone": ({"/usr/libexec/platform-python": "python3.9"}, "/usr/libexec/platform-python"),
    "Enterprise Linux 8": (
        {
            "/usr/libexec/platform-python": "platform-python3.6",
            "/usr/bin/python3.9": "python3.9",
            "/usr/bin/python3.12": "python3.12",
        },
        "/usr/bin/python3.12",
    ),
    "SLES 15": ({"/usr/bin/python3": "python3.6", "/usr/bin/python3.11": "python3.11"}, "/usr/bin/python3.11"),
}


def _with_pythons(host: StateHost, pythons: dict[str, str]) -> None:
    shutil.rmtree(host.path("/usr/bin"))
    for path, version in pythons.items():
        host.install_python(path, version)


@pytest.mark.parametrize("system", PYTHONS)
def test_python_is_the_distributions_under_the_name_that_stays(host: StateHost, system: str) -> None:
    pythons, expected = PYTHONS[system]
    _with_pythons(host, pythons)
    assert state_trust.system_python(str(host.root)) == expected


def test_an_upgrade_of_the_distribution_changes_nothing(host: StateHost) -> None:
    host.state_run(persistence_mode=True)
    _with_pythons(host, {"/usr/bin/python3": "python3.13"})
    again = host.state_run(persistence_mode=True)
    assert (again.error, again.result["changed"]) == (None, False)


@pytest.mark.parametrize(
    ("pythons", "reported"),
    [
        ({}, "/usr/bin/python3 is not there, /usr/libexec/platform-python is not there; install"),
        ({"/usr/bin/python3": "python3.6"}, "/usr/bin/python3 is Python 3.6"),
        ({"/usr/bin/python3": "pypy"}, "/usr/bin/python3 does not run"),
    ],
)
def test_without_a_python_that_will_do_the_error_states_what_was_looked_for(
    host: StateHost, pythons: dict[str, str], reported: str
) -> None:
    _with_pythons(host, pythons)
    run = host.state_run(persistence_mode=True)
    assert run.error is not None and reported in run.error and "3.8 or newer" in run.error and run.calls == []


def test_a_python_whose_name_has_no_version_is_asked(tmp_path: Path) -> None:
    program = tmp_path / "usr" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 3.10\n")
    program.chmod(0o755)
    assert state_trust.system_python(str(tmp_path)) == "/usr/bin/python3"


def test_this_very_host_is_as_it_should_be() -> None:
    """The system Python of the host that runs the tests is trusted, as on every distribution."""
    assert state_trust.system_python() == "/usr/bin/python3"
    with pytest.raises(
        ChangeError, match=r"/tmp is writable by others than root .* install it where only root can write"
    ):
        state_trust.refuse(("/tmp/anything",), "it")


def test_paths_are_followed_as_the_kernel_does(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    (tmp_path / "link").symlink_to("a/./b/../b")
    found = [place.path for place in state_trust.places("/link/file", str(tmp_path))]
    assert found == ["/", "/link", "/a", "/a/b", "/a/b", "/a/b/file"]
    assert state_trust.resolve("/link/file", str(tmp_path)) == "/a/b/file"
    assert state_trust.resolve("/link", str(tmp_path)) is None
    assert state_trust.resolve("/link/none/at/all", str(tmp_path)) is None
