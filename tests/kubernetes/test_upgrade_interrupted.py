# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on nodes of Kubernetes: cut off exactly at a step, without its token, or killed."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.control_plane import ENDS_AFTER, ControlPlane, RefusedError
from tests.kubernetes.nodes import RULES, hold, kill_at, meanwhile, note, state_of, upgrade_nodes
from tests.kubernetes.proxy import CutError, Proxy, Request, back_after, by_way_of
from tests.unit.upgrade.test_upgrade_playbook import steps


def has_failed(directory: Path, name: str) -> bool:
    """Whether a run has recorded that a host failed."""
    path = directory / "states" / "hosts" / f"{name}.json"
    return path.exists() and state_of(directory, name)["step"] == "failed"


def test_an_api_server_that_is_away_for_a_while_at_drain_confirmation_and_return(
    tmp_path: Path, cluster: ControlPlane, token: str, proxy: Proxy
) -> None:
    """Before it cordons and before it reads, after it has accepted an eviction, and a return, without a reply."""
    cluster.add_node("gpu1")
    cluster.add_pod("gpu1", "train")
    happened: list[str] = []

    def at(name: str, is_it: bool) -> bool:
        if not is_it or name in happened:
            return False
        happened.append(name)
        cluster.kill()
        back_after(cluster, 8)
        return True

    def before(request: Request) -> None:
        at("cordon", request.is_patch_of("gpu1", cordon=True))
        is_read = request.method == "GET" and request.path.startswith("/api/v1/nodes/gpu1")
        at("confirmation", is_read and "eviction" in happened and not cluster.pods("gpu1"))

    def after(request: Request) -> None:
        if at("eviction", request.is_eviction_of("train")) or at("return", request.is_patch_of("gpu1", cordon=False)):
            raise CutError

    proxy.before, proxy.after = before, after
    given = {**by_way_of(proxy, cluster, tmp_path, token), "idle_timeout_s": 600}
    done = upgrade_nodes(tmp_path, cluster, token, {"gpu1": given})
    cluster.wait()
    assert happened == ["cordon", "eviction", "confirmation", "return"], done.output
    assert done.rc == 0 and steps(tmp_path) == {"gpu1": "in_service"}, done.output
    assert cluster.cordoned("gpu1") == set() and note(cluster, "gpu1") == "" and cluster.pods("gpu1") == set()
    # The eviction was accepted, so it was not asked for again.
    assert proxy.evictions("train") == 1
    assert proxy.patches("gpu1", cordon=True) == 1


@pytest.mark.parametrize("hangs", [False, True])
def test_an_api_server_that_does_not_come_back_at_drain_or_return(
    tmp_path: Path, cluster: ControlPlane, token: str, proxy: Proxy, hangs: bool
) -> None:
    """Killed, or it accepts connections and replies to nothing; the cordon that was given up comes late then."""
    names = ("drained", "returned")
    for name in names:
        cluster.add_node(name)
        cluster.add_pod(name, f"train-{name}")
    happened: list[str] = []

    def before(request: Request) -> None:
        for name, cordon in (("drained", True), ("returned", False)):
            if request.is_patch_of(name, cordon=cordon) and name not in happened:
                happened.append(name)
                if hangs:
                    cluster.processes["kube-apiserver"].send_signal(signal.SIGSTOP)
                else:
                    cluster.kill()

    def work() -> None:
        for name in names:
            cluster.wait_for(lambda name=name: has_failed(tmp_path, name))
            if hangs:
                cluster.processes["kube-apiserver"].send_signal(signal.SIGCONT)
            else:
                cluster.start("kube-apiserver")

    proxy.before = before
    given = {**by_way_of(proxy, cluster, tmp_path, token), "idle_timeout_s": 120, "batch": 1}
    with meanwhile(work):
        done = upgrade_nodes(tmp_path, cluster, token, dict.fromkeys(names, given))
    assert happened == [*names] and steps(tmp_path) == dict.fromkeys(names, "failed"), done.output
    for name in names:
        reason = state_of(tmp_path, name)["reason"]
        assert f"node {name} of Kubernetes: " in reason
        assert "check whether `kubectl get nodes` reaches the cluster from the host that runs the modules" in reason
        # As soon as that is possible.
        assert cluster.cordoned(name) == {name} and note(cluster, name).endswith(f": {reason}")
    assert "gpu_state" not in done.modules["drained"] and cluster.pods("drained") == {"train-drained"}

    before_retry = len(proxy.requests)
    again = upgrade_nodes(
        tmp_path, cluster, token, {name: {**given, "retry_failed": True} for name in names}, changed=["returned"]
    )
    assert again.rc == 0 and steps(tmp_path) == dict.fromkeys(names, "in_service"), again.output
    assert cluster.cordoned(*names) == set() and {note(cluster, name) for name in names} == {""}
    assert not any(one.is_eviction_of("train-returned") for one in proxy.requests[before_retry:])


