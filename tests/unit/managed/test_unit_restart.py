# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""unit_restart, run as Ansible runs it, on hosts made of files with a mock systemctl."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.modules import unit_restart

from tests.unit.managed.conftest import ManagedHost, Run

UNIT = "crio.service"
FILE = "/etc/crio/crio.conf.d/99-nvidia.conf"
OLD, NEW = 'monitor_path = "/old"\n', 'monitor_path = "/new"\n'


def _program(host: ManagedHost, active: str, started: float, starts: str = "true", restarted: float = 9e9) -> None:
    """Mock systemctl with one unit; `starts` is a shell condition, times are in seconds after the boot."""
    state = host.programs / "state"
    state.write_text(f"{active} {started * 1e6:.0f}")
    host.program(
        "systemctl",
        f"""read active started <{state}
case "$1" in
show) printf 'LoadState=loaded\\nUnitFileState=enabled\\nActiveState=%s\\n' "$active"
      printf 'ExecMainStartTimestampMonotonic=%s\\n' "$started";;
restart) if {starts}; then echo "active {restarted * 1e6:.0f}" >{state}
         else echo "failed 0" >{state}; echo "Job for {UNIT} failed." >&2; exit 1; fi;;
esac""",
    )


def _restarts(host: ManagedHost) -> int:
    return sum(call.startswith("systemctl restart") for call in host.calls())


@pytest.fixture
def restart(run: Run, host: ManagedHost) -> Run:
    def call(check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        host.log.write_text("")
        options = {"name": UNIT, "started_after": [FILE, "/etc/crio/crio.conf"], **arguments}
        return run(unit_restart.main, check_mode, **options)

    return call


@pytest.mark.parametrize(
    ("active", "started", "needed"),
    [
        ("active", 10.0, f"{UNIT} was started before the last change of {FILE}"),
        ("active", 30.0, ""),
        ("inactive", 10.0, ""),
        ("failed", 10.0, f"{UNIT} has failed"),
    ],
)
def test_a_service_is_restarted_once_where_it_has_not_read_its_files(
    active: str, started: float, needed: str, host: ManagedHost, restart: Run
) -> None:
    host.write(FILE, NEW)
    host.modify(FILE, 20.0)
    _program(host, active, started)
    assert restart(check_mode=True)["reason"] == needed and _restarts(host) == 0
    result = restart()
    assert (result["changed"], result["reason"], _restarts(host)) == (bool(needed), needed, bool(needed))
    assert restart()["changed"] is False
    assert set(yaml.safe_load(unit_restart.RETURN)) <= set(result)


def test_a_directory_shows_that_a_file_was_removed(host: ManagedHost, restart: Run) -> None:
    host.write(FILE, NEW)
    host.path(FILE).unlink()
    host.modify("/etc/crio/crio.conf.d", 20.0)
    _program(host, "active", 10.0)
    assert restart(started_after=["/etc/crio/crio.conf.d"])["changed"] is True


def test_a_missing_unit_is_left_alone(host: ManagedHost, restart: Run) -> None:
    host.write(FILE, NEW)
    host.unit("other.service")
    assert restart()["changed"] is False


@pytest.mark.parametrize(
    ("previous", "left"), [({FILE: OLD}, OLD), ({FILE: None}, None), ({}, NEW)], ids=["changed", "new", "unknown"]
)
def test_what_the_service_does_not_start_with_is_restored(
    previous: dict[str, str | None], left: str | None, host: ManagedHost, restart: Run
) -> None:
    host.write(FILE, NEW)
    host.modify(FILE, 20.0)
    _program(host, "active", 10.0, starts=f"! grep -q /new {host.path(FILE)}")
    result = restart(previous=previous)
    assert result["failed"] is True and f"Job for {UNIT} failed." in result["msg"]
    assert (host.path(FILE).read_text() if host.path(FILE).exists() else None) == left
    assert _restarts(host) == (2 if previous else 1)
    assert (f"{FILE} restored, and it runs with the previous configuration" in result["msg"]) is bool(previous)
    assert result["changed"] is True, "the service was restarted, and has failed or has its former files again"


def test_a_restart_that_systemd_refuses_changes_nothing(host: ManagedHost, restart: Run) -> None:
    host.write(FILE, NEW)
    host.modify(FILE, 20.0)
    _program(host, "active", 10.0)
    program = (host.programs / "systemctl").read_text()
    (host.programs / "systemctl").write_text(program.replace("restart) ", "restart) echo Access denied >&2; exit 1; "))
    result = restart()
    assert result["failed"] and "Access denied" in result["msg"] and result["changed"] is False


def test_of_the_previous_files_all_are_restored_that_can_be(host: ManagedHost, restart: Run) -> None:
    link, target, unwritable = "/etc/gpu/link.conf", "/etc/gpu/site.conf", "/etc/gpu/file.conf/below.conf"
    host.write("/etc/gpu/file.conf", "a file, and no directory")
    host.write(target, NEW)
    host.path(link).symlink_to(host.path(target))
    _program(host, "active", 10.0, starts=f"! grep -q /new {host.path(target)}")
    host.write(FILE, NEW)
    host.modify(FILE, 20.0)
    result = restart(previous={link: OLD, unwritable: OLD})
    assert result["failed"] is True and f"{unwritable} could not be restored: " in result["msg"]
    assert host.path(link).is_symlink() and host.path(target).read_text() == OLD


def test_a_restart_that_changes_nothing_is_no_success(host: ManagedHost, restart: Run) -> None:
    host.write(FILE, NEW)
    host.modify(FILE, 2000.0)
    _program(host, "active", 10.0, restarted=1000.0)
    result = restart()
    assert result["failed"] is True and "was started before the last change" in result["msg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "crio"}, "name: 'crio' is not the full name of a service"),
        ({"name": "-H.service"}, "is not the full name"),
        ({"started_after": ["etc"]}, "started_after: 'etc' is not an absolute path"),
        ({"previous": {"etc": ""}}, "previous: 'etc' is not an absolute path"),
        ({"previous": {FILE: 5}}, f"the value of {FILE} has to be a string, or null"),
    ],
)
def test_bad_options_are_refused_by_name(
    arguments: dict[str, Any], message: str, host: ManagedHost, restart: Run
) -> None:
    result = restart(**arguments)
    assert result["failed"] is True and message in result["msg"]
    assert host.calls() == []
