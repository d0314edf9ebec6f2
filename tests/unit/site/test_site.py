# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook site.yml on mock hosts: what it refuses, and what it runs on hosts with nothing to do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.benchmark import site as bench
from tests.conftest import ROOT
from tests.unit.plays import run_play
from tests.unit.site.converged import NVIDIA_SMI, RECORDS, VERSION, WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import DEBIAN_12, NO_DRIVER, NO_GPU, MockHost, run_site

pytestmark = pytest.mark.plays

OBSERVATION = ["host_facts"]
CONVERGED = [*OBSERVATION, "gpu_health"]
TASKS = 3
"""Tasks of a host with nothing to do: each costs the controller a process for each host, also one that is skipped."""
SCREEN = 24
"""Lines of a terminal. docs/site.md states the settings."""
TABLE = {"ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table"}


def test_what_is_wrong_is_refused_before_any_role_runs(tmp_path: Path) -> None:
    cases: dict[str, tuple[MockHost, Mapping[str, Any], str, list[str]]] = {
        "late": (
            MockHost(),
            {"gpu_state_power_limit": 65, "docker_version": "latest"},
            "late: docker_version is latest; it has to be a version such as 28.5.1, a branch such as 28.5, or empty",
            OBSERVATION,
        ),
        "null": (MockHost(), {"gpu_fleet_roles": None}, "null: gpu_fleet_roles is null; it takes a list of: ", []),
        "text": (MockHost(), {"gpu_fleet_roles": "docker"}, 'text: gpu_fleet_roles is "docker"; it takes a list', []),
        "form": (
            MockHost(),
            {"docker_users": "ops", "gpu_state_power_limit": "900 W", "cuda_versions": "{{ none_such }}"},
            "form: cuda_versions cannot be evaluated: 'none_such' is undefined",
            OBSERVATION,
        ),
        "users": (
            MockHost(missing_users=["ops"]),
            {"docker_users": ["ops"]},
            "users: docker_users has ops, who do not exist on the host; create them first",
            OBSERVATION,
        ),
        "user": (
            MockHost(system={**DEBIAN_12, "ansible_effective_user_id": 1000, "ansible_user_id": "ops"}),
            {"docker_users": "ops"},
            'user: docker_users is "ops"; it takes a list: docker_users: [text]; runs as user ops, not as root; add ',
            OBSERVATION,
        ),
        "platform": (
            MockHost(
                system={**DEBIAN_12, "ansible_distribution_major_version": "9", "ansible_distribution_version": "9.1"}
            ),
            {},
            "platform: Debian 9.1 is not supported; take the host out of the play or use one of: Debian 12, ",
            OBSERVATION,
        ),
        "result": (
            MockHost(),
            {"gpu_fleet_result_file": "run.json"},
            "result: gpu_fleet_result_file is set, and the callback gpu.fleet.run_result, which writes it, is not",
            OBSERVATION,
        ),
        "removal": (
            MockHost(packages={"dpkg": "1.21.22", "docker.io": "20.10.24+dfsg1-1", "runc": "1.1.5"}),
            {"docker_source": "docker_repository", "gpu_state_power_limit": 65},
            "removal: docker-ce would remove docker.io, runc; nothing was changed; set docker_source to distribution",
            OBSERVATION,
        ),
        "engine": (
            MockHost(packages={"dpkg": "1.21.22", "podman": "3.4.4+ds1-1"}),
            {"nvidia_container_toolkit_runtimes": ["docker", "podman"]},
            "engine: podman 3.4 does not support CDI, 4.1 and newer does; set nvidia_container_toolkit_mode to ",
            OBSERVATION,
        ),
        "key": (
            MockHost(),
            {"nvidia_repository_container_toolkit": {"key_url": "http://mirror.example.com/gpgkey"}},
            "key: NVIDIA has not published the fingerprint of this key, so it has to come over https or from a file",
            OBSERVATION,
        ),
        "broken": (
            MockHost(results={"host_facts": {"failed": True, "msg": "no Python."}}),
            {},
            "broken: cannot run a module: no Python; check user, password and become settings",
            OBSERVATION,
        ),
    }
    hosts = {name: (host, given) for name, (host, given, _message, _modules) in cases.items()}
    done = run_site(tmp_path, hosts)
    for name, (_host, _given, message, modules) in cases.items():
        assert done.failure(name).startswith(message), done.failure(name)
        assert done.modules[name] == modules
    assert "changed=1" not in done.output


