# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``--query-*``: selected fields as comma-separated values."""

from __future__ import annotations

import time

from ..queries import fields, readings
from ..state import health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, Mapping, Tuple

    from ..command_line.selection import Selected
    from ..command_line.verbs import Call
    from ..queries.readings import View
    from ..state.shapes import Reply

    Row = Dict[str, str]
    Columns = Mapping[str, Tuple[str, str]]

BRACKETED = ("N/A", readings.DEPRECATED, "Unknown Error", "Insufficient Permissions", "GPU is lost", "Not Supported")
"""Placeholders for missing values that CSV puts into square brackets."""


NEWEST = (10**6 - 1,)
"""``--query-remapped-rows`` has these fields in all drivers; ``--query-gpu`` got them later."""


class QueryError(Exception):
    """The query is rejected with this message."""


class Format:
    """The value of ``--format``; raises QueryError for a modifier that does not exist."""

    def __init__(self, text: str) -> None:
        words = text.split(",") if text else []
        if not set(words) <= {"csv", "noheader", "nounits"}:
            raise QueryError("Format modifier is not recognized.\n")
        self.header = "noheader" not in words
        self.units = "nounits" not in words


def timestamp() -> str:
    """Return the time with milliseconds, as CSV prints it."""
    now = time.time()
    return "{}.{:03d}".format(time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)), int(now * 1000) % 1000)


def query_gpu(call: Call) -> Reply:
    """Handle ``--query-gpu``."""
    known = fields.by_name(fields.gpu_fields(call.version), call.version)

    def rows() -> Iterator[Row]:
        now = timestamp()
        for view in readings.views(call):
            yield {field["name"]: _gpu_value(field, view, call, now) for field in chosen}

    columns = {name: (field["name"], field.get("unit", "")) for name, field in known.items()}
    chosen = [known[name] for name in _names(call.value or "") if name in known]
    return _result(call, columns, rows)


def _gpu_value(field: fields.Field, view: View, call: Call, now: str) -> str:
    path: str = field["path"]
    if path.startswith("call/"):
        return {
            "call/timestamp": now,
            "call/driver_version": call.driver_version,
            "call/count": str(len(call.visible)),
            "call/index": str(view.index),
        }[path]
    value: str = view.readings.get(path, "N/A")
    if value in BRACKETED:
        return value if field.get("bare") and value == "N/A" else f"[{value}]"
    if field.get("unit"):
        return value
    prefix: str = field.get("prefix", "")
    return prefix + _bare_number(value)


def _bare_number(text: str) -> str:
    """Remove the unit of a reading that CSV prints without one: ``34 C``, ``16x``, ``3072 bank(s)``."""
    for unit in (" C", " bank(s)", "x"):
        if text.endswith(unit) and text[: -len(unit)].lstrip("-").isdigit():
            return text[: -len(unit)]
    return text


def query_compute_apps(call: Call) -> Reply:
    """Handle ``--query-compute-apps``: one row for each compute process."""
    columns = {
        **_GPU_COLUMNS,
        "pid": ("pid", ""),
        "process_name": ("process_name", ""),
        "name": ("process_name", ""),
        "used_gpu_memory": ("used_gpu_memory", "MiB"),
        "used_memory": ("used_gpu_memory", "MiB"),
    }

    def rows() -> Iterator[Row]:
        for base, view in _gpu_rows(call):
            for process in view.gpu["processes"]:
                if "C" in process["type"]:
                    yield {
                        **base,
                        "pid": str(process["pid"]),
                        "process_name": process["name"],
                        "used_gpu_memory": readings.mib(process["used_memory_mib"]),
                    }

    return _result(call, columns, rows)


def query_accounted_apps(call: Call) -> Reply:
    """Handle ``--query-accounted-apps``: no process is accounted."""
    columns = {
        **_GPU_COLUMNS,
        "vgpu_instance": ("vgpu_instance", ""),
        "pid": ("pid", ""),
        "gpu_utilization": ("gpu_utilization", "%"),
        "gpu_util": ("gpu_utilization", "%"),
        "mem_utilization": ("mem_utilization", "%"),
        "mem_util": ("mem_utilization", "%"),
        "max_memory_usage": ("max_memory_usage", "MiB"),
        "time": ("time", "ms"),
    }
    return _result(call, columns, lambda: iter(()))


