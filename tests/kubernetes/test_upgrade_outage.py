# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on 30 nodes in 5 racks with budgets: API server and controller are killed meanwhile."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.kubernetes.control_plane import ControlPlane, RefusedError
from tests.kubernetes.nodes import kill_at, note, state_of, upgrade_nodes
from tests.kubernetes.proxy import CutError, Proxy, Request, back_after, by_way_of
from tests.unit.upgrade.test_upgrade_playbook import OBSERVATION, steps

RACKS = {f"node{number:02}": f"rack{number // 6}" for number in range(30)}
BATCH, LARGEST = 10, 2
# One of each rack has a pod that may not be evicted at first.
GUARDED = [name for number, name in enumerate(RACKS) if number % 6 == 0]
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def most_out(proxy: Proxy) -> Counter[str]:
    """How many nodes of each rack were cordoned at once."""
    out: set[str] = set()
    most: Counter[str] = Counter()
    for one in proxy.requests:
        for name in RACKS:
            if one.is_patch_of(name, cordon=True):
                out.add(name)
            elif one.is_patch_of(name, cordon=False):
                out.discard(name)
        most |= Counter(RACKS[name] for name in out)
    return most


def refused(proxy: Proxy, name: str) -> int:
    """How often the eviction of the pod of a node was refused for its budget."""
    return sum(one.is_eviction_of(f"train-{name}") and one.status == 429 for one in proxy.requests)


def test_thirty_nodes_with_outages_and_a_killed_controller(
    tmp_path: Path, cluster: ControlPlane, token: str, proxy: Proxy
) -> None:
    for name in RACKS:
        cluster.add_node(name)
        cluster.add_pod(name, f"train-{name}")
    for name in GUARDED:
        cluster.add_budget(f"train-{name}")
    happened: list[str] = []
    one_at_a_time = threading.Lock()

    def once(name: str) -> bool:
        with one_at_a_time:
            is_first = name not in happened
            happened.extend([name] if is_first else [])
            return is_first

    def cordons(request: Request, *, cordon: bool) -> bool:
        return any(request.is_patch_of(name, cordon=cordon) for name in RACKS)

    def before(request: Request) -> None:
        # In the batch behind the canary: with fewer forks than nodes one is cordoned before the last ones are to be.
        if cordons(request, cordon=True) and proxy.patches(*RACKS, cordon=True) >= 2 and once("drain"):
            cluster.kill()
            back_after(cluster, 10)

    def after(request: Request) -> None:
        # In the run after the one that was killed.
        returns = request.status == 200 and cordons(request, cordon=False)
        if (tmp_path / "killed").exists() and returns and once("return"):
            cluster.kill()
            back_after(cluster, 10)
            raise CutError
        for name in GUARDED:
            if request.is_eviction_of(f"train-{name}") and refused(proxy, name) >= 2:
                # Two refused at once delete it at once.
                with suppress(RefusedError):
                    cluster.delete(f"{BUDGETS}/train-{name}")

    proxy.before, proxy.after = before, after
    given = {
        **by_way_of(proxy, cluster, tmp_path, token),
        **{"canaries": 1, "batch": BATCH, "max_unavailable": LARGEST, "max_failures": 0, "idle_timeout_s": 600},
    }
    nodes: dict[str, dict[str, Any]] = {name: {**given, "group": rack} for name, rack in RACKS.items()}
    kill, killed = kill_at(tmp_path, "groups['gpu_fleet_upgrade'][15]")
    arguments = ("--forks=8", "-e", f'{{"gpu_state_hooks_before": ["{kill}"]}}')
    done = upgrade_nodes(tmp_path, cluster, token, nodes, *arguments)
    assert done.rc == -9 and killed.exists() and happened == ["drain"], (proxy.lost, done.output)
    plan = json.loads((tmp_path / "states" / "plan.json").read_text())
    assert len(plan["order"]) == 30 and [len(batch) for batch in plan["batches"]][:2] == [1, BATCH]
    begun = {name for batch in plan["batches"] if batch[0] in steps(tmp_path) for name in batch}
    out = cluster.cordoned(*RACKS)
    assert plan["order"][15] in out and out < begun < RACKS.keys()
    assert {step for name, step in steps(tmp_path).items() if name not in out} <= {"in_service"}

    again = upgrade_nodes(tmp_path, cluster, token, nodes, *arguments, changed=begun - out)
    assert again.rc == 0 and happened == ["drain", "return"], (proxy.lost, again.output)
    assert steps(tmp_path) == dict.fromkeys(sorted(RACKS), "in_service")
    assert cluster.cordoned(*RACKS) == set() and {note(cluster, name) for name in RACKS} == {""}
    assert {state_of(tmp_path, name)["run"] for name in RACKS} == {plan["run"]}
    # Nothing was done twice but what had no reply, no rack has lost more nodes than it may, no budget was overridden.
    for name in RACKS:
        assert proxy.evictions(f"train-{name}") == 1
        assert proxy.patches(name, cordon=True) == 1
    assert proxy.patches(*RACKS, cordon=False) == 31
    assert max(most_out(proxy).values()) <= LARGEST
    assert all(refused(proxy, name) >= 2 for name in GUARDED)
    assert not any(one.method == "DELETE" for one in proxy.requests)

    asked = len(proxy.requests)
    nothing = upgrade_nodes(tmp_path, cluster, token, nodes, *arguments, changed=RACKS.keys())
    assert nothing.rc == 0, nothing.output
    assert {tuple(modules) for modules in nothing.modules.values()} == {tuple(OBSERVATION)}
    assert len(proxy.requests) == asked
