# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus scrapes real node_exporters of two simulated GPU hosts, and the alert of one of them fires."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_monitoring import prometheus_files

from tests.conftest import ROOT
from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable
from tests.unit.monitoring.exporter import check, install
from tests.unit.monitoring.prometheus import program

DASHBOARD = ROOT / "roles" / "gpu_monitoring" / "files" / "gpu_fleet_dashboard.json"
_TRIES, _PAUSE = 300, 0.2
"""A minute, for a busy machine; it takes about two seconds."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _number in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


# As dcgm-exporter has them, which node_exporter stands for.
DCGM_SAMPLES = """\
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1"} 0.5
DCGM_FI_PROF_PCIE_TX_BYTES{gpu="0",UUID="GPU-1"} 1000
"""


@contextlib.contextmanager
def running(program_file: Path, options: Sequence[str], log: Path) -> Iterator[None]:
    """A program that runs meanwhile, with its output in a file."""
    with log.open("w") as output, subprocess.Popen([program_file, *options], stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()


def textfile(directory: Path, *, reset: bool) -> Path:
    """The directory with what the exporter of a simulated host has written for node_exporter."""
    directory.mkdir()
    host = Host(directory, gpus=[{"model": "h200", "count": 2}])
    if reset:
        host.control("fault", "recovery-action", "reset", "--gpu", "1")
    kernel_log = directory / "kernel.log"
    with kernel_log.open("w") as lines, contextlib.redirect_stdout(lines):
        host.control("fault", "xid", "31", "--log-only")
    written = directory / "textfile" / "gpu_fleet.prom"
    written.parent.mkdir()
    health = {
        "expected": {},
        "policy": [],
        "kernel_log": str(kernel_log),
        "history": "",
        "executable": str(executable(directory)),
    }
    install(directory, health, written)
    check(directory).check_returncode()
    return written.parent


def wait_for(port: int, firing: set[str], healthy: int) -> list[dict[str, Any]]:
    """The alerts that fire, once these do and that many targets are scraped."""
    up = found = None
    for _number in range(_TRIES):
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            up = api(port, "targets")["activeTargets"]
            found = [alert for alert in api(port, "alerts")["alerts"] if alert["state"] == "firing"]
            names = {alert["labels"]["alertname"] for alert in found}
            if firing <= names and [target["health"] for target in up].count("up") == healthy:
                return found
        time.sleep(_PAUSE)
    raise AssertionError(f"targets: {up}, alerts: {found}")


def api(port: int, name: str) -> Any:
    """What Prometheus has, by the name of the resource."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{name}", timeout=10) as response:
        return json.load(response)["data"]


def expressions() -> list[str]:
    """The queries of the dashboard, with all hosts chosen."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [target["expr"].replace("$instance", ".*") for panel in panels for target in panel["targets"]]


def chosen() -> dict[str, str]:
    """How Grafana asks Prometheus for the values of the dashboard's variables, by the name of the variable."""
    variables = json.loads(DASHBOARD.read_text(encoding="utf-8"))["templating"]["list"]
    queries = {one["name"]: one["query"]["query"] for one in variables if one["type"] == "query"}
    matches = {name: re.fullmatch(r"label_values\((\w+), (\w+)\)", query) for name, query in queries.items()}
    return {name: f"label/{match[2]}/values?match[]={match[1]}" for name, match in matches.items() if match}


def queried(port: int, expression: str) -> list[Any]:
    """The samples of a query."""
    found: list[Any] = api(port, f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
    return found


def test_the_alert_of_a_scraped_host_fires_and_the_dashboard_has_data(tmp_path: Path) -> None:
    prometheus, node_exporter = program("prometheus"), program("prometheus-node-exporter")
    healthy_port, reset_port, down_port, dcgm_port, port = free_ports(5)
    targets = [f"127.0.0.1:{number}" for number in (healthy_port, reset_port, down_port)]
    exporter = f"127.0.0.1:{dcgm_port}"
    for path, text in prometheus_files(str(tmp_path), targets, 300, [], [exporter]).items():
        Path(path).write_text(text, encoding="utf-8")
    # As before Prometheus 2.43: the scrape job in its own configuration.
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["gpu_fleet_rules.yml"],
        **yaml.safe_load((tmp_path / "gpu_fleet_scrape.yml").read_text()),
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    both, dcgm = (healthy_port, reset_port), tmp_path / "dcgm"
    dcgm.mkdir()
    (dcgm / "dcgm.prom").write_text(DCGM_SAMPLES, encoding="utf-8")
    with contextlib.ExitStack() as stack:
        directories = {number: textfile(tmp_path / str(number), reset=number == reset_port) for number in both}
        for number, directory in {**directories, dcgm_port: dcgm}.items():
            options = [
                "--collector.disable-defaults",
                "--collector.textfile",
                f"--web.listen-address=127.0.0.1:{number}",
                f"--collector.textfile.directory={directory}",
            ]
            stack.enter_context(running(node_exporter, options, tmp_path / f"{number}.log"))
        listen = [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        options = [f"--config.file={tmp_path / 'prometheus.yml'}", *listen]
        stack.enter_context(running(prometheus, options, tmp_path / "prometheus.log"))
        alerts = wait_for(port, {"GpuFleetRecoveryReset"}, healthy=3)
        empty = [expression for expression in expressions() if not queried(port, expression)]
        hosts = {name: api(port, path) for name, path in chosen().items()}
    (alert,) = [alert for alert in alerts if alert["labels"]["alertname"] == "GpuFleetRecoveryReset"]
    assert alert["labels"]["instance"] == targets[1], "not that of the healthy host"
    assert alert["labels"]["severity"] == "critical"
    assert alert["labels"]["gpu"].startswith("GPU-")
    assert alert["annotations"]["remedy"] == "reset the GPU"
    assert empty == []
    assert hosts == {"instance": sorted(targets[:2])}, "what can be chosen above the panels"
