# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of all-reduces over the hosts of a cluster, and which host the results blame."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.modules import fleet_acceptance
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.acceptance import (
    ALL,
    Acceptance,
    AcceptanceError,
    Links,
    Member,
    Options,
    bound,
    judge,
    parts,
    plan,
    read_member,
    read_options,
    read_run,
    read_tests,
    result_of,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.acceptance_matrix import as_svg

from tests.conftest import ROOT
from tests.torture.figures import chance
from tests.unit.site.converged import NVIDIA_SMI
from tests.unit.site.mock_host import MockHost, run_site

MIB = 2**20
OPTIONS = Options(size_mib=256, iterations=3)


def members(number: int, **options: Any) -> dict[str, Member]:
    names = [f"n{index:03}" for index in range(number)]
    return {name: Member(name, f"{name}.example.com", 8, options=Options(iterations=3, **options)) for name in names}


def printed(world: int, second: float = 0.01, **more: Any) -> dict[str, Any]:
    """What the program on a host prints, as the task that waits for it has it."""
    result = {"seconds": [second, 2 * second, second / 2], "wrong": 0, "bytes": 256 * MIB, "world": world, **more}
    return {"rc": 0, "finished": 1, "stdout": f"a warning of a library\n{json.dumps(result)}\n", "stderr": ""}


def accepted(
    cluster: dict[str, Member],
    slow: tuple[str, ...] = (),
    broken: dict[str, dict[str, Any]] | None = None,
    pairs: dict[frozenset[str], dict[str, Any]] | None = None,
) -> Acceptance:
    """A cluster whose pairs are as fast as the slower host, of which some return something else."""
    runs = []
    for each in plan(list(cluster.values())):
        for group in each.groups:
            world = 8 * len(group)
            seconds = 0.1 if {*slow} & {*group} else 0.01
            results = {name: printed(world, seconds) for name in group}
            faults = broken or {}
            if {*faults} & {*group}:
                results = {name: faults.get(name, failing("Connection reset by peer")) for name in group}
            if each.name != ALL and frozenset(group) in (pairs or {}):
                results = dict.fromkeys(group, (pairs or {})[frozenset(group)])
            runs.append(read_run(each.name, group, results, cluster))
    return judge(runs, cluster)


def failing(message: str, rc: int = 1) -> dict[str, Any]:
    return {"rc": rc, "finished": 1, "stdout": "", "stderr": f"Traceback\n{message}\n"}


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 7, 8, 17, 64, 100])
def test_each_host_has_other_partners_in_about_log2_rounds(number: int) -> None:
    cluster = members(number)
    *rounds, together = plan(list(cluster.values()))
    assert len(rounds) == (math.ceil(math.log2(number)) if number > 1 else 0)
    assert (together.name, together.groups) == (ALL, (tuple(cluster),))
    met = Counter(frozenset(group) for each in rounds for group in each.groups)
    assert max(met.values(), default=1) == 1
    for each in rounds:
        busy = [name for group in each.groups for name in group]
        assert len(busy) == len({*busy}) == number - number % 2
    if number > 2:
        assert {name for pair in met for name in pair} == {*cluster}


def test_the_processes_of_a_group_are_numbered_through() -> None:
    cluster = {"a": Member("a", "10.0.0.1", 8, options=OPTIONS), "b": Member("b", "10.0.0.2", 4, options=OPTIONS)}
    arguments = parts(("a", "b"), cluster)
    shared = [
        "timeout",
        "--kill-after=5",
        "305",
        "python3",
        "-",
        "--backend=nccl",
        "--master=10.0.0.1",
        "--interface=",
        "--port=29577",
    ]
    rest = ["--world=12", "--mib=256", "--iterations=3", "--timeout=300"]
    assert arguments["a"] == [*shared, "--first=0", "--processes=8", *rest]
    assert arguments["b"] == [*shared, "--first=8", "--processes=4", *rest]