def query_retired_pages(call: Call) -> Reply:
    """Handle ``--query-retired-pages``: a row for each page, or one for each cause where pages are not retired."""
    columns = {
        **_GPU_COLUMNS,
        "retired_pages.address": ("retired_pages.address", ""),
        "retired_pages.timestamp": ("retired_pages.timestamp", ""),
        "retired_pages.cause": ("retired_pages.cause", ""),
    }
    causes = {"single": "Single Bit ECC", "double": "Double Bit ECC"}

    def rows() -> Iterator[Row]:
        for base, view in _gpu_rows(call):
            for cause, words in causes.items():
                pages = [page for page in view.gpu["retired_pages"] if page["cause"] == cause]
                if not view.model["retires_pages"]:
                    yield {
                        **base,
                        "retired_pages.address": "[N/A]",
                        "retired_pages.timestamp": "[N/A]",
                        "retired_pages.cause": words,
                    }
                for page in pages:
                    yield {
                        **base,
                        "retired_pages.address": page["address"],
                        "retired_pages.timestamp": page["timestamp"],
                        "retired_pages.cause": words,
                    }

    return _result(call, columns, rows)


def query_remapped_rows(call: Call) -> Reply:
    """Handle ``--query-remapped-rows``: the fields of the same name of ``--query-gpu``."""
    known = fields.by_name(fields.gpu_fields(NEWEST), NEWEST)
    remapped = {name: field for name, field in known.items() if name.startswith("remapped_rows.")}
    columns = {**_GPU_COLUMNS, **{name: (field["name"], "") for name, field in remapped.items()}}

    def rows() -> Iterator[Row]:
        for base, view in _gpu_rows(call):
            values = {field["name"]: _gpu_value(field, view, call, "") for field in remapped.values()}
            yield {**base, **values}

    return _result(call, columns, rows)


def query_supported_clocks(call: Call) -> Reply:
    """Handle ``--query-supported-clocks``: a row for each distinct combination of the queried clocks."""
    columns = {
        **_GPU_COLUMNS,
        "memory": ("memory", "MHz"),
        "mem": ("memory", "MHz"),
        "graphics": ("graphics", "MHz"),
        "gr": ("graphics", "MHz"),
    }
    queried = {columns.get(name, ("",))[0] for name in _names(call.value or "")}

    def rows() -> Iterator[Row]:
        for base, view in _gpu_rows(call):
            pairs = {
                (block["value"] if "memory" in queried else "", clock if "graphics" in queried else ""): None
                for block in readings.supported_clocks(view.model)
                for clock in block["supported_graphics_clock"]
            }
            for memory, graphics in pairs:
                yield {**base, "memory": memory, "graphics": graphics}

    return _result(call, columns, rows)


_GPU_COLUMNS: Columns = {name: (name, "") for name in ("timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid")}


def _gpu_rows(call: Call) -> Iterator[tuple[Row, View]]:
    """Yield the leading columns of every query, one row for each GPU."""
    now = timestamp()
    for view in readings.views(call):
        serial = view.readings["serial"]
        yield (
            {
                "timestamp": now,
                "gpu_name": view.readings["product_name"],
                "gpu_bus_id": view.readings["pci/pci_bus_id"],
                "gpu_serial": f"[{serial}]" if serial in BRACKETED else serial,
                "gpu_uuid": view.readings["uuid"],
            },
            view,
        )


def _names(text: str) -> list[str]:
    """Split a field list; one comma at the end is allowed."""
    return [name for name in text.split(",") if name]


def _result(call: Call, columns: Columns, rows: Callable[[], Iterator[Row]]) -> Reply:
    """Check the fields and the format, then print the rows."""
    try:
        names = _names(call.value or "")
        for name in names:
            if name not in columns:
                raise QueryError(f'Field "{name}" is not a valid field to query.\n\n')
        form = Format(call.options.get("format", ""))
    except QueryError as error:
        return str(error), 2
    refusal = _refusal(call.gpus)
    if refusal:
        return refusal
    lines = []
    if form.header:
        lines.append(", ".join(_title(*columns[name]) for name in names))
    for row in rows():
        lines.append(", ".join(_cell(row[columns[name][0]], columns[name][1], form) for name in names))
    return "".join(line + "\n" for line in lines), 0


def _refusal(gpus: Selected) -> Reply | None:
    return health.lost(gpus) if gpus else health.NO_DEVICES


def _title(name: str, unit: str) -> str:
    return f"{name} [{unit}]" if unit else name


def _cell(text: str, unit: str, form: Format) -> str:
    if not form.units and unit and text.endswith(" " + unit):
        return text[: -len(unit) - 1]
    return text
