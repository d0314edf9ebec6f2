# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exporter of the health, and alerts that the real Prometheus reads, fires and resolves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.health_exporter_files import health_exporter_files
from ansible_collections.gpu.fleet.plugins.module_utils._health import metrics
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import REMEDIES
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import gpu_monitoring

from tests.conftest import ROOT
from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable
from tests.unit.monitoring.exporter import check, install
from tests.unit.monitoring.prometheus import program
from tests.unit.plays import LOAD_FILTERS, run_play
from tests.unit.site.test_variables import preflight

pytestmark = pytest.mark.plays

HEALTH: dict[str, Any] = {"expected": {}, "policy": [], "kernel_log": "none", "history": ""}
DEFAULTS = RoleData.read().defaults(["gpu_monitoring"])
DASHBOARD = ROOT / "roles" / "gpu_monitoring" / "files" / "gpu_fleet_dashboard.json"


def rules(policy: list[dict[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    (group,) = gpu_monitoring.alert_rules(policy or [], 300)["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


# Alerts


def test_each_row_of_the_policy_that_is_no_mere_information_has_an_alert() -> None:
    expected = {row.id for row in TABLE if row.verdict in ("fail", "warn", "unknown")}
    found = [rule["expr"].split('"')[1] for name, rule in rules().items() if "gpu_fleet_health_finding" in rule["expr"]]
    assert sorted(found) == sorted(expected)
    (group,) = gpu_monitoring.alert_rules([], 300)["groups"]
    assert len(group["rules"]) == len(rules()), "names are unique"


def test_an_alert_has_severity_and_remedy_of_its_row() -> None:
    rule = rules()["GpuFleetRecoveryReset"]
    assert rule["labels"] == {"severity": "critical"}
    assert rule["annotations"]["remedy"] == REMEDIES["reset_gpu"]
    assert rules()["GpuFleetRowRemapPending"]["labels"] == {"severity": "warning"}


def test_rows_of_the_site_change_the_alerts() -> None:
    site: list[dict[str, Any]] = [
        {"id": "row_remap_pending", "verdict": "fail", "remedy": "reboot"},
        {"id": "recovery_reset", "verdict": "ok"},
        {"id": "memory_is_hot", "reading": "temperature_memory_c", "operator": "above", "value": 85, "verdict": "warn"},
    ]
    found = rules(site)
    assert found["GpuFleetRowRemapPending"]["labels"] == {"severity": "critical"}
    assert "GpuFleetRecoveryReset" not in found
    assert found["GpuFleetMemoryIsHot"]["annotations"]["summary"].endswith("memory is hot")


def written(directory: Path, files: Mapping[str, str]) -> None:
    """Write files below a directory."""
    for path, text in files.items():
        target = directory / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


class Promtool:
    """The tool of the real Prometheus."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, *arguments: str | Path, given: str | None = None) -> str:
        """The output of a call that accepts its input."""
        done = subprocess.run([self.path, *arguments], input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="session", name="promtool")
def _promtool() -> Promtool:
    return Promtool(program("promtool"))


@pytest.fixture(name="prometheus")
def _prometheus(tmp_path: Path) -> Path:
    files = gpu_monitoring.prometheus_files(str(tmp_path), ["gpu1:9100", "gpu2:9100"], 300, [])
    written(Path("/"), files)
    scrape = yaml.safe_load(files[f"{tmp_path}/gpu_fleet_scrape.yml"])
    configuration = {"rule_files": ["gpu_fleet_rules.yml"], **scrape}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    return tmp_path


def test_targets_are_discovered_from_a_file(prometheus: Path) -> None:
    assert json.loads((prometheus / "gpu_fleet_targets.json").read_text()) == [{"targets": ["gpu1:9100", "gpu2:9100"]}]
    scrape = yaml.safe_load((prometheus / "gpu_fleet_scrape.yml").read_text())
    assert scrape["scrape_configs"][0]["file_sd_configs"] == [{"files": [str(prometheus / "gpu_fleet_targets.json")]}]


def test_an_exporter_of_dcgm_is_a_job_of_its_own_with_the_instance_of_its_host() -> None:
    files = gpu_monitoring.prometheus_files("/p", ["gpu1:9100", "[fd00::2]:9100"], 300, [], ["gpu1:9400", "gpu3:9400"])
    scrape = yaml.safe_load(files["/p/gpu_fleet_scrape.yml"])
    assert [one["job_name"] for one in scrape["scrape_configs"]] == ["gpu_fleet", "gpu_fleet_dcgm"]
    assert json.loads(files["/p/gpu_fleet_dcgm_targets.json"]) == [
        {"targets": ["gpu1:9400"], "labels": {"instance": "gpu1:9100"}},
        {"targets": ["gpu3:9400"], "labels": {"instance": "gpu3:9400"}},
    ]
    assert "/p/gpu_fleet_dcgm_targets.json" not in gpu_monitoring.prometheus_files("/p", ["gpu1:9100"], 300, [])


def test_prometheus_accepts_configuration_and_rules(prometheus: Path, promtool: Promtool) -> None:
    assert "SUCCESS" in promtool("check", "config", prometheus / "prometheus.yml")
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", prometheus / "gpu_fleet_rules.yml")


def test_alerts_fire_with_the_remedy_and_resolve(prometheus: Path, promtool: Promtool) -> None:
    series = [
        # A GPU that needs a reset from the third minute to the tenth.
        ('gpu_fleet_health_finding{row="recovery_reset", gpu="GPU-1", instance="gpu1:9100"}', "_x2 1x7 stale _x20"),
        ('up{job="gpu_fleet", instance="gpu1:9100"}', "1x60"),
        ('up{job="gpu_fleet", instance="gpu2:9100"}', "1x10 0x50"),
        ('gpu_fleet_health_time_seconds{job="gpu_fleet", instance="gpu1:9100"}', "0+60x30 1800x30"),
        ('up{job="gpu_fleet", instance="gpu3:9100"}', "1x60"),
        ('gpu_fleet_health_time_seconds{job="gpu_fleet", instance="gpu2:9100"}', "0+60x60"),
        ('gpu_fleet_health_held{scheduler="slurm", instance="gpu1:9100"}', "_x2 1x7 stale _x20"),
    ]
    found = rules()["GpuFleetRecoveryReset"]
    summary = "gpu1:9100 GPU-1: the driver asks for a reset"
    reset = {
        "exp_labels": {"severity": "critical", "row": "recovery_reset", "gpu": "GPU-1", "instance": "gpu1:9100"},
        "exp_annotations": {**found["annotations"], "summary": summary},
    }
    missed = rules()["GpuFleetHealthNotChecked"]["annotations"]
    in_service = "gpu1:9100: verdict fail, and it stays in service in slurm"
    held = {
        "exp_labels": {"severity": "critical", "scheduler": "slurm", "instance": "gpu1:9100"},
        "exp_annotations": {**rules()["GpuFleetVerdictHeld"]["annotations"], "summary": in_service},
    }

    def not_checked(instance: str) -> dict[str, Any]:
        return {
            "exp_labels": {"severity": "warning", "job": "gpu_fleet", "instance": instance},
            "exp_annotations": {**missed, "summary": f"{instance}: no check of the GPUs for 900 seconds"},
        }

    cases = [
        ("5m", "GpuFleetRecoveryReset", [reset]),
        ("15m", "GpuFleetRecoveryReset", []),
        # From the start no file on gpu3; on gpu1 the timer stops after 30 minutes.
        ("20m", "GpuFleetHealthNotChecked", [not_checked("gpu3:9100")]),
        ("55m", "GpuFleetHealthNotChecked", [not_checked("gpu1:9100"), not_checked("gpu3:9100")]),
        ("10m", "GpuFleetHostDown", []),
        ("5m", "GpuFleetVerdictHeld", [held]),
        ("15m", "GpuFleetVerdictHeld", []),
    ]
    test = {
        "rule_files": ["gpu_fleet_rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "alert_rule_test": [
                    {"eval_time": time, "alertname": name, "exp_alerts": alerts} for time, name, alerts in cases
                ],
            }
        ],
    }
    (prometheus / "test.yml").write_text(yaml.safe_dump(test))
    assert "SUCCESS" in promtool("test", "rules", prometheus / "test.yml")


# The exporter


def test_the_program_checks_a_host_and_writes_its_metrics(tmp_path: Path, promtool: Promtool) -> None:
    host = Host(tmp_path, gpus=[{"model": "h200", "count": 2}])
    host.control("fault", "recovery-action", "reset", "--gpu", "1")
    smi = str(executable(tmp_path))
    textfile = tmp_path / "gpu.prom"
    install(tmp_path, {**HEALTH, "executable": smi}, textfile)
    done = check(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    text = textfile.read_text()
    assert 'row="recovery_reset"' in text
    assert "gpu_fleet_health_time_seconds" in text
    assert 'gpu_fleet_gpu_memory_total_bytes{gpu="GPU-' in text
    assert textfile.stat().st_mode & 0o777 == 0o644
    assert promtool("check", "metrics", given=text) == ""


def test_a_check_asks_nvidia_smi_nothing_twice(tmp_path: Path) -> None:
    """It takes most of the time of a check, which is each five minutes."""
    Host(tmp_path, gpus=[{"model": "h200", "count": 2}])
    smi, log = tmp_path / "counted", tmp_path / "calls"
    smi.write_text(f'#!/bin/sh\necho "$*" >>{log}\nexec {executable(tmp_path)} "$@"\n')
    smi.chmod(0o755)
    install(tmp_path, {**HEALTH, "executable": str(smi)}, tmp_path / "gpu.prom")
    assert check(tmp_path).returncode == 0
    calls = log.read_text().splitlines()
    assert any(call.startswith("-q -x") for call in calls) and len(calls) == len(set(calls))


def test_the_program_reports_what_it_cannot_write(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "h200", "count": 1}])
    assert host
    options = {**HEALTH, "executable": str(executable(tmp_path))}
    (tmp_path / "file").touch()
    install(tmp_path, options, tmp_path / "file" / "gpu.prom")
    done = check(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("the health of the GPUs cannot be written: ")


def host_play(tmp_path: Path, tasks: list[Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """A play with the role's defaults and tables, on a host without packages."""
    role = ROOT / "roles" / "gpu_monitoring"
    known = {
        **yaml.safe_load((role / "defaults" / "main.yml").read_text(encoding="utf-8")),
        **yaml.safe_load((role / "vars" / "main.yml").read_text(encoding="utf-8")),
        "ansible_python_interpreter": sys.executable,
        "__gpu_monitoring_exporter_record": f"{tmp_path}/record.json",
    }
    common = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    return {**common, "vars": {**known, **variables}, "tasks": [LOAD_FILTERS, *tasks]}


def role_tasks(name: str) -> list[dict[str, Any]]:
    """The tasks of a file of the role."""
    path = ROOT / "roles" / "gpu_monitoring" / "tasks" / name
    tasks: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tasks


PLAN = next(task for task in role_tasks("main.yml") if "gpu.fleet.role_plan" in task)


def test_the_role_makes_the_same_files_with_what_the_site_ignores(tmp_path: Path) -> None:
    """Ansible's importer of collections returns no source of a module, which the program is made of."""
    first = role_tasks("install.yml")[0]
    content = "{{ __gpu_monitoring_files | to_json }}"
    path = str(tmp_path / "files.json")
    show = {"ansible.builtin.copy": {"content": content, "dest": path}, "vars": first["vars"]}
    given = {
        "gpu_monitoring_textfile": "/a.prom",
        "gpu_monitoring_python": "python3",
        "gpu_health_ignore": ["ecc_mode_pending"],
        # As -e gives it.
        "gpu_monitoring_interval": "300",
    }
    run_play(tmp_path, host_play(tmp_path, [PLAN, show], given))
    made = json.loads((tmp_path / "files.json").read_text())
    health = {**HEALTH, "kernel_log": "auto", "history": "/var/lib/gpu-fleet/health", "ignore": ["ecc_mode_pending"]}
    assert made == health_exporter_files(health, "/a.prom", 300, "python3", "10%")


def test_the_role_refuses_an_interpreter_that_others_than_root_could_change(tmp_path: Path) -> None:
    interpreter = tmp_path / "python3"
    interpreter.touch()
    interpreter.chmod(0o757)
    first = role_tasks("install.yml")[0]
    first["vars"] = {
        "__gpu_monitoring_files": {"files": {f"{tmp_path}/example.service": "[Service]\n"}, "programs": {}}
    }
    refused = {"block": [first], "rescue": [{"ansible.builtin.debug": {"var": "ansible_failed_result.msg"}}]}
    output = run_play(tmp_path, host_play(tmp_path, [PLAN, refused], {"gpu_monitoring_python": str(interpreter)}))
    assert f"chmod go-w {interpreter}" in output
    assert not (tmp_path / "example.service").exists()


REFUSED = {
    "a row without a reading": (
        {"gpu_monitoring_policy": [{"id": "new"}]},
        "gpu_monitoring_policy: the new row new needs one of reading, xids and sxids",
    ),
    "a row of another form": (
        {"gpu_monitoring_policy": [{"id": "new", "xids": [13], "verdict": "critical"}]},
        'gpu_monitoring_policy[0].verdict is "critical"; use ok, info, unknown, warn or fail',
    ),
    "a cap that is none": (
        {"gpu_monitoring_max_drained": "a few"},
        "gpu_monitoring_max_drained is 'a few'; it takes a number of nodes, or a percentage of them such as 10%",
    ),
    "an unknown problem": (
        {"gpu_health_ignore": ["ecc_mode_pendign"]},
        "gpu_health_ignore: ecc_mode_pendign: no row of the policy is about it; see the codes in unhealthy",
    ),
}


@pytest.mark.parametrize(("given", "refusal"), REFUSED.values(), ids=REFUSED)
def test_the_role_alone_refuses_what_the_site_refuses(given: dict[str, Any], refusal: str, tmp_path: Path) -> None:
    assert preflight(given, roles=("gpu_monitoring",)).refusals == (refusal,)
    refused = {"block": [PLAN], "rescue": [{"ansible.builtin.debug": {"var": "ansible_failed_result.msg"}}]}
    assert f"localhost: {refusal}" in run_play(tmp_path, host_play(tmp_path, [refused], given))
    # The host of Prometheus has no GPUs, whose problems could be ignored.
    is_of_policy = "gpu_monitoring_policy" in given
    stage = gpu_monitoring.PLANNER.stages["prometheus"]
    found = stage({**DEFAULTS, **given}, {}, {"dashboard": ""})
    assert isinstance(found, Plan)
    assert found.refusals == ((refusal,) if is_of_policy else ())
    # Neither removal needs a policy.
    absent = {**DEFAULTS, **given, "gpu_monitoring_state": "absent"}
    assert planned(absent).refusals == ()
    assert stage(absent, {}, {"dashboard": ""}) == Plan(
        steps=("remove",), tasks={"files": {}, "unit": "prometheus.service"}
    )


DEBIAN = {"distribution": "Debian", "distribution_version": "13.1", "distribution_major_version": "13"}
ROCKY = {
    "os_family": "RedHat",
    "distribution": "Rocky",
    "distribution_version": "9.6",
    "distribution_major_version": "9",
}
NODE_EXPORTER = "prometheus-node-exporter"


def planned(variables: Mapping[str, Any], recorded: str = "", **facts: Any) -> Plan:
    """The plan for a host of Debian, unless the facts are of another one."""
    managed = {"gpu_monitoring": {"data": {"package": recorded}}} if recorded else {}
    known = {**DEBIAN, "packages": {}, "gpu_fleet_managed": managed, **facts}
    found = gpu_monitoring.PLANNER.stages["plan"]({**DEFAULTS, **variables}, known, {})
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize(
    ("package", "recorded", "facts", "expected"),
    [
        ("auto", "", {}, (NODE_EXPORTER, "apt", NODE_EXPORTER)),
        # Another's package stays when the role goes, its own does not.
        ("auto", "", {"packages": {NODE_EXPORTER: []}}, (NODE_EXPORTER, "", "")),
        ("auto", NODE_EXPORTER, {"packages": {NODE_EXPORTER: []}}, (NODE_EXPORTER, "", NODE_EXPORTER)),
        ("auto", "", ROCKY, ("", "", "")),
        ("node_exporter", "", ROCKY, ("node_exporter", "dnf", "node_exporter")),
        ("", NODE_EXPORTER, {}, ("", "", "")),
    ],
)
def test_the_package_is_that_of_the_distribution_and_of_who_installed_it(
    package: str, recorded: str, facts: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    found = planned({"gpu_monitoring_package": package}, recorded, **facts)
    assert found.steps == ("install",)
    assert tuple(found.tasks[name] for name in ("package", "installed_with", "own_package")) == expected
    absent = planned({"gpu_monitoring_package": package, "gpu_monitoring_state": "absent"}, recorded, **facts)
    assert absent.steps == ("remove",)
    assert absent.tasks["recorded_package"] == recorded


@pytest.mark.parametrize("cap", [5, "5", "10%"])
def test_the_cap_is_a_number_or_a_percentage(cap: object) -> None:
    assert preflight({"gpu_monitoring_max_drained": cap}, roles=("gpu_monitoring",)).refusals == ()
    assert planned({"gpu_monitoring_max_drained": cap}).tasks["max_drained"] == str(cap)


@pytest.mark.parametrize("interval", [300, "300"])
def test_the_files_for_prometheus_come_with_the_dashboard_where_it_has_a_directory(interval: object) -> None:
    given = {
        "gpu_monitoring_targets": ["gpu1:9100"],
        "gpu_monitoring_interval": interval,
        "gpu_monitoring_prometheus_unit": None,
    }
    stage = gpu_monitoring.PLANNER.stages["prometheus"]
    files = gpu_monitoring.prometheus_files("/etc/prometheus", ["gpu1:9100"], 300, [])
    for directory, dashboard in (("", {}), ("/grafana", {"/grafana/gpu_fleet.json": "{}"})):
        found = stage({**DEFAULTS, **given, "gpu_monitoring_dashboard_directory": directory}, {}, {"dashboard": "{}"})
        assert found == Plan(steps=("write",), tasks={"files": {**files, **dashboard}, "unit": ""})


def test_the_program_does_not_report_what_the_site_ignores(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "h200", "count": 1}])
    host.smi("-e 0")
    smi, textfile = str(executable(tmp_path)), tmp_path / "gpu.prom"
    found = {}
    for ignore in ([], ["ecc_mode_pending"]):
        options = {**HEALTH, "executable": smi, "ignore": ignore}
        install(tmp_path, options, textfile)
        assert check(tmp_path).returncode == 0
        found[len(ignore)] = textfile.read_text()
    assert 'row="ecc_mode_pending"' in found[0]
    assert 'row="ecc_mode_pending"' not in found[1]


def test_the_filter_refuses_what_the_check_would() -> None:
    with pytest.raises(AnsibleFilterError, match="ignore: ecc_mode_pendign: no row of the policy is about it"):
        health_exporter_files({**HEALTH, "ignore": ["ecc_mode_pendign"]}, "/a.prom", 300, "python3", "10%")


def test_the_program_gets_values_of_the_types_of_the_module() -> None:
    declared = {
        "expected": {"gpu_count": "8", "driver_version": 580, "ecc": None},
        "policy": [{"id": "ours", "verdict": "ok", "xids": 79}],
    }
    files = health_exporter_files({**HEALTH, **declared}, "/a.prom", 300, "python3", "10%")["files"]
    written = json.loads(files[gpu_monitoring.OPTIONS])
    assert written["expected"] == {"gpu_count": 8, "driver_version": "580"}
    assert written["policy"] == [{"id": "ours", "verdict": "ok", "xids": [79]}]


def test_units_name_the_program_and_the_interval() -> None:
    files = health_exporter_files(HEALTH, "/var/lib/gpu.prom", 120, "/usr/bin/python3", "10%")["files"]
    service = files["/etc/systemd/system/gpu-fleet-health.service"]
    assert (
        "ExecStart=/usr/bin/python3 -I -S -X pycache_prefix=/var/cache/gpu-fleet-health /usr/lib/gpu-fleet-health "
        in service
    )
    assert "OnUnitActiveSec=120s" in files["/etc/systemd/system/gpu-fleet-health.timer"]
    assert not [path for path in files if "/_mig/" in path and "converge" in path], "only what the check needs"


# The dashboard


def test_the_dashboard_has_what_grafana_needs_of_each_panel() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time", "refresh"} <= dashboard.keys()
    assert dashboard["schemaVersion"] >= 36
    assert [variable["type"] for variable in dashboard["templating"]["list"]] == ["datasource", "query"]
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 0
    places: set[tuple[int, int]] = set()
    for panel in panels:
        assert {"id", "type", "title", "gridPos", "targets", "datasource"} <= panel.keys(), panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all({"refId", "expr"} <= target.keys() for target in panel["targets"])


def test_the_dashboard_uses_metrics_that_are_written() -> None:
    # The last is the job of dcgm-exporter.
    known = {*(name for name, *_rest in (*metrics.HEALTH, *metrics.READINGS)), "gpu_fleet_dcgm"}
    used = set(re.findall(r"\bgpu_fleet_\w+", DASHBOARD.read_text(encoding="utf-8")))
    assert used
    assert used <= known