def test_converged_hosts_cost_two_module_runs_each_and_one_screen(tmp_path: Path) -> None:
    hosts = ("node1", "node2", "node3")
    host = converged(WITHOUT_CONTAINER)
    quiet = {"ANSIBLE_DISPLAY_OK_HOSTS": "false", "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false"}
    done = run_site(tmp_path, dict.fromkeys(hosts, (host, WITHOUT_CONTAINER)), env={**TABLE, **quiet})
    assert done.rc == 0, done.output
    assert done.modules == dict.fromkeys(hosts, CONVERGED)
    for name in hosts:
        counts = {key: int(count) for key, count in re.findall(r"(\w+)=(\d+)", done.recap(name))}
        assert counts["ok"] + counts["skipped"] == TASKS
        assert sum(counts.values()) == TASKS, counts
    lines = done.output.splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["host", *hosts]
    assert len(lines) <= SCREEN


def _with_an_unmanaged_driver(given: Mapping[str, Any]) -> MockHost:
    """A host without packages and kernels, whose driver is that of a runfile."""
    host = converged(given)
    records = {name: record for name, record in host.records.items() if name != "nvidia_driver"}
    found = {"command": {"rc": 0, "stdout": "", "stderr": ""}, "find": {"files": [], "matched": 0}}
    return replace(host, records=records, results=found)


def test_that_an_unmanaged_driver_is_kept_is_reported_once(tmp_path: Path) -> None:
    given = {"gpu_fleet_roles": ["nvidia_driver"]}
    done = run_site(tmp_path, {"node1": (_with_an_unmanaged_driver(given), given)}, env=TABLE)
    assert done.rc == 0, done.output
    note = (
        "node1: the driver was installed by a runfile or by the builder of the image (no package has it), not by "
        "this role; it fits nvidia_driver_version newest and is left as it is, without pins. Set "
        "nvidia_driver_replace_unmanaged to true to have it replaced by nvidia_driver_source cuda_repository"
    )
    assert done.output.count(note) == done.output.count("not by this role") == 1
    assert "  580.95.05 (unmanaged)  " in done.output
    assert "changed=0" in done.recap("node1")
    assert "nvidia_smi_facts" not in done.modules["node1"]


def test_gpus_are_read_again_where_another_driver_was_loaded_since(tmp_path: Path) -> None:
    given = {"gpu_fleet_roles": ["nvidia_driver"]}
    host = _with_an_unmanaged_driver(given)
    again = {"nvidia_smi_facts": {"ansible_facts": {"nvidia_smi": host.nvidia_smi}}}
    bare = replace(host, nvidia_smi={**NO_DRIVER, "reason": "not_loaded"}, results={**host.results, **again})
    done = run_site(tmp_path, {"node1": (bare, given)}, env=TABLE)
    assert done.rc == 0, done.output
    assert done.modules["node1"][-1] == "nvidia_smi_facts"
    assert "node1  2 x NVIDIA H200  580.95.05" in done.output


