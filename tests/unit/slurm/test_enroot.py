# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role enroot plans and refuses, and which GPUs its hook gives to a container."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.enroot import PLANNER
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import ROOT

ROLE = ROOT / "roles" / "enroot"
DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
SHA = "ab" * 32
DEB = {"url": "https://mirror.example.com/enroot_4.1.2-1_amd64.deb", "sha256": SHA}
SOURCE = {"url": "https://mirror.example.com/pyxis-0.24.0.tar.gz", "sha256": "cd" * 32}
# As `sysctl -e` of Debian 13 prints them, which has no AppArmor restriction of its own.
KERNEL = "user.max_user_namespaces = 96365\nkernel.unprivileged_userns_clone = 1\n"
SLURM = "slurm-wlm 24.11.5"
DEBIAN = {"os_family": "Debian", "architecture": "x86_64"}


def variables(**given: Any) -> dict[str, Any]:
    return {**DEFAULTS, "enroot_packages": [DEB], **{f"enroot_{name}": value for name, value in given.items()}}


def planned(
    *,
    facts: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
    kernel: str = KERNEL,
    slurm: str = SLURM,
    check_mode: bool = False,
    **given: Any,
) -> Any:
    """The plan for a host with these files, each with its sha256."""
    chosen = variables(**given)
    needed = PLANNER.needs(chosen)
    commands = zip(needed.commands, (kernel, slurm), strict=False)
    readings = {
        "files": {path: (files or {}).get(path) for path in needed.files},
        "commands": [{"argv": [*argv], "stdout": text} for argv, text in commands],
    }
    return PLANNER.stages["plan"](chosen, facts or DEBIAN, {"readings": readings, "check_mode": check_mode})


FILE = "/var/cache/gpu-fleet-enroot/enroot_4.1.2-1_amd64.deb"
ENROOT = {"url": "https://mirror.example.com/enroot-4.1.2.tar.gz", "sha256": "ef" * 32}
SOURCE_FILE = "/var/cache/gpu-fleet-enroot/enroot-4.1.2.tar.gz"


def test_what_is_there_is_not_downloaded_again() -> None:
    assert [one["file"] for one in planned().tasks["enroot"]["downloads"]] == [FILE]
    there = planned(files={FILE: SHA, "/usr/bin/enroot": SHA}).tasks
    assert (there["enroot"]["downloads"], there["enroot"]["apt"], there["enroot"]["dnf"]) == ([], [FILE], [])
    assert there["enroot"]["is_there"] and there["predicted"] == ()
    assert planned(files={FILE: "00" * 32}).tasks["enroot"]["downloads"] != []
    # A package that was purged, whose file is kept.
    assert not planned(files={FILE: SHA}).tasks["enroot"]["is_there"]


def test_enroot_is_built_from_its_source_once() -> None:
    stamp = hashlib.sha256(f"{ENROOT['sha256']}\n".encode()).hexdigest()
    files = {SOURCE_FILE: ENROOT["sha256"], "/usr/bin/enroot": SHA}
    first = planned(packages=[ENROOT], files=files).tasks["enroot"]
    assert first["build"]["is_needed"] and not first["is_there"]
    assert (first["apt"], first["build"]["source"]) == ([], SOURCE_FILE)
    again = planned(packages=[ENROOT], files={**files, "/usr/share/enroot/gpu-fleet": stamp})
    assert again.tasks["enroot"]["is_there"] and again.refusals == ()
    assert planned().tasks["enroot"]["build"]["is_needed"] is False


def test_check_mode_on_a_bare_host_predicts_packages_files_and_units() -> None:
    predicted = planned(
        packages=[ENROOT],
        pyxis=SOURCE,
        settings={"ENROOT_DATA_PATH": "/scratch"},
        hooks=["50-slurm-pmi.sh"],
        kernel=KERNEL + "kernel.apparmor_restrict_unprivileged_userns = 1\n",
        files={"/usr/sbin/apparmor_parser": SHA},
        check_mode=True,
    ).tasks["predicted"]
    assert predicted == (
        "download https://mirror.example.com/enroot-4.1.2.tar.gz",
        "install gcc, libc6-dev, make, libbsd-dev, libmd-dev, bsdextrautils, curl, jq, parallel, squashfs-tools, zstd",
        "build enroot",
        "write /etc/enroot/enroot.conf.d/50-gpu-fleet.conf",
        "write /etc/enroot/hooks.d/90-gpu-fleet.sh",
        "write /etc/enroot/hooks.d/50-slurm-pmi.sh",
        "write /etc/apparmor.d/enroot",
        "download https://mirror.example.com/pyxis-0.24.0.tar.gz",
        "install gcc, libc6-dev, make, libslurm-dev",
        "build pyxis for Slurm 24.11.5",
        "write the line for pyxis to /etc/slurm/plugstack.conf or to the directory that it includes",
        "restart slurmd.service",
    )
    assert planned(job_gpus=False).tasks["predicted"] == (f"download {DEB['url']}", f"install {FILE}")


