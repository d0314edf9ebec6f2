# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host around nvidia-smi: boots, kernel modules, packages."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest
from gpu_simulator.containers import capabilities
from gpu_simulator.host import kernel as host
from gpu_simulator.state import store

from tests.unit.gpu_simulator_host.support import H200X8, SimulatedHost

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)

# Files of the capture that the simulation does not have, with the reason.
NOT_SHOWN = {
    "capabilities/fabric-imex-mgmt": "belongs to a fabric, which is not simulated",
    "patches/README": "prose of the driver",
    "warnings/README": "prose of the driver",
}


@pytest.fixture
def simulated(tmp_path: Path) -> SimulatedHost:
    return SimulatedHost(tmp_path)


def test_proc_files_are_those_of_the_recorded_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    state = store.new_state(H200X8.host)  # type: ignore[arg-type]
    shown = host.proc_files(state["gpus"], H200X8.host["driver_version"])
    directory = "/proc/driver/nvidia/"
    recorded = {path[len(directory) :]: text for path, text in H200X8.files.items() if path.startswith(directory)}
    del recorded[""]
    assert len(recorded) == 8 * 3 + 10
    assert set(recorded) - set(shown) == set(NOT_SHOWN)
    # The second line has the compiler that built that host's module.
    assert shown.pop("version").splitlines()[0] == recorded["version"].splitlines()[0]
    for name, text in shown.items():
        assert text == recorded[name], name


def test_numbers_of_mig_devices_are_those_of_nvidias_documentation() -> None:
    """The lines that the MIG user guide shows of /proc/driver/nvidia-caps/mig-minors."""
    lines = capabilities.minors().splitlines()
    assert lines[:6] == [
        *("config 1", "monitor 2", "gpu0/gi0/access 3"),
        *("gpu0/gi0/ci0/access 4", "gpu0/gi0/ci1/access 5", "gpu0/gi0/ci2/access 6"),
    ]
    assert lines[-2:] == ["gpu31/gi14/ci6/access 4321", "gpu31/gi14/ci7/access 4322"]
    assert [int(line.split()[1]) for line in lines] == list(range(1, 4323))


def test_version_names_the_proprietary_module_where_the_open_one_cannot_be() -> None:
    for model, version, flavour in (
        ("t4", "580.95.05", "Open Kernel Module for"),
        ("v100", "580.95.05", "Kernel Module"),
        ("h200", "550.163.01", "Kernel Module"),
    ):
        state = store.new_state({"driver_version": version, "gpus": [{"model": model}]})
        first = host.proc_files(state["gpus"], version)["version"].splitlines()[0]
        assert ("Open Kernel Module for" in first) == (flavour == "Open Kernel Module for"), (model, version)
        assert f" {version} " in first


@pytest.mark.parametrize(
    ("licence", "is_open"), [("NVIDIA", False), ("Dual MIT/GPL", True), ("", True)], ids=["proprietary", "open", "none"]
)
def test_the_loaded_module_is_of_the_kind_that_packages_brought(
    simulated: SimulatedHost, licence: str, is_open: bool
) -> None:
    simulated.kernel.license = licence
    simulated.run("up")
    line = (simulated.root / "run/gpu-simulator/proc-driver/nvidia/version").read_text().splitlines()[0]
    assert ("Open Kernel Module for" in line) is is_open


def test_a_boot_lays_out_devices_modules_and_nodes(simulated: SimulatedHost) -> None:
    assert simulated.run("up") == 0
    root = simulated.root
    assert simulated.smi("-L")[0].count("NVIDIA A100-SXM4-40GB") == 2
    assert (root / "sys/module/nvidia/version").read_text() == "580.159.04\n"
    assert simulated.kernel.nodes["nvidia1"] == (195, 1, 0o666)
    assert simulated.kernel.nodes["nvidiactl"] == (195, 255, 0o666)
    for place in ("sys/module", "sys/bus/pci/devices", "proc/driver"):
        assert str(root / place) in simulated.kernel.mounted
    shown = root / "run/gpu-simulator/pci-devices"
    assert sorted(path.name for path in shown.iterdir()) == [
        "0000:00:00.0",
        "0000:00:01.0",
        "0000:06:00.0",
        "0000:07:00.0",
    ]
    assert (shown / "0000:00:01.0").readlink() == Path("../../../devices/pci0000:00/0000:00:01.0")
    assert (shown / "0000:06:00.0/driver").readlink().name == "nvidia"
    assert str(root / "run/gpu-simulator/proc-driver/rtc") in simulated.kernel.mounted, (
        "the host's clock is to be seen still"
    )


