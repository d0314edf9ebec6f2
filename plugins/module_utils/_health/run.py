# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One check of the health of a host. Private to this collection."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from typing import Any, Mapping, Sequence

from .._common import resets
from .._common.errors import ChangeError
from .._common.host_files import HostFiles
from .._common.runner import run as run_program
from .._common.systemd import Systemd
from .._knowledge.vulnerabilities import acceptable
from .._nvidia_smi.facts import SUBSETS, FactsRequest, gather
from . import evidence as evidences
from . import history as histories
from . import observe
from .active_tests import not_run, run_tests
from .evaluate import Observed, Report, XidCount, evaluate, identity
from .evidence import Evidence
from .kernel_log_sources import AUTO, DMESG, JOURNAL, NONE, KernelLog, read_kernel_log
from .network import Before, PortHistory
from .network_sources import read_network
from .policy import OK, Row, with_site_rows
from .readings import NAMES, Facts
from .table import TABLE, rows_of
from .vulnerabilities import of_driver

SCHEMA_VERSION = 1
_SUBSETS = frozenset(SUBSETS) - {"supported_clocks", "topology", "vgpu"}
_SHOWN_CHANGES = 20
_SHOWN_ERRORS = 200


def gathered(params: Mapping[str, Any]) -> Facts:
    """The facts that a check is about."""
    return gather(FactsRequest(executable=params["executable"], subsets=_SUBSETS, timeout=params["timeout"]))


def run(
    params: Mapping[str, Any], check_mode: bool, now: float, root: str = "/", facts: Facts | None = None
) -> dict[str, Any]:
    """The result of the module; `root` is a path prefix for tests. Raises ChangeError for impossible options.

    `facts` are the result of `gathered`, where the caller needs them as well: nvidia-smi takes longest.
    """
    rows = policy_rows(params["policy"], params["ignore"])
    source, directory = params["kernel_log"], params["history"]
    refuse_vulnerabilities(params["ignore_vulnerabilities"])
    refuse_kernel_log(source)
    if directory and not directory.startswith("/"):
        raise ChangeError(f"history: {directory} is not an absolute path")
    if not params["evidence_directory"].startswith("/"):
        raise ChangeError(f"evidence_directory: {params['evidence_directory']} is not an absolute path")
    files = HostFiles(root)
    tests = params["tests"]
    facts = gathered(params) if facts is None else facts
    # Before the kernel log is read: what a test does to a GPU is in it.
    tested = (
        not_run(tests, "check mode runs no test")
        if check_mode
        else run_tests(tests, facts, run_program, params["pytorch_python"])
    )
    log = read_kernel_log(source, params["timeout"], files, run_program)
    known = histories.read(files.real(directory)) if directory else histories.History()
    if params.get("repaired"):
        if not directory:
            raise ChangeError("repaired: it is kept in the history, and history is empty")
        known = known.repaired_at(now)
    units = observe.units(Systemd())
    declared, boot = observe.declared(params["expected"] or {}, files), observe.boot_id(files)
    network, nic_ports = read_network(facts, files, Before(known.ports, boot, now), declared.nic_count)
    observed = Observed(
        facts=facts,
        declared=declared,
        log=log,
        history=known,
        host={
            **observe.host_messages(facts, log, files, units, run_program),
            "driver_vulnerable": of_driver(facts["driver_version"], params["ignore_vulnerabilities"]),
            **network,
        },
        ports=observe.ports(facts, files),
        slot_lanes=observe.slot_lanes(facts, files),
        resets=resets.known((gpu["uuid"] for gpu in facts["gpus"] if gpu["uuid"]), now),
        fabric_manager=observe.fabric_manager_started(units, log.boot_time, now),
        boot=boot,
        now=now,
        tested=tested,
    )
    report = evaluate(rows, observed)
    warnings = []
    if directory:
        known = _after(known, observed, report, nic_ports)
        if not check_mode:
            try:
                histories.write(files.real(directory), known)
            # ValueError: a path with a character that no path has.
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                warnings.append(f"history: {os.path.join(directory, histories.FILE)}: {reason}")
    result = as_result(observed, report, known)
    evidence = Evidence()
    if not check_mode and evidences.is_due(params["evidence"], report.findings):
        evidence = _collected(result, observed, root, params["evidence_directory"])
        warnings += evidence.notes
    return {**result, "evidence": asdict(evidence), "warnings": warnings}


def _collected(result: Mapping[str, Any], observed: Observed, root: str, directory: str) -> Evidence:
    """The verdict, the facts, the kernel log and the driver's own report in files."""
    documents = {
        "health.json": json.dumps(result, indent=1) + "\n",
        "facts.json": json.dumps(observed.facts, indent=1, default=str) + "\n",
        "kernel.log": "".join(f"{line}\n" for line in observed.log.lines),
    }
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(observed.now))
    return evidences.Collection(name, documents, run_program, directory.rstrip("/"), root.rstrip("/")).collect()


def policy_rows(policy: Sequence[Mapping[str, Any]], ignore: Sequence[str]) -> tuple[Row, ...]:
    """The table with the site's rows; the rows about problems that it ignores are `ok`. Raises ChangeError."""
    known = {row.id for row in TABLE}
    unknown = [problem for problem in ignore if not known.issuperset(rows_of(problem))]
    if unknown:
        raise ChangeError(f"ignore: {', '.join(unknown)}: no row of the policy is about it; see the codes in unhealthy")
    accepted = dict.fromkeys(row for problem in ignore for row in rows_of(problem))
    ignored = [{"id": row, "verdict": OK, "remedy": "none"} for row in accepted]
    return with_site_rows(TABLE, [*policy, *ignored], NAMES)


