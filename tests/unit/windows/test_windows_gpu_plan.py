# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for driver, CUDA and cuDNN of a Windows host."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.platforms import platform_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import requested_roles
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.windows_gpu import (
    WindowsFound,
    WindowsPlan,
    read_found,
    read_request,
    request_refusals,
    windows_gpu_failures,
    windows_gpu_plan,
)

L40S = r"PCI\VEN_10DE&DEV_26B9&SUBSYS_185110DE&REV_A1\4&1B2C&0&0008"
V100 = r"PCI\VEN_10DE&DEV_1DB4&SUBSYS_121410DE&REV_A1\4&1B2C&0&0010"
CHECKSUM = "1b15c47d0f6b3b8b0d9dfcbd5c1ea9bcd3a34c6ab4cd9ff0f0b0a1de9d3a2f10"


def part(version: str, name: str = "driver", **more: Any) -> dict[str, Any]:
    return {"version": version, "installer": rf"C:\installers\{name}.exe", "checksum": CHECKSUM, **more}


def document(driver: str = "580.88", cuda: str = "13.0", gpus: int = 1) -> str:
    """What nvidia-smi.exe prints; WDDM and TCC are driver models that only Windows has."""
    each = "".join(
        f'<gpu id="00000000:0{number}:00.0"><product_name>NVIDIA L40S</product_name><driver_model>'
        "<current_dm>TCC</current_dm><pending_dm>WDDM</pending_dm></driver_model>"
        f"<uuid>GPU-00000000-0000-0000-0000-00000000000{number}</uuid></gpu>\r\n"
        for number in range(1, gpus + 1)
    )
    return (
        '<?xml version="1.0" ?>\r\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\r\n<nvidia_smi_log>\r\n'
        f"<driver_version>{driver}</driver_version><cuda_version>{cuda}</cuda_version>"
        f"<attached_gpus>{gpus}</attached_gpus>\r\n{each}</nvidia_smi_log>\r\n"
    )


def header(cudnn: str) -> str:
    return "".join(
        f"#define CUDNN_{name} {number}\r\n"
        for name, number in zip(("MAJOR", "MINOR", "PATCHLEVEL"), cudnn.split("."), strict=True)
    )


def nvcc(release: str) -> str:
    return f"nvcc: NVIDIA (R) Cuda compiler driver\r\nCuda compilation tools, release {release}, V{release}.86\r\n"


def given(variables: dict[str, Any]) -> dict[str, Any]:
    """The variables of the role; what is not among these has its default."""
    declared = {"driver": {}, "cuda": {}, "cudnn": {}, "downgrade": False, **variables}
    return {f"windows_gpu_{name}": value for name, value in declared.items()}


def plan(variables: dict[str, Any], **read: Any) -> WindowsPlan:
    found = {"devices": [L40S], "driver": "580.88", "smi": document(), **read}
    assert request_refusals(given(variables)) == []
    return windows_gpu_plan(read_request(given(variables)), read_found(found))


ALL = {
    "driver": part("580.88"),
    "cuda": part("12.9", components=["cudart", "nvcc", "cublas_dev"]),
    "cudnn": part("9.12.0"),
}
CONVERGED = {"nvcc": nvcc("12.9"), "cudnn_headers": [header("8.9.7"), header("9.12.0")]}


def test_nothing_is_installed_twice() -> None:
    assert plan(ALL, **CONVERGED) == WindowsPlan()


def test_a_bare_host_gets_all_three_in_their_order() -> None:
    found = plan(ALL, driver="", smi="'nvidia-smi.exe' is not recognized")
    assert [(one.part, one.present, one.version, one.arguments) for one in found.installations] == [
        ("driver", "", "580.88", ("-s", "-noreboot")),
        ("cuda", "", "12.9", ("-s", "nvcc_12.9", "cudart_12.9", "cublas_dev_12.9", "-n")),
        ("cudnn", "", "9.12.0", ("-s",)),
    ]
    assert {one.checksum for one in found.installations} == {CHECKSUM}
    assert found.reboot_required is False


