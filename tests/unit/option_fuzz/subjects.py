# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Valid options for every module, on a host that is a directory: simulated GPUs, files, scripted programs."""

from __future__ import annotations

import errno
import functools
import hashlib
import importlib
import inspect
import io
import json
import os
import pkgutil
import selectors
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common import warnings
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins import modules as plugin_modules
from ansible_collections.gpu.fleet.plugins.module_utils._change import reset_run
from ansible_collections.gpu.fleet.plugins.module_utils._common import resets, runner
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._cuda import reload as module_reload
from ansible_collections.gpu.fleet.plugins.module_utils._health import run as health_run
from ansible_collections.gpu.fleet.plugins.module_utils._state import run as state_module
from gpu_simulator import cli

from tests.conftest import ROOT
from tests.unit.confined import bounded, confined
from tests.unit.mig.mig_host import SimulatedHost
from tests.unit.state.state_host import StateHost

MODULES: dict[str, ModuleType] = {
    name: importlib.import_module(f"{plugin_modules.__name__}.{name}")
    for _finder, name, _is_package in pkgutil.iter_modules(plugin_modules.__path__)
}
# All of them now: one that a run is the first to import would keep that run's bench. The directories have no
# __init__.py, so that pkgutil finds none of their files.
for _path in sorted((ROOT / "plugins" / "module_utils").rglob("*.py")):
    _name = _path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    importlib.import_module(f"ansible_collections.gpu.fleet.{_name}")
CALLS_AT_MOST = 4000
"""Maximum number of programs that one run may start.

The longest plan over two GPUs takes some 40; host_facts runs each command that it is asked for, here up to 3000.
"""

_CONTAINERD = ROOT / "tests" / "unit" / "files" / "fixtures" / "containerd" / "1.7-kubernetes" / "dump.toml"


@dataclass
class Bench:
    """One host below `root` and the module's runs on it."""

    root: Path
    results: Callable[[Sequence[str]], tuple[str, int]] | None = None
    """Mock programs that are not files of the host: return output and exit status for the arguments."""
    gpus: SimulatedHost | None = None
    calls: list[tuple[str, ...]] = field(default_factory=list)
    slept: float = 0.0

    def run_all(
        self, commands: Sequence[Sequence[str]], timeout: float, max_output_bytes: int = runner.MAX_OUTPUT_BYTES
    ) -> tuple[CommandResult, ...]:
        """Run mock programs in this process, with the same checks of arguments and timeouts as the real function."""
        return tuple(self._run(command, timeout) for command in commands)

    def _run(self, command: Sequence[str], timeout: float) -> CommandResult:
        self.calls.append(tuple(command))
        if len(self.calls) > CALLS_AT_MOST:
            pytest.fail(f"more than {CALLS_AT_MOST} programs, the last of them {command}")
        program = Path(command[0])
        if not _can_be_arguments(command):
            return _really_run([command], timeout)[0]
        if self.results is not None and not program.is_absolute():
            text, status = self.results((program.name, *command[1:]))
        elif self.gpus is not None and program == self.root / "bin" / "nvidia-smi":
            text, status = cli.reply(list(command[1:]), str(self.gpus.root), True)
        else:
            return _really_run([command], timeout)[0]
        deadline = time.monotonic() + timeout
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return CommandResult(tuple(command), None, b"", b"", 0.0, timed_out=True)
        _wait_for_one_that_is_ready(remaining)
        return CommandResult(tuple(command), status, text.encode(), b"", 0.01)

    def sleep(self, seconds: float) -> None:
        """Check the argument as time.sleep does, and return at once."""
        if not seconds >= 0:
            raise ValueError("sleep length must be non-negative")
        self.slept += seconds


_really_run = runner.run_all


def _can_be_arguments(words: Sequence[str]) -> bool:
    try:
        return not any(b"\0" in os.fsencode(word) for word in words)
    except UnicodeError:
        return False


def _wait_for_one_that_is_ready(seconds: float) -> None:
    """Call a real selector, which raises an error for invalid or too long timeouts."""
    reader, writer = os.pipe()
    try:
        os.write(writer, b"x")
        with selectors.DefaultSelector() as selector:
            selector.register(reader, selectors.EVENT_READ)
            selector.select(seconds)
    finally:
        os.close(reader)
        os.close(writer)


