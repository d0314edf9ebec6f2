# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of gpu-simulator by which rows of the health policy are shown on a simulated host."""

from __future__ import annotations

from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE

# On GPUs that count their remapped rows, another row holds; and the simulator has no action that is unknown.
_NOT_BY_ANY_TEXT = ("xid_row_remapping", "xid_action_unknown")
XIDS: dict[str, str] = {
    row.id: f"fault xid {row.xids[0]} --text text --log-only"
    for row in TABLE
    if row.xids and not row.when and not row.is_repetition and row.id not in _NOT_BY_ANY_TEXT
}
"""Rows that one Xid of any text shows."""

READINGS: dict[str, str] = {
    "rows_remapped": "set remapped_rows.uncorrectable 1",
    "row_remap_pending": "set remapped_rows.pending true",
    "row_remap_failure": "set remapped_rows.failure true",
    "ecc_uncorrectable_aggregate": "set ecc_errors.aggregate.dram_uncorrectable 1",
    "ecc_sram_corrected": "set ecc_errors.volatile.sram_correctable 20000",
    "ecc_dram_corrected": "set ecc_errors.volatile.dram_correctable 30000000",
    "ecc_mode_pending": "set ecc_mode.pending false",
    "mig_mode_pending": "set mig_mode.pending true",
    "xid_unknown": "fault xid 999 --text text --log-only",
    "xid_action_reset": "fault xid 154 --action reset --gpu 1",
}
"""Rows that hold together on one host."""

# Name, commands, verdict, remedy and row.
FAULTS: list[tuple[str, list[str], str, str, str]] = [
    ("ok", [], "ok", "none", ""),
    ("application", ["fault xid 31 --pid 7"], "info", "restart_application", "xid_application"),
    ("MIG instance", ["fault xid 94 --pid 7 --gpu-instance 5"], "info", "restart_application", "xid_application"),
    ("unknown Xid", ["fault xid 999 --text new"], "warn", "none", "xid_unknown"),
    ("solo cleanup", ["fault xid 45"], "warn", "restart_fabric_manager", "xid_cleanup_alone"),
    ("software", ["fault xid 78 --text vGPU"], "warn", "update_software", "xid_software"),
    ("peer jobs", ["fault recovery-action drain_p2p"], "fail", "drain", "recovery_drain_p2p"),
    ("row remapping", ["set remapped_rows.pending true", "fault recovery-action drain_and_reset"], "fail",
     "drain_and_reset", "row_remap_pending"),
    ("fatal NVLink", ["fault xid 149 --action none"], "fail", "reset_gpu", "xid_nvlink5_fatal"),
    ("GSP", ["fault xid 119"], "fail", "reset_gpu", "recovery_reset"),
    ("uncontained", ["fault xid 95 --log-only"], "fail", "reset_gpu", "xid_reset"),
    ("confidential", ["fault xid 151 --text key"], "fail", "restart_vm", "xid_confidential"),
    ("action reboot", ["fault xid 154 --action reboot"], "fail", "reboot", "recovery_reboot"),
    ("off the bus", ["fault xid 79 --gpu 1"], "fail", "reboot", "xid_off_the_bus"),
    ("lost", ["fault lost --gpu 1"], "fail", "reboot", "gpu_lost"),
    ("security", ["fault xid 110 --text x"], "fail", "power_cycle", "xid_security"),
    ("mechanics", ["fault xid 54 --text x"], "fail", "inspect", "xid_hardware"),
    ("remap failed", ["set remapped_rows.failure true"], "fail", "field_diagnostic", "row_remap_failure"),
    ("infoROM", ["fault field vbios_version --text 'Corrupted infoROM'"], "fail", "service", "inforom_corrupted"),
    ("fan", ["fault field fan_speed"], "ok", "none", ""),
    ("smi fails", ["fault exit 255 --text broken"], "fail", "reboot", "nvidia_smi_failed"),
]  # fmt: skip

# Commands, verdict, remedy, row, and how its message begins, with the test dcgm_2.
DCGM_RUNS: list[tuple[list[str], str, str, str, str]] = [
    ([], "ok", "none", "", ""),
    (
        ["fault dcgm memory --gpu 1 --text broken"],
        "fail",
        "field_diagnostic",
        "test_failed",
        "GPU 1 (00000000:07:00.0): dcgm_2: memory: broken",
    ),
    (["set persistence_mode false"], "warn", "configure", "test_configuration", "dcgm_2: software: Persistence Mode: "),
    (
        ["busy --gpu 0 --pid 42 --name train"],
        "unknown",
        "none",
        "test_unknown",
        "dcgm_2 was not run: GPU 0 is in use by train",
    ),
]

_WITH_TESTS_OF_THEIR_OWN: dict[str, str] = {
    "recovery_imex": "fault recovery-action recover_imex_domain",
    "xid_repeated": "fault xid 95 --log-only",
    "xid_after_reboots": "fault xid 79 --gpu 1",
    "gpu_count": "fault lost --gpu 1",
}

SIMULATED: dict[str, str] = {
    **_WITH_TESTS_OF_THEIR_OWN,
    **{row: commands[-1] for _name, commands, _verdict, _remedy, row in FAULTS if row},
    **{row: commands[-1] for commands, _verdict, _remedy, row, _message in DCGM_RUNS if row},
    **READINGS,
    **XIDS,
}
"""One command for each row."""
