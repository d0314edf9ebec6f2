# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make bench` makes of its measurements."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.benchmark import __main__ as benchmark
from tests.benchmark import hosts, measure, payload, plot, report

SVG = "{http://www.w3.org/2000/svg}"
TABLE = report.Table("Calls", ("change", "calls", "seconds"), (("the same", 2, 0.5), ("add one", 10, None)))


def test_a_table_is_aligned() -> None:
    assert TABLE.text().splitlines() == [
        "Calls",
        "change    calls  seconds",
        "the same      2     0.50",
        "add one      10        -",
    ]


def test_results_of_one_part_replace_its_own_and_leave_others() -> None:
    first = report.merged("", "mig_profile", [TABLE], {"date": "2026-11-22"})
    both = report.merged(first, "site", [], {"date": "2026-11-23"})
    again = json.loads(report.merged(both, "mig_profile", [], {"date": "2026-11-24"}))
    assert json.loads(both)["mig_profile"]["tables"][0]["rows"] == [
        {"change": "the same", "calls": 2, "seconds": 0.5},
        {"change": "add one", "calls": 10, "seconds": None},
    ]
    assert {part: result["environment"]["date"] for part, result in again.items()} == {
        "mig_profile": "2026-11-24",
        "site": "2026-11-23",
    }


def test_the_environment_names_date_machine_and_versions() -> None:
    found = report.environment()
    assert found.keys() >= {"date", "processors", "load_per_processor", "python", "ansible_core"}
    assert None not in found.values()


def _chart(*lines: plot.Line) -> ElementTree.Element:
    return ElementTree.fromstring(plot.line_chart("cost <of> a run", "hosts", "sweeps", lines))


def _points(chart: ElementTree.Element) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in line.attrib["points"].split())]
        for line in chart.iter(f"{SVG}polyline")
    ]


def test_a_chart_has_its_points_in_proportion() -> None:
    chart = _chart(plot.Line("site", ((1, 0), (10, 50), (100, 100))), plot.Line("goal", ((1, 25), (100, 25)), True))
    (low, middle, high), (goal, _end) = _points(chart)
    assert low[0] < middle[0] < high[0]
    assert middle[0] - low[0] == pytest.approx(high[0] - middle[0], abs=0.2)  # x is logarithmic
    assert low[1] - middle[1] == pytest.approx(middle[1] - high[1], abs=0.2)  # y is linear, and points up
    assert goal[1] == pytest.approx((low[1] + middle[1]) / 2, abs=0.2)
    labels = {text.text for text in chart.iter(f"{SVG}text")}
    assert labels >= {"cost <of> a run", "hosts", "sweeps", "site", "goal", "1", "10", "100", "0", "80"}


@pytest.mark.parametrize("points", [((1, 4.3),), ((20, 0.0), (100, 0.0)), ((1, 1234.5), (2, 0.001))])
def test_a_chart_of_few_or_small_points_stays_in_its_frame(points: tuple[tuple[float, float], ...]) -> None:
    for x, y in itertools.chain(*_points(_chart(plot.Line("site", points)))):
        assert plot.LEFT <= x <= plot.WIDTH - plot.RIGHT
        assert plot.TOP <= y <= plot.HEIGHT - plot.BOTTOM


def test_the_plot_shows_what_was_measured_next_to_the_peers() -> None:
    rows = [{"hosts": 1, "sweeps": 4.3}, {"hosts": 20, "sweeps": 14.8}]
    drawn = benchmark.sweeps_plot({"site": {"tables": [{"rows": rows}]}, "facts": {"tables": [{"rows": [{"kB": 1}]}]}})
    assert drawn is not None
    assert len(_points(ElementTree.fromstring(drawn))) == 3
    assert f"peers: {benchmark.PEERS_SWEEPS}" in drawn
    assert benchmark.sweeps_plot({"facts": {"tables": []}}) is None


def test_hosts_have_their_own_addresses_and_eight_gpus(tmp_path: Path) -> None:
    found = hosts.inventory(100)["all"]["children"]["testbed_hosts"]["hosts"]
    octets = {host["testbed_octet"] for host in found.values()}
    assert len(octets) == 100
    assert max(octets) < 250  # that of the vendors
    assert all(host["gpu_simulator_gpus"][0]["count"] == 8 for host in found.values())
    for count in (1, 2):
        hosts.write_inventory(tmp_path, count)
    assert len(json.loads((tmp_path / "hosts.yml").read_text())["all"]["children"]["testbed_hosts"]["hosts"]) == 2
    assert (tmp_path / "group_vars" / "all.yml").exists()


def test_a_run_without_changes_is_compared_with_the_pings_around_it() -> None:
    row = hosts.no_change_row(
        20, measure.Cost(4, 1, 50), measure.Cost(30, 8, 120), measure.Cost(6, 1, 50), {"bench0": 3, "bench1": 5}
    )
    assert row == (20, 4, 30, 6, 6.0, 5, 0.4, 120)


def test_the_cost_of_a_command_is_that_of_its_children_too() -> None:
    spend = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'bytearray(64 << 20); sum(range(10**6))'])"
    cost = measure.run([sys.executable, "-c", spend])
    assert cost.cpu_seconds > 0
    assert cost.peak_mib >= 64
    with pytest.raises(subprocess.CalledProcessError) as error:
        measure.run([sys.executable, "-c", "import sys; print('out of hosts'); sys.exit(3)"])
    assert (error.value.returncode, error.value.output) == (3, "out of hosts\n")


def test_only_files_of_the_collection_count_as_its_payload(tmp_path: Path) -> None:
    archive = tmp_path / "module.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("ansible/module_utils/basic.py", "x = 1")
        files.writestr("ansible_collections/gpu/fleet/__init__.py", "")
        files.writestr("ansible_collections/gpu/fleet/plugins/modules/file_set.py", "y = 1")
    assert payload.own_files(archive) == {"ansible_collections/gpu/fleet/plugins/modules/file_set.py": 5}


@pytest.mark.parametrize(
    ("arguments", "parts", "sizes"),
    [
        ([], [], (1, 5, 20)),
        (["site", "--sizes", "20,1,20"], ["site"], (1, 20)),
        (["mig_profile", "payload"], ["mig_profile", "payload"], (1, 5, 20)),
    ],
)
def test_parts_and_sizes_are_chosen(arguments: list[str], parts: list[str], sizes: tuple[int, ...]) -> None:
    chosen = benchmark.parser().parse_args(arguments)
    assert (list(chosen.parts), chosen.sizes, chosen.real) == (parts, sizes, False)


@pytest.mark.parametrize("arguments", [["nothing"], ["site", "--sizes", "0"], ["site", "--sizes", "many"]])
def test_what_cannot_be_measured_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        benchmark.parser().parse_args(arguments)
    assert error.value.code == 2


def test_a_missed_goal_fails_after_the_results_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missed = report.Table("Calls", ("change",), (("add one",),), ("add one: 7 calls, the goal is 6",))
    monkeypatch.setitem(benchmark.PARTS, "mig_profile", lambda _options: [missed])
    monkeypatch.setenv("LC_ALL", os.environ.get("LC_ALL", "C"))  # main sets it; later tests must not inherit that
    results, drawn = tmp_path / "results.json", tmp_path / "plot.svg"
    assert benchmark.main(["mig_profile", f"--json={results}", f"--plot={drawn}"]) == 1
    assert json.loads(results.read_text())["mig_profile"]["tables"][0]["missed"] == list(missed.missed)
    assert not drawn.exists()  # nothing of it is plotted