def test_an_address_of_ipv6_is_written_as_in_a_url() -> None:
    cluster = {"a": Member("a", "fd00::1", options=OPTIONS), "b": Member("b", "fd00::2", options=OPTIONS)}
    assert "--master=[fd00::1]" in parts(("a", "b"), cluster)["b"]


@pytest.mark.parametrize("number", [1, 2, 3, 8, 33])
def test_a_sound_cluster_is_accepted_with_the_bus_bandwidth_of_nccl_tests(number: int) -> None:
    found = accepted(members(number))
    assert (found.problems, found.common) == ({}, ())
    assert found.message().startswith("accepted")
    world = 16
    expected = 2 * (world - 1) / world * 256 * MIB / 0.01 / 1e9
    if number > 1:
        assert found.median_gb_s == pytest.approx(expected)


@pytest.mark.parametrize("number", [4, 5, 8, 33])
def test_a_slow_host_is_named_and_its_partners_are_not(number: int) -> None:
    cluster = members(number)
    for name in cluster:
        found = accepted(cluster, slow=(name,))
        assert {*found.problems} == {name}, found.message()
        assert "its best pair has" in found.problems[name][0]


def test_several_slow_hosts_are_named() -> None:
    cluster = members(32)
    slow = ("n003", "n004", "n017")
    assert {*accepted(cluster, slow=slow).problems} == {*slow}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (failing("RuntimeError: NCCL error: unhandled system error"), "it failed: RuntimeError: NCCL error"),
        (failing("", rc=-14), "did not end within 300 s"),
        ({"finished": 0, "stdout": ""}, "did not end within 300 s"),
        (printed(16, wrong=2), "sums were wrong"),
        (None, "returned nothing"),
        ("text", "returned nothing"),
        ({"rc": 0, "stdout": ""}, "printed no result"),
        ({"rc": 0, "stdout": "[" * 100_000}, "printed no result"),
        ({"rc": 0, "stdout": "[1]"}, "printed no result"),
        (printed(16, wrong=True), "sums were wrong"),
        (printed(16, wrong="0"), "printed no result"),
        (printed(15), "another sum than requested"),
        (printed(16, bytes=1), "another sum than requested"),
        (printed(16, seconds=[1e-3] * 4), "another number of results"),
        (printed(16, seconds=[0.01, 0.01, -1]), "invalid number of seconds"),
        (printed(16, seconds=[0.01, 0.01, "x"]), "invalid number of seconds"),
        (printed(16, seconds=[0.01, 0.01, 10**400]), "invalid number of seconds"),
        # The bandwidth would be infinite.
        (printed(16, seconds=[5e-324] * 3), "invalid number of seconds"),
        (printed(16, bytes=10**400), "printed no result"),
        ({"rc": 10**400, "stdout": ""}, "it is not the result of a task: rc is a number, which nothing can have"),
        ({"rc": 1, "stderr": [["x"]]}, "it is not the result of a task: stderr is a list, not text"),
        ({"rc": 0, "stdout": json.dumps({"seconds": [math.nan] * 3, "wrong": 0})}, "invalid number of seconds"),
        (failing("x" * 100_000), "it failed: xxx"),
        (failing("\x1b[2Jcleared"), "it failed: "),
    ],
)
def test_a_host_that_returns_anything_else_is_blamed_and_no_other(result: Any, words: str) -> None:
    cluster = members(8)
    found = accepted(cluster, broken={"n005": result})
    assert {*found.problems} == {"n005"}, found.message()
    assert words in found.message() and "\x1b" not in found.message()
    assert len(found.message()) < 2_000


def test_a_pair_that_fails_is_between_two_sound_hosts() -> None:
    cluster = members(8)
    pair = plan(list(cluster.values()))[1].groups[0]
    found = accepted(cluster, pairs={frozenset(pair): failing("timed out")})
    assert {*found.problems} == {*pair}
    assert f"the pair with {pair[1]} failed, and other pairs of both did not" in found.problems[pair[0]][0]


def test_what_all_pairs_share_is_no_hosts_fault() -> None:
    cluster = members(6)
    missing = failing("ModuleNotFoundError: No module named 'torch'")
    found = accepted(cluster, broken=dict.fromkeys(cluster, missing))
    assert found.problems == {}
    assert "the cause is common" in found.message() and "No module named 'torch'" in found.message()