@pytest.mark.parametrize(
    ("variables", "read", "present"),
    [
        ({"driver": part("580.88")}, {"driver": "551.61"}, "551.61"),
        # The registry has lost the entry: the driver that runs counts.
        ({"driver": part("580.88")}, {"driver": "", "smi": document("551.61", "12.4")}, "551.61"),
        ({"cudnn": part("9.12.1")}, {"cudnn_headers": [header("9.12.0"), header("9.24.0")]}, "9.12.0"),
        # Another series of cuDNN or CUDA stays next to it.
        ({"cudnn": part("9.12.1")}, {"cudnn_headers": [header("9.24.0")]}, ""),
        ({"cuda": part("13.1")}, {"nvcc": ""}, ""),
        ({"driver": part("551.61"), "downgrade": True}, {}, "580.88"),
        ({"cudnn": part("9.12.0"), "downgrade": True}, {"cudnn_headers": [header("9.12.1")]}, "9.12.1"),
    ],
)
def test_what_an_installer_replaces(variables: dict[str, Any], read: dict[str, Any], present: str) -> None:
    assert [one.present for one in plan(variables, **read).installations] == [present]


def test_all_of_a_toolkit_without_a_driver_of_its_own() -> None:
    (one,) = plan({"cuda": part("13.1")}, smi=document("591.86", "13.1")).installations
    assert one.arguments == ("-s", "-n")


@pytest.mark.parametrize(
    ("variables", "read", "words"),
    [
        ({"driver": part("551.61")}, {}, "driver 580.88 is installed, and 551.61 is older"),
        ({"cudnn": part("9.12.0")}, {"cudnn_headers": [header("9.12.1")]}, "cuDNN 9.12.1 is installed, and 9.12.0"),
        (ALL, {"devices": []}, "no NVIDIA GPU on the PCI bus"),
        ({"cuda": part("13.1")}, {"smi": document("551.61", "12.4")}, "driver 551.61 supports CUDA 12.4"),
        ({"driver": part("528.33")}, {"devices": [r"PCI\VEN_10DE&DEV_2901&SUBSYS_0\1"], "driver": ""}, "does not know"),
        ({"driver": part("591.86")}, {"devices": [V100]}, "no support for"),
        ({"cuda": part("13.1")}, {"devices": [V100]}, "CUDA 13.1 has no support for"),
        ({"cuda": part("12.9", components=["cudart"]), "cudnn": part("8.7.0")}, {}, "not made for CUDA 12.9"),
    ],
)
def test_what_cannot_be_installed_is_refused(variables: dict[str, Any], read: dict[str, Any], words: str) -> None:
    found = plan(variables, **read)
    assert found.installations == ()
    assert any(words in refusal for refusal in found.refusals), found.refusals


def test_a_driver_of_windows_is_not_refused_for_a_branch_of_linux() -> None:
    """Windows 582 is of branch 580, the last one for Volta."""
    assert [one.version for one in plan({"driver": part("582.16")}, devices=[V100]).installations] == ["582.16"]


def test_a_gpu_that_the_tables_do_not_know_is_not_refused() -> None:
    assert plan(ALL, devices=[r"PCI\VEN_10DE&DEV_FFFE&SUBSYS_0\1"], **CONVERGED) == WindowsPlan()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"driver": {"version": "580.88"}}, ("windows_gpu_driver has no installer, checksum",)),
        ({"driver": part("580")}, ("windows_gpu_driver.version is '580'",)),
        # YAML takes 580.80 without quotes for a number.
        ({"driver": part(580.8)}, ("windows_gpu_driver.version is 580.8; write it as in '580.88'",)),  # type: ignore[arg-type]
        ({"cuda": part("12.9.1", components=["cudart"])}, ("windows_gpu_cuda.version",)),
        ({"cudnn": part("9.12")}, ("windows_gpu_cudnn.version",)),
        ({"driver": {**part("580.88"), "installer": "/srv/driver.exe"}}, ("windows_gpu_driver.installer",)),
        ({"driver": {**part("580.88"), "installer": "https://example.com/driver.zip"}}, ("installer",)),
        ({"cudnn": {**part("9.12.0"), "checksum": "sha1:abc"}}, ("windows_gpu_cudnn.checksum",)),
        ({"cuda": part("13.0")}, ("windows_gpu_cuda.components is empty", "has a display driver of its own")),
        ({"cuda": part("13.0", components=["Display.Driver"])}, ("components has Display.Driver",)),
    ],
)
def test_wrong_variables_are_named(variables: dict[str, Any], words: tuple[str, ...]) -> None:
    (refusal,) = request_refusals(given(variables))
    assert [text for text in words if text not in refusal] == []


