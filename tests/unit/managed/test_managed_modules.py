# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""managed_record and managed_facts, run as Ansible runs them, on hosts made of files."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.modules import managed_facts, managed_record

from tests.unit.managed.conftest import ManagedHost, Run

RECORD = "/var/lib/gpu-fleet/managed/example.json"
UNIT = "nvidia-persistenced.service"
DAEMON = "/etc/docker/daemon.json"
ABSENT_LINE = r"^\s*deb\b.*developer\.download\.nvidia\.com/"


def a_converged_host(host: ManagedHost) -> dict[str, Any]:
    """Set up a host with one of everything that can be recorded; return the options that record it."""
    host.write("/etc/example.conf", "colour = green\n")
    host.write("/etc/example.d/one.conf", "1\n")
    host.link("/usr/local/cuda", "/etc/alternatives/cuda")
    host.path("/srv/data").mkdir(parents=True)
    host.write("/etc/modules", "# modules\nib_umad\n")
    host.write(DAEMON, '{"features": {"cdi": true, "other": 1}, "debug": false}')
    host.write("/etc/group", "root:x:0:\ndocker:x:995:alice,bob\n")
    host.write("/etc/apt/sources.list.d/nvidia-cuda.sources", "URIs: https://developer.download.nvidia.com/compute\n")
    host.write("/etc/apt/sources.list.d/debian.list", "deb https://mirror.example/debian trixie main\n")
    host.package("cuda-toolkit-13-0", "13.0.1-1")
    host.package("nvidia-driver", "580.159.04-1", "hold ok installed")
    host.unit(UNIT)
    return {
        "inputs": "abc",
        "files": [
            *("/etc/example.conf", "/etc/example.d/*.conf", "/usr/local/cuda", "/srv/data"),
            "/etc/apt/sources.list.d/nvidia-cuda.sources",
        ],
        "absent": ["/etc/apt/sources.list.d/cuda*.list"],
        "lines": {"/etc/modules": ["ib_umad"]},
        "absent_lines": {"/etc/apt/sources.list.d/*": [ABSENT_LINE]},
        "json_values": {DAEMON: {"features": {"cdi": True}}},
        "packages": ["cuda-toolkit-13-0"],
        "pinned_packages": ["nvidia-driver"],
        "units": {UNIT: {"enabled": True, "active": True}},
        "group_members": {"docker": ["alice"]},
        "data": {"needed_by": ["cuda"]},
    }


CONF = "/etc/example.conf"
LIST = "/etc/apt/sources.list.d/mine.list"
OLD, OLD_ONES = "/etc/apt/sources.list.d/cuda-debian13-x86_64.list", "/etc/apt/sources.list.d/cuda*.list"
Change = Callable[[ManagedHost], Any]

