# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Oopses, lockups and hung tasks: which are the driver's, who could have written them, and what ends them.

Published reports are in fixtures/published-verdicts.txt; these are composed of their lines.
"""

from __future__ import annotations

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log import parse

from tests.unit.health.test_outside_logs import UUID, judged

OOPS = "BUG: kernel NULL pointer dereference, address: 0000000000000030"
LOCKUP = "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]"
HUNG = "INFO: task python3:4711 blocked for more than 120 seconds."
IN_DRIVER = " uvm_spin_loop+0xb2/0xe0 [nvidia_uvm]"
# https://github.com/blakeblackshear/frigate/issues/6360
MODULES = "Modules linked in: snd_hwdep mei_me snd mei soundcore nvidia_uvm(OE) parport_pc nvidia(PO) nvidia_drm(PO)"
LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01"


def kinds(*lines: str) -> list[str]:
    return [event.kind for event in parse(lines)]


@pytest.mark.parametrize(
    ("begin", "kind"), [(OOPS, "driver_oops"), (LOCKUP, "driver_stalled"), (HUNG, "driver_stalled")]
)
def test_the_first_function_of_a_module_decides(begin: str, kind: str) -> None:
    assert kinds(begin, MODULES, "RIP: 0010:down+0x1f/0x50", "Call Trace:", IN_DRIVER, IN_DRIVER) == [kind]
    assert kinds(begin, MODULES, "RIP: 0010:nfs_wait+0x1f/0x50 [nfs]", "Call Trace:", IN_DRIVER) == []
    # Arm, and kernels before 4.10.
    assert kinds(begin, "pc : uvm_va_space_destroy+0x40/0x90 [nvidia_uvm]", "lr : a+0x1/0x2 [nfs]") == [kind]
    assert kinds(begin, "pc : down+0x40/0x90", "Call trace:", " nv_open_device+0x222/0xa80 [nvidia] (P)") == [kind]
    assert kinds(begin, "IP: [<ffffffffc075549f>] _nv011745rm+0x1f/0x170 [nvidia]") == [kind]
    assert kinds(begin, "RIP: 0010:[<ffffffffc0755>]  [<ffffffffc0755>] _nv011745rm+0x1f/0x170 [nvidia]") == [kind]


@pytest.mark.parametrize("begin", [OOPS, LOCKUP, HUNG])
@pytest.mark.parametrize(
    "lines",
    [
        # Every GPU server has the driver loaded.
        [MODULES, "Call Trace:", " do_syscall_64+0x7c/0xb30", "RIP: 0033:0x74f535323089"],
        # Only left on the stack.
        [" ? uvm_spin_loop+0xb2/0xe0 [nvidia_uvm]"],
        # After the end of the report, and far from its beginning.
        ["RIP: 0033:0x74f535323089", IN_DRIVER],
        [" </TASK>", IN_DRIVER],
        ["---[ end trace 0000000000000000 ]---", IN_DRIVER],
        ["WARNING: CPU: 4 PID: 12 at nv.c:5461 nvidia_dev_put_uuid+0x1/0x2 [nvidia]", IN_DRIVER],
        ["text"] * 100 + [IN_DRIVER],
        # Modules of others.
        [" a+0x1/0x2 [nvidia_fs]", " b+0x1/0x2 [nvidia_wmi_ec_backlight]"],
        [" a+0x1/0x2", " b+0x1/0x2 [my_nvidia]"],
    ],
)
def test_what_is_not_the_drivers(begin: str, lines: list[str]) -> None:
    assert kinds(begin, *lines) == []


@pytest.mark.parametrize("line", [IN_DRIVER, "RIP: 0010:nvidia_vma_access+0x1b/0x350 [nvidia]", "BUG: Bad page state"])
def test_a_call_without_a_report(line: str) -> None:
    """So do warnings, which healthy hosts have, and what SysRq prints."""
    assert kinds("WARNING: CPU: 4 PID: 12 at include/linux/rwsem.h:80 follow_pte+0xf8/0x120", MODULES, line) == []


def test_a_process_cannot_be_named_like_a_call() -> None:
    """The kernel keeps 15 characters of a name, which may have any of them."""
    for name in ("f+0x1 [nvidia]", "\nf [nvidia_uvm]", "\nf+0x1/0x2 [nv", "+0x1/0x2[nvidi"):
        assert len(name) < 16
        lines = f"INFO: task {name}:12 blocked for more than 120 seconds.".split("\n")
        assert kinds(LOCKUP, *lines, f"task:{name} state:D stack:0 pid:12", "Call Trace:", " a+0x1/0x2 [nfs]") == []


def test_reports_one_after_the_other() -> None:
    lines = [LOCKUP, "RIP: 0010:a+0x1/0x2 [nfs]", OOPS, "Oops: 0000 [#1] SMP", IN_DRIVER, IN_DRIVER, HUNG, IN_DRIVER]
    assert kinds(*lines) == ["driver_oops", "driver_stalled"]
    # A new boot has none of them.
    assert kinds(OOPS, "Linux version 6.8.0", IN_DRIVER) == []


FATAL = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
ADAPTER = "mlx5_core 0000:d2:00.0: poll_health:694:(pid 0): Fatal error 1 detected"
MEMORY = "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0"


@pytest.mark.parametrize(
    ("lines", "ended_by_a_reset", "ended_by_the_driver"),
    [
        ((OOPS, IN_DRIVER), False, True),
        ((LOCKUP, IN_DRIVER), True, True),
        ((FATAL,), False, True),
        ((ADAPTER,), False, False),
        ((MEMORY,), False, False),
    ],
)
def test_what_ends_it(lines: tuple[str, ...], ended_by_a_reset: bool, ended_by_the_driver: bool) -> None:
    timed = [f"[  {number}.000000] {line}" for number, line in enumerate(lines, 10)]
    assert judged(timed).verdict() in ("warn", "fail")
    after_a_reset = judged(timed, resets={UUID: 2_000_000_000.0})
    assert (after_a_reset.verdict() == "info") is ended_by_a_reset
    assert (judged([*timed, f"[   20.000000] {LOADED}"]).verdict() == "info") is ended_by_the_driver


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:d2:00.0: mlx5_health_try_recover:342:(pid 12): health recovery succeeded",
        # At each start of the driver.
        "mlx5_core 0000:d2:00.0: firmware version: 28.39.3560",
    ],
)
def test_an_adapter_that_works_again(line: str) -> None:
    (finding,) = judged([ADAPTER]).findings
    assert (finding.row, finding.gpu) == ("nic_failed", None)
    assert finding.message.startswith("network adapter 00000000:d2:00.0: nic failed: ")
    assert judged([ADAPTER, line]).verdict() == "info"
    assert judged([ADAPTER, line.replace("d2", "d3")]).verdict() == "warn"
    assert judged([line, ADAPTER]).verdict() == "warn"


def test_what_the_firmware_reports_of_the_boot_before() -> None:
    """BERT prints no number: https://github.com/torvalds/linux, drivers/acpi/apei/bert.c."""
    lines = [
        "BERT: Error records from previous boot:",
        "[Hardware Error]: event severity: fatal",
        "[Hardware Error]:  Error 0, type: fatal",
        "[Hardware Error]:   section_type: memory error",
    ]
    assert judged(lines).verdict() == "ok"
