# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of clouds with a driver: the default run keeps driver and engine, and refuses only requests by name.

What an image has is from the documents in SOURCES, as far as they name it; none of these machines was at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.plain import named
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import Preflight
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import DEFAULT_ROLES, variables_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.plan import TABLE, before_offers

from tests.unit.site.converged import NVIDIA_SMI
from tests.unit.site.known import check
from tests.unit.site.mock_host import DEBIAN_12, NO_CUDA, MockHost
from tests.unit.site.test_variables import FILES

SOURCES = {
    "azure": "https://github.com/Azure/azhpc-images, 29 July 2026: versions.json, and install_docker.sh, "
    "install_nvidiagpudriver.sh and install_nvidiagriddriver.sh in components; 570 is of its history of 2025",
    "aws": "https://docs.aws.amazon.com/dlami/latest/devguide/, Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04), of "
    "10 December 2025 and 9 October 2026",
    "gcp": "https://packages.ubuntu.com/noble-updates/linux-modules-nvidia-580-server-open-gcp, read 2026-11-29",
}
NVIDIA_PACKAGES = {
    "nvidia-open": "{0}-1ubuntu1",
    "nvidia-dkms-{1}-open": "{0}-1ubuntu1",
    "nvidia-driver-{1}-open": "{0}-1ubuntu1",
    "libnvidia-compute-{1}": "{0}-1ubuntu1",
    "nvidia-utils-{1}": "{0}-1ubuntu1",
    "nvidia-fabricmanager-{1}": "{0}-1",
}
MOBY = dict.fromkeys(("moby-engine", "moby-cli", "moby-buildx"), "29.1.4-ubuntu24.04u1")
DOCKER_CE = {
    "docker-ce": "5:29.8.1-1~ubuntu.24.04~noble",
    "docker-ce-cli": "5:29.8.1-1~ubuntu.24.04~noble",
    "containerd.io": "2.3.6-1~ubuntu.24.04~noble",
}
UBUNTU_SERVER = {
    "linux-modules-nvidia-{1}-server-open-gcp": "6.17.0-1012.12~24.04.1",
    "libnvidia-compute-{1}-server": "{0}-0ubuntu0.24.04.1",
    "nvidia-utils-{1}-server": "{0}-0ubuntu0.24.04.1",
}
A100, H100, T4 = "0x20b2", "0x2330", "0x1eb8"


@dataclass(frozen=True)
class Image:
    """An image on one of its machines: `packages` have the driver and its branch in them, `cuda` is the default."""

    source: str
    driver: str
    packages: dict[str, str]
    cuda: str
    docker: str
    release: str = "24.04"
    kernel: str = "6.8.0-1021-azure"
    gpu: str = H100
    toolkits: tuple[str, ...] = ()


IMAGES = {
    "Azure HPC, 570 and moby": Image("azure", "570.133.20", {**NVIDIA_PACKAGES, **MOBY}, "12.8", "moby-engine"),
    "Azure HPC of 2026": Image("azure", "580.173.02", {**NVIDIA_PACKAGES, **MOBY}, "13.0", "moby-engine"),
    "Azure HPC, Ubuntu 22.04": Image(
        "azure", "535.161.08", {**NVIDIA_PACKAGES, **MOBY}, "12.2", "moby-engine", "22.04", "5.15.0-1061-azure", A100
    ),
    "Azure GRID, a runfile": Image("azure", "595.58.03", MOBY, "13.0", "moby-engine"),
    "AWS DLAMI, a runfile and four toolkits": Image(
        "aws",
        "595.91.07",
        DOCKER_CE,
        "13.0",
        "docker_repository",
        kernel="7.0.0-1014-aws",
        toolkits=("12.8", "12.9", "13.0", "13.2"),
    ),
    "AWS DLAMI of 2025": Image("aws", "580.105.08", DOCKER_CE, "13.0", "docker_repository", kernel="6.14.0-1017-aws"),
    "GCP, Ubuntu's signed modules": Image(
        "gcp", "580.178.04", UBUNTU_SERVER, "13.0", "distribution", kernel="6.17.0-1012-gcp"
    ),
    "GCP, an older image on T4": Image(
        "gcp", "550.163.01", UBUNTU_SERVER, "12.4", "distribution", kernel="6.8.0-1030-gcp", gpu=T4
    ),
    "without Docker": Image("aws", "570.195.03", {}, "12.8", "distribution", kernel="6.8.0-1021-aws"),
}


