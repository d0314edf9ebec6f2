# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/remediate.yml on nodes of Kubernetes: mock hosts, and a real control plane."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._kubernetes_drain import TAINT

from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.nodes import note, taints
from tests.kubernetes.proxy import CutError, Proxy, Request, back_after, by_way_of
from tests.unit.site.mock_host import MockHost, SiteRun
from tests.unit.upgrade.test_remediate_playbook import HEALTHY, Site, host, kill, sick

OTHERS = {"key": "example.com/rack", "value": "b", "effect": "PreferNoSchedule"}
SICK = sick("reset_gpu")


class Cluster(Site):
    """A controller whose scheduler is Kubernetes."""

    def __init__(self, directory: Path, plane: ControlPlane, token: str) -> None:
        super().__init__(directory)
        self.given: Mapping[str, Any] = {"kubernetes_kubeconfig": str(plane.kubeconfig(directory / "kc", token=token))}

    def remedy(self, name: str, found: MockHost, *arguments: str, **given: Any) -> SiteRun:
        """Run the playbook on one host."""
        settings = {"scheduler": "kubernetes", "idle_interval_s": 1, "idle_timeout_s": 600, **self.given}
        prefixed = {f"gpu_fleet_upgrade_{option}": value for option, value in settings.items()}
        return self.run({name: found}, *arguments, **{**prefixed, **given})


@pytest.fixture(name="site")
def _site(tmp_path: Path, cluster: ControlPlane, token: str) -> Cluster:
    return Cluster(tmp_path, cluster, token)


def give_taints(cluster: ControlPlane, name: str, *values: str) -> None:
    """Give a node the taint of the health check with these remedies, and one of others."""
    own = [{"key": TAINT, "value": value, "effect": "NoSchedule"} for value in values]
    cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [OTHERS, *own]}})


def test_a_node_is_drained_reset_and_returned_with_the_taint_of_its_verdict_gone(
    site: Cluster, cluster: ControlPlane
) -> None:
    cluster.add_node("gpu1")
    give_taints(cluster, "gpu1", "reset_gpu")
    cluster.add_pod("gpu1", "train")
    done = site.remedy("gpu1", host(SICK), "--check")
    assert done.rc == 0 and "gpu1: reset_gpu: GPU 1: xid" in done.output, done.output
    assert cluster.cordoned("gpu1") == set() and cluster.pods("gpu1") == {"train"}
    done = site.remedy("gpu1", host(SICK, SICK, HEALTHY))
    assert done.rc == 0 and site.step("gpu1") == "in_service", done.output
    assert len(site.calls("gpu_reset")) == 1 and cluster.pods("gpu1") == set()
    assert cluster.cordoned("gpu1") == set() and note(cluster, "gpu1") == ""
    assert taints(cluster, "gpu1") == [OTHERS]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_taint_whose_reply_is_lost_at_the_return_is_no_failure(
    site: Cluster, cluster: ControlPlane, token: str, proxy: Proxy, when: str
) -> None:
    """The patch that removes it has arrived, or has not."""
    cluster.add_node("gpu1")
    give_taints(cluster, "gpu1", "reset_gpu")
    site.given = by_way_of(proxy, cluster, site.directory, token)
    happened: list[Request] = []

    def cut(request: Request) -> None:
        if request.method == "PATCH" and isinstance(request.body, list) and not happened:
            happened.append(request)
            raise CutError

    setattr(proxy, when, cut)
    done = site.remedy("gpu1", host(SICK, SICK, HEALTHY))
    assert happened and done.rc == 0 and site.step("gpu1") == "in_service", done.output
    assert taints(cluster, "gpu1") == [OTHERS] and cluster.cordoned("gpu1") == set()


def test_a_node_for_a_person_stays_cordoned_and_a_cordon_of_others_is_not_touched(
    site: Cluster, cluster: ControlPlane
) -> None:
    cluster.add_node("gpu1")
    cluster.add_node("operators", cordoned=True)
    cluster.add_pod("operators", "train")
    done = site.remedy("operators", host(SICK))
    assert "operators is not touched: others have taken it out of service" in done.output, done.output
    assert cluster.cordoned("operators") == {"operators"} and cluster.pods("operators") == {"train"}

    assert site.remedy("gpu1", host(sick("service"))).rc != 0
    reason = note(cluster, "gpu1")
    assert reason.startswith("gpu.fleet.remedy ") and "service: GPU 1: xid" in reason
    # Whatever its verdict becomes, until a person states so.
    for _again in range(2):
        assert site.remedy("gpu1", host(HEALTHY)).rc != 0
        assert cluster.cordoned("gpu1") == {"gpu1"} and note(cluster, "gpu1") == reason
    done = site.remedy("gpu1", host(HEALTHY, HEALTHY), gpu_fleet_remediate_retry_failed=True)
    assert done.rc == 0 and cluster.cordoned("gpu1") == set() and note(cluster, "gpu1") == "", done.output


