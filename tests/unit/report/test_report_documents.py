# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the report: page, CSV, JSON and its schema. Run this file to print the schema again."""

from __future__ import annotations

import base64
import csv
import dataclasses
import hashlib
import io
import json
import re
import types
import typing
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.modules import fleet_report, report_facts
from ansible_collections.gpu.fleet.plugins.plugin_utils._report import documents, model, output, page, pictures
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.model import HistoryEvent, Host, Layout, Rack, Slice

from tests.conftest import ROOT
from tests.unit.health.test_health_outputs import schema_of_contents
from tests.unit.module_runs import disagreements
from tests.unit.report.fleets import HOSTILE, TIME, bases, copied, fleet

SCHEMA = ROOT / "docs" / "report.schema.json"
_ENUMS = {"state": list(model.STATES), "basis": ["declared", "majority"]}
# Of what report_facts returns.
_PRESENT = frozenset(
    (
        "available",
        "reboot_reasons",
        "pci_gpu_count",
        "gpus",
        "index",
        "processes",
        "nics",
        "names",
        "rdma",
        "topology",
        "label",
    )
)
_PLAIN: dict[Any, str] = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}


def _schema_of(kind: Any, name: str = "") -> dict[str, Any]:
    """The schema of a type that a field of the report has."""
    if name == "health":
        return {"anyOf": [{"$ref": "health.schema.json"}, {"type": "null"}]}
    if name == "facts":
        documented = yaml.safe_load(report_facts.RETURN)["host"]["contains"]
        return {"type": ["object", "null"], **schema_of_contents(documented, _PRESENT)}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {
            "description": " ".join((kind.__doc__ or "").split()),
            "type": "object",
            "properties": {each.name: _schema_of(hints[each.name], each.name) for each in dataclasses.fields(kind)},
            "required": [each.name for each in dataclasses.fields(kind)],
        }
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return {"type": "array", "items": _schema_of(arguments[0])}
    if origin is types.UnionType:
        return {"type": [_PLAIN[each] for each in arguments]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1])}
    # What a user has declared.
    return {"type": "object"} if origin is Mapping else {"type": _PLAIN[kind]}


def schema() -> str:
    """The schema that follows from the model and from RETURN."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Report of gpu.fleet.fleet_report"}
    return json.dumps({**head, **_schema_of(model.Report)}, indent=1) + "\n"


def test_the_schema_is_that_of_the_model() -> None:
    assert SCHEMA.read_text() == schema()


def test_the_json_follows_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    referencing = pytest.importorskip("referencing")
    health = json.loads((ROOT / "docs" / "health.schema.json").read_text())
    registry = referencing.Registry().with_resource("health.schema.json", referencing.Resource.from_contents(health))
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()), registry=registry)
    before = page.make(fleet(4), TIME)
    for report in (before, page.make(fleet(6), TIME, json.loads(documents.as_json(before))), page.make([], TIME)):
        data = json.loads(documents.as_json(report))
        assert [(error.message, list(error.path)) for error in validator.iter_errors(data)] == []
    data["hosts"] = [{"name": "node"}]
    assert list(validator.iter_errors(data))


def test_the_module_returns_what_is_documented(tmp_path: Path) -> None:
    documented = yaml.safe_load(fleet_report.RETURN)
    result = output.write(str(tmp_path / "new"), fleet(4), TIME, check_mode=False)
    assert result.pop("warnings") == []
    wrong = [text for name, value in result.items() for text in disagreements(documented[name], value, name)]
    assert wrong == []
    assert set(result) == set(documented)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["report.csv", "report.html", "report.json"]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()} == {0o644}


def test_in_check_mode_no_file_is_written(tmp_path: Path) -> None:
    result = output.write(str(tmp_path / "new"), fleet(3), TIME, check_mode=True)
    assert result["summary"]["hosts"] == 3
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "warning"),
    [
        ("{", "cannot be read"),
        ("[]", "is not of schema version"),
        ('{"schema_version": 99, "hosts": []}', "is not of schema version"),
        ('{"schema_version": 1, "time": "x", "hosts": [{"name": "lost1", "other": 1}]}', "is damaged"),
        (
            '{"schema_version": 1, "time": "x", "hosts": [{"name": "single2", "state": "read", "facts": {}}]}',
            "is damaged",
        ),
        ('{"schema_version": 1, "hosts": []}', "is damaged"),
    ],
)
def test_a_last_report_that_cannot_be_used_is_named_and_replaced(content: str, warning: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(content)
    result = output.write(str(tmp_path), fleet(5), TIME, check_mode=False)
    assert [warning in text for text in result["warnings"]] == [True]
    assert json.loads((tmp_path / "report.json").read_text())["previous_time"] is None


# CSV


def test_csv_has_a_line_for_each_gpu_and_each_host_without() -> None:
    rows = list(csv.DictReader(io.StringIO(documents.as_csv(page.make(fleet(5), TIME)))))
    assert [row["host"] for row in rows if row["host"] != "dgx0"] == [
        f"broken {HOSTILE}",
        "lost1",
        "pair1",
        "pair1",
        "single2",
    ]
    third = next(row for row in rows if (row["host"], row["gpu"]) == ("dgx0", "3"))
    assert (third["verdict"], third["remedy"], third["driver"]) == ("fail", "reset_gpu", "580.159.04")
    assert third["messages"].startswith("GPU 3 ")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@a", "\t=1"])
def test_no_cell_is_a_formula(name: str) -> None:
    rows = list(csv.DictReader(io.StringIO(documents.as_csv(page.make([Host(name, "unreachable")], TIME)))))
    assert rows[0]["host"] == f"'{name}"


# The page


class Page(HTMLParser):
    """What a browser would see of the page: elements, ids, headers of tables, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.contents: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open:
            self.contents.setdefault(self._open[-1], []).append(data)