def host(image: Image) -> MockHost:
    major = image.release.partition(".")[0]
    of_system = {"distribution": "Ubuntu", "distribution_version": image.release, "distribution_major_version": major}
    system = {**DEBIAN_12, **{f"ansible_{name}": value for name, value in of_system.items()}}
    system |= {"ansible_kernel": image.kernel, "ansible_distribution_release": ""}
    versions = dict.fromkeys(("library_version", "module_version", "loaded_version"), image.driver)
    kinds = dict.fromkeys(("module_kind", "loaded_kind"), "open")
    driver = {**NO_CUDA["driver"], **versions, **kinds, "loaded": True}
    toolkits = [{"version": f"{one}.1", "path": f"/usr/local/cuda-{one}"} for one in image.toolkits]
    gpus = [{**NVIDIA_SMI["pci_gpus"][0], "device_id": image.gpu}]
    smi = {**NVIDIA_SMI, "driver_version": image.driver, "gpu_count": 1, "pci_gpus": gpus}
    smi["gpus"] = [{**NVIDIA_SMI["gpus"][0], "error": "it decides nothing here"}]
    branch = image.driver.partition(".")[0]
    packages = {
        name.format(image.driver, branch): text.format(image.driver, branch) for name, text in image.packages.items()
    }
    return MockHost(system, smi, {**NO_CUDA, "driver": driver, "toolkits": toolkits}, {"dpkg": "1.22.6", **packages})


def run(image: Image, **given: Any) -> Preflight:
    values = {**FILES.defaults(variables_of(DEFAULT_ROLES)), **given}
    return check(DEFAULT_ROLES, values, host(image).modules()["host_facts"])


@pytest.mark.parametrize("name", IMAGES)
def test_the_default_run_passes_and_keeps_what_is_there(name: str) -> None:
    image = IMAGES[name]
    assert image.source in SOURCES
    found = run(image)
    assert found.refusals == ()
    assert list(found.plans["cuda"].tasks["versions"]) == [image.cuda]
    docker = found.plans["docker"].tasks
    assert docker["source"] == image.docker
    assert [one for one in docker["replace"] if one in image.packages] == []
    assert [one for one in docker["missing"] if one in docker["engine"]] == (
        [] if docker["has_engine"] else list(docker["engine"])
    )
    # cuDNN is for the same CUDA.
    names = " ".join(found.plans["cudnn"].tasks["offers_commands"]["cached"])
    assert f"cuda-{image.cuda.partition('.')[0]}" in names


@pytest.mark.parametrize("name", IMAGES)
def test_the_driver_stays_unless_another_one_is_named(name: str) -> None:
    image = IMAGES[name]
    facts = named(host(image).modules()["host_facts"]["ansible_facts"])

    def outcome(**given: Any) -> tuple[str, list[str]]:
        values = {**FILES.defaults(["nvidia_driver", "nvidia_repository"]), **given}
        return before_offers(values, facts, FILES.role_values["nvidia_driver"][TABLE])

    assert outcome() == (image.driver, [])
    version, (refusal,) = outcome(nvidia_driver_version="620")
    assert (version, refusal.startswith(f"driver {image.driver} was installed by")) == ("", True)
    assert "nvidia_driver_replace_unmanaged" in refusal


def test_only_what_was_named_is_refused() -> None:
    azure = IMAGES["Azure HPC, 570 and moby"]
    (engine,) = run(azure, docker_source="distribution").refusals
    assert engine.startswith("docker.io would remove moby-engine, moby-cli; nothing was changed")
    assert run(azure, cuda_versions=["12.6"]).refusals == ()
