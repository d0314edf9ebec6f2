# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo-clean` removes everything of its own checkout, and nothing of another checkout."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import settings
from tests.system.support import Result, run


def _podman_objects(word: str) -> set[str]:
    """Names of all podman objects that contain a word."""
    listings = (
        ["podman", "ps", "--all", "--format={{.Names}}"],
        ["podman", "volume", "ls", "--format={{.Name}}"],
        ["podman", "network", "ls", "--format={{.Name}}"],
        ["podman", "images", "--format={{.Repository}}:{{.Tag}}"],
    )
    return {name for argv in listings for name in run(argv).output.split() if word in name}


@pytest.fixture
def second_checkout(tmp_path: Path) -> Iterator[Path]:
    """Another checkout with a running host. It links to the first one's tools and collections to save time."""
    checkout = tmp_path / "checkout"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=settings.ROOT, capture_output=True, check=True).stdout
    for name in tracked.decode().split("\0"):
        if name and (settings.ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(settings.ROOT / name, checkout / name)
    (checkout / ".cache").mkdir()
    for shared in ("venv", "collections"):
        (checkout / ".cache" / shared).symlink_to(settings.CACHE / shared)
    program = (
        "from testbed import __main__ as m, hosts, images\n"
        "images.export_container_image(); hosts.write_configuration()\n"
        "m._playbook(m.settings.ROOT / 'testbed/playbooks/create.yml', m._DEMO, log='create')\n"
    )
    made = run(["python3", "-c", program], cwd=checkout, env={"GPU_FLEET_TESTBED_INVENTORY": "demo"})
    assert made.status == 0, made.output
    yield checkout


def test_clean_removes_all_of_its_own_and_nothing_else(demo: Result, second_checkout: Path) -> None:
    own = hashlib.sha256(str(second_checkout.resolve()).encode()).hexdigest()[:6]
    # Those of this workspace: other parts of the tests start and remove hosts meanwhile.
    others_before = _podman_objects(settings.NETWORK)
    images_before = _podman_objects("/gpu-fleet/")
    assert len(_podman_objects(own)) >= 3, "a host, a volume and a network"

    cleaned = run(["make", "demo-clean"], cwd=second_checkout)

    assert cleaned.status == 0, cleaned.output
    assert _podman_objects(own) == set()
    assert not (second_checkout / ".cache").exists()
    assert not Path(f"/run/gpu-fleet-{own}").exists()
    assert _podman_objects(settings.NETWORK) == others_before
    # Images are shared by all checkouts: while another one has hosts, all are kept, even those without a running host.
    assert _podman_objects("/gpu-fleet/") == images_before
    assert any("payload-bookworm" in name for name in images_before)
    assert settings.VENV.is_dir()
