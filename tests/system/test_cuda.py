# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles cuda and cudnn: refusals, state after a failure, cost on a converged host, and the genuine cuDNN."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import settings
from tests.system.support import Result, run
from tests.unit.cuda import archives

DIRECTORY = "tests/system/cuda"
INVENTORY = f"{DIRECTORY}/hosts.yml"
CONVERGE = f"{DIRECTORY}/converge.yml"
REDIST = "https://developer.download.nvidia.com/compute"
RUNFILE = f"{REDIST}/cuda/13.0.2/local_installers/cuda_13.0.2_580.95.05_linux.run"
CUDNN_9 = f"{REDIST}/cudnn/redist/cudnn/linux-x86_64/cudnn-linux-x86_64-9.14.0.64_cuda13-archive.tar.xz"
CUDNN_7 = f"{REDIST}/redist/cudnn/v7.6.5/cudnn-10.2-linux-x64-v7.6.5.32.tgz"


def play(variables: dict[str, Any] | None = None, *extra: str, succeeds: bool = True, name: str = CONVERGE) -> Result:
    """Run a playbook with variables."""
    result = run(
        ["ansible-playbook", "-i", INVENTORY, name, "--extra-vars", json.dumps(variables or {}), *extra],
        env={"GPU_FLEET_TESTBED_INVENTORY": "cuda"},
    )
    assert (result.status == 0) is succeeds, result.output[-8000:]
    return result


def on_host(script: str, host: str = "c-deb13") -> str:
    """Run a script on a host; return its stdout."""
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", "sh", "-c", script]).output.strip()


def give(path: Path, to: str, host: str = "c-deb13") -> None:
    """Copy a file to a host."""
    copied = run(["podman", "cp", str(path), f"gpu-fleet-{settings.TESTBED_ID}-{host}:{to}"])
    assert copied.status == 0, copied.output


def messages(result: Result) -> str:
    """The output as one line: Ansible folds messages."""
    return " ".join(result.output.split())


def published(url: str) -> str:
    """Checksum of a file on the mock vendor repositories."""
    facts = json.loads((settings.MOCK_REPOSITORIES / "vendors.json").read_text(encoding="utf-8"))
    return str(facts["sha256"][url])


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    play(name="testbed/playbooks/destroy.yml")
    play(name="testbed/playbooks/create.yml")
    yield
    play(name="testbed/playbooks/destroy.yml")


def test_a_driver_never_comes_in_whatever_a_package_depends_on() -> None:
    """The mock repository has a compiler package of version 13.9 that depends on cuda-drivers."""
    asked = {"cuda_versions": ["13.9"], "cuda_components": ["compiler"]}
    unknown = play({"parts": ["cuda"], **asked}, succeeds=False)
    assert "cuda_versions has 13.9, which is not a CUDA version that this collection knows" in messages(unknown)
    play({"parts": ["repository"]})
    result = play({"parts": ["cuda"], **asked}, succeeds=False)
    assert "cuda-drivers" in messages(result) and "belongs to a driver; nothing was installed" in messages(result)
    installed = on_host("dpkg-query -W -f '${Package}\\n' | grep -E '^(cuda|nvidia|libnvidia)' || true")
    assert installed == ""
    assert play({"parts": ["cuda"], **asked}, "--check", succeeds=False).changed["c-deb13"] == 0
    play({"parts": ["repository"], "nvidia_repository_state": "absent"})


def test_what_a_failed_run_has_begun_goes_with_the_next() -> None:
    runfile = {"cuda_source": "runfile", "cuda_runfiles": {"13.0": {"url": RUNFILE, "sha256": "0" * 64}}}
    play({"parts": ["cuda"], **runfile}, succeeds=False)
    assert "cuda" in on_host("ls -R /var/lib/gpu-fleet")
    play({"parts": ["cuda"], "cuda_state": "absent"})
    assert (
        on_host("ls /etc/apt/preferences.d /etc/profile.d /var/lib/gpu-fleet 2>/dev/null | grep -E 'cuda' || true")
        == ""
    )


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"cuda_versions": ["13"]}, ["cuda_versions", "major.minor"]),
        ({"cuda_versions": [13.0]}, ["cuda_versions", "quotes"]),
        ({"cuda_versions": ["14.7"]}, ["cuda_versions", "14.7"]),
        ({"cuda_versions": ["13.0", "13.0"]}, ["cuda_versions", "once"]),
        ({"cuda_versions": ["13.0"], "cuda_default": "12.9"}, ["cuda_default", "12.9", "13.0"]),
        ({"cuda_source": "runfile"}, ["cuda_runfiles", "sha256"]),
        (
            {"cuda_source": "distribution", "cuda_components": ["debugger"]},
            ["cuda_components", "distribution", "profilers"],
        ),
    ],
)
def test_bad_input_is_refused_before_anything_is_changed(variables: dict[str, Any], words: list[str]) -> None:
    result = play({"parts": ["cuda"], **variables}, succeeds=False)
    assert [word for word in words if word not in messages(result)] == []
    assert result.changed["c-deb13"] == 0


