# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reload of Prometheus after its files were written or removed, on a mock host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.site.mock_host import MockHost, run_site

pytestmark = pytest.mark.plays

_MISSING = "Could not find the requested service prometheus.service: host"
_INACTIVE = "Unable to reload service prometheus.service: Job for prometheus.service failed."
_ROLE = {"name": "gpu.fleet.gpu_monitoring", "tasks_from": "prometheus.yml"}
_PLAY = {
    "hosts": "all",
    "gather_facts": False,
    "tasks": [{"name": "Files for Prometheus", "ansible.builtin.include_role": _ROLE}],
}


@pytest.mark.parametrize(
    ("state", "message", "status"),
    [("absent", _MISSING, 0), ("present", _MISSING, 2), ("absent", _INACTIVE, 2), ("present", "", 0)],
)
def test_only_a_removal_goes_on_without_prometheus(tmp_path: Path, state: str, message: str, status: int) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text(json.dumps([_PLAY]))
    reload = {"changed": False, "failed": True, "msg": message} if message else {"changed": True}
    host = MockHost(results={"file_set": {"changed": True}, "systemd_service": reload})
    given = {"gpu_monitoring_state": state, "gpu_monitoring_targets": ["gpu1:9100"]}
    done = run_site(tmp_path, {"prometheus": (host, given)}, playbook=playbook)
    assert done.rc == status and (not status or message in done.output), done.output