def test_an_unmanaged_driver_that_is_kept_is_a_note_and_no_work(tmp_path: Path) -> None:
    """A driver of the image, the cloud or a driver container: common on hosts that come installed."""
    managed = converged(WITHOUT_CONTAINER)
    records = {name: record for name, record in managed.records.items() if name != "nvidia_driver"}
    host = replace(managed, records=records)
    loaded = {**host.cuda["driver"], "library_version": None, "module_version": None}
    hosts: dict[str, tuple[MockHost, Mapping[str, Any], bool]] = {
        "kept": (host, {}, True),
        "version": (host, {"nvidia_driver_version": VERSION.split(".", maxsplit=1)[0]}, True),
        "container": (replace(host, cuda={**host.cuda, "driver": loaded}), {}, True),
        # The role refuses it, replaces it, reads the recommendation, or looks for the marker of its removal.
        "other": (host, {"nvidia_driver_version": "570"}, False),
        "replaced": (host, {"nvidia_driver_replace_unmanaged": True}, False),
        "recommended": (host, {"nvidia_driver_version": "recommended", "nvidia_driver_source": "distribution"}, False),
        "removed": (
            replace(
                host,
                cuda={**host.cuda, "driver": loaded},
                nvidia_smi={**host.nvidia_smi, "available": False, "reason": "no_nvidia_smi", "gpus": []},
            ),
            {},
            False,
        ),
    }
    given = {name: (one, {**WITHOUT_CONTAINER, **more}) for name, (one, more, _kept) in hosts.items()}
    done = run_site(tmp_path, given, "--check", env=TABLE)
    assert {name: modules == CONVERGED for name, modules in done.modules.items()} == {
        name: kept for name, (_host, _more, kept) in hosts.items()
    }, done.output[-3000:]
    note = "kept: the driver was installed by a runfile or by the builder of the image (no package has it), not by"
    assert done.output.count(note) == 1
    assert "container: the driver was installed by a driver container" in done.output


def test_the_exporter_of_a_bare_host_is_predicted_without_its_package_manager(tmp_path: Path) -> None:
    """In check mode the module apt fails on a host without python3-apt."""
    done_before = {"file_set": {"changed": True}, "managed_record": {"changed": True}, "systemd_reload": {}}
    host = MockHost(nvidia_smi=NVIDIA_SMI, results=done_before)
    given = {"gpu_fleet_roles": ["gpu_monitoring"]}
    done = run_site(tmp_path, {"gpu1": (host, given)}, "--check")
    assert done.rc == 0, done.output[-3000:]
    assert "gpu1: would install prometheus-node-exporter" in done.output
    assert not {"apt", "systemd_service", "systemd"} & {*done.modules["gpu1"]}


def test_what_the_modules_of_roles_find_is_work_or_a_report(tmp_path: Path) -> None:
    """The role runs where it has work, and what it need not find again is not looked at twice."""
    host = converged(WITHOUT_CONTAINER)
    state, health = host.results["gpu_state"], host.results["gpu_health"]
    warm = {"verdict": "warn", "message": "GPU 1 is warm"}
    lost = {"verdict": "fail", "message": "GPU 1 is lost"}
    fine = {"verdict": "ok", "message": "no data of DCGM"}
    given = {**WITHOUT_CONTAINER, "gpu_fleet_roles": ["gpu_state", "gpu_health"]}
    applied = [*OBSERVATION, "gpu_state"]
    cases: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], list[str], str]] = {
        # Nothing is applied to a host whose prediction is that nothing would be changed.
        "predicted": (
            {"gpu_state in check mode": {**state, "warnings": ["no GPU is an A100"]}, "gpu_state": {"failed": True}},
            {},
            CONVERGED,
            "no GPU is an A100",
        ),
        "changed": (
            {"gpu_state in check mode": {**state, "changed": True}, "nvidia_smi_facts": {"changed": False}},
            {},
            [*applied, "gpu_health"],
            "",
        ),
        "pending": (
            {"gpu_state": {**state, "reboot_required": True, "reboot_tried": True, "pending": ["GPU-0"]}},
            {},
            [*applied, "gpu_health"],
            "pending: an ECC or MIG mode is pending on GPU-0; a reboot for it did not help",
        ),
        "refused": (
            {"gpu_state": {"failed": True, "msg": "power_limit_w 900 is above 700"}},
            {},
            OBSERVATION,
            "refused: gpu_state_power_limit 900 is above 700",
        ),
        "accepted": ({"gpu_health": {**health, "findings": [fine]}}, {}, CONVERGED, ""),
        "warm": ({"gpu_health": {**health, "verdict": "warn", "findings": [warm]}}, {}, CONVERGED, "GPU 1 is warm"),
        "lost": (
            {"gpu_health": {**health, "verdict": "fail", "findings": [lost]}},
            {},
            CONVERGED,
            "lost: GPU 1 is lost",
        ),
        "broken": (
            {"gpu_health": {"failed": True, "msg": "the history cannot be read"}},
            {},
            [*CONVERGED, "gpu_health"],
            "the history cannot be read",
        ),
        "tests": ({}, {"gpu_health_tests": ["dcgm_1"]}, CONVERGED, ""),
        "report": ({}, {"gpu_health_json": str(tmp_path)}, CONVERGED, ""),
    }
    hosts = {
        name: (replace(host, results={**host.results, **results}), {**given, **more})
        for name, (results, more, _modules, _message) in cases.items()
    }
    done = run_site(tmp_path, hosts)
    for name, (_results, _more, modules, message) in cases.items():
        assert done.modules[name] == modules, name
        assert message in done.output, name
    failed = {name for name in cases if "failed=1" in done.recap(name)}
    assert failed == {"refused", "lost", "broken"}, done.output[-3000:]
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "ok"
    assert done.failure("lost") == "lost: GPU 1 is lost"
    assert "no data of DCGM" not in done.output


