# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of a GPU's document: one flat dict from the path of an element to its text.

The paths come from layout.py (``fb_memory_usage/total``). A path that is missing prints ``N/A``. Paths under
``samples/`` and ``csv/`` have no element; ``-d`` and ``--query-gpu`` print them.
"""

from __future__ import annotations

import time

from ..mig import devices as mig_devices
from ..state import catalogue, recovery, slowdowns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..command_line.verbs import Call
    from ..state.shapes import EccCounters, Gpu, Host, Model, Readings, State, Version

DEPRECATED = "Requested functionality has been deprecated"
UNAVAILABLE = "N/A"
OLD_ARCHITECTURES = ("Pascal", "Volta")

EVENT_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "display_clocks_setting",
)


class View:
    """One GPU as a call sees it."""

    def __init__(self, index: int, gpu: Gpu, state: State, version: Version) -> None:
        self.index = index
        self.gpu = gpu
        self.model: Model = catalogue.load(gpu["model"])
        self.traits: frozenset[str] = traits(self.model, version)
        self.mig_devices = mig_devices.mig_devices(gpu, version)
        self.in_mig_mode = bool(gpu["mig_mode"] and gpu["mig_mode"]["current"])
        self.readings: Readings = {}
        for part in (
            _identity(gpu, self.model, state["driver"]["installed"]),
            _pci(gpu, self.model),
            _modes(gpu, self.model, state["host"], version),
            _memory(gpu, self.model, self.mig_devices),
            _activity(gpu, self.model, self.in_mig_mode),
            _errors(gpu, self.model, self.in_mig_mode),
            _temperature(self.model),
            _power(gpu, self.model, version),
            _clocks(gpu, self.model, version),
            _blocks(gpu, self.mig_devices),
            _of_this_model(self.model, state["host"]),
            gpu["overrides"],
        ):
            self.readings.update(part)
        if self.readings.get("gpu_virtualization_mode/virtualization_mode") == "VGPU":
            self.traits |= {"vgpu"}


def views(call: Call) -> list[View]:
    """Make the views of the GPUs that a call selected."""
    return [View(index, gpu, call.state, call.version) for index, gpu in call.gpus]


def timestamp() -> str:
    """Return the time as ``-q`` and the table print it."""
    return time.strftime("%a %b %e %H:%M:%S %Y")


def traits(model: Model, version: Version) -> frozenset[str]:
    """Name the variants of the document that this GPU has under this driver."""
    found = []
    if "tlimit" in model["temperature"]:
        found.append("tlimit")
    if model["architecture"] in OLD_ARCHITECTURES:
        found.append("ecc_by_bits")
    elif model["architecture"] != "Turing" and version >= (545,):
        found.append("sram_split")
    return frozenset(found)


def enabled(mode: bool | None) -> str:
    """Return a mode as text."""
    return UNAVAILABLE if mode is None else "Enabled" if mode else "Disabled"


def mib(amount: int) -> str:
    """Return an amount of memory as text."""
    return f"{amount} MiB"


def _of_this_model(model: Model, host: Host) -> Readings:
    """Return the readings from the model's file; a GPU without a fabric has no fabric state."""
    found: Readings = model["readings"]
    if host["fabric"]:
        return found
    return {path: text for path, text in found.items() if not path.startswith("fabric/")}