def test_the_devices_are_below_their_driver_with_the_cpus_next_to_them(simulated: SimulatedHost) -> None:
    """slurmd reads the list of CPUs there, and ends by a signal where it is missing."""
    online = simulated.root / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-63\n")
    simulated.run("up")
    drivers = simulated.root / "sys/bus/pci/drivers"
    assert {str(path.relative_to(drivers)): str(path.readlink()) for path in drivers.glob("*/*")} == {
        f"nvidia/{address}": f"../../devices/{address}" for address in ("0000:06:00.0", "0000:07:00.0")
    }
    assert (simulated.root / "run/gpu-simulator/pci-devices/0000:06:00.0/local_cpulist").read_text() == "0-63\n"
    simulated.smi("-pm 0")
    assert simulated.run("rmmod", "nvidia") == 0
    assert list(drivers.glob("nvidia/*")) == []


def test_going_down_leaves_nothing_but_the_state(simulated: SimulatedHost) -> None:
    simulated.run("up")
    state = simulated.state()
    assert simulated.run("down") == 0
    assert [path for path in simulated.kernel.mounted if "gpu-simulator" not in path] == []
    assert [path.name for path in (simulated.root / "dev").iterdir()] == []
    assert simulated.state() == state


def test_a_reboot_applies_what_is_pending_and_a_restart_does_not(simulated: SimulatedHost) -> None:
    simulated.run("up")
    simulated.smi("-e 0 -i 0")
    simulated.smi("-pl 300 -i 0")
    query = "--query-gpu=ecc.mode.current,ecc.mode.pending,power.limit --format=csv,noheader -i 0"
    simulated.run("up")
    assert simulated.smi(query) == ("Enabled, Disabled, 300.00 W\n", 0)
    simulated.reboot()
    assert simulated.smi(query) == ("Disabled, Disabled, 400.00 W\n", 0)


def test_a_changed_description_makes_new_gpus_and_the_same_one_keeps_them(simulated: SimulatedHost) -> None:
    simulated.run("up")
    simulated.smi("-e 0")
    simulated.describe([{"model": "a100_40gb", "count": 2}])
    simulated.run("up")
    assert simulated.state()["gpus"][0]["ecc_mode"]["pending"] is False
    simulated.describe([{"model": "t4", "count": 1}])
    simulated.run("up")
    assert simulated.smi("-L")[0].startswith("GPU 0: Tesla T4 ")
    assert simulated.state()["gpus"][0]["ecc_mode"]["pending"] is True
    assert not (simulated.root / "dev/nvidia1").exists(), "the second GPU is gone"