# As rpm 4.18 prints it for two packages with enroot's relations (pkg/rpm/SPECS/enroot.spec) and a condition.
TESTED = """\
error: Failed dependencies:
\t(jq if squashfs-tools) is needed by enroot-3.5-1.noarch
\t/etc/jq.conf is needed by enroot-3.5-1.noarch
\tjq >= 1.5 is needed by enroot-3.5-1.noarch
\tjq >= 1.5 is needed by enroot+caps-3.5-1.noarch
\tenroot = 3.4-1 is needed by (installed) enroot+hooks-3.4-1.noarch
"""


def test_dnf_installs_first_what_rpm_lacks() -> None:
    def names(text: str) -> Any:
        found = {"packages": [], "tested": {"stderr": text}}
        return PLANNER.stages["dependencies"](variables(), {}, found).tasks["names"]  # type: ignore[union-attr]

    assert names(TESTED) == ["/etc/jq.conf", "jq >= 1.5"]
    assert names("\tpackage enroot-3.5-1.noarch is already installed\n") == []


def test_pyxis_is_built_again_for_another_slurm() -> None:
    stamp = hashlib.sha256(f"{SOURCE['sha256']} 24.11.5\n".encode()).hexdigest()
    files = {"/usr/local/share/pyxis/gpu-fleet": stamp}
    assert planned(pyxis=SOURCE).tasks["pyxis"]["build"]["is_needed"] is True
    assert planned(pyxis=SOURCE, files=files).tasks["pyxis"]["build"]["is_needed"] is False
    assert planned(pyxis=SOURCE, files=files, slurm="slurm 26.05.5").tasks["pyxis"]["build"]["is_needed"] is True
    package = {**DEB, "url": "https://mirror.example.com/nvslurm-plugin-pyxis_0.24.0-1_amd64.deb"}
    assert planned(pyxis=package).tasks["pyxis"]["build"]["is_needed"] is False


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"packages": []}, "enroot_packages is empty"),
        ({"packages": [{**DEB, "sha256": "abc"}]}, "enroot_packages[0].sha256 is not a sha256"),
        ({"packages": [{**DEB, "url": "ftp://x/enroot.deb"}]}, "enroot_packages[0].url is not an https"),
        ({"packages": [{**DEB, "url": "https://x/enroot.zip"}]}, "enroot.zip is not a .deb, .rpm or .tar.gz"),
        (
            {"packages": [{**DEB, "url": "https://x/enroot-4.1.2-1.el8.x86_64.rpm"}]},
            "is not a package for a host",
        ),
        ({"packages": [{**DEB, "url": "https://x/enroot_4.1.2-1_arm64.deb"}]}, "of another architecture than the host"),
        ({"pyxis": {"url": "https://x/pyxis.so", "sha256": SHA}}, "pyxis.so is not a .deb, .rpm or .tar.gz"),
        ({"packages": [ENROOT, {**ENROOT, "url": "https://x/b.tar.gz"}]}, "enroot_packages has more than one source"),
        ({"packages": [ENROOT], "facts": {**DEBIAN, "os_family": "RedHat"}}, "has no static libbsd; name the packages"),
        ({"kernel": "kernel.apparmor_restrict_unprivileged_userns = 1\n"}, "install the package apparmor"),
        ({"hooks": ["../evil.sh"]}, "enroot_hooks has '../evil.sh'"),
        ({"settings": {"PATH": "/x"}}, "enroot_settings has 'PATH'"),
        ({"settings": {"ENROOT_DATA_PATH": "/x\nENROOT_TEMP_PATH /y"}}, "ENROOT_DATA_PATH has to be one line"),
        ({"settings": {"ENROOT_DATA_PATH": "/scratch/${USER}"}}, "write $(id -u)"),
        ({"pyxis_options": {"importer": "/x y"}}, "the value of importer has to be one word"),
        ({"slurm_directory": "opt"}, "enroot_slurm_directory is 'opt', and has to be an absolute path"),
        ({"pyxis": SOURCE, "slurm": ""}, "slurmd -V printed no version"),
        ({"kernel": "user.max_user_namespaces = 0\n"}, "user.max_user_namespaces is 0"),
        ({"kernel": "kernel.unprivileged_userns_clone = 0\n"}, "kernel.unprivileged_userns_clone is 0"),
        ({"files": {"/usr/bin/nvidia-smi": SHA}}, "there is no /usr/bin/nvidia-container-cli"),
    ],
)
def test_what_cannot_work_is_refused_by_name(given: dict[str, Any], words: str) -> None:
    assert words in "; ".join(planned(**given).refusals)


def test_what_works_is_not_refused() -> None:
    both = {"/usr/bin/nvidia-smi": SHA, "/usr/bin/nvidia-container-cli": SHA}
    for options in (
        {},
        {"pyxis": SOURCE, "pyxis_options": {"container_scope": "job", "execute_entrypoint": True}},
        {"files": both},
        {"files": {"/usr/bin/nvidia-smi": SHA}, "check_mode": True},
        {"settings": {"ENROOT_DATA_PATH": "/scratch/enroot/user-$(id -u)"}, "hooks": ["50-slurm-pmi.sh"]},
    ):
        assert planned(**options).refusals == (), options