def _identity(gpu: Gpu, model: Model, driver_version: str) -> Readings:
    inforom = model["inforom"]
    return {
        "product_name": model["name"],
        "product_brand": model["brand"],
        "product_architecture": model["architecture"],
        "serial": gpu["serial"],
        "uuid": gpu["uuid"],
        "pdi": gpu["pdi"],
        "minor_number": str(gpu["minor"]),
        "vbios_version": model["vbios"],
        "multigpu_board": "No",
        "board_id": "0x{:x}".format(_board_id(gpu["bus_id"])),
        "board_part_number": model["board_part_number"],
        "gpu_part_number": model["gpu_part_number"],
        "gpu_module_id": str(gpu["module_id"]),
        "platformInfo/module_id": str(gpu["module_id"]),
        "inforom_time_data/time_run": "13572765 seconds",
        "inforom_version/img_version": inforom["image"],
        "inforom_version/oem_object": inforom["oem"],
        "inforom_version/ecc_object": inforom["ecc"],
        "inforom_version/pwr_object": inforom["power"],
        "gsp_firmware_version": driver_version if model["gsp"] else UNAVAILABLE,
        "csv/platform.chassis_serial_number": "",
        "csv/platform.slot_number": "0",
        "csv/platform.tray_index": "0",
        "csv/platform.host_id": "1",
        "csv/platform.peer_type": "Direct Connected",
        "csv/platform.gpu_fabric_guid": "0x0000000000000000",
    }


def _board_id(bus_id: str) -> int:
    domain, bus, rest = bus_id.split(":")
    return (int(domain, 16) << 16 | int(bus, 16) << 8 | int(rest.split(".")[0], 16)) & 0xFFFFFFFF


def _pci(gpu: Gpu, model: Model) -> Readings:
    pci = model["pci"]
    domain, bus, device = gpu["bus_id"].split(".")[0].split(":")
    link = "pci/pci_gpu_link_info/"
    return {
        "pci/pci_bus": bus,
        "pci/pci_device": device,
        "pci/pci_domain": domain[-4:],
        "pci/pci_base_class": "3",
        "pci/pci_sub_class": pci["sub_class"],
        "pci/pci_device_id": pci["device_id"],
        "pci/pci_bus_id": gpu["bus_id"],
        "pci/pci_sub_system_id": pci["subsystem_id"],
        link + "pcie_gen/max_link_gen": str(pci["link_gen"]),
        link + "pcie_gen/current_link_gen": str(pci["link_gen"]),
        link + "pcie_gen/device_current_link_gen": str(pci["link_gen"]),
        link + "pcie_gen/max_device_link_gen": str(pci["device_link_gen"]),
        link + "link_widths/max_link_width": "16x",
        link + "link_widths/current_link_width": "16x",
        "pci/replay_counter": "0",
        "pci/replay_rollover_counter": "0",
        "pci/tx_util": "1041 KB/s",
        "pci/rx_util": "615 KB/s",
    }


def _modes(gpu: Gpu, model: Model, host: Host, version: Version) -> Readings:
    mig, ecc = gpu["mig_mode"], gpu["ecc_mode"]
    old_reset_status = "No" if version < (560,) else DEPRECATED
    return {
        "display_mode": model["display_mode"] if version < (575,) else DEPRECATED,
        "display_attached": model["display_attached"],
        "display_active": "Disabled",
        "persistence_mode": enabled(gpu["persistence_mode"]),
        "addressing_mode": model["addressing_mode"],
        "mig_mode/current_mig": enabled(mig["current"] if mig else None),
        "mig_mode/pending_mig": enabled(mig["pending"] if mig else None),
        "accounting_mode": enabled(gpu["accounting_mode"]),
        "accounting_mode_buffer_size": "4000",
        "c2c_mode": model["c2c_mode"],
        "edpp_multiplier": "100.00%" if model["architecture"] in ("Hopper", "Blackwell") else UNAVAILABLE,
        "csv/edpp_multiplier": "100.00 %" if model["architecture"] in ("Hopper", "Blackwell") else UNAVAILABLE,
        "gpu_virtualization_mode/virtualization_mode": host["virtualization"],
        "gpu_reset_status/reset_required": old_reset_status,
        "gpu_reset_status/drain_and_reset_recommended": old_reset_status if model["drains"] else UNAVAILABLE,
        "gpu_recovery_action": recovery.text(recovery.action(gpu)),
        "sparse_operation_mode": model["sparse_operation_mode"],
        "compute_mode": gpu["compute_mode"],
        "ecc_mode/current_ecc": enabled(ecc["current"] if ecc else None),
        "ecc_mode/pending_ecc": enabled(ecc["pending"] if ecc else None),
        "capabilities/egm": "disabled",
        "csv/gsp.mode.current": enabled(model["gsp"]),
        "csv/gsp.mode.default": enabled(model["gsp"]),
        "csv/compute_cap": model["compute_capability"],
        "csv/inforom.checksum_validation": "valid",
    }