def test_the_observation_predicts_with_the_options_of_the_role(tmp_path: Path) -> None:
    host = converged(WITHOUT_CONTAINER)
    state = {**host.results["gpu_state"], "changed": True}
    changing = replace(host, results={**host.results, "gpu_state": state, "nvidia_smi_facts": {"changed": False}})
    given = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_fleet_evidence": "always",
        "gpu_state_power_limit": "80%",
        "gpu_state_mig": [{"gpus": "1", "profiles": {"1g.18gb": 7}}],
        "gpu_state_reboot": "if_required",
    }
    done = run_site(tmp_path, {"node": (changing, given)}, env={"GPU_FLEET_MOCK_LOG": str(tmp_path / "log")})
    assert done.rc == 0, done.output[-3000:]
    rows = (line.partition("\t") for line in (tmp_path / "log").read_text().splitlines())
    calls = {name: json.loads(arguments) for name, _tab, arguments in rows}
    options = {name: value for name, value in calls["gpu_state"].items() if not name.startswith("_")}
    assert calls["host_facts"]["gpu_state"] == options
    assert (options["power_limit_w"], options["evidence"], options["stop_for_reboot"]) == ("80%", "always", False)


def test_a_container_is_run_where_its_proof_does_not_hold(tmp_path: Path) -> None:
    host = converged({})
    record = host.records["gpu_health"]
    restarted = {**record, "drift": [{"kind": "start", "name": "docker.service", "message": "it was started again"}]}
    cdi = {
        "installed": True,
        "cdi_specifications": [{"path": "/etc/cdi/nvidia.yaml", "kind": "nvidia.com/gpu", "devices": []}],
    }
    changed = {**host.results["gpu_state"], "changed": True}
    cases: dict[str, tuple[MockHost, Mapping[str, Any], bool]] = {
        "holds": (host, {}, False),
        "engine": (replace(host, records={**host.records, "gpu_health": restarted}), {}, True),
        "specification": (replace(host, cuda={**host.cuda, "container_toolkit": cdi}), {}, True),
        "driver": (replace(host, nvidia_smi={**host.nvidia_smi, "driver_version": "580.95.06"}), {}, True),
        "gpus": (replace(host, nvidia_smi={**host.nvidia_smi, "gpus": host.nvidia_smi["gpus"][:1]}), {}, True),
        "image": (host, {"gpu_health_container_image": "registry.example.com/base:2"}, True),
        "mode": (host, {"gpu_health_container_mode": "legacy"}, True),
        "always": (host, {"gpu_health_container_proof": "each_run"}, True),
        # Another role has changed the host in this run, which the facts do not show.
        "change": (
            replace(host, results={**host.results, "gpu_state": changed, "nvidia_smi_facts": {"changed": False}}),
            {"gpu_fleet_roles": ["gpu_state", "gpu_health"]},
            True,
        ),
    }
    done = run_site(tmp_path, {name: (one, given) for name, (one, given, _run) in cases.items()})
    found = {name: "docker_host_info" in modules for name, modules in done.modules.items()}
    assert found == {name: run for name, (_host, _given, run) in cases.items()}, done.output[-3000:]
    assert done.modules["holds"] == CONVERGED