# A change on the host, and the drift in the facts: kind, name, message.
DRIFTS: dict[str, tuple[Change, str, str, str]] = {
    "content": (lambda host: host.write(CONF, "colour = red\n"), "file", CONF, f"{CONF} was changed"),
    "file removed": (lambda host: host.path(CONF).unlink(), "file", CONF, f"{CONF} is missing"),
    "mode": (lambda host: host.path(CONF).chmod(0o600), "file", CONF, f"{CONF} has mode 0600, not 0644"),
    "link instead of a file": (
        lambda host: host.link(CONF, "other.conf"),
        "file",
        CONF,
        f"{CONF} is a link, not a file",
    ),
    "a file that a wildcard found": (
        lambda host: host.path("/etc/example.d/one.conf").unlink(),
        "file",
        "/etc/example.d/one.conf",
        "/etc/example.d/one.conf is missing",
    ),
    "link": (
        lambda host: host.link("/usr/local/cuda", "cuda-12.9"),
        "link",
        "/usr/local/cuda",
        "/usr/local/cuda leads to cuda-12.9, not to /etc/alternatives/cuda",
    ),
    "directory": (lambda host: host.path("/srv/data").rmdir(), "directory", "/srv/data", "/srv/data is missing"),
    "file that must be absent": (
        lambda host: host.write(OLD, ""),
        "absent",
        OLD,
        f"{OLD} exists and must not ({OLD_ONES})",
    ),
    "dangling link that must be absent": (
        lambda host: host.link(OLD, "nowhere"),
        "absent",
        OLD,
        f"{OLD} exists and must not ({OLD_ONES})",
    ),
    "line removed": (
        lambda host: host.write("/etc/modules", "# ib_umad\n"),
        "line",
        "/etc/modules",
        "/etc/modules lacks the line: ib_umad",
    ),
    "file of the line removed": (
        lambda host: host.path("/etc/modules").unlink(),
        "line",
        "/etc/modules",
        "/etc/modules lacks the line: ib_umad",
    ),
    "line that must be absent": (
        lambda host: host.write(LIST, "# x\ndeb https://developer.download.nvidia.com/a /\n"),
        "line",
        LIST,
        f"{LIST} has the line, but must not: deb https://developer.download.nvidia.com/a /",
    ),
    "JSON value": (
        lambda host: host.write(DAEMON, '{"features": {"cdi": false}}'),
        "json",
        DAEMON,
        f"{DAEMON} has false at features.cdi, not true",
    ),
    "JSON value of another type": (
        lambda host: host.write(DAEMON, '{"features": {"cdi": 1}}'),
        "json",
        DAEMON,
        f"{DAEMON} has 1 at features.cdi, not true",
    ),
    "JSON key": (
        lambda host: host.write(DAEMON, '{"features": {}}'),
        "json",
        DAEMON,
        f"{DAEMON} has nothing at features.cdi, not true",
    ),
    "JSON file removed": (
        lambda host: host.path(DAEMON).unlink(),
        "json",
        DAEMON,
        f'{DAEMON} has nothing at features, not {{"cdi": true}}',
    ),
    "JSON file damaged": (lambda host: host.write(DAEMON, "{"), "json", DAEMON, f"{DAEMON} is not JSON"),
    "package removed": (
        lambda host: host.package("cuda-toolkit-13-0", "13.0.1-1", "deinstall ok config-files"),
        "package",
        "cuda-toolkit-13-0",
        "cuda-toolkit-13-0 is not installed",
    ),
    "package purged": (
        lambda host: host.remove_package("cuda-toolkit-13-0"),
        "package",
        "cuda-toolkit-13-0",
        "cuda-toolkit-13-0 is not installed",
    ),
    "package half-configured": (
        lambda host: host.package("cuda-toolkit-13-0", "13.0.1-1", "install ok half-configured"),
        "package",
        "cuda-toolkit-13-0",
        "cuda-toolkit-13-0 is not installed, but half-configured",
    ),
    "pinned package moved": (
        lambda host: host.package("nvidia-driver", "590.44-1", "hold ok installed"),
        "version",
        "nvidia-driver",
        "nvidia-driver has version 590.44-1, not 580.159.04-1",
    ),
    "hold removed": (
        lambda host: host.package("nvidia-driver", "580.159.04-1"),
        "hold",
        "nvidia-driver",
        "nvidia-driver is no longer held at its version",
    ),
    "pinned package removed": (
        lambda host: host.remove_package("nvidia-driver"),
        "package",
        "nvidia-driver",
        "nvidia-driver is not installed",
    ),
    "unit stopped": (lambda host: host.unit(UNIT, active="failed"), "unit", UNIT, f"{UNIT} is failed, not active"),
    "unit disabled": (
        lambda host: host.unit(UNIT, enabled="disabled"),
        "unit",
        UNIT,
        f"{UNIT} is disabled, not enabled",
    ),
    "unit masked": (
        lambda host: host.unit(UNIT, load="masked", enabled="masked"),
        "unit",
        UNIT,
        f"{UNIT} is masked, not enabled",
    ),
    "unit enabled until the next boot only": (
        lambda host: host.unit(UNIT, enabled="enabled-runtime"),
        "unit",
        UNIT,
        f"{UNIT} is enabled-runtime, not enabled",
    ),
    "unit removed": (lambda host: host.unit(UNIT, load="not-found"), "unit", UNIT, f"{UNIT} does not exist"),
    "user left the group": (
        lambda host: host.write("/etc/group", "docker:x:995:bob\n"),
        "member",
        "docker",
        "alice is not in the group docker",
    ),
}