def memory_of(gpu: Gpu, model: Model) -> dict[str, int]:
    """Return total, reserved and free memory in MiB of an idle GPU; inline ECC takes its share."""
    memory: dict[str, int] = model["memory"]["ecc_on"]
    if gpu["ecc_mode"] and not gpu["ecc_mode"]["current"]:
        memory = model["memory"]["ecc_off"]
    return memory


def used_memory(gpu: Gpu, devices: list[mig_devices.MigDevice]) -> int:
    """Return the memory in use in MiB: by processes and, if there are any, by the driver for contexts."""
    if devices:
        return sum({device.gpu_instance_id: device.used_mib for device in devices}.values())
    used = sum(process["used_memory_mib"] for process in gpu["processes"])
    return used + mig_devices.CONTEXT_MIB if used else 0


def _memory(gpu: Gpu, model: Model, devices: list[mig_devices.MigDevice]) -> Readings:
    memory, used = memory_of(gpu, model), used_memory(gpu, devices)
    bar1 = model["bar1_mib"]
    bar1_used = min(memory["free"] if devices else used + 1, bar1)
    return {
        "fb_memory_usage/total": mib(memory["total"]),
        "fb_memory_usage/reserved": mib(memory["reserved"]),
        "fb_memory_usage/used": mib(used),
        "fb_memory_usage/free": mib(memory["free"] - used),
        "bar1_memory_usage/total": mib(bar1),
        "bar1_memory_usage/used": mib(bar1_used),
        "bar1_memory_usage/free": mib(bar1 - bar1_used),
        "cc_protected_memory_usage/total": mib(0),
        "cc_protected_memory_usage/used": mib(0),
        "cc_protected_memory_usage/free": mib(0),
    }


def _activity(gpu: Gpu, model: Model, in_mig_mode: bool) -> Readings:
    idle = not gpu["processes"] and not in_mig_mode
    found: Readings = {"performance_state": model["performance_state"], "fan_speed": model["fan_speed"]}
    for reason in EVENT_REASONS:
        active = idle and reason == "gpu_idle"
        found["clocks_event_reasons/clocks_event_reason_" + reason] = "Active" if active else "Not Active"
    for counter in ("sw_power_cap", "sync_boost", "sw_therm_slowdown", "hw_therm_slowdown", "hw_power_brake"):
        found["clocks_event_reasons_counters/clocks_event_reasons_counters_" + counter] = "0 us"
    for unit in ("gpu", "memory", "encoder", "decoder", "jpeg", "ofa"):
        absent = in_mig_mode or (unit in ("jpeg", "ofa") and model["architecture"] in OLD_ARCHITECTURES)
        found[f"utilization/{unit}_util"] = UNAVAILABLE if absent else "0 %"
    if gpu["processes"] and not in_mig_mode:
        found["utilization/gpu_util"] = "100 %"
    for stats in ("encoder_stats", "fbc_stats"):
        for name in ("session_count", "average_fps", "average_latency"):
            found[f"{stats}/{name}"] = "0"
    found["csv/clocks_event_reasons.supported"] = "0x00000000000001FF"
    found["csv/clocks_event_reasons.active"] = f"0x{1 if idle else 0:016X}"
    found.update(slowdowns.readings(gpu, idle))
    found.update(_samples("samples/utilization", "14.00 sec", "71", "0 %"))
    found.update(_samples("samples/clocks", "Not Found", "Not Found", "Not Found"))
    return found


