# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room and write access, as they are read on a host and as they are refused. The messages are in ../mistakes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.file_systems import (
    MIB,
    largest_initramfs_mib,
    read_file_systems,
)
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning import room
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import ROLES

from tests.unit.site.mock_host import DEBIAN_12, ROOM, MockHost, run_site

DEFAULTS = RoleData.read().defaults(ROLES)
STATVFS = os.statvfs_result((4096, 512, 9, 9, 4096, 0, 7, 7, 0, 255))


def _refused(
    work: Sequence[str],
    available: Mapping[str, int],
    given: Mapping[str, Any] | None = None,
    there: Sequence[str] = (),
    toolkits: Sequence[str] = (),
    **system: Any,
) -> tuple[str, ...]:
    """The refusals of a host with these mounts, MiB by path."""
    variables = {**DEFAULTS, **(given or {})}
    systems = {}
    for directory in room.directories(variables):
        mount = max((path for path in available if directory.startswith(path)), key=len)
        place = {"mount": mount, "device": len(mount), "available_mib": available[mount]}
        systems[directory] = {**ROOM, **place, **system}
    return room.refusals(work, variables, room.Found(systems, 72, there, toolkits))


@pytest.mark.parametrize(
    ("work", "given", "there", "toolkits", "needed"),
    [
        (["nvidia_driver"], {}, [], [], 15 + 72 + 110 + 180),
        # A newer version: only the package manager knows how much larger it is.
        (["nvidia_driver"], {}, ["nvidia_driver"], [], 15 + 72),
        (["nvidia_driver"], {"nvidia_driver_source": "runfile"}, [], [], 15 + 72),
        (["nvidia_driver"], {"nvidia_driver_state": "absent"}, ["nvidia_driver"], [], 0),
        (["cuda"], {}, [], [], 15 + 5400),
        (["cuda"], {"cuda_versions": ["12.9", "13.0"]}, ["cuda"], ["12.9.1"], 15 + 5400),
        (["cuda"], {"cuda_versions": ["13.0"]}, ["cuda"], ["13.0.2"], 15),
        (["cuda"], {"cuda_components": ["runtime"]}, [], [], 15),
        (["cudnn"], {}, [], [], 15 + 900),
        (["cudnn"], {"cudnn_versions": [{"version": "9.14.0.64", "cuda": "13", "archive": "/a"}]}, [], [], 15),
        (["docker"], {}, [], [], 15 + 250 + 5),
        (["docker"], {}, ["docker"], [], 15 + 5),
        (["gpu_state"], {}, [], [], 15),
        # Only these roles know whether they have work.
        (["gpu_health", "gpu_monitoring", "gpu_containers"], {}, [], [], 0),
    ],
)
def test_what_is_needed(
    work: Sequence[str], given: Mapping[str, Any], there: Sequence[str], toolkits: Sequence[str], needed: int
) -> None:
    assert not _refused(work, {"/": needed}, given, there, toolkits)
    if needed:
        (text,) = _refused(work, {"/": needed - 1}, given, there, toolkits)
        assert f"/ has {needed - 1} MiB free, and at least {needed} MiB are needed" in text


def test_each_file_system_is_named_with_what_it_lacks() -> None:
    found = _refused(["cuda", "docker"], {"/": 9999, "/usr/local": 100, "/var": 100})
    assert [text.split(",")[0] for text in found] == ["/var has 100 MiB free", "/usr/local has 100 MiB free"]


def test_the_directory_of_the_engine_is_the_declared_one() -> None:
    options = {"docker_daemon_options": {"data-root": "/scratch/docker"}}
    assert "/scratch has 0 MiB free" in _refused(["docker"], {"/": 9999, "/scratch": 0}, options)[0]


def test_a_read_only_mount_is_refused_for_a_removal_as_well() -> None:
    (text,) = _refused(["docker"], {"/": 9999}, {"docker_state": "absent"}, read_only=True)
    assert text.startswith("/ is mounted read-only, and the roles write to /var/lib, /usr, /etc; ")


def test_a_file_system_without_a_fixed_number_of_inodes_has_enough() -> None:
    assert not _refused(["gpu_state"], {"/": 9999}, free_inodes=None)
    assert "has 99 inodes free" in _refused(["gpu_state"], {"/": 9999}, free_inodes=99)[0]


def test_a_file_system_that_cannot_be_read_is_left_to_the_role() -> None:
    assert not room.refusals(["docker"], DEFAULTS, room.Found({}))


