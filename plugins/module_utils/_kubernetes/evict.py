# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubernetes_evict: evict the pods of a node once, and report which are left. Private to this collection."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Callable, Mapping, Optional, Tuple

from .._common.errors import ChangeError, RunError
from .._common.json_text import parse_json
from .._common.plain_text import one_line
from .pods import (
    REFUSED,
    TERMINATING_NAMESPACE,
    Leave,
    Pod,
    Remaining,
    claims_of,
    is_finished,
    name_of,
    remaining,
    targets,
)

Send = Callable[[str, str, Mapping[str, str], Optional[Mapping[str, Any]]], Tuple[int, str]]
"""Method, path, query and body of a request in, status and body of the reply out; without one it raises ChangeError."""

_LONGEST_MESSAGE = 300
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)


class DeniedError(ChangeError):
    """The API server does not know the account, so that it carries out no request."""


def run(params: Mapping[str, Any], check_mode: bool, send: Send) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    name = params["name"]
    if not _NAME.fullmatch(name):
        raise ChangeError(
            f"name: {name[:60]!r} is not the name of a node; it takes lower-case letters, digits, - and ."
        )
    leave = Leave(params["delete_emptydir_data"], params["delete_unmanaged_pods"])
    node = _get(send, f"/api/v1/nodes/{name}")
    if node is None:
        raise RunError(f"{name}: the cluster has no such node", {"exists": False})
    pods = _list(send, {"fieldSelector": f"spec.nodeName={name}"})
    selected = [name_of(pod) for pod in pods]
    if params["pod_selectors"]:
        query = {"fieldSelector": f"spec.nodeName={name}", "labelSelector": ",".join(params["pod_selectors"])}
        selected = [name_of(pod) for pod in _list(send, query)]
    keys = dict.fromkeys(key for pod in pods if not is_finished(pod) for key in claims_of(pod))
    found = {(namespace, claim): _claim(send, namespace, claim) for namespace, claim in keys}
    claims = {key: claim for key, claim in found.items() if claim is not None}
    planned = targets(pods, selected, leave)
    refused: dict[str, Remaining] = {}
    ended: list[str] = []
    for pod in planned if not check_mode else ():
        try:
            reason = _end(send, pod, params["pods"] == "delete")
        except ChangeError as error:
            # A request without a reply may have been carried out.
            changed = bool(ended) or not isinstance(error, DeniedError)
            raise RunError(str(error), {"changed": changed, "evicted": ended}) from error
        if reason:
            refused[name_of(pod)] = reason
        else:
            ended.append(name_of(pod))
    labels = (node.get("metadata") or {}).get("labels") or {}
    left = remaining(pods, selected, claims, leave, refused, labels=labels)
    return {
        # For a task that fails for it.
        "msg": "; ".join(f"{one.pod}: {one.message or one.reason}" for one in left)[:_LONGEST_MESSAGE],
        "changed": len(planned) > len(refused),
        "exists": True,
        "idle": not left,
        "evicted": [name_of(pod) for pod in planned if name_of(pod) not in refused],
        "remaining": [dataclasses.asdict(one) for one in left],
    }


def _end(send: Send, pod: Pod, is_deleted: bool) -> Remaining | None:
    """Evict or delete exactly this pod, not one that has its name by now; why it could not be done, or None."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata["uid"]}}
    if is_deleted:
        status, text = send("DELETE", path, {}, options)
    else:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": metadata["namespace"], "name": metadata["name"]},
            "deleteOptions": options,
        }
        status, text = send("POST", f"{path}/eviction", {}, body)
    if status == 401:
        raise DeniedError(_message(status, text))
    # Gone meanwhile, or replaced by another pod of its name.
    if status < 300 or status in (404, 409):
        return None
    causes = ((_object(text).get("details") or {}).get("causes")) or ()
    terminating = any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
    return Remaining(name_of(pod), TERMINATING_NAMESPACE if terminating else REFUSED, _message(status, text))


def _claim(send: Send, namespace: str, name: str) -> Mapping[str, Any] | None:
    """A ResourceClaim in the version that the API server prefers."""
    group = _get(send, "/apis/resource.k8s.io")
    if group is None:
        return None
    version = group["preferredVersion"]["groupVersion"]
    return _get(send, f"/apis/{version}/namespaces/{namespace}/resourceclaims/{name}")


def _list(send: Send, query: Mapping[str, str]) -> list[Pod]:
    found = _get(send, "/api/v1/pods", query)
    items: list[Pod] = (found or {}).get("items") or []
    return items


def _get(send: Send, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """The object at a path, None where there is none."""
    status, text = send("GET", path, query or {}, None)
    if status == 404:
        return None
    if status >= 300:
        raise ChangeError(_message(status, text))
    return _object(text)


def _object(text: str) -> dict[str, Any]:
    try:
        found = parse_json(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _message(status: int, text: str) -> str:
    """What an API server or a proxy before it has replied, on one line."""
    message = _object(text).get("message") or text
    return one_line(f"{status} {message}", _LONGEST_MESSAGE)
