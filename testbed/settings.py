# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths and labels. What the testbed writes is below .cache, or carries the checkout's label in podman."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
VENV = CACHE / "venv"
COLLECTIONS = CACHE / "collections"
LOGS = CACHE / "log"
TESTBED = CACHE / "testbed"
ARCHIVES = TESTBED / "archives"
MOCK_REPOSITORIES = TESTBED / "mock_repositories"
SSH_KEY = TESTBED / "id_ed25519"
# Of host-image, for the hosts' Python and ours.
ZIP_BYTECODE = ("zip_bytecode.py", "zip_bytecode.pth")

# Set where forks of a Python that has its library loaded run the modules on hosts, see host-image/preloaded_python.py.
PRELOADED_VARIABLE = "GPU_FLEET_PRELOADED_PYTHON"

# Two checkouts on one machine must not see each other's hosts: every podman object carries the checkout's own id.
CHECKOUT_ID = hashlib.sha256(str(ROOT).encode()).hexdigest()[:6]
LABEL_KEY = "gpu-fleet-testbed"
LABEL = f"{LABEL_KEY}={CHECKOUT_ID}"

# Within a checkout, each part of the tests has a workspace of its own, so that parts can run side by side with hosts of
# the same names and addresses: its own network, vendors' server, ssh configuration and molecule state. By default it
# is the unnamed one, which `make demo` uses.
WORKSPACE_VARIABLE = "GPU_FLEET_TESTBED_WORKSPACE"
WORKSPACE = os.environ.get(WORKSPACE_VARIABLE, "")
TESTBED_ID = f"{CHECKOUT_ID}-{WORKSPACE}" if WORKSPACE else CHECKOUT_ID
NETWORK = f"gpu-fleet-{TESTBED_ID}"
WORKSPACE_DIRECTORY = TESTBED / "workspaces" / (WORKSPACE or "default")
SSH_CONFIG = WORKSPACE_DIRECTORY / "ssh_config"

# ssh refuses control sockets whose path exceeds 108 bytes, so they cannot be in a checkout of unknown depth.
CONTROL_PATHS = Path(f"/run/gpu-fleet-{TESTBED_ID}")


def environment() -> dict[str, str]:
    """The environment of every command: our tools first on PATH, nothing written outside the checkout."""
    env = dict(os.environ)
    # A developer's own Ansible or molecule settings must not change what a test means.
    for name in list(env):
        if name.startswith(("ANSIBLE_", "MOLECULE_")):
            del env[name]
    # Bytecode goes to the directory below, not into the checkout. Without it, Ansible compiles plugins for each task.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env.update(
        PATH=f"{VENV}/bin:{env.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin",
        XDG_CACHE_HOME=str(CACHE / "xdg"),
        PIP_CACHE_DIR=str(CACHE / "pip"),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        HYPOTHESIS_STORAGE_DIRECTORY=str(CACHE / "hypothesis"),
        PYTHONPYCACHEPREFIX=str(CACHE / "pycache"),
        CONTAINERS_CONF=str(ROOT / "testbed" / "containers.conf"),
        LC_ALL="C.UTF-8",
        ANSIBLE_CONFIG=str(TESTBED / "ansible.cfg"),
        # Not in ansible.cfg: molecule writes one of its own.
        ANSIBLE_INJECT_FACT_VARS="false",
        ANSIBLE_HOME=str(CACHE / "ansible"),
        GPU_FLEET_ANSIBLE_CACHES=str(CACHE / "ansible-caches"),
        ANSIBLE_COLLECTIONS_PATH=str(COLLECTIONS),
        MOLECULE_EPHEMERAL_DIRECTORY=str(WORKSPACE_DIRECTORY / "molecule"),
        # The same for ansible-playbook, molecule and testinfra, each of which reads its own configuration file.
        ANSIBLE_SSH_COMMON_ARGS=f"-F {SSH_CONFIG}",
        ANSIBLE_SSH_CONTROL_PATH_DIR=str(CONTROL_PATHS),
        GPU_FLEET_TESTBED=str(TESTBED),
        GPU_FLEET_TESTBED_ID=TESTBED_ID,
        GPU_FLEET_TESTBED_LABEL=CHECKOUT_ID,
        GPU_FLEET_TESTBED_WORKSPACE_DIRECTORY=str(WORKSPACE_DIRECTORY),
    )
    return env
