# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of gpu_health as metrics for the textfile collector of node_exporter. Private to this collection."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Iterable, Mapping

from .policy import OK, VERDICTS

Health = Mapping[str, Any]

# Neither in XML nor in the text format of Prometheus; and what a terminal obeys, as C1 and changes of direction.
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def identity(gpu: Mapping[str, Any]) -> str:
    """The name of a GPU in findings."""
    return str(gpu["uuid"] or gpu["pci_bus_id"] or f"index {gpu['index']}")


def clean(text: str) -> str:
    """A text that is valid in XML and in the text format of Prometheus."""
    return _CONTROL.sub("\ufffd", text)


HEALTH = (
    ("gpu_fleet_health_time_seconds", "Time of the last check, in seconds since 1970."),
    ("gpu_fleet_health_verdict", "Verdict of the host: 0 ok, 1 info, 2 unknown, 3 warn, 4 fail."),
    ("gpu_fleet_gpu_health_verdict", "Verdict of a GPU: 0 ok, 1 info, 2 unknown, 3 warn, 4 fail."),
    ("gpu_fleet_health_finding", "A row of the health policy that holds."),
    ("gpu_fleet_gpu_xids", "Xids since the boot, by GPU and code."),
)


def metrics(health: Health) -> str:
    """The text format of Prometheus, for the textfile collector of node_exporter."""
    time = datetime.fromisoformat(health["time"].replace("Z", "+00:00")).timestamp()
    samples: dict[str, list[tuple[Mapping[str, Any], float]]] = {
        "gpu_fleet_health_time_seconds": [({}, time)],
        "gpu_fleet_health_verdict": [({"remedy": health["remedy"]}, VERDICTS.index(health["verdict"]))],
        "gpu_fleet_gpu_health_verdict": [
            (
                {"gpu": identity(gpu), "serial": gpu["serial"], "index": gpu["index"], "remedy": gpu["remedy"]},
                VERDICTS.index(gpu["verdict"]),
            )
            for gpu in health["gpus"]
        ],
        # Alerts fire for each that is there: what a site accepts is none.
        "gpu_fleet_health_finding": [
            ({name: finding[name] for name in ("row", "gpu", "verdict", "remedy")}, 1)
            for finding in health["findings"]
            if finding["verdict"] != OK
        ],
        "gpu_fleet_gpu_xids": [
            ({"gpu": xid["gpu"], "code": xid["code"], "row": xid["row"], "is_over": xid["is_over"]}, xid["count"])
            for xid in health["kernel_log"]["xids"]
        ],
    }
    return "".join(_metric(name, text, samples[name]) for name, text in HEALTH)


READINGS = (
    ("gpu_fleet_gpu_temperature_celsius", "Temperature of a GPU.", "temperature_gpu_c", 1),
    ("gpu_fleet_gpu_power_watts", "Power draw of a GPU.", "power_draw_w", 1),
    ("gpu_fleet_gpu_memory_used_bytes", "Memory of a GPU in use.", "memory_used_mib", 2**20),
    ("gpu_fleet_gpu_memory_total_bytes", "Memory of a GPU.", "memory_total_mib", 2**20),
    (
        "gpu_fleet_gpu_utilization_percent",
        "Share of the last sample period in which a GPU was busy.",
        "utilization_gpu_percent",
        1,
    ),
)


def readings(gpus: Iterable[Mapping[str, Any]]) -> str:
    """Readings of nvidia_smi_facts in the same format; what a GPU does not report has no sample."""
    known = [(gpu, {"gpu": identity(gpu), "index": gpu["index"], "name": gpu["name"]}) for gpu in gpus]
    return "".join(
        _metric(name, text, [(labels, gpu[key] * factor) for gpu, labels in known if gpu.get(key) is not None])
        for name, text, key, factor in READINGS
    )


HELD = "gpu_fleet_health_held"


def held_verdicts(schedulers: Iterable[str]) -> str:
    """That the verdict is held in these schedulers, in the same format; no sample where it is in none."""
    text = (
        "The verdict is fail, but the scheduler does not drain the node: the cap is reached, or nodes cannot "
        "be counted."
    )
    return _metric(HELD, text, [({"scheduler": one}, 1) for one in schedulers])


def _metric(name: str, text: str, samples: Iterable[tuple[Mapping[str, Any], float]]) -> str:
    """One metric. Equal labels are added up, since a series may be there only once."""
    total: dict[str, float] = {}
    for labels, value in samples:
        inner = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
        key = f"{name}{{{inner}}}" if inner else name
        total[key] = total.get(key, 0) + value if name == "gpu_fleet_gpu_xids" else value
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge", *(f"{key} {value:.15g}" for key, value in total.items())]
    return "\n".join(lines) + "\n"


def _escaped(value: object) -> str:
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