@pytest.mark.parametrize(
    "installer", ["https://example.com/580.88.exe", r"D:\a\setup.EXE", r"\\server\share\cuda_12.9_windows.exe"]
)
def test_where_an_installer_may_be(installer: str) -> None:
    assert request_refusals(given({"driver": {**part("580.88"), "installer": installer}})) == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("code_page", ["cp437", "latin-1"])
def test_output_of_any_encoding_is_read_through_a_code_page(encoding: str, code_page: str) -> None:
    found = read_found({"smi": document(gpus=2).encode(encoding).decode(code_page)})
    assert found.smi is not None
    assert (found.smi.driver_version, found.smi.cuda_version, len(found.smi.gpus)) == ("580.88", "13.0", 2)
    hardware = found.smi.gpus[0].hardware
    assert (hardware.driver_model_current, hardware.driver_model_pending) == ("tcc", "wddm")


def failures(variables: dict[str, Any], **read: Any) -> list[str]:
    found = {"devices": [L40S], "driver": "580.88", "smi": document(), **CONVERGED, **read}
    return windows_gpu_failures(read_request(given(variables)), read_found(found))


def test_what_is_read_back_as_declared_is_no_failure() -> None:
    assert failures(ALL) == []


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({"driver": "551.61"}, "driver 580.88 is not installed, but 551.61"),
        ({"driver": "", "smi": ""}, "driver 580.88 is not installed, but none"),
        ({"smi": document("551.61", "12.4")}, "driver 551.61 still runs; reboot the host, or set windows_gpu_reboot"),
        (
            {"smi": "NVIDIA-SMI has failed because it couldn't communicate with the driver."},
            "couldn't communicate",
        ),
        ({"devices": [L40S, L40S]}, "nvidia-smi.exe reports 1 of the 2 GPUs"),
        ({"smi": document("580.88", "11.4")}, "supports CUDA 11.4, and CUDA 12.9 needs a newer one"),
        ({"nvcc": ""}, "CUDA 12.9 is not there, but none"),
        ({"cudnn_headers": [header("9.11.0")]}, "cuDNN 9.12.0 is not there"),
    ],
)
def test_exit_status_0_proves_nothing(read: dict[str, Any], words: str) -> None:
    found = failures(ALL, **read)
    assert any(words in text for text in found), found


def test_a_reboot_is_needed_where_another_driver_runs() -> None:
    assert plan(ALL, smi=document("551.61", "12.4"), **CONVERGED).reboot_required is True
    # Before the driver is installed a reboot is of no use.
    assert plan(ALL, driver="551.61", smi="", **CONVERGED).reboot_required is False


def test_nothing_declared_checks_the_gpus_alone() -> None:
    assert plan({}) == WindowsPlan()
    assert failures({}) == []
    assert failures({}, smi="") != []
    assert read_found({}) == WindowsFound(smi_message=read_found({}).smi_message)


def test_roles_of_linux_name_the_role_for_windows() -> None:
    facts = {
        "os_family": "Windows",
        "distribution": "Microsoft Windows Server 2022",
        "distribution_major_version": "10",
    }
    assert "gpu.fleet.windows_gpu" in platform_of(facts)["reason"]
    assert platform_of({**facts, "os_family": "Suse"})["reason"] == ""
    roles, refusal = requested_roles(["cuda", "windows_gpu"])
    assert (roles, refusal.endswith("; windows_gpu runs by gpu.fleet.windows")) == ((), True)
    assert "gpu.fleet.windows" not in requested_roles(["cudda"])[1]
