# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to an API server of Kubernetes, each of them bounded. Private to this collection.

The modules of kubernetes.core wait for a reply for ever. The cluster is found as they find it, by their own functions.
"""

from __future__ import annotations

from typing import Any, Mapping

from ansible.module_utils.basic import missing_required_lib

from .._common.errors import ChangeError
from .evict import Send

MISSING = ""
try:
    import kubernetes
    import urllib3
    from ansible_collections.kubernetes.core.plugins.module_utils.k8s import client as core
except ImportError as import_error:
    MISSING = str(import_error)


def connect(module: Any, timeout: float) -> Send:
    """What sends a request to the cluster that the parameters of the module and the environment name."""
    if MISSING:
        raise ChangeError(f"{missing_required_lib('kubernetes')} ({MISSING})")
    try:
        configuration = core._create_configuration(core._create_auth_spec(module))
    except Exception as error:  # the libraries raise whatever a damaged file leads to
        raise ChangeError(f"Could not create API client: {error}") from error
    configuration.retries = 0
    client = kubernetes.client.ApiClient(configuration)
    for header, value in core._create_headers(module).items():
        client.set_default_header(header, value)

    def send(method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None) -> tuple[int, str]:
        try:
            reply = client.call_api(
                path,
                method,
                query_params=list(query.items()),
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                # Of connection and reply: of a single number it takes an int alone, and no other one counts.
                _request_timeout=(timeout, timeout),
            )
            return reply.status, reply.data.decode("utf-8", "replace")
        except kubernetes.client.exceptions.ApiException as error:
            if not error.status:
                raise ChangeError(f"the API server has not replied: {error.reason}") from error
            text = error.body.decode("utf-8", "replace") if isinstance(error.body, bytes) else str(error.body or "")
            return error.status, text or str(error.reason)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ChangeError(f"the API server has not replied: {error}") from error

    return send