@pytest.fixture(name="html", scope="module")
def _html() -> str:
    return page.as_html(page.make(fleet(12), TIME))


def test_the_page_needs_nothing_else_and_runs_only_its_own_program(html: str) -> None:
    found = Page(html)
    assert [attributes for _tag, attributes in found.elements if "src" in attributes] == []
    links = [attributes["href"] for _tag, attributes in found.elements if "href" in attributes]
    assert [link for link in links if not str(link).startswith("#")] == []
    assert "url(" not in html
    policy = next(str(a["content"]) for _tag, a in found.elements if "Content-Security-Policy" in a.values())
    program = html.rpartition("<script>")[2].partition("</script>")[0]
    style = html.partition("<style>")[2].partition("</style>")[0]
    for text in (program, style):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert "unsafe" not in policy


def test_hostile_names_are_text(html: str) -> None:
    assert "window.hostile" in html
    assert HOSTILE not in html
    found = Page(html)
    assert [tag for tag, _attributes in found.elements if tag == "img"] == []
    assert len([tag for tag, _attributes in found.elements if tag == "script"]) == 2
    data = json.loads(html.partition('id="data">')[2].partition("</script>")[0])
    assert HOSTILE in data["strings"]


def test_links_within_the_page_lead_to_sections_with_a_heading(html: str) -> None:
    elements = Page(html).elements
    ids = [attributes["id"] for _tag, attributes in elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    targets = {str(attributes["href"])[1:] for tag, attributes in elements if tag == "a"}
    assert targets <= set(ids)
    for tag, attributes in elements:
        if tag == "section":
            assert attributes["aria-labelledby"] in ids
            assert attributes["id"] in targets


def test_tables_have_captions_and_headers_have_a_scope(html: str) -> None:
    elements = Page(html.partition("<template")[0]).elements
    drawn_by_the_program = 2
    tables, captions = ([tag for tag, _a in elements if tag == kind] for kind in ("table", "caption"))
    assert len(tables) == len(captions) + drawn_by_the_program
    assert [attributes for tag, attributes in elements if tag == "th" and "scope" not in attributes] == []
    assert [attributes for tag, attributes in elements if tag == "svg" and not attributes.get("aria-label")] == []


def test_what_counts_can_be_read_without_the_program(html: str) -> None:
    text = re.sub(r"<[^>]+>", " ", html.partition("<template")[0])
    for part in ("the driver asks for a reset", "lost1", "NVIDIA H200", "2026-06", "report.csv"):
        assert part in text


def test_a_page_of_an_empty_fleet_can_be_made() -> None:
    html = page.as_html(page.make([], TIME))
    assert "No GPU was read." in html


def test_the_page_of_a_thousand_hosts_is_below_five_megabytes() -> None:
    """Each GPU has seven MIG instances with a process in each, each host names and messages of its own."""
    facts, health = bases()["dgx"]
    item = facts["gpus"][0]["instances"][0]
    instances = [{**item, "gpu_instance_id": number, "placement_start": number} for number in range(7)]
    hosts = []
    for number in range(1000):
        name = f"cluster1-node{number:04}"
        processes = [
            {"pid": 4_000_000 + g, "name": f"job {name}", "memory_used_mib": 9, "gpu_instance_id": g} for g in range(7)
        ]
        more = {"instances": instances, "processes": processes, "mig_mode": "enabled", "process_count": 7}
        gpus = [
            {**gpu, **more, "uuid": f"GPU-{number:08x}-0000-4000-8000-{i:012x}"} for i, gpu in enumerate(facts["gpus"])
        ]
        findings = [{**finding, "message": f"{finding['message']} {name}"} for finding in health["findings"]]
        hosts.append(
            Host(
                name,
                "read",
                rack=f"r{number // 4}",
                facts={**facts, "gpus": gpus},
                health={**health, "findings": findings},
            )
        )
    assert len(page.as_html(page.make(hosts, TIME)).encode()) < 5_000_000


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028", "a & b"])
def test_embedded_data_is_the_same_and_has_no_markup(text: str) -> None:
    made = documents.embedded({text: text})
    assert json.loads(made) == {text: text}
    assert not set("<>&\u2028") & set(made)


# Pictures


def _parsed(picture: str) -> tuple[ElementTree.Element, list[str]]:
    element = ElementTree.fromstring(picture)
    return element, [str(each.get("class")) for each in element]


def test_a_mig_layout_has_its_instances_and_the_free_memory_slices() -> None:
    layout = Layout("NVIDIA H200", (Slice("3g.71gb", 4, 4), Slice("<b>", 0, 1)), 1, 1, 0)
    element, kinds = _parsed(pictures.mig_layout(layout))
    assert (kinds.count("slot"), kinds.count("slice")) == (3, 2)
    assert [each.text for each in element if each.tag == "text"] == ["3g.71gb", "<b>"]
    assert element.get("aria-label") == "NVIDIA H200: 3g.71gb, <b>"


@pytest.mark.parametrize(("name", "slices"), [("NVIDIA A30", 4), ("NVIDIA A300", 8), ("NVIDIA H100 80GB HBM3", 8)])
def test_memory_slices(name: str, slices: int) -> None:
    assert pictures.memory_slices(name) == slices


def test_a_rack_without_power_can_be_drawn() -> None:
    element, kinds = _parsed(pictures.rack_power(Rack("a", ("b",), 1, 1, 0.0, 0.0, 0.0, "ok")))
    assert "0.0 kW drawn" in str(element.get("aria-label"))
    assert "budget" in kinds


def _device(label: str, name: str | None = None, **links: str) -> dict[str, Any]:
    return {"label": label, "name": name, "numa_affinity": "0", "links": links}


def test_topology_with_the_same_links_between_all_gpus_is_one_bar() -> None:
    _element, kinds = _parsed(pictures.topology(bases()["dgx"][0]["topology"]))
    assert (kinds.count("gpu"), kinds.count("fabric"), kinds.count("nvlink")) == (8, 1, 8)


def test_topology_with_bridges_and_adapters() -> None:
    devices = [
        _device("GPU0", GPU1="NV4", GPU2="SYS", NIC0="PIX", NIC1="SYS"),
        _device("GPU1", GPU0="NV4", GPU2="SYS", NIC0="NODE", NIC1="SYS"),
        _device("GPU2", GPU0="SYS", GPU1="SYS", NIC0="SYS", NIC1="PHB"),
        _device("NIC0", "mlx5_0", GPU0="PIX", GPU1="NODE", GPU2="SYS", NIC1="SYS"),
        _device("NIC1", "<mlx5_1>", GPU0="SYS", GPU1="SYS", GPU2="PHB", NIC0="SYS"),
    ]
    element, kinds = _parsed(pictures.topology(devices))
    assert (kinds.count("nvlink"), kinds.count("near"), kinds.count("node"), kinds.count("nic")) == (1, 1, 1, 2)
    described = str(element.get("aria-label"))
    assert described == ("3 GPUs, GPU0 and GPU1 by 4 NVLinks. mlx5_0 near GPU0; <mlx5_1> near no GPU")


@pytest.mark.parametrize("devices", [[], [_device("GPU0")], [_device("NIC0", "mlx5_0")]])
def test_topology_without_links(devices: list[dict[str, Any]]) -> None:
    _parsed(pictures.topology(devices))


def test_equal_topologies_are_drawn_once() -> None:
    html = page.as_html(page.make([copied("dgx", f"node{number}") for number in range(3)], TIME))
    assert html.count("<template") == 1


def test_a_cell_of_a_table_that_narrow_windows_stack_is_named_as_its_column() -> None:
    template = (ROOT / "playbooks" / "templates" / "report.html.j2").read_text()
    tables = template.split('<table class="stacked">')[1:]
    assert len(tables) == 4
    for table in tables:
        head, _begin, body = table.partition("</table>")[0].partition("<tbody>")
        heads = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)<", head)
        (row,) = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
        cells = re.findall(r'<td data-head="([^"]*)"|<(th) scope="row">', row)
        assert [name or head for (name, _th), head in zip(cells, heads, strict=True)] == heads
        assert len(cells) == len(heads) == len(re.findall(r"<t[hd][ >]", row))


