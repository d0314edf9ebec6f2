# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job of the public repository that tests with Kubernetes' own releases, and what it downloads."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.parts import PARTS
from tests.checks.tools import ROOT
from tests.kubernetes.control_plane import VARIABLE, programs

JOB: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["kubernetes"]
SCRIPT = ROOT / ".ci" / "kubernetes"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def test_two_releases_of_kubernetes_are_tested() -> None:
    versions = JOB["strategy"]["matrix"]["version"]
    sums = dict(re.findall(r"^([\d.]+)\) sum=([0-9a-f]{128}) ;;$", SCRIPT.read_text(), re.MULTILINE))
    assert sums.keys() == {*versions} and len(set(sums.values())) == len(versions) == 2
    assert len({version.rpartition(".")[0] for version in versions}) == 2
    parts = {part.name: part for part in PARTS}
    tested = {path for name in JOB["env"]["ARGS"].split() for path in parts[name].tests}
    assert tested >= {"tests/kubernetes"} and JOB["timeout-minutes"] <= 60
    assert JOB["env"][VARIABLE] == ".cache/kubernetes-${{ matrix.version }}"
    assert [step["run"] for step in JOB["steps"] if "run" in step][1:] == [
        ".ci/kubernetes ${{ matrix.version }}",
        "make test-long",
    ]


def download(directory: Path, version: str, *, damaged: bool) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run the script with an archive of our own as what is downloaded; returns it and the directory that it fills."""
    made = directory / "kubernetes" / "server" / "bin"
    made.mkdir(parents=True)
    for name in (*PROGRAMS, "kubelet"):
        (made / name).write_text("#!/bin/sh\n")
    archive = directory / "made.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(directory / "kubernetes", "kubernetes")
    digest = hashlib.sha512(archive.read_bytes()).hexdigest()
    script = directory / ".ci" / "kubernetes"
    script.parent.mkdir()
    text = SCRIPT.read_text()
    script.write_text(text if damaged else re.sub("(?<=sum=)[0-9a-f]{128}", digest, text))
    script.chmod(0o755)
    programs_of_test = directory / "bin"
    programs_of_test.mkdir()
    curl = programs_of_test / "curl"
    curl.write_text(
        f'#!/bin/sh\necho "$@" >>"{directory}/asked"\n'
        f'while test $# -gt 1; do test "$1" = --output && cp "{archive}" "$2"; shift; done\n'
    )
    curl.chmod(0o755)
    env = {**os.environ, "PATH": f"{programs_of_test}:{os.environ['PATH']}"}
    done = subprocess.run([script, version], capture_output=True, text=True, env=env, check=False)
    return done, directory / ".cache" / f"kubernetes-{version}"


@pytest.mark.parametrize("version", JOB["strategy"]["matrix"]["version"])
def test_what_is_downloaded_is_a_control_plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    done, target = download(tmp_path, version, damaged=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in target.iterdir()} == {*PROGRAMS}
    asked = (tmp_path / "asked").read_text()
    assert f" https://dl.k8s.io/v{version}/kubernetes-server-linux-amd64.tar.gz" in asked and "--fail" in asked
    (target / "etcd").touch()
    monkeypatch.setenv(VARIABLE, str(target))
    assert programs() == ""


def test_what_is_not_the_release_is_refused(tmp_path: Path) -> None:
    done, target = download(tmp_path, "1.36.0", damaged=True)
    assert done.returncode != 0 and "FAILED" in done.stdout + done.stderr
    assert not any((target / name).exists() for name in PROGRAMS)
    done = subprocess.run([SCRIPT, "1.30.0"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "1.30.0 is none of" in done.stderr