@dataclass(frozen=True)
class Subject:
    """One module. `bases` are sets of valid options; `{root}` in `bases` and `words` is the host's directory."""

    name: str
    bases: tuple[dict[str, Any], ...]
    make: Callable[[Path], Bench]
    words: tuple[str, ...] = ()
    patch: Callable[[Bench, pytest.MonkeyPatch], None] = lambda bench, patch: None
    variant: str = ""

    @property
    def module(self) -> ModuleType:
        """The module."""
        return MODULES[self.name]

    def __str__(self) -> str:
        return f"{self.name}{self.variant}"


def with_root(value: Any, root: Path) -> Any:
    """The value with `{root}` replaced in all of its strings."""
    if isinstance(value, str):
        return value.replace("{root}", str(root))
    if isinstance(value, dict):
        return {with_root(key, root): with_root(item, root) for key, item in value.items()}
    return [with_root(item, root) for item in value] if isinstance(value, list) else value


@dataclass
class Ran:
    """Result of a run; `escaped` is an exception that ended it instead of a result."""

    result: dict[str, Any]
    escaped: BaseException | None
    bench: Bench
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def run(subject: Subject, directory: Path, options: Mapping[str, Any], check: bool) -> Ran:
    """Run the module's main on a new host, confined to the host's directory."""
    root = directory / "host"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    bench = subject.make(root)
    (root / "tmp").mkdir(exist_ok=True)
    before = _contents(root)
    printed: list[str] = []
    escaped: BaseException | None = None
    arguments = {
        "_ansible_check_mode": check,
        "_ansible_diff": True,
        "_ansible_tmpdir": str(root / "tmp"),
        "_ansible_remote_tmp": str(root / "tmp"),
        **with_root(dict(options), root),
    }
    with pytest.MonkeyPatch.context() as patch, patch_module_args(arguments):
        patch.setenv("PATH", str(root / "bin"))
        patch.setenv("HOME", str(root / "tmp"))
        patch.setenv("TMPDIR", str(root / "tmp"))
        patch.setattr("tempfile.tempdir", str(root / "tmp"))
        patch.setattr("builtins.print", lambda *strings, **_more: printed.extend(map(str, strings)))
        patch.setattr(warnings, "_global_warnings", {})
        patch.setattr("ansible.module_utils._internal.is_controller", False)
        patch.setattr(basic.AnsibleModule, "log", lambda *_arguments, **_more: None)
        patch.setattr("time.sleep", bench.sleep)
        patch.chdir(root / "tmp")
        _replace_in_collection(patch, bench)
        subject.patch(bench, patch)
        try:
            with confined(root), bounded():
                subject.module.main()
        except SystemExit:
            pass
        except BaseException as error:
            escaped = error
    text = printed[-1] if printed else "{}"
    text.encode()
    return Ran(json.loads(text), escaped, bench, before, _contents(root))