def test_a_tainted_node_whose_verdict_is_warn_by_now_is_judged_and_returned(
    site: Cluster, cluster: ControlPlane
) -> None:
    cluster.add_node("gpu1")
    give_taints(cluster, "gpu1", "reboot")
    better = sick("inspect", verdict="warn")
    done = site.remedy("gpu1", host(better, better))
    assert done.rc == 0 and site.calls("gpu_reset") == [], done.output
    assert cluster.cordoned("gpu1") == set() and taints(cluster, "gpu1") == [OTHERS]


@pytest.mark.parametrize(("where", "resets"), [("before_change", 1), ("after_change", 0), ("before_return", 0)])
def test_a_killed_controller_goes_on_with_its_cordon(
    site: Cluster, cluster: ControlPlane, where: str, resets: int
) -> None:
    cluster.add_node("gpu1")
    give_taints(cluster, "gpu1", "reset_gpu")
    cluster.add_pod("gpu1", "train")
    given = kill(site, where)
    done = site.remedy("gpu1", host(SICK, SICK, HEALTHY), **given)
    assert done.rc == -9 and cluster.cordoned("gpu1") == {"gpu1"}, done.output
    run = json.loads((site.directory / "states" / "plan.json").read_text())["run"]
    assert note(cluster, "gpu1").startswith(f"gpu.fleet.remedy {run}: ")
    after = [SICK, SICK, HEALTHY] if resets else [HEALTHY, HEALTHY]
    done = site.remedy("gpu1", host(*after), **given)
    assert done.rc == 0 and site.step("gpu1") == "in_service", done.output
    assert len(site.calls("gpu_reset")) == resets
    assert [one["outcome"] for one in site.file("remedies", "gpu1")["attempts"]] == ["helped"]
    assert cluster.cordoned("gpu1") == set() and note(cluster, "gpu1") == "" and taints(cluster, "gpu1") == [OTHERS]


def test_an_api_server_that_is_gone_at_the_return(
    site: Cluster, cluster: ControlPlane, token: str, proxy: Proxy
) -> None:
    """At first for some seconds, after it has uncordoned without a reply; then until the run has ended."""
    cluster.add_node("gpu1")
    cluster.add_pod("gpu1", "train")
    site.given = by_way_of(proxy, cluster, site.directory, token)
    happened: list[Request] = []

    def after(request: Request) -> None:
        if request.is_patch_of("gpu1", cordon=False) and not happened:
            happened.append(request)
            cluster.kill()
            back_after(cluster, 8)
            raise CutError

    proxy.after = after
    done = site.remedy("gpu1", host(SICK, SICK, HEALTHY))
    cluster.wait()
    assert happened and done.rc == 0 and cluster.cordoned("gpu1") == set(), done.output
    assert len(site.calls("gpu_reset")) == 1 and proxy.evictions("train") == 1

    def before(request: Request) -> None:
        if request.is_patch_of("gpu1", cordon=False) and len(happened) == 1:
            happened.append(request)
            cluster.kill()

    proxy.before = before
    done = site.remedy("gpu1", host(SICK, SICK, HEALTHY))
    cluster.start("kube-apiserver")
    cluster.wait()
    assert done.rc != 0 and len(happened) == 2 and site.step("gpu1") == "failed", done.output
    assert "check whether `kubectl get nodes` reaches the cluster" in site.file("hosts", "gpu1")["reason"]
    assert cluster.cordoned("gpu1") == {"gpu1"} and note(cluster, "gpu1").startswith("gpu.fleet.remedy ")
    done = site.remedy("gpu1", host(HEALTHY, HEALTHY), gpu_fleet_remediate_retry_failed=True)
    assert done.rc == 0 and cluster.cordoned("gpu1") == set(), done.output
    assert site.calls("gpu_reset") == []
