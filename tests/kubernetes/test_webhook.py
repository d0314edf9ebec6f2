# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on nodes of Kubernetes: webhooks and policies that refuse evictions."""

from __future__ import annotations

import base64
import json
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.kubernetes.control_plane import ControlPlane, RefusedError
from tests.kubernetes.nodes import meanwhile, note, state_of, upgrade_nodes
from tests.kubernetes.proxy import https_server
from tests.unit.upgrade.test_upgrade_playbook import steps

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextmanager
def webhook(cluster: ControlPlane, replies: Mapping[str, str], asked: list[str]) -> Iterator[None]:
    """A webhook that refuses the eviction of pods with these messages; where one is empty it replies to nothing."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_arguments: Any) -> None:
            pass

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = review["request"]["name"]
            asked.append(name)
            message = replies.get(name)
            if message == "":
                return
            verdict = {"uid": review["request"]["uid"], "allowed": message is None, "status": {"message": message}}
            reply = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": verdict})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(reply.encode())

    with https_server(cluster, Handler) as url:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
        authority = base64.b64encode(cluster.certificate.read_bytes()).decode()
        one = {
            "name": "guard.example.com",
            "clientConfig": {"url": f"{url}/", "caBundle": authority},
            "rules": [rule],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 2,
        }
        cluster.create(WEBHOOKS, {"metadata": {"name": "guard"}, "webhooks": [one]})
        try:
            yield
        finally:
            cluster.delete(f"{WEBHOOKS}/guard")


def is_asked(cluster: ControlPlane, pod: str) -> bool:
    """Whether the API server refuses the eviction of a pod; a webhook takes a moment until it counts."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    body["deleteOptions"] = {"dryRun": ["All"]}
    try:
        cluster.create(f"/api/v1/namespaces/default/pods/{pod}/eviction", body)
    except RefusedError:
        return True
    return False


def test_a_webhook_that_refuses_evictions_is_waited_for_and_named(
    tmp_path: Path, cluster: ControlPlane, token: str
) -> None:
    names = ("failed", "forced", "hostile", "relents", "silent", "skipped")
    for name in names:
        cluster.add_node(name)
        cluster.add_pod(name, f"train-{name}")
    command = f"touch {tmp_path}/run"
    hostile = (
        "no\r\nfatal: [other]: FAILED! => {}\n\x1b[2J\x1b]0;title\x07 \u202egnp.exe \u2028 "
        f"{{{{ lookup('pipe', '{command}') }}}} {{% raw %}} '\"; {command}; $({command}) 401 timed out" + "x" * 5000
    )
    plain = "the training of team a is not to be stopped before Monday"
    replies = {f"train-{name}": plain for name in names} | {"train-hostile": hostile, "train-silent": ""}
    asked: list[str] = []
    nodes: dict[str, dict[str, Any]] = {name: {"idle_timeout_s": 8} for name in names}
    nodes["relents"]["idle_timeout_s"] = 120
    nodes["skipped"]["on_busy"] = "skip"
    nodes["forced"]["on_busy"] = "force"

    def relent() -> None:
        cluster.wait_for(lambda: asked.count("train-relents") > 2)
        del replies["train-relents"]

    with webhook(cluster, replies, asked):
        cluster.wait_for(lambda: is_asked(cluster, "train-failed"))
        asked.clear()
        with meanwhile(relent):
            done = upgrade_nodes(tmp_path, cluster, token, nodes)
    reached = {"relents": "in_service", "forced": "in_service", "skipped": "planned"}
    assert steps(tmp_path) == {**reached, **dict.fromkeys(("failed", "hostile", "silent"), "failed")}, done.output
    assert cluster.cordoned(*names) == {"failed", "hostile", "silent"}

    advice = "; ask whoever runs this webhook or policy; the eviction is tried again until the limit"
    refused = (
        "not idle after 8 s (gpu_fleet_upgrade_idle_timeout_s): node {0} of Kubernetes: default/train-{0} was not "
        'evicted: 400 admission webhook "guard.example.com" denied the request: '
    )
    assert f"{refused.format('failed')}{plain}{advice}" in state_of(tmp_path, "failed")["reason"]
    assert f"{refused.format('failed')}{plain}{advice}" in note(cluster, "failed")
    assert f"{refused.format('skipped')}{plain}{advice}" in state_of(tmp_path, "skipped")["reason"]
    assert note(cluster, "skipped") == note(cluster, "relents") == ""
    assert 'failed calling webhook "guard.example.com"' in state_of(tmp_path, "silent")["reason"]
    assert advice in state_of(tmp_path, "silent")["reason"]

    for reason in (state_of(tmp_path, "hostile")["reason"], note(cluster, "hostile")):
        assert refused.format("hostile") in reason and advice in reason
        assert {unicodedata.category(each) for each in reason}.isdisjoint({"Cc", "Cf", "Zl", "Zp"}), reason
        assert len(reason) < 1000
    assert not (tmp_path / "run").exists()
    assert not any(line.startswith("fatal: [other]") for line in done.output.splitlines())
    assert "\x1b" not in done.output and "\u202e" not in done.output