def _replace_in_collection(patch: pytest.MonkeyPatch, bench: Bench) -> None:
    """Patch the whole collection to run programs and sleep through the bench, and to keep its files below its root."""
    substitutes = {id(runner.run_all): bench.run_all, id(time.sleep): bench.sleep, id(_REAL_SLEEP): bench.sleep}
    for module in list(_collection()):
        for name, value in list(vars(module).items()):
            if id(value) in substitutes:
                patch.setattr(module, name, substitutes[id(value)])
            elif isinstance(value, str) and name.isupper() and value.startswith("/run/gpu-fleet"):
                patch.setattr(module, name, str(bench.root) + value)
            elif (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module.__name__:
                function = inspect.unwrap(value.__init__ if inspect.isclass(value) else value)
                defaults = getattr(function, "__defaults__", None) or ()
                if any(id(item) in substitutes for item in defaults):
                    changed = tuple(substitutes.get(id(item), item) for item in defaults)
                    patch.setattr(function, "__defaults__", changed)


_REAL_SLEEP = time.sleep


def _collection() -> Iterator[ModuleType]:
    return (module for name, module in list(sys.modules.items()) if name.startswith("ansible_collections.gpu.fleet."))


def _contents(root: Path) -> dict[str, Any]:
    """Contents of the directory by path, except for temporary files and released locks."""
    found: dict[str, Any] = {}
    for directory, directories, files in os.walk(root):
        directories[:] = [name for name in directories if Path(directory, name) != root / "tmp"]
        for name in (*directories, *files):
            path = Path(directory, name)
            if path.name == "lock" or path == root / "gpus" / "run":
                continue
            status = path.lstat()
            is_file = path.is_file() and not path.is_symlink()
            found[str(path)] = (
                status.st_mode,
                path.read_bytes() if is_file and path.suffix != ".lock" else None,
                path.readlink() if path.is_symlink() else None,
            )
    return found


# The hosts.


def _program(root: Path, name: str, text: str) -> None:
    (root / "bin").mkdir(exist_ok=True)
    (root / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (root / "bin" / name).chmod(0o755)


def _gpu_host(*models: str, mig: bool = True) -> Callable[[Path], Bench]:
    def make(root: Path) -> Bench:
        _program(root, "nvidia-smi", "exit 1")
        (root / "gpus").mkdir()
        for name, content in _simulation(models, mig).items():
            target = root / "gpus" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return Bench(root, gpus=SimulatedHost(root / "gpus"))

    return make


@functools.cache
def _simulation(models: tuple[str, ...], mig: bool) -> dict[str, bytes]:
    """The files of a simulated host."""
    with tempfile.TemporaryDirectory() as directory:
        SimulatedHost.make(Path(directory), *models, mig=mig)
        files = (path for path in Path(directory).rglob("*") if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def _state_host(root: Path) -> Bench:
    _program(root, "nvidia-smi", "exit 1")
    host = StateHost.with_gpus(root / "gpus", "h100_80gb", "h100_80gb")
    (root / "run").mkdir()
    return Bench(root, gpus=host)


def _patch_state(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    host = bench.gpus
    if not isinstance(host, StateHost):
        raise TypeError(host)
    root = str(host.root)
    host.boot_program = lambda: 0  # type: ignore[method-assign]  # it has its own tests

    def run_state(options: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
        systemd = Systemd(host.units.run, str(host.root / "systemd"), bench.sleep)
        return state_module.StateRun(options, check_mode, with_diff, systemd, root).run()

    patch.setattr(MODULES["gpu_state"], "run", run_state)


ARCHIVE = io.BytesIO()
with tarfile.open(fileobj=ARCHIVE, mode="w:gz") as _archive:
    _member = tarfile.TarInfo("cudnn-archive/lib/libcudnn.so.9")
    _member.size = 5
    _archive.addfile(_member, io.BytesIO(b"cudnn"))
SHA256 = hashlib.sha256(ARCHIVE.getvalue()).hexdigest()


_NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"


def _file_host(root: Path) -> Bench:
    """Files for the modules that work on files, and a loadable kernel module."""
    (root / "archive.tar.gz").write_bytes(ARCHIVE.getvalue())
    for path, text in {
        "etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
        "etc/group": "docker:x:999:admin\n",
        "etc/docker/daemon.json": '{"live-restore": true, "log-opts": {"max-size": "10m"}, "hosts": ["fd://"]}',
        "etc/containerd/config.toml": 'version = 2\nroot = "/var/lib/containerd"\n',
        "etc/containerd/conf.d/10-other.toml": "version = 2\n",
        "etc/example.conf": "colour = green\n",
        "var/lib/dpkg/status": "Package: pkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.0\n",
        "usr/local/cuda-12.9/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.9.1"}}',
        "usr/lib64/libnvidia-ml.so.580.159.04": "",
        "files.json": json.dumps({"files": [str(root / "etc/old.conf")], "directories": [str(root / "old")]}),
        "etc/old.conf": "old\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "proc").mkdir()
    (root / "sys/module").mkdir(parents=True)
    (root / "bin").mkdir()
    return Bench(root, results=Programs(root))


def _engine_host(root: Path) -> Bench:
    bench = _file_host(root)
    _program(
        root,
        "containerd",
        f'/bin/cat {_CONTAINERD}\n/bin/grep -q conf.d "$2" && /bin/cat {root}/etc/containerd/conf.d/*\nexit 0',
    )
    crio = 'echo "# CRI-O"; while [ "$1" != config ]; do directory=$1; shift; done; /bin/cat "$directory"/*; exit 0'
    _program(root, "crio", crio)
    _program(root, "conmon", "exit 0")
    _program(root, "runc", "exit 0")
    _program(root, "dockerd", '/bin/grep -q broken "$3" && { echo "cannot be used" >&2; exit 1; }; exit 0')
    return bench


def _dnf_host(root: Path) -> Bench:
    bench = _file_host(root)
    (root / "etc/os-release").write_text('ID="rocky"\nID_LIKE="rhel centos fedora"\n')
    shutil.rmtree(root / "var/lib/dpkg")
    return bench


def _repository_host(root: Path) -> Bench:
    """A host with an old entry, a package that would bring it back, and a server's key in a file."""
    bench = _file_host(root)
    for path, content in {
        "key.asc": _KEY,
        "usr/bin/gpg": "",
        "etc/ssl/certs/ca-certificates.crt": "",
        "etc/apt/sources.list.d/old.list": "deb https://mirror.example.com/tools /\n",
        "etc/apt/preferences.d/old": "Pin: x\n",
        "etc/apt/preferences.d/tools": "Pin: x\n",
        "etc/apt/trusted.gpg.d/both.gpg": f"{_KEY}{_REVOKED}",
        "var/lib/dpkg/info/keyring.list": "",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return replace(bench, results=RepositoryPrograms(root))


_PIN_FILE = "/etc/apt/preferences.d/ours"
_KEY, _REVOKED = f"{'1' * 40}\n", f"{'A' * 40}\n"


@dataclass
class RepositoryPrograms:
    """gpg takes each line of a file for a key, and exports the first one; apt-get purges the keyring's package."""

    root: Path

    def __call__(self, words: Sequence[str]) -> tuple[str, int]:
        """Run one program."""
        if words[0] == "gpg" and "--show-keys" in words:
            path = Path(words[-1])
            lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
            return "".join(f"pub:-:\nfpr:::::::::{line}:\n" for line in lines if len(line) == len(_KEY) - 1), 0
        if words[0] == "gpg" and "--export" in words:
            return _KEY, 0
        if words[0] == "apt-get" and "purge" in words:
            (self.root / "var/lib/dpkg/info/keyring.list").unlink(missing_ok=True)
        return "", 0


def _pin_host(root: Path, base: Callable[[Path], Bench] = _file_host) -> Bench:
    """A host with a pin and a hold of its own, and a lock."""
    bench = base(root)
    for path in ("etc/apt/preferences.d/ours", "etc/apt/preferences.d/site", "etc/dnf/plugins/versionlock.list"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("Package: pkg\nPin: version 1*\nold-0:1.0-1.*\n")
    return replace(bench, results=PinPrograms())


@dataclass
class PinPrograms:
    """apt-mark holds and releases packages, dnf installs one."""

    held: set[str] = field(default_factory=lambda: {"old", "site"})
    packages: list[str] = field(default_factory=lambda: ["pkg", "old", "site"])

    def __call__(self, words: Sequence[str]) -> tuple[str, int]:
        """Run one program."""
        if words[0] == "dpkg-query":
            return "".join(f"{'h' if name in self.held else 'i'}i \t{name}\t1.0\n" for name in self.packages), 0
        if words[0] == "rpm":
            found = [name for name in words[4:] if name in self.packages]
            return "".join(f"{name}\t0\t1.0\t1\tnoarch\n" for name in found), len(words[4:]) - len(found)
        if words[0] == "apt-mark":
            self.held = self.held | {*words[2:]} if words[1] == "hold" else self.held - {*words[2:]}
        if words[0] == "dnf":
            self.packages.append(words[-1])
        return "", 0


@dataclass
class Programs:
    """Output of a host's programs, as far as runs need it; apt-get and dnf change the packages."""

    root: Path
    packages: dict[str, str] = field(default_factory=lambda: {"pkg": "1.0", "old": "1.0"})

    def __call__(self, words: Sequence[str]) -> tuple[str, int]:
        """Run one program."""
        if words[0] == "dpkg-query":
            return "".join(f"ii \t{name}\t{version}\n" for name, version in self.packages.items()), 0
        if words[0] == "rpm":
            return "".join(f"{name}\t0:{version}-1\n" for name, version in self.packages.items()), 0
        if words[0] == "modinfo":
            return "filename: /lib/modules/6.1/nvidia.ko\nversion: 580.159.04\nlicense: Dual MIT/GPL\n", 0
        if words[0] == "apt-get":
            names = [word for word in words[words.index("install") + 1 :] if word[:1] != "-" and "::" not in word]
            return self._apt_get(words, names)
        if words[0] == "modprobe":
            (self.root / "sys/module/nvidia").mkdir(parents=True, exist_ok=True)
            (self.root / "proc/driver/nvidia").mkdir(parents=True, exist_ok=True)
            (self.root / "proc/driver/nvidia/version").write_text(_NVRM)
        return self._dnf(words) if words[0] == "dnf" else ("", 0)

    def _apt_get(self, options: Sequence[str], names: Sequence[str]) -> tuple[str, int]:
        gone = [name[:-1] for name in names if name.endswith("-")]
        come = [name.partition("=")[0] for name in names if not name.endswith("-")]
        unknown = [name for name in (*gone, *come) if name not in ("pkg", "old")]
        if unknown:
            return f"E: Unable to locate package {unknown[0]}", 100
        come = [name for name in come if self.packages.get(name) != "2.0"]
        if not {"--simulate", "--download-only"} & set(options):
            self._change(come, gone)
        lines = [f"Inst {name} [1.0] (2.0 Debian:13 [amd64])" for name in come] + [
            f"Remv {name} [1.0]" for name in gone
        ]
        return "".join(f"{line}\n" for line in lines), 0

    def _dnf(self, words: Sequence[str]) -> tuple[str, int]:
        if "shell" in words:
            lines = [line.split() for line in Path(words[-1]).read_text().splitlines()]
        else:
            verb = next((word for word in words if word in ("install", "remove")), None)
            lines = [list(words[words.index(verb) :])] if verb else []
        come = [name.partition("-")[0] for line in lines if line[:1] == ["install"] for name in line[1:]]
        gone = [name for line in lines if line[:1] == ["remove"] for name in line[1:]]
        unknown = [name for name in (*gone, *come) if name not in ("pkg", "old")]
        if unknown:
            return f"Error: No match for argument: {unknown[0]}", 1
        if "--assumeno" not in words:
            self._change(come, gone)
            return "Complete!", 0
        rows = "".join(f" {name}  x86_64  0:2.0-1  cuda  9.0 k\n" for name in come)
        rows_gone = "".join(f" {name}  x86_64  0:1.0-1  @cuda  9.0 k\n" for name in gone)
        return f"Upgrading:\n{rows}\nRemoving:\n{rows_gone}\nOperation aborted.\n", 1

    def _change(self, come: Sequence[str], gone: Sequence[str]) -> None:
        self.packages.update(dict.fromkeys(come, "2.0"))
        for name in gone:
            self.packages.pop(name, None)


@dataclass
class Slurm:
    """Commands of a cluster with the node gpu1, on which a job runs."""

    state: str = "MIXED"
    reason: str = ""
    jobs: str = "1|RUNNING|ann\n"

    def __call__(self, words: Sequence[str]) -> tuple[str, int]:
        """Run scontrol, squeue or scancel."""
        if words[0] == "squeue":
            return self.jobs, 0
        if words[0] == "scancel":
            self.jobs = ""
            return "", 0
        if words[1] == "update":
            given = dict(word.split("=", 1) for word in words[2:])
            self.state = "MIXED+DRAIN" if given["State"] == "DRAIN" else "MIXED"
            self.reason = given.get("Reason", self.reason)
            return "", 0
        if words[3] != "gpu1":
            return f"Node {words[3]} not found\n", 1
        reason = f"   Reason={self.reason} [root@2026-05-04T09:00:00]\n" if self.reason else ""
        return f"NodeName=gpu1 Arch=x86_64\n   State={self.state} ThreadsPerCore=1\n{reason}", 0


def _slurm_host(root: Path) -> Bench:
    return Bench(root, results=Slurm())


def _drained_host(root: Path) -> Bench:
    return Bench(root, results=Slurm("MIXED+DRAIN", "maintenance: new driver"))


def _patch_files(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    """Redirect modules that read the whole host to the directory, and find programs by name."""
    files = HostFiles(str(bench.root))
    for name in (
        "fabric_facts",
        "host_facts",
        "managed_facts",
        "managed_record",
        "package_pin",
        "package_transaction",
        "report_facts",
        "signed_repository",
        "systemd_reload",
        "unit_restart",
    ):
        patch.setattr(MODULES[name], "HOST", files)
    patch.setattr(MODULES["cuda_facts"], "HostFiles", lambda: files)
    patch.setattr(module_reload, "Host", functools.partial(module_reload.Host, root=str(bench.root)))
    _patch_programs(bench, patch)


def _patch_programs(_bench: Bench, patch: pytest.MonkeyPatch) -> None:
    """Find programs by name: they are no files."""
    for module in _collection():
        if hasattr(module, "find_executable"):
            patch.setattr(module, "find_executable", lambda name, fallback_directories=(): name)


def _patch_api(_bench: Bench, patch: pytest.MonkeyPatch) -> None:
    """An API server with one pod on each node, which is evicted."""

    def send(method: str, path: str, _query: Mapping[str, str], _body: Mapping[str, Any] | None) -> tuple[int, str]:
        owner = [{"kind": "Job"}]
        metadata = {"name": "train", "namespace": "ml", "uid": "1", "ownerReferences": owner}
        pods = {"items": [{"metadata": metadata, "spec": {"containers": []}, "status": {}}]}
        return (201, "{}") if method != "GET" else (200, json.dumps(pods if path == "/api/v1/pods" else {}))

    patch.setattr(MODULES["kubernetes_evict"], "connect", lambda _module, _timeout: send)


def _patch_health(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    """Redirect the files that it reads and writes to the directory; the host has no systemd."""
    patch.setattr(MODULES["gpu_health"], "run", functools.partial(health_run.run, root=str(bench.root)))
    patch.setattr(health_run, "Systemd", lambda: Systemd(booted=str(bench.root / "none")))
    missing = CommandResult((), None, b"", b"", 0.0, start_error=errno.ENOENT)
    patch.setattr(health_run, "run_program", lambda _argv, _timeout: missing)


def _patch_reset(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    """The host has no systemd, and resets are recorded in the directory."""
    patch.setattr(reset_run, "Systemd", lambda: Systemd(booted=str(bench.root / "none")))
    patch.setattr(resets, "FILE", str(bench.root / "resets.json"))


_ROOTED = ("{root}/a", "{root}/etc/example.conf", "{root}/etc", "{root}", "{root}/none/b", "{root}/etc/old.conf/c")
_GPUS = ("0", "1", "all", "H100*", "NVIDIA H100 80GB HBM3", "7")
_REPOSITORY = {
    "name": "tools",
    "role": "example",
    "id": "tools",
    "title": "Tools",
    "url": "https://mirror.example.com/tools/",
    "key_url": "file://{root}/key.asc",
    "fingerprints": ["1" * 40],
    "source_file": "/etc/apt/sources.list.d/tools.sources",
    "key_file": "/etc/apt/keyrings/tools.asc",
    "preferences_file": "/etc/apt/preferences.d/tools",
    "old_line": r"//mirror\.example\.com/tools",
    "entry_files": ["/etc/apt/sources.list.d/*.list"],
    "old_packages": ["keyring"],
    "old_files": ["/etc/apt/preferences.d/old"],
}
SUBJECTS: tuple[Subject, ...] = (
    Subject(
        "mig_profile",
        (
            {"profiles": ["3g.40gb", "1g.10gb"]},
            {"profiles": {"1g.10gb": 7}, "gpus": ["0"]},
            {"layouts": [{"gpus": ["0"], "profiles": ["2g.20gb:0"]}, {"gpus": ["1"], "enabled": False}]},
            {
                "config": {
                    "version": "v1",
                    "mig-configs": {"all": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2}}]},
                },
                "selected": "all",
            },
            {"enabled": False, "reset": "if_required"},
        ),
        _gpu_host("h100_80gb", "h100_80gb"),
        (*_GPUS, "1g.10gb", "3g.40gb", "7g.80gb", "1c.3g.40gb", "{root}/bin/nvidia-smi"),
    ),
    Subject(
        "ecc_mode",
        ({"enabled": False}, {"clear_counters": "volatile"}, {"modes": [{"gpus": ["0"], "enabled": True}]}),
        _gpu_host("a100_40gb", "a100_40gb", mig=False),
        (*_GPUS, "volatile", "aggregate", "{root}/bin/nvidia-smi"),
    ),
    Subject(
        "gpu_reset",
        ({"gpus": ["0"]}, {"fabric": True}, {"gpus": ["all"], "clients": ["job.service"]}),
        _gpu_host("a100_40gb", "a100_40gb", mig=False),
        (*_GPUS, "job.service", "{root}/bin/nvidia-smi"),
        _patch_reset,
    ),
    Subject(
        "gpu_settings",
        (
            {"power_limit_w": "80%", "compute_mode": "exclusive_process", "gpu_clocks_mhz": "1000-1200"},
            {"settings": [{"gpus": ["0"], "memory_clocks_mhz": 1215}, {"gpus": ["1"], "accounting_mode": True}]},
            {"persistence_mode": False, "gpus": ["1"]},
        ),
        _gpu_host("a100_40gb", "a100_40gb", mig=False),
        (*_GPUS, "default", "300", "1000-1200", "prohibited", "{root}/bin/nvidia-smi"),
    ),
    Subject(
        "gpu_state",
        (
            {"persistence_mode": True, "ecc": False, "power_limit_w": "80%"},
            {"mig": ["3g.40gb", "1g.10gb"], "reset": "if_required", "stop_for_reboot": True},
            {
                "mig": "all",
                "mig_layouts": {"version": "v1", "mig-configs": {"all": [{"devices": "all", "mig-enabled": False}]}},
            },
            {"persistence_mode": True, "gpu_clocks_mhz": "1000-1200", "clients": ["job.service"]},
            {"state": "absent"},
        ),
        _state_host,
        (*_GPUS, "1g.10gb", "default", "300", "job.service", "{root}/bin/nvidia-smi"),
        _patch_state,
    ),
    Subject(
        "nvidia_smi_facts",
        ({}, {"gather_subset": ["mig", "!clocks"], "gpus": ["0"]}),
        _gpu_host("h100_80gb", "h100_80gb"),
        (*_GPUS, "{root}/bin/nvidia-smi"),
    ),
    Subject(
        "gpu_health",
        (
            {},
            {"expected": {"gpu_count": 2, "gpu_models": ["H100"], "driver_version": "580", "mig_profiles": []}},
            {
                "policy": [
                    {"id": "hot", "reading": "temperature_gpu_c", "operator": "above", "value": 90, "verdict": "warn"},
                    {"id": "row_remap_pending", "thresholds": {"H100": True}, "remedy": "reboot"},
                    {"id": "accepted", "xids": [13], "verdict": "ok", "bursts": 2, "hours": 24.0},
                ]
            },
            {"kernel_log": "/var/log/kern.log", "history": "/health"},
        ),
        _gpu_host("h100_80gb", "h100_80gb"),
        ("journal", "dmesg", "none", "/var/log/kern.log", "/health", "580", "has", "{root}/bin/nvidia-smi"),
        _patch_health,
    ),
    Subject(
        "cuda_facts",
        ({}, {"toolkit_paths": ["/usr/local/cuda-*"]}),
        _file_host,
        ("/usr/*", "/*/*", "/usr/local/cuda-12.9"),
        _patch_files,
    ),
    Subject(
        "report_facts",
        ({},),
        _file_host,
        ("nvidia-smi", "{root}/bin/nvidia-smi"),
        _patch_files,
    ),
    Subject(
        "slurm_node",
        (
            {"name": "gpu1"},
            {"name": "gpu1", "state": "drained", "owner": "maintenance", "reason": "new driver", "jobs": "cancel"},
        ),
        _slurm_host,
        ("gpu1", "maintenance", "drained", "in_service", "cancel"),
        _patch_programs,
    ),
    Subject(
        "slurm_node",
        ({"name": "gpu1", "state": "in_service", "owner": "maintenance"},),
        _drained_host,
        ("gpu1", "maintenance", "drained", "in_service", "cancel"),
        _patch_programs,
        " (drained)",
    ),
    Subject(
        "kubernetes_evict",
        (
            {"name": "gpu1"},
            {"name": "gpu1", "pods": "delete", "pod_selectors": ["app!=notebook"], "kubeconfig": "{root}/config"},
        ),
        _file_host,
        ("gpu1", "evict", "delete", "app!=notebook"),
        _patch_api,
    ),
    Subject("driver_reload", ({}, {"services": ["job.service"]}), _file_host, ("job.service",), _patch_files),
    Subject("fabric_facts", ({}, {"imex_timeout": 1}), _file_host, (), _patch_files),
    Subject("managed_facts", ({},), _file_host, (), _patch_files),
    Subject(
        "host_facts",
        (
            {"gather": ["packages", "managed"]},
            {"gather": ["system", "managed"], "users": ["root"], "secrets": {"docker": "correct-horse"}},
            {"gather": ["managed"], "directories": ["/var/lib/docker", "/etc"]},
            {"gather": [], "reads": {"files": ["{root}/etc/old.conf"], "commands": [["systemctl", "--version"]]}},
        ),
        _file_host,
        ("root",),
        _patch_files,
    ),
    Subject(
        "managed_record",
        (
            {
                "role": "example",
                "files": ["/etc/example.conf"],
                "absent": ["/etc/none*"],
                "lines": {"/etc/example.conf": ["colour = green"]},
                "absent_lines": {"/etc/*.conf": ["red"]},
                "json_values": {"/etc/docker/daemon.json": {"live-restore": True}},
                "packages": ["pkg"],
                "group_members": {"docker": ["admin"]},
                "data": {"a": 1},
            },
            {"role": "example", "state": "absent"},
        ),
        _file_host,
        ("example", "/etc/example.conf", "/etc/*", "/*/*/*", "pkg", "docker"),
        _patch_files,
    ),
    Subject("systemd_reload", ({}, {"units": ["job.service"]}), _file_host, ("job.service",), _patch_files),
    Subject(
        "unit_restart",
        (
            {"name": "job.service", "started_after": ["/etc/example.conf"]},
            {"name": "job.service", "started_after": ["/etc/*.conf"], "previous": {"/etc/example.conf": None}},
        ),
        _file_host,
        ("job.service", "/etc/example.conf", "/etc/*"),
        _patch_files,
    ),
    Subject(
        "package_transaction",
        ({"install": ["pkg=2.0"], "remove": ["old"]}, {"release_holds": ["pkg"], "repair": True}),
        _file_host,
        ("pkg", "old", "pkg=2.*"),
        _patch_files,
        " (apt)",
    ),
    Subject(
        "package_transaction",
        (
            {"install": ["pkg=2.0"], "remove": ["old"]},
            {"install": ["pkg"], "stream": "nvidia-driver:580-open", "module": "nvidia-driver"},
        ),
        _dnf_host,
        ("pkg", "old", "nvidia-driver:580-open"),
        _patch_files,
        " (dnf)",
    ),
    *(
        Subject(
            "package_pin",
            (
                {"hold": ["pkg"], "release": ["old"], "preferences_file": _PIN_FILE, "role": "x", "host": "gpu7"},
                {"pins": [{"packages": "pkg old", "version": "1.*", "priority": 990}], "preferences_file": _PIN_FILE},
                {"state": "absent", "hold": ["old"], "preferences_file": _PIN_FILE},
            ),
            functools.partial(_pin_host, base=base),
            ("pkg", "old", "old-0:1.0-1.*", "1.*", _PIN_FILE),
            _patch_files,
            f" ({manager})",
        )
        for manager, base in (("apt", _file_host), ("dnf", _dnf_host))
    ),
    Subject(
        "signed_repository",
        (
            {"repository": _REPOSITORY, "revoked": ["A" * 40], "host": "gpu7"},
            {"repository": {**_REPOSITORY, "key": _KEY, "exclude": ["mft*"], "priority": 600}},
            {"repository": _REPOSITORY, "state": "absent"},
        ),
        _repository_host,
        ("tools", "/", "https://mirror.example.com/tools/", "/etc/apt/sources.list.d/tools.sources", "1" * 40),
        _patch_files,
    ),
    Subject(
        "archive_directory",
        (
            {"path": "{root}/usr/local/cudnn", "src": "{root}/archive.tar.gz", "sha256": SHA256},
            {"path": "{root}/usr/local/cudnn", "state": "absent"},
        ),
        _file_host,
        (*_ROOTED, SHA256, "{root}/archive.tar.gz", "http://127.0.0.1:9/a", "file://{root}/archive.tar.gz"),
    ),
    Subject(
        "file_set",
        (
            {
                "files": {"{root}/etc/example.conf": "colour = red\n", "{root}/new/a.conf": "a\n"},
                "programs": {"{root}/new/b": "#!/bin/sh\n"},
                "record": "{root}/files.json",
            },
            {"record": "{root}/files.json"},
        ),
        _file_host,
        _ROOTED,
    ),
    Subject(
        "daemon_json",
        (
            {"options": {"log-opts": {"max-file": "3"}}, "path": "{root}/etc/docker/daemon.json"},
            {"earlier": {"live-restore": True}, "path": "{root}/etc/docker/daemon.json"},
            {"options": {"a": [1]}, "path": "{root}/etc/docker/none/daemon.json", "on_conflict": "fail"},
        ),
        _engine_host,
        (*_ROOTED, "live-restore", "broken"),
    ),
    Subject(
        "crio_runtime",
        (
            {
                "config": "{root}/etc/crio/crio.conf",
                "drop_in": "{root}/etc/crio/crio.conf.d/99-nvidia.conf",
                "binary": "{root}/bin/runc",
            },
            {
                "drop_in": "{root}/etc/crio/crio.conf.d/10-other.conf",
                "binary": "{root}/bin/runc",
                "state": "absent",
            },
        ),
        _engine_host,
        (*_ROOTED, "runc", "nvidia", "crio"),
    ),
    Subject(
        "containerd_runtime",
        (
            {"config": "{root}/etc/containerd/config.toml", "drop_in": "{root}/etc/containerd/conf.d/99-nvidia.toml"},
            {
                "config": "{root}/etc/containerd/config.toml",
                "drop_in": "{root}/etc/containerd/conf.d/10-other.toml",
                "state": "absent",
            },
        ),
        _engine_host,
        (*_ROOTED, "runc", "nvidia", "containerd"),
    ),
)