def test_nothing_has_drifted_on_a_converged_host(host: ManagedHost, record: Run, facts: Run) -> None:
    result = record(**a_converged_host(host))
    assert (result["changed"], result["record"], result["unmet"]) == (True, RECORD, [])
    assert [modes(host, path) for path in (RECORD, "/var/lib/gpu-fleet/managed")] == [0o600, 0o700]
    assert facts() == {"example": {"inputs": "abc", "data": {"needed_by": ["cuda"]}, "drift": []}}


def modes(host: ManagedHost, path: str) -> int:
    return host.path(path).stat().st_mode & 0o7777


@pytest.mark.parametrize(("path", "mode"), [(RECORD, 0o644), ("/var/lib/gpu-fleet/managed", 0o755)])
def test_a_record_that_others_can_read_is_made_private(path: str, mode: int, host: ManagedHost, record: Run) -> None:
    claims = a_converged_host(host)
    record(**claims)
    host.path(path).chmod(mode)
    assert record(**claims, check_mode=True)["changed"] is True
    assert modes(host, path) == mode
    assert record(**claims)["changed"] is True
    assert [modes(host, RECORD), modes(host, "/var/lib/gpu-fleet/managed")] == [0o600, 0o700]
    assert record(**claims)["changed"] is False


PASSWORD = "correct horse"
KEY = "/var/lib/gpu-fleet/managed/key"


def everything_stored(host: ManagedHost) -> str:
    return "".join(path.read_text() for path in host.path("/var/lib/gpu-fleet/managed").glob("*.json"))


def test_of_secrets_only_a_keyed_digest_is_recorded(host: ManagedHost, record: Run, run: Run) -> None:
    result = record(secrets=PASSWORD, _ansible_diff=True)
    assert result["changed"] is True
    assert record(secrets=PASSWORD)["changed"] is False
    assert modes(host, KEY) == 0o600
    stored = everything_stored(host)
    facts = run(managed_facts.main, secrets={"example": PASSWORD})
    assert facts["ansible_facts"]["gpu_fleet_managed"]["example"]["drift"] == []
    for text in (stored, str(result), str(facts)):
        assert PASSWORD not in text
        assert hashlib.sha256(PASSWORD.encode()).hexdigest() not in text
        assert host.path(KEY).read_bytes().hex() not in text
    # The same password on another host has another digest.
    host.path(KEY).unlink()
    record(secrets=PASSWORD)
    assert everything_stored(host) != stored


SECRETS: dict[str, tuple[str, dict[str, str], bool]] = {
    "the same": (PASSWORD, {"example": PASSWORD}, False),
    "another": (PASSWORD, {"example": "another"}, True),
    "none any more": (PASSWORD, {"example": ""}, True),
    "the first": ("", {"example": PASSWORD}, True),
    "never any": ("", {"example": ""}, False),
    "of another role": (PASSWORD, {"other": "another"}, False),
}


@pytest.mark.parametrize("name", SECRETS)
def test_other_secrets_than_recorded_are_drift(name: str, host: ManagedHost, record: Run, run: Run) -> None:
    recorded, requested, differs = SECRETS[name]
    record(secrets=recorded)
    managed = run(managed_facts.main, secrets=requested)["ansible_facts"]["gpu_fleet_managed"]
    assert [item["kind"] for item in managed["example"]["drift"]] == (["secret"] if differs else [])


def test_without_the_key_secrets_are_compared_again(host: ManagedHost, record: Run, run: Run) -> None:
    record(secrets=PASSWORD)
    host.path(KEY).unlink()
    managed = run(managed_facts.main, secrets={"example": PASSWORD})["ansible_facts"]["gpu_fleet_managed"]
    assert [item["kind"] for item in managed["example"]["drift"]] == ["secret"]
    assert record(secrets=PASSWORD, check_mode=True)["changed"] is True
    assert not host.path(KEY).exists()