def test_drift_of_any_record_and_another_variable_are_work(tmp_path: Path) -> None:
    host = converged(WITHOUT_CONTAINER)
    drift = [{"kind": "file", "name": "/etc/example", "message": "/etc/example was changed"}]
    hosts: dict[str, tuple[MockHost, Mapping[str, Any]]] = {
        name.replace(".", "-"): (
            replace(host, records={**host.records, name: {**host.records[name], "drift": drift}}),
            WITHOUT_CONTAINER,
        )
        for name in RECORDS
    }
    hosts["variable"] = (host, {**WITHOUT_CONTAINER, "docker_daemon_options": {"debug": True}})
    done = run_site(tmp_path, hosts, "--check")
    # A driver that is to be installed may change what the GPUs are.
    assert done.modules["nvidia_driver"][1] != "gpu_state"
    for name, modules in done.modules.items():
        assert modules[:1] == OBSERVATION
        # The mock has no results of what repairs it.
        assert len(modules) > len(CONVERGED) or f"[{name}] => {{" in done.output, name


def test_each_host_runs_its_roles_in_order_whatever_the_others_need(tmp_path: Path) -> None:
    """Hosts that need the last role alone come first: another one must not run it before what it needs earlier."""
    given = {"gpu_health_container_proof": "each_run"}
    host = converged({})
    drift = [{"kind": "file", "name": "/etc/example", "message": "/etc/example was changed"}]
    behind = replace(host, records={**host.records, "docker": {**host.records["docker"], "drift": drift}})
    hosts = {**{f"a{number}": (host, given) for number in range(3)}, "behind": (behind, given)}
    done = run_site(tmp_path, hosts)
    assert all("docker_host_info" in done.modules[f"a{number}"] for number in range(3))
    # The mock has no results of what repairs Docker, which comes first.
    assert "daemon_json" in done.modules["behind"] and "docker_host_info" not in done.modules["behind"]


def test_a_host_without_a_gpu_gets_the_rest(tmp_path: Path) -> None:
    host = converged(WITHOUT_CONTAINER)
    records = {name: record for name, record in host.records.items() if name in ("cuda", "cudnn", "docker")}
    records["nvidia_repository.cuda"] = host.records["nvidia_repository.cuda"]
    login = replace(host, nvidia_smi=NO_GPU, records=records)
    expecting = {**WITHOUT_CONTAINER, "gpu_fleet_expected_gpus": 8}
    hosts = {"login": (login, WITHOUT_CONTAINER), "dgx": (replace(login, records={}), expecting)}
    done = run_site(tmp_path, hosts, env=TABLE)
    assert done.modules["login"] == OBSERVATION, done.output
    rows = {line.split()[0]: line for line in done.output.splitlines() if line.startswith(("login", "dgx"))}
    assert "no GPU" in done.output.partition("host ")[2]
    assert done.failure("dgx").startswith("dgx: the host has no NVIDIA GPUs, and gpu_fleet_expected_gpus is 8")
    assert set(rows) == {"login", "dgx"}


def test_the_role_names_its_variables_where_the_module_names_its_options(tmp_path: Path) -> None:
    message = (
        "GPU 0 (NVIDIA H200): power_limit_w 900 is above 700; name other GPUs in gpus, or set on_unsupported to skip"
    )
    host = converged(WITHOUT_CONTAINER)
    failing = replace(host, results={"gpu_state": {"failed": True, "msg": message}})
    done = run_site(tmp_path, {"node": (failing, {**WITHOUT_CONTAINER, "gpu_state_power_limit": 900})})
    assert "gpu_state_power_limit 900 is above 700" in done.failure("node")
    assert "name other GPUs in gpu_state_gpus, or set gpu_state_on_unsupported to skip" in done.failure("node")


def test_without_the_observation_nothing_is_done(tmp_path: Path) -> None:
    """As with --step, if a person leaves it out."""
    tasks = ROOT / "playbooks/tasks/site.yml"
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.import_tasks": str(tasks)}]}
    printed = run_play(tmp_path, play, "--start-at-task", "Set the result of the health check")
    assert "ok=0 " in printed and "skipped=2 " in printed


def test_the_bench_measures_ansible_itself(tmp_path: Path) -> None:
    """A run from the server of the tests would cost nothing there."""
    _hosts, first, run, last, *_ratios = bench.measure(tmp_path, 1)
    assert run > first > 0.1 and last > 0.1