def test_all_together_may_fail_where_each_pair_is_right() -> None:
    cluster = members(4)
    runs = [
        read_run(
            each.name, group, dict.fromkeys(group, failing("no route") if each.name == ALL else printed(16)), cluster
        )
        for each in plan(list(cluster.values()))
        for group in each.groups
    ]
    found = judge(runs, cluster)
    assert not found.is_accepted
    assert "each pair of hosts has right sums, and all hosts together have none" in found.message()


def test_a_failed_run_is_never_accepted_and_each_refused_cluster_names_hosts_of_its_own() -> None:
    """Whoever failed and whoever lies: hosts fail by their reasons, so that without one the run would end with 0."""
    luck = chance("acceptance")
    for _case in range(500):
        cluster = members(luck.randint(1, 7))
        share, runs = luck.choice((0.0, 0.1, 0.5, 1.0)), []
        for each in plan(list(cluster.values())):
            for group in each.groups:
                good = printed(8 * len(group))
                results = {name: failing("no torch") if luck.random() < share else good for name in group}
                runs.append(read_run(each.name, group, results, cluster))
        found = judge(runs, cluster)
        assert found.is_accepted == all(run.is_right for run in runs), runs
        assert bool(found.as_dict()["reasons"]) != found.is_accepted, runs
        assert {*found.as_dict()["reasons"]} <= {*cluster}
        assert len(cluster) > 1 or "pair" not in found.message(), found.message()


def test_a_host_that_alone_has_no_result_is_blamed_alone() -> None:
    """A sum is that of all hosts or of none: where the others have it, this one has lost or hidden its own."""
    cluster = members(4)
    rounds = plan(list(cluster.values()))

    def judged(lost: str) -> Acceptance:
        runs = []
        for each in rounds:
            for group in each.groups:
                results: dict[str, Any] = dict.fromkeys(group, printed(8 * len(group)))
                results.update({"n002": None} if each.name == lost and "n002" in group else {})
                runs.append(read_run(each.name, group, results, cluster))
        return judge(runs, cluster)

    for each in rounds:
        found = judged(each.name)
        assert (found.common, [*found.problems]) == ((), ["n002"]), each.name
    # It is in each pair of three hosts.
    cluster = members(3)
    named = {name for each in plan(list(cluster.values())) for group in each.groups for name in group}
    runs = [
        read_run(f"pairs {number}", (partner, "n002"), {partner: printed(16), "n002": {}}, cluster)
        for number, partner in enumerate(named - {"n002"})
    ]
    assert (judge(runs, cluster).common, [*judge(runs, cluster).problems]) == ((), ["n002"])
    pair = members(2)
    (run,) = [read_run("pairs 1", tuple(pair), {"n000": printed(16), "n001": None}, pair)]
    assert [*judge([run], pair).problems] == ["n001"]
    alone = members(1)
    found = judge([read_run(ALL, ("n000",), {"n000": failing("no torch")}, alone)], alone)
    assert found.problems == {"n000": ("its sums failed: n000: it failed: no torch",)}


def test_the_only_pair_of_two_hosts_blames_both() -> None:
    found = accepted(members(2), broken={"n001": failing("NCCL error")})
    assert {*found.problems} == {"n000", "n001"}


def test_a_host_that_has_begun_to_lie_is_a_problem() -> None:
    cluster = members(3)
    cluster["n001"] = replace(cluster["n001"], refusal="its facts are named as variables")
    found = judge([], cluster)
    assert dict(found.problems) == {"n001": ("its facts are named as variables",)}


def test_a_lost_host_is_a_problem() -> None:
    found = judge([], members(1), lost={"n009": "it could not be reached or read"})
    assert found.problems == {"n009": ("it could not be reached or read",)}