def _samples(path: str, duration: str, number: str, value: str) -> Readings:
    found = {path + "/duration": duration, path + "/number_of_samples": number}
    found.update({f"{path}/{name}": value for name in ("max", "min", "avg")})
    return found


def _errors(gpu: Gpu, model: Model, in_mig_mode: bool) -> Readings:
    found: Readings = {}
    counting = bool(gpu["ecc_mode"] and gpu["ecc_mode"]["current"])
    if counting:
        for life in ("volatile", "aggregate"):
            found.update(_counts(life, gpu["ecc_errors"][life], model))
        found["ecc_errors/aggregate/sram_threshold_exceeded"] = "No"
        sources = "ecc_errors/aggregate_uncorrectable_sram_sources/"
        for place in ("sram_l2", "sram_sm", "sram_microcontroller", "sram_pcie"):
            found[sources + place] = "0"
        found[sources + "sram_other"] = str(gpu["ecc_errors"]["aggregate"]["sram_uncorrectable_secded"])
    for name in ("channel_repair_pending", "tpc_repair_pending", "unrepairable_memory"):
        found["ecc_errors/" + name] = "No" if counting else UNAVAILABLE
    found.update(_retired_pages(gpu, model))
    found.update(_remapped_rows(gpu, model, in_mig_mode))
    return found


def _counts(life: str, counters: EccCounters, model: Model) -> Readings:
    """Return the counters of one lifetime: by DRAM and SRAM, by bits and location, and by names of ``--query-gpu``."""
    path, csv = f"ecc_errors/{life}/", "csv/ecc.errors.{}." + life + "."
    found: Readings = {path + name: str(count) for name, count in counters.items()}
    uncorrectable = counters["sram_uncorrectable_parity"] + counters["sram_uncorrectable_secded"]
    found[path + "sram_uncorrectable"] = str(uncorrectable)
    places = model["ecc"].get("places")
    for bits, kind, dram, sram in (
        ("single_bit", "corrected", counters["dram_correctable"], counters["sram_correctable"]),
        ("double_bit", "uncorrected", counters["dram_uncorrectable"], uncorrectable),
    ):
        by_place = {"device_memory": str(dram), "total": str(dram + sram)}
        if places:
            by_place.update(dict.fromkeys(places[bits], "0"), register_file=str(sram))
            found.update({f"{path}{bits}/{place}": count for place, count in by_place.items()})
        else:
            by_place.update(dram=str(dram), sram=str(sram))
        found.update({csv.format(kind) + place: count for place, count in by_place.items()})
    return found


def _retired_pages(gpu: Gpu, model: Model) -> Readings:
    if not model["retires_pages"]:
        lists = ("multiple_single_bit_retirement", "double_bit_retirement")
        return {f"retired_pages/{tag}/retired_pagelist": UNAVAILABLE for tag in lists}
    found: Readings = {"retired_pages/pending_blacklist": "No", "retired_pages/pending_retirement": "No"}
    for tag, cause in (("multiple_single_bit_retirement", "single"), ("double_bit_retirement", "double")):
        pages = [
            {"retired_page_address": page["address"], "retired_page_timestamp": page["timestamp"]}
            for page in gpu["retired_pages"]
            if page["cause"] == cause
        ]
        found[f"retired_pages/{tag}/retired_count"] = str(len(pages))
        found[f"retired_pages/{tag}/retired_pagelist"] = pages
    return found