def test_a_toolkit_that_gpus_or_driver_are_too_old_for_is_refused_with_those_that_fit() -> None:
    play(None, "--limit=c-deb12", name="testbed/playbooks/simulate.yml")
    result = play({"host": "c-deb12", "parts": ["cuda"], "cuda_versions": ["13.0"]}, succeeds=False)
    message = messages(result)
    assert "V100" in message and "these versions fit:" in message
    fitting = re.search(r"these versions fit: ([0-9., ]+)", message)
    assert fitting and "12.2" in fitting[1] and "13." not in fitting[1]


@pytest.mark.parametrize(
    ("cuda", "words"),
    [
        # No cuDNN for CUDA 13 supports Volta; the last one for CUDA 12 that does is 9.10.
        ("13", "these versions of cuDNN for CUDA 13 fit: none;"),
        ("12", "these versions of cuDNN for CUDA 12 fit: 8.8, 8.9, 9.0, "),
    ],
)
def test_a_cudnn_that_the_gpus_are_too_old_for_is_refused_with_those_that_fit(cuda: str, words: str) -> None:
    versions = [{"version": "9.14.0.64", "cuda": cuda}]
    result = play({"host": "c-deb12", "parts": ["cudnn"], "cudnn_versions": versions}, succeeds=False)
    assert "(Volta): it needs compute capability 7.5 or newer" in messages(result)
    assert words in messages(result)
    fitting = messages(result).partition("fit: ")[2].partition(";")[0].split(", ")
    assert fitting[-1] == ("none" if cuda == "13" else "9.10")


def _hostile(tmp_path: Path, kind: str) -> tuple[str, str, str]:
    """An archive that must be refused: its path on the host, its checksum, and a part of the error message."""
    path = tmp_path / "bad.tar.xz"
    good = archives.cudnn_9(path)
    words = {"absolute": "absolute path", "dots": "leads out", "truncated": "damaged", "checksum": f"not {'0' * 64}"}
    if kind == "absolute":
        good = archives.write(path, archives.member("top/a", "1"), archives.member("/usr/local/evil", "2"))
    elif kind == "dots":
        good = archives.write(path, archives.member("top/a", "1"), archives.member("top/../../evil", "2"))
    elif kind == "truncated":
        path.write_bytes(path.read_bytes()[:-40])
        good = archives.sha256(path)
    give(path, "/srv/bad.tar.xz")
    return "/srv/bad.tar.xz", "0" * 64 if kind == "checksum" else good, words[kind]


@pytest.mark.parametrize("kind", ["checksum", "truncated", "absolute", "dots"])
def test_an_archive_that_cannot_be_used_leaves_nothing(tmp_path: Path, kind: str) -> None:
    archive, sha256, word = _hostile(tmp_path, kind)
    versions = [{"version": "9.14.0.64", "cuda": "13", "archive": archive, "sha256": sha256}]
    result = play({"parts": ["cudnn"], "cudnn_versions": versions}, succeeds=False)
    assert word in messages(result)
    assert on_host("ls -A /usr/local | grep -E 'cudnn|evil' || true") == ""
    assert on_host("ls /etc/ld.so.conf.d | grep cudnn || true") == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [("x" * (4 << 20), "it needs 4 MiB"), (secrets.token_hex(4 << 20), "no space left")],
    ids=["for what is in the archive", "for the archive"],
)
def test_a_full_disk_leaves_nothing(tmp_path: Path, content: str, words: str) -> None:
    archive = tmp_path / "big.tgz"
    sha256 = archives.write(archive, archives.member("cuda/lib64/libcudnn.so.7", content))
    give(archive, "/srv/big.tgz")
    on_host("mkdir -p /mnt/small && mount -t tmpfs -o size=2m tmpfs /mnt/small")
    versions = [{"version": "7.6.5", "cuda": "10.2", "archive": "/srv/big.tgz", "sha256": sha256}]
    result = play({"parts": ["cudnn"], "cudnn_versions": versions, "cudnn_directory": "/mnt/small"}, succeeds=False)
    assert words in messages(result)
    assert on_host("ls -A /mnt/small; umount /mnt/small") == ""