def test_the_least_bandwidth_is_held() -> None:
    found = accepted(members(4, minimum_gb_s=1000.0))
    assert len(found.problems) == 4
    assert "gpu_fleet_accept_minimum_gb_s is 1000" in found.message()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"backend": "mpi"}, "gpu_fleet_accept_backend is 'mpi'; it takes nccl or gloo"),
        ({"port": "80"}, "from 1024 to 65535"),
        ({"port": True}, "from 1024 to 65535"),
        ({"iterations": "many"}, "from 1 to 10000"),
        ({"slow_below": 80}, "a number from 0 to 1"),
        ({"slow_below": "nan"}, "a number from 0 to 1"),
        ({"address": "--help"}, "an address or a name"),
        ({"interface": "eth0; reboot"}, "names of network interfaces"),
        ({"python": ["python3"]}, "it takes text"),
    ],
)
def test_a_wrong_value_is_refused_by_its_variable(given: dict[str, Any], words: str) -> None:
    with pytest.raises(AcceptanceError) as raised:
        read_options({f"gpu_fleet_accept_{name}": value for name, value in given.items()})
    assert words in str(raised.value)


def test_values_of_a_command_line_are_read() -> None:
    given = {"gpu_fleet_accept_port": "29600", "gpu_fleet_accept_slow_below": "0.5"}
    assert read_options(given) == Options(port=29600, slow_below=0.5)


def test_gpus_in_use_and_split_ones_are_refused_by_name() -> None:
    gpus = [
        {"index": 0, "mig_mode_current": "disabled", "processes": [{"pid": 4242, "name": "python train.py"}]},
        {"index": 1, "mig_mode_current": "enabled", "processes": None},
    ]
    read = {"ansible_facts": {"nvidia_smi": {"gpus": gpus}}}
    member = read_member("a", read, "10.0.0.1", Options(iterations=3))
    with pytest.raises(AcceptanceError) as raised:
        plan([member])
    assert "a: its GPUs are in use: python train.py (4242), MIG on GPU 1" in str(raised.value)
    # The others run without it.
    assert [each.groups for each in plan([member, *members(2).values()])] == [(("n000", "n001"),)] * 2
    assert plan([read_member("a", read, "10.0.0.1", Options(backend="gloo"))])
    damaged: Any
    for damaged in ({"failed": True}, None, {"ansible_facts": {"nvidia_smi": {"gpus": [7]}}}, {"ansible_facts": []}):
        assert "cannot be read" in read_member("a", damaged, "10.0.0.1", Options()).refusal
    with pytest.raises(AcceptanceError):
        plan([read_member("a", {"ansible_facts": {"nvidia_smi": {"gpus": []}}}, "10.0.0.1", Options())])


# As nvidia-smi prints it on H200 and H100: 18 links of 26.562 GB/s in one direction. Generation 5 of PCIe, 16 lanes.
NVLINKS = [{"active": True, "speed_gb_per_second": 26.562, "remote_pci_bus_id": None} for _link in range(18)]


def board(number: int, **more: Any) -> list[dict[str, Any]]:
    """The GPUs of a host, as nvidia_smi_facts has them."""
    pcie = {"pci_link_gen_max": 5, "pci_link_width_current": 16}
    return [{"pci_bus_id": f"{index}", "nvlinks": NVLINKS, **pcie, **more} for index in range(number)]


def read_links(gpus: Any, nics: Any) -> Links:
    """The links of a host with these GPUs and adapters."""
    return read_member("a", {"ansible_facts": {"nvidia_smi": {"gpus": gpus}}}, "a", Options(), nics).links


def adapters(*rates: float | None, rdma: bool = True) -> dict[str, Any]:
    """What report_facts has of adapters of these rates in Gbit/s; None has no link."""
    return {"host": {"nics": [{"rdma": rdma, "up": rate is not None, "speed_gb_per_second": rate} for rate in rates]}}


def bridged(*others: str) -> list[dict[str, Any]]:
    return [{"active": True, "speed_gb_per_second": 25.0, "remote_pci_bus_id": other} for other in others]