def refuse_vulnerabilities(names: Sequence[str]) -> None:
    """Raises ChangeError for what is neither a vulnerability nor a bulletin of the table."""
    wrong = [name for name in names if name not in acceptable()]
    if wrong:
        raise ChangeError(
            f"ignore_vulnerabilities: {', '.join(wrong)}: it takes names such as CVE-2026-24182 and numbers of "
            "NVIDIA's bulletins such as 5861, as the message of the health check has them"
        )


def refuse_kernel_log(source: str) -> None:
    """Raises ChangeError for what no kernel log is read from."""
    if source not in (AUTO, JOURNAL, DMESG, NONE) and not source.startswith("/"):
        raise ChangeError(f"kernel_log: {source} is neither auto, journal, dmesg, none nor an absolute path")


def _after(
    known: histories.History, observed: Observed, report: Report, nic_ports: Mapping[str, PortHistory]
) -> histories.History:
    listed = [gpu["uuid"] for gpu in observed.facts["gpus"] if gpu["uuid"]]
    lost = [finding.gpu for finding in report.findings if (finding.gpu or "").startswith("GPU-")]
    verdicts = {
        name: histories.Change(observed.now, report.verdict(name), report.remedy(name), report.rows(name))
        for name in dict.fromkeys((*listed, *lost))
    }
    count_is_declared = observed.declared.gpu_count is not None
    above: dict[str, tuple[str, ...]] = {}
    for port, gpus in observed.ports.items():
        above.update({gpu: (*above.get(gpu, ()), port) for gpu in gpus})
    return histories.updated(
        known,
        histories.Check(observed.now, observed.facts, verdicts, report.records, count_is_declared, above, nic_ports),
    )


def as_result(observed: Observed, report: Report, known: histories.History) -> dict[str, Any]:
    """The verdict as data."""
    return {
        "changed": False,
        "schema_version": SCHEMA_VERSION,
        "time": observe.utc(observed.now),
        "verdict": report.verdict(),
        "remedy": report.remedy(),
        "driver_version": observed.facts["driver_version"],
        "findings": [asdict(finding) for finding in report.findings],
        "gpus": _gpus(observed.facts, report, known),
        "tests": [{"name": name, "evidence": text} for name, text in observed.tested.evidence.items()],
        "kernel_log": _log(observed.log, report.xids),
        "changes": _changes(known),
        "error_history": _error_history(known),
        "repaired": observe.utc(known.repaired or None),
    }


def _gpus(facts: Facts, report: Report, known: histories.History) -> list[dict[str, Any]]:
    """All GPUs: those that nvidia-smi lists, then those that only the PCI bus or the kernel log has."""
    named = ((identity(gpu, facts, known), gpu) for gpu in facts["gpus"])
    listed = {report.names.get(name, name): gpu for name, gpu in named}
    others = dict.fromkeys(finding.gpu for finding in report.findings if finding.gpu not in (None, *listed))
    return [_gpu(name, listed.get(name, {}), known.gpu(name), report) for name in (*listed, *map(str, others))]


def _gpu(name: str, gpu: Facts, known: histories.GpuHistory, report: Report) -> dict[str, Any]:
    """One GPU; what it does not give itself is what an earlier check knew."""
    is_uuid = name.startswith("GPU-")
    return {
        "index": gpu.get("index"),
        "uuid": name if is_uuid else None,
        "serial": gpu.get("serial") or known.serial,
        "pci_bus_id": gpu.get("pci_bus_id") or (known.pci_bus_id if is_uuid or ":" not in name else name),
        "name": gpu.get("name") or known.name,
        "fabric_cluster_uuid": gpu.get("fabric_cluster_uuid"),
        "fabric_clique_id": gpu.get("fabric_clique_id"),
        "verdict": report.verdict(name),
        "remedy": report.remedy(name),
    }


def _log(log: KernelLog, xids: Sequence[XidCount]) -> dict[str, Any]:
    return {
        "source": log.source,
        "reason": log.reason,
        "complete": log.source is not None and log.is_complete,
        "boot_time": observe.utc(log.boot_time),
        "xids": [
            {
                **asdict(xid),
                "gpu_instances": list(xid.gpu_instances),
                "first_time": observe.utc(xid.first_time),
                "last_time": observe.utc(xid.last_time),
            }
            for xid in xids
        ],
    }


def _error_history(known: histories.History) -> list[dict[str, Any]]:
    """The newest errors, by GPU, kind and day."""
    events = histories.error_events(known)[:_SHOWN_ERRORS]
    return [{**asdict(event), "time": observe.utc(event.time)} for event in events]


def _changes(known: histories.History) -> list[dict[str, Any]]:
    """The newest changes of verdicts."""
    changes = [(change, name, gpu) for name, gpu in known.gpus.items() for change in gpu.changes]
    changes.sort(key=lambda item: item[0].time, reverse=True)
    return [
        {
            "gpu": name,
            "serial": gpu.serial,
            "time": observe.utc(change.time),
            "verdict": change.verdict,
            "remedy": change.remedy,
            "rows": list(change.rows),
        }
        for change, name, gpu in changes[:_SHOWN_CHANGES]
    ]