def test_a_converged_host_costs_one_module_for_each_role_and_none_when_the_playbook_reads() -> None:
    variables = {
        "cuda_source": "runfile",
        "cuda_runfiles": {"13.0": {"url": RUNFILE, "sha256": published(RUNFILE)}},
        "cudnn_versions": [
            {"version": "9.14.0.64", "cuda": "13", "archive": CUDNN_9, "sha256": published(CUDNN_9)},
            {"version": "7.6.5.32", "cuda": "10.2", "archive": CUDNN_7, "sha256": published(CUDNN_7)},
        ],
    }
    play(variables)
    again = play(variables)
    assert again.changed["c-deb13"] == 0
    # The first module run is the play's setup, the last reads the GPUs for the fleet table.
    assert again.module_runs["c-deb13"] - 2 == 2
    predicted = play(variables, "--check")
    assert predicted.changed["c-deb13"] == 0
    assert on_host("test -e /etc/cuda-installer-brought-a-driver || echo none") == "none"
    assert on_host("readlink /usr/local/cuda") == "/usr/local/cuda-13.0"
    for name, version in (("libcudnn.so.9", 91400), ("libcudnn.so.7", 7605)):
        asked = on_host(f"python3 -c \"import ctypes; print(ctypes.CDLL('{name}').cudnnGetVersion())\"")
        assert asked == str(version)
    on_host("rm /usr/local/cuda-13.0/bin/nvcc")
    assert play(variables).changed["c-deb13"] > 0
    assert "release 13.0" in on_host("bash --login -c 'nvcc --version'")


def test_removal_leaves_nothing() -> None:
    play({"cuda_state": "absent", "cudnn_state": "absent"})
    names = "-iname '*cuda*' -o -iname '*cudnn*' -o -name .uninstallManifests"
    assert on_host(f"find /etc /usr/local /var/log {names}") == ""
    assert on_host("find /var/lib -path '/var/lib/gpu-fleet/*' -type f") == ""


def _simulate(**variables: Any) -> None:
    play(variables, "--limit=c-deb12", name="testbed/playbooks/simulate.yml")


def _packages(host: str) -> str:
    return on_host("dpkg-query -W -f '${Package}\\n' | grep cuda || true", host)


def test_a_package_stands_in_for_a_newer_driver_until_there_is_one() -> None:
    """One run replaces a toolkit version by another, and a later run one component by another."""
    host = "c-deb12"
    asked: dict[str, Any] = {"host": host, "parts": ["cuda"]}
    _simulate(gpu_simulator_gpus=[{"model": "a100_40gb", "count": 1}])
    play({**asked, "cuda_versions": ["12.9"], "cuda_components": ["compiler", "profilers"]})

    # Without a version it would be the newest that the driver runs.
    asked |= {"cuda_versions": ["13.0"], "cuda_components": ["compiler"]}
    refused = play(asked, succeeds=False)
    assert "CUDA 13.0 needs driver 580" in messages(refused)
    assert "the package cuda-compat-13-0 can stand in" in messages(refused)
    asked["cuda_forward_compatibility"] = True
    play(asked)
    assert "release 13.0" in on_host("bash --login -c 'nvcc --version'", host)
    assert "-12-9" not in _packages(host)
    assert on_host("ls -d /usr/local/cuda-*", host).split() == ["/usr/local/cuda-13", "/usr/local/cuda-13.0"]
    loaded = on_host("ldconfig -p | grep 'libcuda[.]so[.]1 '", host)
    assert loaded.endswith("=> /usr/local/cuda-13.0/compat/libcuda.so.1")
    again = play(asked)
    assert again.changed[host] == 0
    # Less the play's setup and the reading of the GPUs for the fleet table.
    assert again.module_runs[host] - 2 == 1

    _simulate(gpu_simulator_gpus=[{"model": "a100_40gb", "count": 1}], gpu_simulator_driver_version="580.159.04")
    asked["cuda_components"] = ["compiler", "libraries"]
    play(asked)
    assert "cuda-compat-13-0" not in _packages(host)
    assert "/compat/" not in on_host("ldconfig -p", host)
    asked["cuda_components"] = ["libraries"]
    play(asked)
    assert "cuda-libraries-13-0" in _packages(host) and "cuda-nvcc" not in _packages(host)
    assert play(asked).changed[host] == 0

    asked["cuda_state"] = "absent"
    play(asked)
    assert _packages(host) == ""
    assert play(asked).changed[host] == 0