@pytest.mark.parametrize(
    ("gpus", "nics", "gpu", "network"),
    [
        (board(8), adapters(*[400.0] * 8), 478.116, 400.0),
        # A port without a link, and adapters that the host itself uses.
        (board(8), adapters(*[400.0] * 7, None), 478.116, 350.0),
        (board(8), adapters(100.0, rdma=False), 478.116, 0.0),
        # Links that are down; a GPU of a lesser slot; cards, of which bridges connect some.
        (board(1, nvlinks=NVLINKS[:9]), None, 239.058, 0.0),
        ([*board(3, nvlinks=[]), *board(1, nvlinks=[], pci_link_width_current=8)], None, 31.504, 0.0),
        ([{**one, "nvlinks": bridged(str(int(one["pci_bus_id"]) ^ 1))} for one in board(4)], None, 63.008, 0.0),
        ([{**one, "nvlinks": bridged(str(int(one["pci_bus_id"]) ^ 1))} for one in board(2)], None, 25.0, 0.0),
    ],
)
def test_the_links_of_a_host(gpus: list[Any], nics: Any, gpu: float, network: float) -> None:
    found = read_links(gpus, nics)
    assert (round(found.gpu, 3), round(found.network, 3)) == (gpu, network)


@pytest.mark.parametrize(
    ("gpus", "nics", "wrong"),
    [
        ([7], None, "gpus[0] is 7, not a dictionary"),
        (board(1, nvlinks="x"), None, "gpus[0].nvlinks is 'x', not a list"),
        (board(1, pci_link_gen_max="5"), None, "gpus[0].pci_link_gen_max is '5', not a whole number"),
        (board(1, pci_link_width_current=10**400), None, "gpus[0].pci_link_width_current is a number, which nothing"),
        (board(1, nvlinks=[{**NVLINKS[0], "speed_gb_per_second": 10**400}]), None, "nvlinks[0].speed_gb_per_second is"),
        (
            board(1, nvlinks=[{**NVLINKS[0], "speed_gb_per_second": math.nan}]),
            None,
            "speed_gb_per_second is nan, which",
        ),
        (board(4000), None, "gpus has 4000 elements, more than 64"),
        (board(1), {"host": 1}, "it is 1, not a dictionary"),
        (board(1), adapters(10**400), "nics[0].speed_gb_per_second is a number, which nothing can have"),
    ],
)
def test_a_host_of_another_form_takes_no_part_and_the_others_are_planned(gpus: Any, nics: Any, wrong: str) -> None:
    liar = read_member("liar", {"ansible_facts": {"nvidia_smi": {"gpus": gpus}}}, "liar", OPTIONS, nics)
    assert (liar.gpus, liar.links) == (0, Links()) and wrong in liar.refusal
    others = list(members(4).values())
    assert plan([liar, *others]) == plan(others)


def test_the_slowest_link_bounds_a_run() -> None:
    fast, slow = (
        Member(name, name, 8, links=read_links(board(8), adapters(*[rate] * 8)))
        for name, rate in (("a", 400.0), ("b", 200.0))
    )
    assert bound([fast])[1] == "NVLink of a GPU, 478 GB/s"
    assert bound([fast, slow]) == (200.0, "8 adapters, 1600 Gbit/s")
    assert bound([fast, replace(slow, links=Links(gpu=478.0))]) == (0.0, "")
    # One GPU in a host has no NVLink to others, unless they are of one NVLink domain.
    assert bound([replace(fast, gpus=1)]) == (0.0, "")
    place = {"fabric_cluster_uuid": "1a7e1f0c-0000-4000-8000-0123456789ab", "fabric_clique_id": 2}
    trays = [Member(name, name, 4, links=read_links(board(4, **place), adapters(400.0))) for name in ("a", "b")]
    assert bound(trays)[1] == "NVLink of a GPU, 478 GB/s"
    apart = Member("c", "c", 4, links=read_links(board(4, **{**place, "fabric_clique_id": 3}), adapters(400.0)))
    assert bound([*trays, apart]) == (50.0, "1 adapters, 400 Gbit/s")