def test_the_key_is_removed_with_the_last_record(host: ManagedHost, record: Run) -> None:
    record(secrets=PASSWORD)
    record(role="other", secrets=PASSWORD)
    record(state="absent")
    assert host.path(KEY).exists()
    record(role="other", state="absent")
    assert not host.path("/var/lib/gpu-fleet").exists()


PROXY = "http://robot:p%40ss@proxy.example:3128"


def test_a_password_in_a_url_is_neither_recorded_nor_shown(host: ManagedHost, record: Run, run: Run) -> None:
    options = {"proxies": {"http-proxy": PROXY}, "registry-mirrors": [PROXY], "debug": True}
    host.write(DAEMON, json.dumps(options))
    result = record(json_values={DAEMON: options}, data={"daemon_options": options}, _ansible_diff=True)
    result.pop("invocation", None)  # ansible-core below 2.21 has the options in it
    assert "p%40ss" not in everything_stored(host) + str(result)
    assert record(json_values={DAEMON: options}, data={"daemon_options": options})["changed"] is False
    managed = run(managed_facts.main)["ansible_facts"]["gpu_fleet_managed"]["example"]
    assert managed["drift"] == []
    assert managed["data"]["daemon_options"]["proxies"] == {"http-proxy": "http://***@proxy.example:3128"}
    host.write(DAEMON, json.dumps({**options, "proxies": {"http-proxy": PROXY.replace("3128", "8080")}}))
    drift = run(managed_facts.main)["ansible_facts"]["gpu_fleet_managed"]["example"]["drift"]
    assert [item["message"] for item in drift] == [
        f'{DAEMON} has "http://***@proxy.example:8080" at proxies.http-proxy, not "http://***@proxy.example:3128"'
    ]


@pytest.mark.parametrize("name", DRIFTS)
def test_each_drift_is_found_and_reported(name: str, host: ManagedHost, record: Run, facts: Run) -> None:
    record(**a_converged_host(host))
    change, *expected = DRIFTS[name]
    change(host)
    drift = facts()["example"]["drift"]
    assert drift == [dict(zip(("kind", "name", "message"), expected, strict=True))]


def test_owner_and_group_are_recorded(host: ManagedHost, record: Run, facts: Run) -> None:
    record(**a_converged_host(host))
    path = host.path(CONF)
    mine = f"{path.stat().st_uid}:{path.stat().st_gid}"
    stored = host.path(RECORD)
    text = stored.read_text()
    assert f'"uid": {path.stat().st_uid}' in text
    # chown needs root, which runs these tests only sometimes: change the owner in the record instead.
    head, _path, tail = text.partition('"/etc/example.conf": {')
    stored.write_text(head + _path + tail.replace(f'"uid": {path.stat().st_uid}', '"uid": 4242', 1))
    assert [item["message"] for item in facts()["example"]["drift"]] == [
        f"{CONF} belongs to {mine}, not to 4242:{path.stat().st_gid}"
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda host: host.write(DAEMON, '{"features": {"cdi": true, "more": []}, "log-driver": "local"}'),
        lambda host: host.write("/etc/modules", "  ib_umad \nother\n"),
        lambda host: host.write("/etc/group", "docker:x:995:carol,alice\n"),
        lambda host: host.package("cuda-toolkit-13-0", "13.0.2-1"),
        lambda host: host.write("/etc/example.d/two.conf", "unmanaged"),
        lambda host: host.write(LIST, "# deb https://developer.download.nvidia.com/a /\n"),
    ],
    ids=["JSON", "lines", "group", "version of an unpinned package", "new file", "comment"],
)
def test_what_is_not_ours_may_change(change: Change, host: ManagedHost, record: Run, facts: Run) -> None:
    record(**a_converged_host(host))
    change(host)
    assert facts()["example"]["drift"] == []


def test_record_changes_only_with_its_content(host: ManagedHost, record: Run) -> None:
    claims = a_converged_host(host)
    assert record(**claims)["changed"] is True
    before = host.path(RECORD).stat()
    assert record(**claims)["changed"] is False
    assert host.path(RECORD).stat() == before
    assert record(**{**claims, "inputs": "def"})["changed"] is True
    host.write(CONF, "colour = blue\n")
    again = record(**{**claims, "inputs": "def"}, _ansible_diff=True)
    assert again["changed"] is True
    assert "sha256:" in again["diff"]["before"]
    assert again["diff"]["before"] != again["diff"]["after"] == host.path(RECORD).read_text()


