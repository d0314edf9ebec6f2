# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state: derived identifiers, view from a container, concurrent writers, and a killed writer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu_simulator.state import catalogue, store
from gpu_simulator.state.shapes import HostDescription

from .conftest import MakeHost

PACKAGE = Path(store.__file__).parents[2]


def run_python(code: str, root: str) -> subprocess.Popen[bytes]:
    """Start a Python program that can import the simulator."""
    return subprocess.Popen([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(PACKAGE)!r})\n{code}", root])


def test_identities_are_stable_and_differ(make_host: MakeHost) -> None:
    first, again, other = (make_host("h200", "h200", seed=seed) for seed in ("a", "a", "b"))
    assert first.smi("-L") == again.smi("-L") != other.smi("-L")
    uuids = first.smi("--query-gpu=uuid", "--format=csv,noheader")[0].split()
    assert len(set(uuids)) == 2


def test_given_identities_are_kept(make_host: MakeHost) -> None:
    gpu = {"model": "t4", "uuid": "GPU-1", "serial": "77", "bus_id": "00000001:00:1E.0", "minor": 3}
    host = make_host(gpus=[gpu])
    fields = "uuid,serial,pci.bus_id,pci.domain,index"
    assert host.smi(f"--query-gpu={fields}", "--format=csv,noheader") == (
        "GPU-1, 77, 00000001:00:1E.0, 0x0001, 0\n",
        0,
    )
    assert "<minor_number>3</minor_number>" in host.smi("-q", "-x")[0]
    assert Path(host.root, "dev/nvidia3").exists()


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"gpus": []}, "needs driver_version"),
        ({"driver_version": "580.159.04", "gpus": [{"model": "h200", "minor": 1}, {"model": "t4"}]}, "same minor"),
    ],
)
def test_bad_descriptions(description: HostDescription, words: str, tmp_path: Path) -> None:
    with pytest.raises(store.StoreError, match=words):
        store.initialise(description, str(tmp_path))
    assert not Path(store.state_path(str(tmp_path))).exists()


def test_unknown_model_names_the_known_ones(tmp_path: Path) -> None:
    description: HostDescription = {"driver_version": "580.159.04", "gpus": [{"model": "h300"}]}
    with pytest.raises(catalogue.UnknownModelError, match=r"h300.*a100_40gb.*v100"):
        store.initialise(description, str(tmp_path))


def test_a_container_sees_the_gpus_whose_nodes_it_has(make_host: MakeHost) -> None:
    host = make_host("h200", "h200", "h200")
    uuid = host.smi("--query-gpu=uuid", "--format=csv,noheader", "-i", "2")[0]
    Path(host.root, "dev/nvidia0").unlink()
    Path(host.root, "dev/nvidia1").unlink()
    assert host.smi("--query-gpu=index,count,uuid", "--format=csv,noheader") == (f"0, 1, {uuid}", 0)
    assert host.smi("-q", "-i", "1") == ("No devices were found\n", 6)


def test_reading_needs_no_lock_and_writes_nothing(make_host: MakeHost) -> None:
    host = make_host("t4")
    before = sorted(path for path in Path(host.root).rglob("*"))
    with store.transaction(host.root):
        assert host.smi("-L")[1] == 0
    host.smi("-q", "-x")
    lock = Path(host.root, "var/lib/gpu-simulator/state.lock")
    assert sorted(path for path in Path(host.root).rglob("*")) == sorted([*before, lock])


def test_an_exception_changes_nothing(make_host: MakeHost) -> None:
    host = make_host("t4")

    def change_and_fail() -> None:
        with store.transaction(host.root) as state:
            state["gpus"][0]["compute_mode"] = "Prohibited"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        change_and_fail()
    assert host.smi("--query-gpu=compute_mode", "--format=csv,noheader") == ("Default\n", 0)


COUNT = """
from gpu_simulator.state import store
for _ in range(5):
    with store.transaction(sys.argv[1]) as state:
        state["call_counts"]["x"] = state["call_counts"].get("x", 0) + 1
"""


def test_sixteen_writers_lose_nothing(make_host: MakeHost) -> None:
    host = make_host("t4")
    writers = [run_python(COUNT, host.root) for _unused in range(16)]
    assert [writer.wait(60) for writer in writers] == [0] * 16
    state = store.read(host.root)
    assert state is not None
    assert state["call_counts"] == {"x": 80}


FOREVER = COUNT.replace("for _ in range(5):", "while True:")


def test_a_killed_writer_leaves_a_readable_state(make_host: MakeHost) -> None:
    host = make_host("h200", "h200")
    written = 0
    for delay in (0.0, 0.001, 0.002, 0.003, 0.005, 0.01):
        writer = run_python(FOREVER, host.root)
        while ((seen := store.read(host.root)) is None) or seen["call_counts"].get("x", 0) <= written:
            assert writer.poll() is None
            time.sleep(0.01)
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        state = json.loads(Path(store.state_path(host.root)).read_text())
        assert len(state["gpus"]) == 2
        with store.transaction(host.root):  # the lock was released with its owner's process
            pass
        assert store.read(host.root) == state
        written = state["call_counts"]["x"]


def test_root_comes_from_the_environment(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_host("t4")
    monkeypatch.setenv("GPU_SIMULATOR_ROOT", host.root)
    assert store.root_of() == host.root
    monkeypatch.delenv("GPU_SIMULATOR_ROOT")
    assert store.root_of() == os.sep