def _remapped_rows(gpu: Gpu, model: Model, in_mig_mode: bool) -> Readings:
    banks = model["remapper_banks"]
    if banks is None:
        return {"remapped_rows": UNAVAILABLE}
    rows = gpu["remapped_rows"]
    found = {
        "remapped_rows/remapped_row_corr": str(rows["correctable"]),
        "remapped_rows/remapped_row_corr_inactive": "0",
        "remapped_rows/remapped_row_unc": str(rows["uncorrectable"]),
        "remapped_rows/remapped_row_unc_inactive": "0",
        "remapped_rows/remapped_row_pending": "Yes" if rows["pending"] else "No",
        "remapped_rows/remapped_row_failure": "Yes" if rows["failure"] else "No",
        "remapped_rows/row_remapper_histogram/row_remapper_histogram_max": f"{banks} bank(s)",
    }
    for name in ("high", "partial", "low", "none"):
        found["remapped_rows/row_remapper_histogram/row_remapper_histogram_" + name] = "0 bank(s)"
    if in_mig_mode:
        found["remapped_rows"] = UNAVAILABLE
        for path in list(found):
            if "histogram" not in path:
                found[path] = UNAVAILABLE
    return found


def _temperature(model: Model) -> Readings:
    given = model["temperature"]
    found = {"temperature/gpu_temp": "{} C".format(given["idle_c"])}
    if "memory_idle_c" in given:
        found["temperature/memory_temp"] = "{} C".format(given["memory_idle_c"])
    if "tlimit" in given:
        found["temperature/gpu_temp_tlimit"] = "{} C".format(given["tlimit"]["at_gpu_c"] - given["idle_c"])
        suffix, limits = "_tlimit_threshold", given["tlimit"]
    else:
        suffix, limits = "_threshold", given["limits"]
    for tag, key in (
        ("gpu_temp_max", "shutdown_c"),
        ("gpu_temp_slow", "slowdown_c"),
        ("gpu_temp_max_gpu", "operating_c"),
        ("gpu_temp_max_mem", "memory_c"),
    ):
        if limits.get(key) is not None:
            found[f"temperature/{tag}{suffix}"] = f"{limits[key]} C"
    return found


def _power(gpu: Gpu, model: Model, version: Version) -> Readings:
    power = model["power"]
    state = model["performance_state"] if version < (590,) else DEPRECATED
    found = {
        "gpu_power_readings/power_state": state,
        "module_power_readings/power_state": state,
        "csv/power.management": "Enabled" if version < (590,) else DEPRECATED,
    }
    if power["idle_w"] is None:
        return found
    draw = "{:.2f} W".format(power["idle_w"])
    found["gpu_power_readings/power_draw"] = draw
    found["gpu_power_readings/instant_power_draw"] = draw
    if power["has_average"]:
        found["gpu_power_readings/average_power_draw"] = draw
    found["csv/power.draw"] = draw
    if power.get("memory_idle_w"):
        found["gpu_memory_power_readings/power_draw"] = "{:.2f} W".format(power["memory_idle_w"])
        found["gpu_memory_power_readings/average_power_draw"] = "{:.2f} W".format(power["memory_idle_w"])
    for tag, watts in (
        ("current_power_limit", gpu["power_limit_w"]),
        ("requested_power_limit", gpu["power_limit_w"]),
        ("default_power_limit", power["default_w"]),
        ("min_power_limit", power["min_w"]),
        ("max_power_limit", power["max_w"]),
    ):
        found["gpu_power_readings/" + tag] = f"{watts:.2f} W"
        # 610 has the first three here; --query-gpu and the table read the path above with every driver.
        found["gpu_power_readings/gpu_ceiling_power_limit/" + tag] = f"{watts:.2f} W"
    found.update(_samples("samples/power", "2.36 sec", "119", draw))
    return found