UNMET: dict[str, tuple[dict[str, Any], str]] = {
    "file": ({"files": ["/etc/none"]}, "/etc/none is missing"),
    "wildcard": ({"files": ["/etc/none*.conf"]}, "/etc/none*.conf is missing"),
    "absent": ({"absent": ["/etc/example.conf"]}, "/etc/example.conf exists and must not"),
    "lines": ({"lines": {"/etc/modules": ["nvidia"]}}, "/etc/modules lacks the line: nvidia"),
    "absent_lines": (
        {"absent_lines": {"/etc/modules": ["^ib"]}},
        "/etc/modules has the line, but must not: ib_umad",
    ),
    "json_values": ({"json_values": {DAEMON: {"debug": True}}}, f"{DAEMON} has false at debug, not true"),
    "packages": ({"packages": ["none"]}, "none is not installed"),
    "pinned_packages": ({"pinned_packages": ["none"]}, "none is not installed"),
    "held_packages": (
        {"held_packages": ["cuda-toolkit-13-0"]},
        "cuda-toolkit-13-0 is not held at its version 13.0.1-1",
    ),
    "unit there": ({"units": {"none.service": {"active": True}}}, "none.service does not exist"),
    "unit inactive": ({"units": {UNIT: {"active": False}}}, f"{UNIT} is active, not inactive"),
    "unit disabled": ({"units": {UNIT: {"enabled": False}}}, f"{UNIT} is enabled, not disabled"),
    "group_members": ({"group_members": {"docker": ["carol"]}}, "carol is not in the group docker"),
    "group": ({"group_members": {"none": ["alice"]}}, "alice is not in the group none"),
}


@pytest.mark.parametrize("name", UNMET)
def test_what_is_not_so_is_not_recorded(name: str, host: ManagedHost, record: Run) -> None:
    a_converged_host(host)
    claims, message = UNMET[name]
    result = record(**claims)
    assert result["failed"] is True
    assert result["msg"] == f"example cannot be recorded as converged: {message}"
    assert [item["message"] for item in result["unmet"]] == [message]
    assert not host.path(RECORD).exists()
    predicted = record(**claims, check_mode=True)
    assert "failed" not in predicted
    assert predicted["changed"] is True
    assert [item["message"] for item in predicted["unmet"]] == [message]