def test_a_state_of_another_version_of_the_simulator_is_made_again(
    simulated: SimulatedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.run("up")
    simulated.smi("-e 0")
    new_state = store.new_state
    monkeypatch.setattr(store, "new_state", lambda description: {**new_state(description), "since_then": 1})
    simulated.run("up")
    assert simulated.state()["since_then"] == 1
    assert simulated.state()["gpus"][0]["ecc_mode"]["pending"] is True


def test_a_gpu_hides_a_device_of_the_host_at_its_place_and_states_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated = SimulatedHost(tmp_path, [{"model": "t4", "bus_id": "00000000:00:01.0"}])
    assert simulated.run("up") == 0
    assert "hides the host's own PCI device 0000:00:01.0" in capsys.readouterr().err
    assert (tmp_path / "run/gpu-simulator/pci-devices/0000:00:01.0/vendor").read_text() == "0x10de\n"


def test_a_host_with_a_real_driver_is_left_alone(simulated: SimulatedHost, capsys: pytest.CaptureFixture[str]) -> None:
    (simulated.root / "proc/driver/nvidia").mkdir()
    (simulated.root / "proc/driver/nvidia/version").write_text("NVRM version: a real one\n")
    (simulated.root / "dev/nvidia0").touch()
    assert simulated.run("up") == 1
    assert "real NVIDIA driver" in capsys.readouterr().err
    assert (simulated.root / "dev/nvidia0").exists()
    assert simulated.kernel.mounted == []


def test_without_a_driver_there_are_the_cards_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated = SimulatedHost(tmp_path, driver_installed=False)
    assert simulated.run("up") == 0
    assert (tmp_path / "run/gpu-simulator/pci-devices/0000:06:00.0/vendor").exists()
    assert not (tmp_path / "run/gpu-simulator/pci-devices/0000:06:00.0/driver").exists()
    assert list((tmp_path / "dev").iterdir()) == []
    assert simulated.smi("-L") == (NO_DRIVER, 9)
    assert simulated.run("modprobe", "nvidia") == 1
    assert re.match(
        r"modprobe: FATAL: Module nvidia not found in directory /lib/modules/\S+\n", capsys.readouterr().err
    )


def test_packages_bring_the_driver_and_an_upgrade_waits_for_the_reboot(tmp_path: Path) -> None:
    simulated = SimulatedHost(tmp_path, driver_installed=False)
    simulated.run("up")
    libraries, sources = tmp_path / "usr/lib/x86_64-linux-gnu", tmp_path / "usr/src"
    for directory in (libraries, sources):
        directory.mkdir(parents=True)
    (libraries / "libnvidia-ml.so.550.163.01").touch()
    (libraries / "libnvidia-ml.so.1").touch()
    (sources / "nvidia-550.163.01").mkdir()
    assert simulated.smi("-L") == (NO_DRIVER, 9), "nothing loads a module by itself"
    assert simulated.run("modprobe", "nvidia-uvm") == 0
    assert simulated.smi("-L")[1] == 0
    assert simulated.smi("--query-gpu=driver_version --format=csv,noheader -i 0")[0] == "550.163.01\n"
    # 580.9 is older than 580.95: versions are numbers.
    for version in ("580.9.01", "580.95.05"):
        (libraries / f"libnvidia-ml.so.{version}").touch()
        (sources / f"nvidia-{version}").mkdir()
    assert simulated.run("refresh") == 0
    text, status = simulated.smi("-L")
    assert (text.splitlines()[0], status) == ("Failed to initialize NVML: Driver/library version mismatch", 18)
    simulated.reboot()
    assert simulated.smi("--query-gpu=driver_version --format=csv,noheader -i 0") == ("580.95.05\n", 0)


@pytest.mark.parametrize("place", ["extra/nvidia-open", "extra/nvidia", "kernel/nvidia-580"])
def test_a_module_that_a_package_brings_for_this_kernel_only(tmp_path: Path, place: str) -> None:
    simulated = SimulatedHost(tmp_path, driver_installed=False)
    simulated.run("up")
    modules, built = tmp_path / "lib/modules", b"ELF\0license=Dual MIT/GPL\0version=580.95.05\0name=nvidia\0"
    other = modules / "5.14.0-1.el9.x86_64" / place
    other.mkdir(parents=True)
    (other / "nvidia.ko").write_bytes(built)
    assert simulated.run("modprobe", "nvidia") == 1
    (modules / platform.release() / place).mkdir(parents=True)
    (modules / platform.release() / place / "nvidia.ko").write_bytes(built)
    assert simulated.run("modprobe", "nvidia") == 0
    assert (tmp_path / "sys/module/nvidia/version").read_text() == "580.95.05\n"


def test_nouveau_keeps_the_cards_until_it_is_unloaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated = SimulatedHost(tmp_path, nouveau=True)
    simulated.run("up")
    driver = tmp_path / "run/gpu-simulator/pci-devices/0000:06:00.0/driver"
    assert driver.readlink().name == "nouveau"
    assert simulated.smi("-L") == (NO_DRIVER, 9)
    assert simulated.run("modprobe", "nvidia") == 1
    assert capsys.readouterr().err == "modprobe: ERROR: could not insert 'nvidia': No such device\n"
    assert simulated.run("rmmod", "nouveau") == 0
    assert simulated.run("modprobe", "nvidia") == 0
    assert driver.readlink().name == "nvidia"
    assert simulated.smi("-L")[1] == 0


@pytest.mark.parametrize(
    ("line", "stays_away"),
    [
        ("blacklist nouveau", True),
        ("  blacklist   nouveau  ", True),
        ("install nouveau /bin/false", True),
        ("# blacklist nouveau", False),
        ("blacklist nouveau_other", False),
    ],
)
def test_a_blacklisted_nouveau_stays_away_at_the_next_boot(tmp_path: Path, line: str, stays_away: bool) -> None:
    simulated = SimulatedHost(tmp_path, nouveau=True)
    simulated.run("up")
    (tmp_path / "etc/modprobe.d").mkdir()
    (tmp_path / "etc/modprobe.d/gpu.conf").write_text(f"options other x=1\n{line}\n")
    simulated.reboot()
    assert (tmp_path / "sys/module/nvidia").exists() == stays_away
    assert (tmp_path / "sys/module/nouveau").exists() != stays_away


def test_a_module_in_use_stays(simulated: SimulatedHost, capsys: pytest.CaptureFixture[str]) -> None:
    simulated.run("up")
    simulated.smi("-pm 1")
    assert simulated.run("rmmod", "nvidia") == 1
    assert capsys.readouterr().err == "modprobe: FATAL: Module nvidia is in use.\n"
    simulated.smi("-pm 0")
    assert simulated.run("rmmod", "nvidia") == 0
    assert simulated.smi("-L") == (NO_DRIVER, 9)
    assert not (simulated.root / "run/gpu-simulator/proc-driver/nvidia").exists()
    assert simulated.run("modprobe", "nvidia") == 0
    assert simulated.smi("-L")[1] == 0


def test_lsmod_shows_the_simulated_modules_next_to_the_hosts_own(tmp_path: Path) -> None:
    simulated = SimulatedHost(tmp_path, nouveau=True)
    own = "virtio_net 86016 0 - Live 0x0000000000000000\n"
    (tmp_path / "proc/modules").write_text(own)
    shown = tmp_path / "run/gpu-simulator/proc-modules/shown"

    def names() -> list[str]:
        # proc(5): name, size, references, users, state, address, and taint in brackets.
        fields = [line.split() for line in shown.read_text().splitlines()]
        assert all(int(size) > 0 and state == "Live" for _name, size, _count, _users, state, *_rest in fields)
        return [line[0] for line in fields]

    simulated.run("up")
    assert str(tmp_path / "proc/modules") in simulated.kernel.mounted
    assert names() == ["nouveau", "virtio_net"]
    inode = shown.stat().st_ino
    simulated.run("rmmod", "nouveau")
    simulated.run("modprobe", "nvidia")
    assert names() == ["nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "virtio_net"]
    simulated.run("rmmod", "nvidia_drm")
    assert names() == ["nvidia", "nvidia_uvm", "nvidia_modeset", "virtio_net"]
    assert shown.stat().st_ino == inode, "a mount shows one inode"
    simulated.run("up")
    assert names() == ["nouveau", "virtio_net"]
    simulated.run("down")
    assert (tmp_path / "proc/modules").read_text() == own


def test_unusable_commands_explain_themselves(simulated: SimulatedHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated.run("sideways") == 2
    assert capsys.readouterr().err.startswith("usage: gpu-simulator up|down|refresh\n")
    (simulated.root / "etc/gpu-simulator/host.json").write_text("{")
    assert simulated.run("up") == 1
    assert "cannot read the host description" in capsys.readouterr().err
