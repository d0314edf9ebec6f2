# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make bench`: run parts of the benchmark, print their tables, write JSON, draw the plot.

The exit status is 1 where a goal is missed that does not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import settings
from tests.benchmark import facts, fleet_report, health, hosts, mig, payload, plot, report, simulator, site, upgrade

PARTS: Mapping[str, Callable[[argparse.Namespace], Iterable[report.Table]]] = {
    "site": site.tables,
    "facts": facts.tables,
    "mig_profile": mig.tables,
    "payload": payload.tables,
    "simulator": simulator.tables,
    "health": health.tables,
    "fleet_report": fleet_report.tables,
    "upgrade": upgrade.tables,
    "hosts": hosts.tables,
}
ON_HOSTS = "hosts"
PEERS_SWEEPS = 73
"""Ping sweeps of DeepOps' roles for driver, CUDA and toolkit with geerlingguy.docker, on 20 hosts."""
PLOTTED = {"hosts": "hosts of the testbed, seconds", "site": "mock hosts, CPU seconds"}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parsed = argparse.ArgumentParser(prog="make bench ARGS=", description=__doc__)
    parsed.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[], help="all but hosts, without any")
    parsed.add_argument(
        "--sizes", type=_numbers, default=(1, 5, 20), help="numbers of hosts of site, upgrade and hosts: 1,5,20"
    )
    parsed.add_argument("--real", action="store_true", help="facts of this host's own GPUs instead of a replay")
    parsed.add_argument("--json", type=Path, default=settings.CACHE / "benchmark" / "results.json")
    parsed.add_argument("--plot", type=Path, default=settings.ROOT / "docs" / "performance.svg")
    return parsed


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(sorted({int(number) for number in text.split(",")}))
    if numbers[0] < 1:
        raise ValueError(text)
    return numbers


def sweeps_plot(results: Mapping[str, Any]) -> str | None:
    """The plot of the cost of a run without changes, from the JSON results; None where none was measured."""
    lines = [
        plot.Line(label, tuple((row["hosts"], row["sweeps"]) for row in table["rows"]))
        for part, label in PLOTTED.items()
        for table in results.get(part, {}).get("tables", ())
        if any("sweeps" in row for row in table["rows"])
    ]
    if not lines:
        return None
    marks = sorted({x for line in lines for x, _y in line.points})
    compared = {"peers": PEERS_SWEEPS, "goal": hosts.SWEEPS}
    lines += [plot.Line(f"{name}: {y}", tuple((x, y) for x in marks), dashed=True) for name, y in compared.items()]
    return plot.line_chart("site.yml without changes", "hosts", "sweeps of ping", lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested parts; their results are written one by one, so that an interrupt loses only its part."""
    options = parser().parse_args(arguments)
    os.environ["LC_ALL"] = "C.UTF-8"
    missed: list[str] = []
    for part in options.parts or [name for name in PARTS if name != ON_HOSTS]:
        measured_with = report.environment()
        print(f"\n{part}", flush=True)
        tables = []
        for table in PARTS[part](options):
            print(f"\n{table.text()}", flush=True)
            tables.append(table)
            missed += table.missed
        report.write(options.json, part, tables, measured_with)
    if drawn := sweeps_plot(json.loads(options.json.read_text(encoding="utf-8"))):
        options.plot.write_text(drawn, encoding="utf-8")
    print(f"\n{options.json}")
    for sentence in missed:
        print(f"missed: {sentence}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