def test_a_failure_names_everything_and_leaves_the_old_record(host: ManagedHost, record: Run) -> None:
    record(**a_converged_host(host))
    before = host.path(RECORD).read_text()
    result = record(packages=["one", "two"], files=["/three"])
    assert result["msg"].partition(": ")[2] == "/three is missing; one is not installed; two is not installed"
    assert host.path(RECORD).read_text() == before


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "role": ({"role": "../etc"}, "role: '../etc' is not a name"),
    "relative path": ({"files": ["etc/x"]}, "files: 'etc/x' is not an absolute path"),
    "relative path of lines": ({"lines": {"x": ["y"]}}, "lines: 'x' is not an absolute path"),
    "lines": ({"lines": {"/x": "y"}}, "lines: the value of /x is not a list of strings"),
    "regular expression": ({"absent_lines": {"/x": ["("]}}, "absent_lines: '(' is not a regular expression"),
    "package": ({"packages": ["--eval=x"]}, "packages: '--eval=x' is not a name"),
    "unit": ({"units": {"-H": {}}}, "units: '-H' is not a name"),
    "unit state": (
        {"units": {"a.service": {"started": True}}},
        "has to be a mapping of enabled, active, same_start and started_after",
    ),
    "unit files": ({"units": {"a.service": {"started_after": "/a"}}}, "started_after of a.service has to be a list"),
    "unit file": ({"units": {"a.service": {"started_after": ["a"]}}}, "units: 'a' is not an absolute path"),
    "unit value": ({"units": {"a.service": {"active": "yes"}}}, "same_start of a.service have to be true"),
    "members": ({"group_members": {"docker": "alice"}}, "group_members: the value of docker is not a list of strings"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
@pytest.mark.parametrize("check_mode", [False, True])
def test_bad_options_are_refused_by_name(name: str, check_mode: bool, host: ManagedHost, record: Run) -> None:
    options, message = BAD_OPTIONS[name]
    result = record(**options, check_mode=check_mode)
    assert result["failed"] is True
    assert message in result["msg"]
    assert not host.path("/var").exists()


def test_check_mode_writes_nothing(host: ManagedHost, record: Run) -> None:
    claims = a_converged_host(host)
    assert record(**claims, check_mode=True)["changed"] is True
    assert not host.path("/var/lib/gpu-fleet").exists()
    record(**claims)
    assert record(**claims, check_mode=True)["changed"] is False


def test_absent_removes_the_record_and_empty_directories(host: ManagedHost, record: Run, facts: Run) -> None:
    record(**a_converged_host(host))
    record(role="other.one")
    assert record(state="absent", check_mode=True)["changed"] is True
    assert host.path(RECORD).exists()
    assert record(state="absent")["changed"] is True
    assert set(facts()) == {"other.one"}
    assert record(state="absent")["changed"] is False
    assert record(role="other.one", state="absent")["changed"] is True
    assert not host.path("/var/lib/gpu-fleet").exists()


def test_a_directory_of_others_stays(host: ManagedHost, record: Run) -> None:
    record()
    host.write("/var/lib/gpu-fleet/state.json", "{}")
    record(state="absent")
    assert [path.name for path in host.path("/var/lib/gpu-fleet").iterdir()] == ["state.json"]


def _damaged(host: ManagedHost) -> dict[str, str]:
    whole = host.path(RECORD).read_text()
    return {
        "empty": "",
        "cut": whole[: len(whole) // 2],
        "not JSON": "inputs: abc\n",
        "a list": "[]",
        "another format": whole.replace('"format": 1', '"format": 99'),
        "a field less": whole.replace('"packages"', '"parcels"'),
        "number as text": whole.replace('"inputs": "abc"', '"inputs": 5'),
        "lists as text": whole.replace('"ib_umad"', "5"),
        "unit": whole.replace('"active": true', '"active": "true"'),
        "expression": whole.replace('"^\\\\s*deb', '"(^\\\\s*deb'),
        "pin": whole.replace('"held": true', '"held": null'),
    }


def test_a_damaged_record_counts_as_none(host: ManagedHost, record: Run, facts: Run) -> None:
    claims = a_converged_host(host)
    record(**claims)
    record(role="other")
    whole = host.path(RECORD).read_text()
    for name, text in _damaged(host).items():
        assert text != whole, name
        host.path(RECORD).write_text(text)
        assert set(facts()) == {"other"}, name
        assert record(**claims)["changed"] is True
        assert host.path(RECORD).read_text() == whole, name


def test_a_damaged_record_is_warned_of(host: ManagedHost, record: Run, run: Run) -> None:
    record(role="cut_short")
    path = record(role="cut_short")["record"]
    host.write(path, host.path(path).read_text()[:-9])
    warnings = [str(warning) for warning in run(managed_facts.main)["warnings"] if "cut_short" in str(warning)]
    assert len(warnings) == 1
    assert f"the record {path} is not used: it is damaged" in warnings[0]


def test_other_files_in_the_directory_are_no_records(host: ManagedHost, record: Run, facts: Run) -> None:
    record()
    for name in ("README", ".hidden.json", "Upper.json", "old.json.bak", ".json"):
        host.write(f"/var/lib/gpu-fleet/managed/{name}", "{")
    host.path("/var/lib/gpu-fleet/managed/directory.json").mkdir()
    assert set(facts()) == {"example"}


def test_a_host_without_records_asks_nothing(host: ManagedHost, run: Run) -> None:
    assert run(managed_facts.main)["ansible_facts"] == {"gpu_fleet_managed": {}}
    assert host.calls() == []


def test_all_records_are_compared_by_one_call(host: ManagedHost, record: Run, facts: Run) -> None:
    for number in range(5):
        host.unit(f"unit-{number}.service")
    for number in range(5):
        record(role=f"role_{number}", units={f"unit-{number}.service": {"enabled": True}})
    host.log.write_text("")
    assert {name: role["drift"] for name, role in facts().items()} == {f"role_{number}": [] for number in range(5)}
    assert len(host.calls()) == 1


def test_several_records_keep_apart(host: ManagedHost, record: Run, facts: Run) -> None:
    host.write("/etc/a", "a")
    host.write("/etc/b", "b")
    record(role="nvidia_repository.cuda", files=["/etc/a", "/etc/b"])
    record(role="nvidia_repository.container_toolkit", files=["/etc/b"])
    host.write("/etc/a", "changed")
    found = {name: [item["name"] for item in role["drift"]] for name, role in facts().items()}
    assert found == {"nvidia_repository.cuda": ["/etc/a"], "nvidia_repository.container_toolkit": []}


def test_big_files_are_known_by_size_and_time(host: ManagedHost, record: Run, facts: Run) -> None:
    path = host.path("/usr/lib/libcudnn.so.9")
    path.parent.mkdir(parents=True)
    with path.open("wb") as stream:
        stream.truncate((8 << 20) + 1)
    record(files=["/usr/lib/libcudnn*"])
    assert "stamp:8388609:" in host.path(RECORD).read_text()
    assert facts()["example"]["drift"] == []
    status = path.stat()
    with path.open("r+b") as stream:
        stream.write(b"x")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert [item["kind"] for item in facts()["example"]["drift"]] == ["file"]


@pytest.mark.parametrize(
    ("started", "drifted"),
    [
        pytest.param(30.0, [], id="started after both"),
        pytest.param(15.000001, [DAEMON], id="started between, to the microsecond"),
        pytest.param(5.0, [DAEMON, "/etc/docker/more.d/a.json"], id="started before both"),
        pytest.param(0.0, [], id="the start is unknown"),
    ],
)
def test_a_unit_started_before_its_configuration_has_drifted(
    started: float, drifted: list[str], host: ManagedHost, record: Run, facts: Run
) -> None:
    host.write(DAEMON, "{}")
    host.write("/etc/docker/more.d/a.json", "{}")
    host.modify("/etc/docker/more.d/a.json", 14.0)
    host.modify(DAEMON, 14.0)
    host.unit("docker.service", started=20.0)
    claim = {"active": True, "started_after": [DAEMON, "/etc/docker/more.d/*.json", "/etc/docker/none"]}
    assert "failed" not in record(units={"docker.service": claim})
    host.modify(DAEMON, 15.5)
    host.unit("docker.service", started=started)
    found = facts()["example"]["drift"]
    message = f"docker.service was started before the last change of {', '.join(drifted)}"
    assert found == ([{"kind": "start", "name": "docker.service", "message": message}] if drifted else [])
    refused = record(units={"docker.service": claim})
    assert ("failed" in refused) is bool(drifted), "a role cannot certify a process that has not read its files"


@pytest.mark.parametrize("active", ["inactive", "failed"])
def test_a_stopped_unit_reads_its_configuration_when_it_is_started(active: str, host: ManagedHost, record: Run) -> None:
    host.write(DAEMON, "{}")
    host.modify(DAEMON, 100.0)
    host.unit("docker.service", active=active, started=20.0)
    assert "failed" not in record(units={"docker.service": {"started_after": [DAEMON]}})


def test_a_file_from_the_future_is_no_drift(host: ManagedHost, record: Run) -> None:
    host.write(DAEMON, "{}")
    os.utime(host.path(DAEMON), (2**33, 2**33))
    host.unit("docker.service")
    assert "failed" not in record(units={"docker.service": {"started_after": [DAEMON]}})


@pytest.fixture
def both(record: Run, facts: Run) -> tuple[Run, Run]:
    return record, facts


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (20.0, 20.0, ""),
        (20.0, 21.0, ""),  # the clock was corrected
        (20.0, 40.0, "docker.service was started again"),
        (20.0, None, "docker.service does not run, or it is not known since when"),
        (None, 20.0, "docker.service was started again"),
        (None, None, "docker.service does not run, or it is not known since when"),
    ],
)
def test_a_process_that_must_stay_the_same(
    before: float | None, after: float | None, message: str, host: ManagedHost, both: tuple[Run, Run]
) -> None:
    record, facts = both
    if before is not None:
        host.unit("docker.service", started=before)
    assert "failed" not in record(units={"docker.service": {"same_start": True}})
    if after is not None:
        host.unit("docker.service", started=after)
    elif before is not None:
        host.unit("docker.service", active="inactive")
    assert [item["message"] for item in facts()["example"]["drift"]] == ([message] if message else [])