@pytest.mark.parametrize(
    ("rate", "part", "accepts"),
    # 256 MiB in 0.01 s over 16 GPUs are 50.3 GB/s.
    [(100.0, 0.5, True), (400.0, 0.5, False), (400.0, 0.1, True), (400.0, 0.0, True), (None, 0.5, True)],
)
def test_a_cluster_that_is_slow_for_its_links_has_a_common_cause(
    rate: float | None, part: float, accepts: bool
) -> None:
    links = read_links(board(8), adapters(*[rate] * 8))
    cluster = {name: replace(one, links=links) for name, one in members(4, expected_part=part).items()}
    found = accepted(cluster)
    assert found.is_accepted is accepts
    assert accepts or "all hosts are slow for their links" in found.common[0]
    assert accepts or "13 % of what the slowest link carries (8 adapters, 3200 Gbit/s)" in found.common[0]
    assert found.as_dict()["runs"][0]["bound_gb_s"] == (rate or 0.0)


def test_a_host_that_is_slow_for_its_links_is_named() -> None:
    cluster = members(6)
    rates = {name: 400.0 if name == "n002" else 100.0 for name in cluster}
    links = {name: read_links(board(8), adapters(*[rate] * 8)) for name, rate in rates.items()}
    cluster = {name: replace(one, links=links[name]) for name, one in cluster.items()}
    assert accepted(cluster).is_accepted, "its partners bound each of its pairs"
    # What was measured with two H100 of one host: 275 GB/s of 478 without sums in the switches; 27 GB/s without NVLink.
    one = {"a": Member("a", "a", 2, links=read_links(board(2), None), options=OPTIONS)}
    run = read_run(ALL, ("a",), {"a": printed(2, 256 * MIB / 275e9)}, one)
    assert (round(run.gb_s), judge([run], one).is_accepted) == (275, True)
    slow = read_run(ALL, ("a",), {"a": printed(2, 256 * MIB / 27e9)}, one)
    assert "6 % of what the slowest link carries (NVLink of a GPU, 478 GB/s)" in judge([slow], one).problems["a"][0]


def test_hosts_that_would_compute_different_sums_are_refused() -> None:
    with pytest.raises(AcceptanceError) as raised:
        plan([Member("a", "a", options=Options()), Member("b", "b", options=Options(size_mib=1))])
    assert "gpu_fleet_accept_size_mib is not the same on all hosts" in str(raised.value)


def test_the_result_of_a_round_that_a_host_does_not_have_is_none() -> None:
    end, failed = {"rc": 0}, {"failed": True, "msg": "not found"}
    given = (
        [[{}, end]],
        [[{}, end], [{}, end]],
        [0, [failed, {"skipped": True}]],
        [0, [end]],
        [0, "x"],
        None,
        {"1": 2},
    )
    assert [result_of(one, 1) for one in given] == [None, end, failed, None, None, None, None]


def test_the_picture_has_a_cell_for_each_pair_and_escapes_names() -> None:
    cluster = {f"<{name}>": replace(member, name=f"<{name}>") for name, member in members(4).items()}
    found = accepted(cluster, broken={"<n002>": failing("<script>")})
    root = ElementTree.fromstring(as_svg(found, [*cluster, "lost"]))
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 25
    assert sum("GB/s" in text for text in titles) == 4
    assert any("<script>" in text for text in titles)


def test_the_module_documents_what_the_verdict_has() -> None:
    documented = yaml.safe_load(fleet_acceptance.RETURN)
    found = accepted(members(3), broken={"n001": failing("NCCL error")}).as_dict()
    assert {*found} <= {*documented}
    assert {"rounds", "limit_s", "attempts", "json", "picture"} <= {*documented}
    assert {*documented["rounds"]["contains"]} == {"name", "text", "groups", "argv"}


