# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configure the connections to the hosts, and remove everything that carries this checkout's label."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed import settings
from testbed.images import DERIVATIVE_IMAGES, HOST_IMAGES, VENDORS_IMAGE
from testbed.progress import CommandError, report, run

_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_INSTANCES = 1024
_PREFIX = f"gpu-fleet-{settings.CHECKOUT_ID}"

_ANSIBLE_CFG = """\
# Written by the testbed: how its playbooks run.
[defaults]
forks = 10
interpreter_python = auto_silent
display_skipped_hosts = false
callbacks_enabled = gpu.fleet.fleet_table, gpu.fleet.progress, module_runs
callback_plugins = {callbacks}
retry_files_enabled = false
# Parts of the tests share the processors: Ansible looks for results each millisecond otherwise.
internal_poll_interval = 0.01

[ssh_connection]
pipelining = true
"""
# For a person who runs playbooks on the hosts without the environment of the testbed.
_FOR_A_PERSON = """\
ssh_common_args = -F {ssh_config}

[callback_progress]
interval = 5
"""


def write_configuration() -> None:
    """Write ansible.cfg, the ssh key, the skeleton of the ssh configuration, and the current image names."""
    settings.ARCHIVES.mkdir(parents=True, exist_ok=True)
    prepare_workspace()
    if not settings.SSH_KEY.exists():
        run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpu-fleet-testbed", "-f", settings.SSH_KEY],
            log="hosts",
        )
    configuration = _ANSIBLE_CFG.format(callbacks=settings.ROOT / "tests" / "callbacks")
    _write(settings.TESTBED / "ansible.cfg", configuration)
    images = {image.suite: image.name for image in (*HOST_IMAGES, *DERIVATIVE_IMAGES)} | {"vendors": VENDORS_IMAGE.name}
    _write(settings.TESTBED / "images.json", json.dumps(images))


def write_configuration_for_a_person() -> Path:
    """Write the ansible.cfg with which Ansible's commands reach the hosts of this workspace from the checkout."""
    general = _ANSIBLE_CFG.format(callbacks=settings.ROOT / "tests" / "callbacks").replace(
        "[defaults]\n", f"[defaults]\ninject_facts_as_vars = false\ncollections_path = {settings.COLLECTIONS}\n"
    )
    path = settings.WORKSPACE_DIRECTORY / "ansible.cfg"
    _write(path, general + _FOR_A_PERSON.format(ssh_config=settings.SSH_CONFIG))
    return path


def prepare_workspace() -> None:
    """Create the directories and the skeleton of the ssh configuration of this process's workspace."""
    (settings.WORKSPACE_DIRECTORY / "ssh_config.d").mkdir(parents=True, exist_ok=True)
    settings.CONTROL_PATHS.mkdir(mode=0o700, exist_ok=True)
    _write(settings.SSH_CONFIG, f"Include {settings.WORKSPACE_DIRECTORY}/ssh_config.d/*.conf\n")


def _write(path: Path, text: str) -> None:
    """Write a file unless it has this content: other parts of the tests may be reading it now."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def allow_many() -> None:
    """Raise the kernel's limit of inotify instances until the next reboot.

    Each systemd uses some: the usual 128 are exhausted at about 25 hosts, and further hosts restart in a loop.
    """
    with contextlib.suppress(OSError):  # where it cannot be changed, it may be high enough
        if int(_INOTIFY.read_text(encoding="ascii")) < _INOTIFY_INSTANCES:
            _INOTIFY.write_text(str(_INOTIFY_INSTANCES), encoding="ascii")


def _podman(*words: str) -> list[str]:
    output = subprocess.run(
        ["podman", *words], env=settings.environment(), capture_output=True, text=True, check=True
    ).stdout
    return output.split()


def remove_workspace(name: str) -> None:
    """Remove the hosts, volumes and network of one workspace; does nothing where it never had any."""
    if not shutil.which("podman"):
        return
    prefix = f"{_PREFIX}-{name}"
    containers = [host for host in _podman("ps", "--all", "--format={{.Names}}") if host.startswith(f"{prefix}-")]
    _remove_containers(containers, seconds_to_stop=0)
    _remove_named(prefix)
    shutil.rmtree(Path(f"/run/{prefix}"), ignore_errors=True)


def _remove_containers(containers: Sequence[str], *, seconds_to_stop: int) -> None:
    """Remove containers with their volumes, in the second attempt those that podman could not stop in the first.

    On a busy machine podman fails for a container that stops at the same moment ("container state improper: stopped").
    """
    command = ["podman", "rm", "--force", "--ignore", f"--time={seconds_to_stop}", "--volumes", *containers]
    if containers:
        try:
            run(command, log="clean")
        except CommandError:
            run(command, log="clean")


def _remove_named(prefix: str) -> None:
    """Remove the volumes and networks with this name, or one that begins with it and a hyphen."""
    for kind in ("volume", "network"):
        found = _podman(kind, "ls", "--format={{.Name}}")
        names = [name for name in found if name == prefix or name.startswith(f"{prefix}-")]
        if names:
            run(["podman", kind, "rm", "--force", *names], log="clean")


def remove_everything() -> None:
    """Remove this checkout's hosts, volumes and networks, and the images that no other checkout uses."""
    if not shutil.which("podman"):
        return
    label = f"label={settings.LABEL}"
    containers = _podman("ps", "--all", "--quiet", "--filter", label)
    _remove_containers(containers, seconds_to_stop=1)
    _remove_named(_PREFIX)
    # Images are shared. Another checkout may need any of them at any time, including those none of its hosts runs from.
    if _podman("ps", "--all", "--quiet", f"--filter=label={settings.LABEL_KEY}"):
        report("  kept the images: another checkout has hosts")
    else:
        ours = [name for name in _podman("images", "--format={{.Repository}}:{{.Tag}}") if "/gpu-fleet/" in name]
        if ours:
            run(["podman", "rmi", *ours], log="clean")
    for directory in Path("/run").glob(f"{_PREFIX}*"):
        shutil.rmtree(directory, ignore_errors=True)