@pytest.mark.parametrize(
    ("state", "claim", "met"),
    [
        ("static", {"enabled": True}, True),
        ("static", {"enabled": False}, True),
        ("generated", {"enabled": True}, True),
        ("", {"enabled": True}, False),
        ("masked", {"enabled": False}, True),
    ],
)
def test_units_that_cannot_be_enabled(
    state: str, claim: dict[str, bool], met: bool, host: ManagedHost, record: Run
) -> None:
    host.unit("a.service", enabled=state)
    assert ("failed" not in record(units={"a.service": claim})) is met


def test_a_unit_that_is_to_be_gone_may_be_missing(host: ManagedHost, record: Run) -> None:
    host.unit("other.service")
    assert "failed" not in record(units={"gone.service": {"enabled": False, "active": False}})


def test_while_an_image_is_built_only_enabling_can_be_asked(host: ManagedHost, record: Run, facts: Run) -> None:
    # Error messages of systemctl in a chroot, and without systemd as PID 1.
    offline = (
        'case "$1" in show) echo "Running in chroot, ignoring command \'show\'" >&2;;\n'
        'is-enabled) [ "$3" = a.service ] && echo enabled || echo disabled;; esac'
    )
    host.program("systemctl", offline)
    assert "failed" not in record(units={"a.service": {"enabled": True}, "b.service": {"enabled": False}})
    assert facts()["example"]["drift"] == []
    result = record(units={"a.service": {"active": True}})
    assert result["msg"].endswith("a.service is not known to be active, as systemd does not run here, not active")