def _clocks(gpu: Gpu, model: Model, version: Version) -> Readings:
    clocks = model["clocks"]
    applications: list[int] = gpu["applications_clocks"] or clocks["applications"]
    graphics, memory = clocks["idle"]["graphics"], clocks["idle"]["memory"]
    if gpu["locked_gpu_clocks"]:
        low, high = gpu["locked_gpu_clocks"]
        graphics = min(max(graphics, low), high)
    if gpu["locked_memory_clocks"]:
        low, high = gpu["locked_memory_clocks"]
        memory = min(max(memory, low), high)
    found: Readings = {
        "clocks/graphics_clock": _mhz(graphics),
        "clocks/sm_clock": _mhz(graphics),
        "clocks/mem_clock": _mhz(memory),
        "clocks/video_clock": _mhz(clocks["idle"]["video"]),
        "max_clocks/graphics_clock": _mhz(clocks["max"]["graphics"]),
        "max_clocks/sm_clock": _mhz(clocks["max"]["graphics"]),
        "max_clocks/mem_clock": _mhz(clocks["max"]["memory"]),
        "max_clocks/video_clock": _mhz(clocks["max"]["video"]),
        "max_customer_boost_clocks/graphics_clock": _mhz(clocks.get("customer_boost")),
        "deferred_clocks/mem_clock": _mhz(gpu["deferred_memory_clock"]),
        "supported_clocks": supported_clocks(model) or UNAVAILABLE,
    }
    for path, pair in (("applications_clocks", applications), ("default_applications_clocks", clocks["applications"])):
        for name, value in zip(("mem_clock", "graphics_clock"), pair or (None, None)):
            found[f"{path}/{name}"] = _mhz(value) if version < (590,) else DEPRECATED
    return found


def _mhz(clock: int | None) -> str:
    return UNAVAILABLE if clock is None else f"{clock} MHz"


def graphics_clocks(step: dict[str, float]) -> list[int]:
    """List the graphics clocks in MHz for one memory clock, highest first."""
    count = int((step["from"] - step["to"]) / step["step"]) + 1
    return [int(step["from"] - number * step["step"]) for number in range(count)]


def supported_clocks(model: Model) -> list[Readings]:
    """Return the blocks of the supported clocks: a memory clock and its graphics clocks."""
    return [
        {"value": _mhz(step["memory"]), "supported_graphics_clock": [_mhz(clock) for clock in graphics_clocks(step)]}
        for step in model["supported_clocks"]
    ]


def _blocks(gpu: Gpu, devices: list[mig_devices.MigDevice]) -> Readings:
    return {
        "mig_devices": [_mig_device(device) for device in devices],
        "processes": [
            {
                "gpu_instance_id": _id(process["gpu_instance_id"]),
                "compute_instance_id": _id(process["compute_instance_id"]),
                "pid": str(process["pid"]),
                "type": process["type"],
                "process_name": process["name"],
                "used_memory": mib(process["used_memory_mib"]),
            }
            for process in gpu["processes"]
        ],
    }


def _id(instance_id: int | None) -> str:
    return UNAVAILABLE if instance_id is None else str(instance_id)


def _mig_device(device: mig_devices.MigDevice) -> Readings:
    shared, engines = "device_attributes/shared/", device.profile["engines"]
    return {
        "index": str(device.index),
        "gpu_instance_id": str(device.gpu_instance_id),
        "compute_instance_id": str(device.compute_instance_id),
        shared + "multiprocessor_count": str(device.compute["sm"]),
        shared + "copy_engine_count": str(engines["ce"]),
        shared + "encoder_count": str(engines["enc"]),
        shared + "decoder_count": str(engines["dec"]),
        shared + "ofa_count": str(engines["ofa"]),
        shared + "jpg_count": str(engines["jpeg"]),
        "ecc_error_count/volatile_count/sram_uncorrectable": "0",
        "fb_memory_usage/total": mib(device.total_mib),
        "fb_memory_usage/reserved": mib(0),
        "fb_memory_usage/used": mib(device.used_mib),
        "fb_memory_usage/free": mib(device.free_mib),
        "bar1_memory_usage/total": mib(device.bar1_mib),
        "bar1_memory_usage/used": mib(0),
        "bar1_memory_usage/free": mib(device.bar1_mib),
    }