if __name__ == "__main__":
    print(schema(), end="")


def test_the_history_of_a_gpu_is_drawn_in_lanes() -> None:
    events = [
        HistoryEvent("2026-01-01T00:00:00Z", "verdict", "ok", 1),
        HistoryEvent("2026-11-12T00:00:00Z", "verdict", "fail", 1),
        HistoryEvent("2026-11-12T00:00:00Z", "xid", "<79>", 3),
        HistoryEvent("2026-11-12T01:00:00Z", "xid", "31", 1),
        HistoryEvent("2026-11-13T00:00:00Z", "remapped_rows_uncorrectable", None, 2),
    ]
    picture = pictures.history(events, TIME)
    root = ElementTree.fromstring(picture)
    drawn = {each.get("class"): each for each in root.iter() if each.tag in ("rect", "circle")}
    assert list(drawn) == ["ok", "fail", "xid", "worse"]
    left, right = float(drawn["ok"].get("x") or 0), float(drawn["fail"].get("x") or 0)
    assert left + float(drawn["ok"].get("width") or 0) == pytest.approx(right)
    # Days of 90 before the report.
    assert (right - left) / float(root.get("width") or 0) == pytest.approx(80 / 90 * 288 / 360, abs=0.02)
    titles = [each.text for each in root.iter("title")]
    assert titles[2:] == [
        "2026-11-12T00:00:00Z: 3 x Xid <79>",
        "2026-11-12T01:00:00Z: 1 x Xid 31",
        "2026-11-13T00:00:00Z: 2 rows remapped after uncorrectable errors",
    ]
    labels = [each.text for each in root.iter("text")]
    assert "<79>" in labels
    assert "+2" in labels
    assert "31" not in labels, "there is no room"


def test_a_history_without_a_verdict_can_be_drawn() -> None:
    picture = pictures.history([HistoryEvent("2026-11-12T00:00:00Z", "xid", "79", 3)], TIME)
    assert [each.get("class") for each in ElementTree.fromstring(picture).iter("circle")] == ["xid"]