def test_results_are_as_documented(host: ManagedHost, record: Run, facts: Run) -> None:
    host.write("/etc/profile.d/cuda.sh", "1")
    documented = yaml.safe_load(managed_facts.RETURN)["ansible_facts"]["contains"]["gpu_fleet_managed"]["sample"]
    stored = record(role="cuda", inputs=documented["cuda"]["inputs"], files=["/etc/profile.d/cuda.sh"])
    host.write("/etc/profile.d/cuda.sh", "2")
    assert facts() == documented
    returned = yaml.safe_load(managed_record.RETURN)
    always = {"changed", "invocation", "diff", "warnings"}
    assert stored.keys() - always == returned.keys()
    unmet = record(packages=["example"])
    assert unmet["unmet"] == [{key: item["sample"] for key, item in returned["unmet"]["contains"].items()}]


def test_a_key_that_was_made_for_nothing_is_a_change(record: Run, host: ManagedHost) -> None:
    result = record(secrets=PASSWORD, packages=["missing"])
    assert result["failed"] and result["unmet"] and host.path(KEY).exists()
    assert result["changed"] is True
    assert record(secrets=PASSWORD, packages=["missing"])["changed"] is False


@pytest.mark.parametrize("fails", ["unlink", "rmdir"])
def test_a_record_that_is_removed_in_part_is_a_change(
    fails: str, record: Run, host: ManagedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(secrets=PASSWORD)
    really = os.unlink

    def fail(path: Any, *arguments: Any, **options: Any) -> None:
        if fails == "rmdir" or str(path) == str(host.path(KEY)):
            raise OSError(errno.EIO, "Input/output error", str(path))
        really(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, fail)
        result = record(state="absent")
    assert result["failed"] and "Input/output error" in result["msg"] and result["changed"] is True