# What the module gpu_health returns with tests; the row about a driver is no part of an acceptance.
TESTED: dict[str, Any] = {
    "verdict": "fail",
    "tests": [{"name": "nccl", "evidence": "average bus bandwidth 481.879 GB/s, 0 wrong values"}],
    "findings": [
        {"row": "driver_vulnerable", "verdict": "warn", "remedy": "none", "message": "the driver has vulnerabilities"}
    ],
}
BROKEN: tuple[Any, ...] = (1, [1], [[]], [{}], "x")
WRONG = {
    **TESTED["findings"][0],
    "row": "test_failed_on_host",
    "message": "nccl: 12 values of the all-reduce are wrong",
}


@pytest.mark.parametrize(
    ("result", "measured", "reasons"),
    [
        (TESTED, ["nccl"], []),
        ({**TESTED, "findings": [WRONG]}, ["nccl"], ["nccl: 12 values of the all-reduce are wrong"]),
        ({**TESTED, "tests": []}, [], ["nccl has no result"]),
        (None, [], ["its tests have no result: none was returned"]),
        ({"failed": True, "msg": "no\nnvidia-smi"}, [], ["its tests have no result: no nvidia-smi"]),
        *(({**TESTED, name: value}, [], None) for name in ("tests", "findings") for value in BROKEN),
        ({"tests": [{"name": [], "evidence": {}}], "findings": [{"row": "test_x", "message": []}]}, [], None),
    ],
)
def test_what_a_host_measures_alone(result: Any, measured: list[str], reasons: list[str] | None) -> None:
    found, wrong = read_tests(result, ["nccl"])
    assert [*found] == measured
    assert wrong == reasons if reasons is not None else wrong and "\n" not in "".join(wrong)


def test_a_host_whose_own_test_is_wrong_is_not_accepted_and_figures_are_reported() -> None:
    cluster = {
        name: replace(one, options=replace(one.options, tests=("nccl",) if name != "n000" else ()))
        for name, one in members(4).items()
    }
    runs = accepted(cluster).runs
    results = {**dict.fromkeys(cluster, TESTED), "n002": {**TESTED, "findings": [WRONG]}}
    assert judge(runs, cluster, tests=dict.fromkeys(cluster, TESTED)).is_accepted
    found = judge(runs, cluster, tests=results)
    assert found.problems == {"n002": ("nccl: 12 values of the all-reduce are wrong",)}
    assert {*found.as_dict()["tests"]} == {"n001", "n002", "n003"}


@pytest.mark.parametrize("value", ["nccl", ["mpi"], [["nccl"]], {"nccl": 1}, [1]])
def test_tests_are_a_list_of_their_names(value: object) -> None:
    with pytest.raises(AcceptanceError, match="it takes a list of nccl and nvbandwidth"):
        read_options({"gpu_fleet_accept_tests": value})
    assert read_options({"gpu_fleet_accept_tests": ["nccl"]}).tests == ("nccl",)


@pytest.mark.plays
def test_the_playbook_runs_the_tests_of_a_host_and_reports_their_figures(tmp_path: Path) -> None:
    found = {"ansible_facts": {"nvidia_smi": NVIDIA_SMI}}
    mock = MockHost(results={"nvidia_smi_facts": found, "report_facts": {}, "gpu_health": TESTED})
    given = {"gpu_fleet_accept_dir": str(tmp_path / "report"), "gpu_fleet_accept_tests": ["nccl"]}
    log = tmp_path / "log"
    hosts = {"n1": (mock, given), "n2": (mock, {**given, "gpu_fleet_accept_tests": []})}
    done = run_site(
        tmp_path,
        hosts,
        playbook=ROOT / "playbooks" / "accept.yml",
        env={"GPU_FLEET_MOCK_LOG": str(log), "PATH": os.environ["PATH"]},
    )
    # The mock hosts have no PyTorch.
    assert done.rc != 0
    report = json.loads((tmp_path / "report" / "accept.json").read_text())
    assert report["tests"] == {"n1": {"nccl": TESTED["tests"][0]["evidence"]}}
    assert done.modules["n2"].count("gpu_health") == 0
    (arguments,) = (line.partition("\t")[2] for line in log.read_text().splitlines() if line.startswith("gpu_health\t"))
    assert (json.loads(arguments)["tests"], json.loads(arguments)["history"]) == (["nccl"], "")