@pytest.mark.parametrize("renewed", [False, True])
def test_a_token_that_is_revoked_during_the_change(
    tmp_path: Path, cluster: ControlPlane, token: str, proxy: Proxy, renewed: bool
) -> None:
    """Where the file has another one by the next attempt, the run goes on."""
    cluster.add_node("gpu1")
    cluster.add_pod("gpu1", "train")
    account = f"of-the-change-{renewed}".lower()
    brief = cluster.account(account, RULES)
    given: dict[str, Any] = by_way_of(proxy, cluster, tmp_path, brief)
    task, held, free = hold(tmp_path)

    def is_refused() -> bool:
        try:
            cluster.request("GET", "/api/v1/nodes/gpu1", token=brief)
        except RefusedError as error:
            return error.code == 401
        return False

    def work() -> None:
        cluster.wait_for(held.exists)
        cluster.delete(f"/api/v1/namespaces/default/serviceaccounts/{account}")
        # The API server keeps what it has found about a token for some seconds.
        cluster.wait_for(is_refused)
        free.touch()
        if renewed:
            cluster.wait_for(lambda: any(one.status == 401 for one in proxy.requests))
            by_way_of(proxy, cluster, tmp_path, token)

    hooks = {"idle_timeout_s": 60, "hooks": {"after_change": [task]}}
    with meanwhile(work):
        done = upgrade_nodes(tmp_path, cluster, token, {"gpu1": {**given, **hooks}})
    state = state_of(tmp_path, "gpu1")
    if renewed:
        assert done.rc == 0 and steps(tmp_path) == {"gpu1": "in_service"}, done.output
        assert cluster.cordoned("gpu1") == set() and note(cluster, "gpu1") == ""
        return
    assert [one["step"] for one in state["history"]][-3:] == ["changed", "healthy", "failed"], done.output
    advice = "Unauthorized; renew the credentials in the file of gpu_fleet_upgrade_kubernetes_kubeconfig"
    assert advice in state["reason"]
    assert f"the scheduler was not given the reason: node gpu1 of Kubernetes: {advice}" in done.output
    assert brief not in done.output
    # Out of service in the name of the run, which the next one goes on with.
    assert cluster.cordoned("gpu1") == {"gpu1"} and note(cluster, "gpu1").endswith(": upgrade")

    again = upgrade_nodes(tmp_path, cluster, token, {"gpu1": {"retry_failed": True}}, changed=["gpu1"])
    assert again.rc == 0 and steps(tmp_path) == {"gpu1": "in_service"}, again.output
    assert cluster.cordoned("gpu1") == set() and note(cluster, "gpu1") == ""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_controller_that_is_killed_inside_the_change(
    tmp_path: Path, cluster: ControlPlane, token: str, proxy: Proxy, when: str
) -> None:
    """Directly before or after the GPUs are changed: the next run goes on, and does nothing a second time."""
    names = ("gpu1", "gpu2")
    for name in names:
        cluster.add_node(name)
        cluster.add_pod(name, f"train-{name}")
    kill, killed = kill_at(tmp_path, "'gpu1'")
    hooks = ("-e", f'{{"gpu_state_hooks_{when}": ["{kill}"]}}')
    given = {**by_way_of(proxy, cluster, tmp_path, token), "idle_timeout_s": 60}
    nodes = dict.fromkeys(names, given)
    done = upgrade_nodes(tmp_path, cluster, token, nodes, *hooks)
    assert done.rc == -9 and killed.exists(), done.output
    assert cluster.cordoned(*names) == {*names} and set(steps(tmp_path).values()) <= {"drained", "changed"}
    run = note(cluster, "gpu1")
    assert run.endswith(": upgrade") and note(cluster, "gpu2") == run

    again = upgrade_nodes(tmp_path, cluster, token, nodes, *hooks, changed=names if when == "after" else ())
    assert again.rc == 0 and steps(tmp_path) == dict.fromkeys(names, "in_service"), again.output
    assert cluster.cordoned(*names) == set() and {note(cluster, name) for name in names} == {""}
    for name in names:
        assert proxy.evictions(f"train-{name}") == 1
        for cordon in (True, False):
            assert proxy.patches(name, cordon=cordon) == 1
        history = [one["step"] for one in state_of(tmp_path, name)["history"]]
        # Drained again in name, since whether it still is has to be asked.
        assert history.count("changed") == 1 and history[-3:] == ["changed", "healthy", "in_service"]


def test_the_limit_is_one_in_seconds_where_each_request_takes_some(
    tmp_path: Path, cluster: ControlPlane, token: str, proxy: Proxy
) -> None:
    """Ten attempts of six seconds each are no ten seconds."""
    cluster.add_node("gpu1")
    cluster.add_pod("gpu1", "train", annotations={ENDS_AFTER: "3600"})
    cluster.add_budget("train")

    def slowly(request: Request) -> None:
        if request.is_eviction_of("train"):
            time.sleep(6)

    proxy.before = slowly
    given = {**by_way_of(proxy, cluster, tmp_path, token), "idle_timeout_s": 10}
    done = upgrade_nodes(tmp_path, cluster, token, {"gpu1": given})
    assert "not idle after 10 s (gpu_fleet_upgrade_idle_timeout_s)" in state_of(tmp_path, "gpu1")["reason"], done.output
    # One of the drain, and those of the wait, the last of which begins within the limit.
    assert 2 <= sum(one.is_eviction_of("train") for one in proxy.requests) <= 4