def test_ubuntu_with_restricted_namespaces_gets_the_profile_of_enroot() -> None:
    kernel = KERNEL + "kernel.apparmor_restrict_unprivileged_userns = 1\n"
    plan = planned(kernel=kernel, files={"/usr/sbin/apparmor_parser": SHA})
    assert plan.tasks["needs_apparmor"] is True and plan.refusals == ()
    assert planned().tasks["needs_apparmor"] is False


CONF = "required /usr/local/lib/slurm/spank_pyxis.so\n"
# Debian's, of slurm-wlm 24.11.5.
INCLUDING = "include /etc/slurm/plugstack.conf.d/*.conf\n"


def line_for(*contents: str | None, **given: Any) -> Any:
    files = [{} if text is None else {"content": base64.b64encode(text.encode()).decode()} for text in contents]
    chosen = variables(pyxis=SOURCE, **given)
    return PLANNER.stages["plugin"](chosen, {}, {"files": {"results": files}, "check_mode": False})


def test_the_line_goes_where_slurm_reads_it() -> None:
    alone = line_for(CONF, None, None, pyxis_options={"container_scope": "job", "sbatch_support": False})
    assert alone.tasks["file"] == "/etc/slurm/plugstack.conf"
    assert alone.tasks["line"] == (
        "required /usr/local/lib/slurm/spank_pyxis.so container_scope=job sbatch_support=false"
    )
    assert alone.tasks["previous"] == {"/etc/slurm/plugstack.conf": None}
    included = line_for(CONF, INCLUDING, "optional other.so\n")
    assert included.tasks["previous"] == {"/etc/slurm/plugstack.conf.d/pyxis.conf": "optional other.so\n"}


@pytest.mark.parametrize("conf", [None, "", "required /tmp/x y/spank_pyxis.so\n", "required ../spank_pyxis.so\n"])
def test_a_package_without_the_plugin_is_refused(conf: str | None) -> None:
    assert "names no spank_pyxis.so" in line_for(conf, None, None).refusals[0]


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_text_of_a_host_breaks_the_plan(kernel: str, slurm: str) -> None:
    plan = planned(pyxis=SOURCE, kernel=kernel, slurm=slurm)
    assert "\n" not in "".join(plan.refusals)
    assert len(plan.tasks["pyxis"]["build"]["stamp"]) < 80


ONE_MIG = """GPU 0: NVIDIA H200 (UUID: GPU-0a)
GPU 1: NVIDIA H200 (UUID: GPU-1b)
  MIG 3g.71gb     Device  0: (UUID: MIG-aa)
  MIG 1g.18gb     Device  1: (UUID: MIG-bb)
"""
WHOLE = "GPU 0: NVIDIA H200 (UUID: GPU-0a)\nGPU 1: NVIDIA H200 (UUID: GPU-1b)\n"


@pytest.mark.parametrize(
    ("job", "seen", "expected"),
    [
        ({}, WHOLE, None),
        ({"SLURM_JOB_ID": "1"}, WHOLE, "void"),
        ({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "NoDevFiles"}, WHOLE, "void"),
        ({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "1"}, WHOLE, "1"),
        ({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0,1"}, WHOLE, "0,1"),
        ({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "MIG-aa"}, ONE_MIG, "MIG-aa"),
        ({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0,1,2"}, ONE_MIG, "GPU-0a,MIG-aa,MIG-bb"),
        ({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0"}, ONE_MIG, "ConstrainDevices=yes"),
        ({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0"}, "", "0"),
        ({"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0\nLD_PRELOAD=/x"}, WHOLE, "no list"),
    ],
)
def test_the_hook_gives_a_container_the_gpus_of_its_job(
    tmp_path: Path, job: dict[str, str], seen: str, expected: str | None
) -> None:
    smi, environ = tmp_path / "nvidia-smi", tmp_path / "environment"
    smi.write_text(f"#!/bin/sh\ncat <<'EOF'\n{seen}EOF\n")
    smi.chmod(0o755)
    environ.write_text("NVIDIA_VISIBLE_DEVICES=all\n")
    env = {**job, "PATH": f"{tmp_path}:/usr/bin:/bin", "ENROOT_ENVIRON": str(environ)}
    hook = ROLE / "files" / "90-gpu-fleet.sh"
    done = subprocess.run(["bash", hook], env=env, capture_output=True, text=True, check=False)
    # The last one counts for 98-nvidia.sh.
    last = environ.read_text().splitlines()[-1].partition("=")[2]
    if expected in ("ConstrainDevices=yes", "no list"):
        assert (done.returncode, last) == (1, "all")
        assert expected in done.stderr
    else:
        assert (done.returncode, last) == (0, expected or "all"), done.stderr