def test_a_runfile_with_another_checksum_leaves_nothing() -> None:
    result = play(
        {"parts": ["cuda"], "cuda_source": "runfile", "cuda_runfiles": {"13.0": {"url": RUNFILE, "sha256": "0" * 64}}},
        succeeds=False,
    )
    assert "it was removed again" in messages(result)
    assert on_host("ls /usr/local | grep cuda || true") == ""


# The smallest of the genuine cuDNN packages on PyPI, 70 MB: it contains the engines that are compiled at run time.
WHEEL = "nvidia-cudnn-jit-cu12==9.27.0.42"
FULL, SHORT, NUMBER = "9.27.0.42", "9.27.0", 92700


def _genuine(tmp_path: Path) -> tuple[Path, str]:
    """An archive in NVIDIA's layout with the files that NVIDIA publishes on PyPI, and its checksum."""
    cache = settings.CACHE / "wheels"
    pattern = f"{WHEEL.partition('==')[0].replace('-', '_')}-{FULL}-*.whl"
    if not list(cache.glob(pattern)):
        argv = [str(settings.VENV / "bin/pip"), "download", "--quiet", "--no-deps", f"--dest={cache}", WHEEL]
        subprocess.run(argv, env=settings.environment(), check=True, timeout=900)
    top = f"cudnn-linux-x86_64-{FULL}_cuda12-archive"
    files: list[tuple[str, Path]] = []
    links: dict[str, str] = {}
    with zipfile.ZipFile(next(cache.glob(pattern))) as packed:
        for name in packed.namelist():
            file = Path(packed.extract(name, tmp_path))
            if "/include/" in name and file.suffix == ".h":
                files.append((f"{top}/include/{file.name}", file))
            elif ".so.9" in file.name:
                # The wheel has files under the names that a loader looks up; in the archive these are links.
                files.append((f"{top}/lib/{file.name[:-1]}{SHORT}", file))
                links[f"{top}/lib/{file.name}"] = f"{file.name[:-1]}{SHORT}"
                links[f"{top}/lib/{file.name[:-2]}"] = file.name
    path = tmp_path / f"{top}.tar.xz"
    return path, archives.write_files(path, files, links)


def test_the_genuine_cudnn_is_installed_loaded_and_reports_its_version(tmp_path: Path) -> None:
    path, sha256 = _genuine(tmp_path)
    give(path, f"/srv/{path.name}")
    versions = [{"version": FULL, "cuda": "12", "archive": f"/srv/{path.name}", "sha256": sha256}]
    play({"parts": ["cudnn"], "cudnn_versions": versions})
    assert on_host("python3 -c \"import ctypes; print(ctypes.CDLL('libcudnn.so.9').cudnnGetVersion())\"") == str(NUMBER)
    assert f"=> /usr/local/cudnn-{FULL}-cuda12/lib/libcudnn_graph.so.9" in on_host("ldconfig -p")
    assert play({"parts": ["cudnn"], "cudnn_versions": versions}).changed["c-deb13"] == 0
    # A missing file is restored from the archive.
    on_host(f"rm /usr/local/cudnn-{FULL}-cuda12/lib/libcudnn_graph.so.{SHORT}")
    play({"parts": ["cudnn"], "cudnn_versions": versions})
    assert on_host("python3 -c \"import ctypes; print(ctypes.CDLL('libcudnn.so.9').cudnnGetVersion())\"") == str(NUMBER)