def test_directories_that_do_not_exist_yet_are_on_the_file_system_of_their_parent(tmp_path: Path) -> None:
    (tmp_path / "srv").mkdir()
    (tmp_path / "data").symlink_to("/srv")
    found = read_file_systems(["/srv", "/data/docker/new"], HostFiles(str(tmp_path)))
    assert found["/srv"] == found["/data/docker/new"]
    assert found["/srv"]["device"] == tmp_path.stat().st_dev
    assert abs(found["/srv"]["available_mib"] - shutil.disk_usage(tmp_path).free // MIB) < 1000


def _with_mounts(root: Path, *lines: str) -> HostFiles:
    """A host with these lines, in the format of https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("\n".join(lines) + "\n")
    return HostFiles(str(root))


def test_a_bind_mount_has_its_own_access_and_the_room_of_its_device(tmp_path: Path) -> None:
    """With lines of Linux 6.1; the kernel shows for each mount whether it is read-only."""
    for name in ("etc", "mnt a/docker"):
        (tmp_path / name).mkdir(parents=True)
    files = _with_mounts(
        tmp_path,
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
        "310 22 254:0 /b /etc ro,relatime shared:1 - ext4 /dev/vda rw",
        r"311 22 254:0 /a /mnt\040a rw,relatime - ext4 /dev/vda rw",
    )
    found = read_file_systems(["/etc/docker", "/mnt a/docker", "/usr"], files)
    assert [system["mount"] for system in found.values()] == ["/etc", "/mnt a", "/"]
    systems = {name: {**system, "available_mib": 10} for name, system in found.items()}
    systems["/etc"] = {**systems.pop("/etc/docker"), "read_only": True}
    systems["/var/lib"] = systems.pop("/mnt a/docker")
    refused = room.refusals(["gpu_state"], DEFAULTS, room.Found(systems))
    assert refused[0].startswith("/etc is mounted read-only, and the roles write to /etc; ") and len(refused) == 1
    systems["/usr"]["available_mib"] = systems["/var/lib"]["available_mib"] = 9
    refused = room.refusals(["gpu_state"], DEFAULTS, room.Found(systems))
    assert "/mnt a has 9 MiB free, and at least 10 MiB are needed (files of the roles 10)" in refused[1]


def test_nothing_looks_at_a_remote_file_system_whose_server_may_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way leads there: the directory itself, one below it, one behind a link, and what is over an automount."""
    (tmp_path / "scratch").symlink_to("/nfs/scratch")
    files = _with_mounts(
        tmp_path,
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
        "400 22 0:50 / /nfs rw,relatime shared:9 - nfs4 server:/export ro,vers=4.2,hard",
        "401 22 0:51 / /usr/local rw,relatime - autofs systemd-1 rw,fd=52",
        "402 401 0:52 / /usr/local ro,relatime - fuse.sshfs ops@server:/ rw",
    )
    looked = []

    def looking(real: Any) -> Any:
        def look(path: Any, *rest: Any, **more: Any) -> Any:
            looked.append(str(path).removeprefix(str(tmp_path)))
            return real(path, *rest, **more)

        return look

    for module, name in ((os, "stat"), (os, "lstat"), (os, "readlink"), (os.path, "isdir"), (os.path, "islink")):
        monkeypatch.setattr(module, name, looking(getattr(module, name)))
    found = read_file_systems(["/usr/local/cuda", "/scratch/docker", "/nfs", "/usr"], files, lambda _path: STATVFS)
    monkeypatch.undo()
    assert "/scratch" in looked
    assert [path for path in looked if path.startswith(("/nfs", "/usr/local"))] == []
    assert [(system["mount"], system["available_mib"]) for system in found.values()] == [
        ("/usr/local", None),
        ("/nfs", None),
        ("/nfs", None),
        ("/", 2),
    ]
    assert [system["read_only"] for system in found.values()] == [True, True, True, False]


def test_a_remote_file_system_is_refused_where_it_is_read_only_and_else_left_to_the_role() -> None:
    assert not _refused(["docker"], {"/": 9999}, available_mib=None, free_inodes=None)
    assert "is mounted read-only" in _refused(["docker"], {"/": 0}, available_mib=None, read_only=True)[0]


def test_a_host_whose_root_is_remote_is_read_as_any_other(tmp_path: Path) -> None:
    files = _with_mounts(tmp_path, "22 1 0:20 / / rw,relatime - nfs server:/root rw,vers=3")
    assert read_file_systems(["/usr"], files, lambda _path: STATVFS)["/usr"]["available_mib"] == 2


@pytest.mark.parametrize("line", ["", "-", " - ", "22 1 254 / / rw - ext4 x rw", "22 1 a:b / / rw - ext4 x rw"])
def test_a_line_of_another_form_is_no_mount(tmp_path: Path, line: str) -> None:
    files = _with_mounts(tmp_path, line)
    assert read_file_systems(["/usr"], files, lambda _path: STATVFS)["/usr"]["mount"] == "/"


def test_values_of_statvfs(tmp_path: Path) -> None:
    read_only = os.statvfs_result((*STATVFS[:8], os.ST_RDONLY, 255))
    system = next(iter(read_file_systems(["/"], HostFiles(str(tmp_path)), lambda _path: read_only).values()))
    assert (system["available_mib"], system["read_only"], system["free_inodes"]) == (2, True, None)


def test_a_file_system_that_does_not_reply_is_left_out(tmp_path: Path) -> None:
    def statvfs(_path: str) -> os.statvfs_result:
        raise OSError(5, "Input/output error")

    assert read_file_systems(["/", "/etc"], HostFiles(str(tmp_path)), statvfs) == {}


def test_a_link_that_cannot_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/1/root is for a user without its rights."""
    (tmp_path / "data").symlink_to("/srv")

    def readlink(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "readlink", readlink)
    assert [*read_file_systems(["/data", "/"], HostFiles(str(tmp_path)))] == ["/"]


def test_the_largest_initramfs(tmp_path: Path) -> None:
    files = HostFiles(str(tmp_path))
    assert largest_initramfs_mib(files) == 0
    (tmp_path / "boot").mkdir()
    for name, size in (("initrd.img-6.1.0", 10), ("initramfs-5.14.0-503.el9.x86_64.img", 2 * MIB + 1), ("vmlinuz", 9)):
        (tmp_path / "boot" / name).write_bytes(b"")
        os.truncate(tmp_path / "boot" / name, size)
    assert largest_initramfs_mib(files) == 3


@pytest.mark.plays
def test_a_role_that_is_alone_asks_the_same_before_its_first_change(tmp_path: Path) -> None:
    """Only modules that read have run."""
    playbook = tmp_path / "playbook.json"
    alone = {"ansible.builtin.include_role": {"name": "gpu.fleet.{{ role_alone }}"}}
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [alone]}]))
    full = MockHost(file_systems={"/": {**ROOM, "available_mib": 4}})
    given: Mapping[str, Mapping[str, Any]] = {
        "cuda": {"cuda_source": "distribution"},
        "cudnn": {},
        "docker": {},
        "nvidia_driver": {},
    }
    hosts = {name: (full, {"role_alone": name, **variables}) for name, variables in given.items()}
    # The toolkit needs an engine.
    hosts["nvidia_container_toolkit"] = (
        replace(full, packages={"dpkg": "1.21.22", "docker.io": "20.10.24"}),
        {"role_alone": "nvidia_container_toolkit"},
    )
    run = run_site(tmp_path, hosts, playbook=playbook)
    for role, modules in run.modules.items():
        assert run.failure(role).startswith(f"{role}: / has 4 MiB free, and at least "), (role, run.failure(role))
        assert [*modules] == ["host_facts"], "nothing runs after the refusal"


@pytest.mark.plays
def test_a_role_that_is_alone_names_a_host_that_replies_something_else(tmp_path: Path) -> None:
    """Whoever has replaced its Python can reply anything."""
    playbook = tmp_path / "playbook.json"
    alone = {"ansible.builtin.include_role": {"name": "gpu.fleet.docker"}}
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [alone]}]))
    replies: Mapping[str, Any] = {
        "nothing": {},
        "empty": {"ansible_facts": {}},
        "list": {"ansible_facts": ["packages"]},
        "system": {"ansible_facts": DEBIAN_12},
        "rooms": {**MockHost().modules()["host_facts"], "file_systems": {"/usr": "full"}},
    }
    hosts: dict[str, tuple[MockHost, Mapping[str, Any]]] = {
        name: (MockHost(results={"host_facts": reply}), {}) for name, reply in replies.items()
    }
    run = run_site(tmp_path, hosts, playbook=playbook)
    for name, modules in run.modules.items():
        refusal = f"{name}: the facts of the host have another form than modules document"
        assert run.failure(name).startswith(refusal), (name, run.output[-3000:])
        assert [*modules] == ["host_facts"]
