# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health of a host's GPUs: whether a container has to prove that it reaches them, and what was found.

Private to this collection. Pure: the variables of the role, facts of the host, the verdict of the module gpu_health,
and what a container printed, which is of whoever made its image.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ....module_utils._common.errors import ChangeError
from ....module_utils._health.metrics import metrics
from ....module_utils._health.policy import FAIL, OK, WARN, Row, with_site_rows
from ....module_utils._health.readings import NAMES
from ....module_utils._health.run import policy_rows, refuse_kernel_log, refuse_vulnerabilities
from ....module_utils._health.table import TABLE
from ....module_utils._knowledge import vulnerabilities
from ....modules.gpu_health import ARGUMENT_SPEC
from ..._compatibility import CompatibilityError, check, read_request
from ..._health_reports import junit
from ..._planning.contract import Plan, RolePlanner
from ..._planning.variable_forms import form_refusals, shown
from ..._registry_failures import registry_failure
from ..gpu_containers.engines import DEVICE_REQUESTS, TOOLKIT_MODE, gpu_mode
from ..nvidia_container_toolkit.plan import against
from . import evidence

GPU_HEALTH = "gpu_health"
CONTAINER, JUDGE, REPORTS = "container", "judge", "reports"
"""Steps: prove by a container that it reaches the GPUs, run the module gpu_health, write its verdict to files."""
_DRIVER_VERSION = "nvidia_driver_version"
_EXPECTED_GPUS = "gpu_fleet_expected_gpus"
_EVIDENCE = ("gpu_fleet_evidence", "gpu_fleet_evidence_directory", "gpu_fleet_evidence_fetch_to")
_OPTIONS = ("policy", "ignore", "ignore_vulnerabilities", "tests", "pytorch_python", "kernel_log", "history")
"""Options of the module that are variables of the role, besides `expected`."""
_REFUSED: Mapping[str, Collection[str]] = {"never": (), FAIL: (FAIL,), WARN: (WARN, FAIL)}
_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-f-]+)")
_ADVICE = (
    'set gpu_health_container_image to one that this host can pull, or to "" for no container, or '
    "gpu_health_container_archive to a file on the host made with `docker save`"
)


@dataclass(frozen=True)
class Request:
    """What the variables of the role request.

    `modes` are how a container requests GPUs, of the role and of the container toolkit, `auto` where the next decides.
    `files` are where the verdict is written, by kind, empty for none; `options` are for the module gpu_health,
    `expected` what the role's own variable declares.
    """

    image: str
    archive: str
    modes: tuple[str, str]
    is_proved_each_run: bool
    accepted: Collection[str]
    fail_on: str
    files: Mapping[str, str]
    options: Mapping[str, Any]
    expected: Mapping[str, Any]

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables of the role; what other roles declare is declared for the verdict as well."""
        given = {name: variables[f"gpu_health_{name}"] for name in _OPTIONS}
        return cls(
            image=str(variables["gpu_health_container_image"] or ""),
            archive=str(variables["gpu_health_container_archive"] or ""),
            modes=(variables["gpu_health_container_mode"], variables.get(TOOLKIT_MODE, "auto")),
            is_proved_each_run=variables["gpu_health_container_proof"] != "after_change",
            accepted=given["ignore_vulnerabilities"],
            fail_on=str(variables["gpu_health_fail_on"]),
            files={name: str(variables[f"gpu_health_{name}"] or "") for name in ("json", "junit", "textfile")},
            options={"expected": _expected(variables), **given},
            expected=variables["gpu_health_expected"],
        )

    @property
    def refusals(self) -> tuple[str, ...]:
        """What is wrong with the variables."""
        return (
            *check_refusals(GPU_HEALTH, {**self.options, "expected": self.expected}),
            *path_refusals("gpu_health_textfile", self.files["textfile"]),
        )

    @property
    def reports(self) -> tuple[str, ...]:
        """The step that writes the verdict, where there are files for it."""
        return (REPORTS,) if any(self.files.values()) else ()


def _expected(variables: Mapping[str, Any]) -> dict[str, Any]:
    driver = variables.get(_DRIVER_VERSION)
    return {
        **({"gpu_count": variables[_EXPECTED_GPUS]} if _EXPECTED_GPUS in variables else {}),
        # The driver's variable may name a choice as well, such as the newest.
        **({"driver_version": driver} if re.match("[0-9]", str(driver)) else {}),
        **variables["gpu_health_expected"],
    }


def converted(option: str, value: Any) -> Any:
    """The value of an option as the module gpu_health converts it, without null. Raises ChangeError."""
    try:
        found = ArgumentSpecValidator({option: ARGUMENT_SPEC[option]}).validate({option: value})
    except TypeError:
        raise ChangeError(f"{option}: a value has another form than documented") from None
    if found.error_messages:
        raise ChangeError(f"{option}: {'; '.join(found.error_messages)}")
    return _without_null(found.validated_parameters[option])


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_null(item) for name, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


def rows_of(policy: Any) -> Sequence[Row]:
    """The health policy with a site's rows. Raises ChangeError for what the module would refuse of them."""
    return with_site_rows(TABLE, converted("policy", policy), NAMES)


def declared_refusals(role: str, declared: Mapping[str, Any]) -> Iterator[str]:
    """What the module would refuse of its options `expected` and `policy`, in words of the variables of a role."""
    for name, value in declared.items():
        forms = tuple(form_refusals(f"{role}_{name}", value, ARGUMENT_SPEC[name], converted=True))
        if forms:
            yield from forms
            continue
        try:
            (rows_of if name == "policy" else partial(converted, name))(value)
        except ChangeError as error:
            yield f"{role}_{error}"


def path_refusals(variable: str, path: str) -> Iterator[str]:
    """The refusal of a path on the host, where one is given: a relative one would be in some home directory."""
    if path and not path.startswith("/"):
        yield f"{variable} is {shown(path)}; it has to be an absolute path"


def check_refusals(role: str, options: Mapping[str, Any]) -> Iterator[str]:
    """What the module would refuse of its options; `role` is that with the variables of what a site declares."""
    yield from declared_refusals(role, {name: options[name] for name in ("expected", "policy")})
    yield from path_refusals(f"{role}_history", str(options.get("history") or ""))
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        (GPU_HEALTH, lambda: policy_rows((), [str(one) for one in options["ignore"]])),
        (GPU_HEALTH, lambda: refuse_vulnerabilities([str(one) for one in options.get("ignore_vulnerabilities", ())])),
        (role, lambda: refuse_kernel_log(str(options["kernel_log"]))),
    )
    for prefix, check_option in checks:
        try:
            check_option()
        except ChangeError as error:
            yield f"{prefix}_{error}"


@dataclass(frozen=True)
class Host:
    """The host. `smi` is the result of nvidia_smi_facts, `toolkit` and `dcgm` are versions."""

    smi: Mapping[str, Any]
    record: Mapping[str, Any] = field(default_factory=dict)
    toolkit: str = ""
    dcgm: str = ""
    specifications: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Host:
        """The host with these facts."""
        cuda = facts.get("cuda") or {}
        toolkit = cuda.get("container_toolkit") or {}
        version = re.search(r"[0-9]+([.][0-9]+){2}", str(toolkit.get("version")))
        return cls(
            smi=facts["nvidia_smi"],
            record=(facts.get("gpu_fleet_managed") or {}).get(GPU_HEALTH) or {},
            toolkit=version[0] if version else "",
            dcgm=str(((cuda.get("services") or {}).get("dcgm") or {}).get("version") or ""),
            specifications=tuple(sorted(one["path"] for one in toolkit.get("cdi_specifications") or ())),
        )

    @property
    def uuids(self) -> list[str]:
        """The UUIDs of the GPUs and of their MIG devices."""
        gpus = self.smi["gpus"]
        found = [*gpus, *(device for gpu in gpus for device in gpu.get("mig_devices") or ())]
        return [one["uuid"] for one in found if isinstance(one.get("uuid"), str)]

    @property
    def unusable(self) -> list[str]:
        """GPUs in MIG mode without an instance, which no container can use: CDI omits them."""
        return [
            str(gpu["uuid"])
            for gpu in self.smi["gpus"]
            if gpu.get("mig_mode_current") == "enabled" and not gpu.get("mig_devices")
        ]


@dataclass(frozen=True)
class Run:
    """What is known of the run. `facts_are_current`: no role has changed the host since they were read."""

    check_mode: bool = False
    facts_are_current: bool = True
    today: str = ""


# The plan


def plan(request: Request, host: Host, run: Run) -> Plan:
    """Whether a container is run and what the module gets.

    `proved` is what the last container saw, where that still holds: another driver or toolkit, other GPUs or MIG
    devices, another CDI specification, start of Docker, image or mode need another proof.
    """
    inputs = _inputs(request, host)
    holds = not request.is_proved_each_run and host.record.get("inputs") == inputs and not host.record.get("drift")
    # Even a short-lived container changes the host.
    is_possible = bool(request.image) and bool(host.smi["available"]) and not run.check_mode
    is_due = is_possible and not (holds and run.facts_are_current)
    return Plan(
        refusals=request.refusals,
        steps=(*((CONTAINER,) if is_due else ()), JUDGE, *request.reports),
        inputs=inputs,
        notes=(*_notes(host, run.today), *_vulnerable_dcgm(request, host.dcgm)),
        tasks={
            "options": request.options,
            # The engine's name of the image: without the default registry and namespace.
            "image_reference": re.sub(r"^docker[.]io/(library/)?", "", request.image),
            "specifications": host.specifications,
            "proved": (host.record.get("data") or {}).get("containers") if holds else None,
            "vulnerable": list(_vulnerable(request, host.toolkit)),
        },
    )


def judges_alone(found: Plan) -> bool:
    """Whether the module is all that there is to run, so that a playbook which observes a host can run it itself."""
    return found.steps == (JUDGE,) and found.tasks["options"]["tests"] == []


def _inputs(request: Request, host: Host) -> str:
    """A hash of what a proof holds for."""
    decisive = {
        "image": request.image,
        "mode": request.modes,
        "driver": host.smi.get("driver_version"),
        "toolkit": host.toolkit,
        "uuids": sorted(host.uuids),
        "cdi": host.specifications,
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _notes(host: Host, today: str) -> Sequence[str]:
    """No reasons against the host: the end of life of its driver's branch, MIG that its driver does not know."""
    driver = host.smi.get("driver_version")
    if not driver:
        return ()
    try:
        combination = {"gpus": host.smi.get("pci_gpus") or [], "driver": driver, "today": today or None}
        return check(read_request(combination)).notes
    except CompatibilityError:
        # Of a version in another form nothing is known.
        return ()


def _vulnerable_dcgm(request: Request, version: str) -> Iterator[str]:
    """Vulnerabilities of DCGM. Nothing of it lets a job take the host, so it is no reason against the host."""
    found = vulnerabilities.known(vulnerabilities.DCGM, version, accepted=request.accepted)
    if found.found:
        yield (
            f"DCGM {version} has known vulnerabilities (NVIDIA's security {found.text}); {found.fixed_in} and newer "
            "have none of them: update its packages, or accept them in gpu_health_ignore_vulnerabilities"
        )


def _vulnerable(request: Request, toolkit: str) -> Iterator[str]:
    """Vulnerabilities of the container toolkit, which containers of others reach."""
    found = against(toolkit, request.accepted)
    if found.found:
        yield (
            f"container toolkit {toolkit} has known vulnerabilities (NVIDIA's security {found.text}); "
            f"{found.fixed_in} and newer have none of them: set nvidia_container_toolkit_version and run the role "
            "gpu.fleet.nvidia_container_toolkit, or accept them in gpu_health_ignore_vulnerabilities"
        )


# The container


@dataclass(frozen=True)
class Proof:
    """What a container has shown. `reasons` are against the host; `unproved` is why no container could be run."""

    ran: bool = False
    worked: bool = False
    seen: Mapping[str, Any] = field(default_factory=lambda: dict.fromkeys(("gpus", "mig_devices", "mode", "proved")))
    reasons: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()


def proof(request: Request, host: Host, given: Mapping[str, Any], now: str) -> Proof:
    """What follows from the results of docker_host_info and of docker_container, which is skipped without an engine.

    `loaded` are the names of the images in the archive, where it was loaded.
    """
    engine, probe = given["engine"], given["probe"]
    if "host_info" not in engine:
        why = f"Docker cannot be queried: {engine.get('msg')}; start it, or run the role gpu.fleet.docker"
        return Proof(reasons=(why,))
    # A container that could not be started has no status.
    worked = probe.get("status", -1) == 0
    output = str((probe.get("container") or {}).get("Output") or "")
    if not worked:
        return _without_success(request, output, str(probe.get("msg") or ""), given["loaded"])
    uuids = _UUID.findall(output)
    seen = {
        "gpus": sum(one.startswith("GPU-") for one in uuids),
        "mig_devices": sum(one.startswith("MIG-") for one in uuids),
        "mode": gpu_mode(request.modes, engine),
        "proved": now,
    }
    return Proof(ran=True, worked=True, seen=seen, reasons=tuple(_differences(host, uuids)))


def _without_success(request: Request, output: str, message: str, loaded: Sequence[str]) -> Proof:
    text = (output or message).strip()
    # The last line of nvidia-smi, or the message in a response of Docker's API, without address and container.
    line = re.sub(r'^.* Error [(]"(.*)"[)]$', r"\1", text.splitlines()[-1]) if text else "no reason given"
    # An image that cannot be pulled is no reason against the GPUs. Only the engine's own message counts, not a
    # container's output.
    cause = "" if output else registry_failure(message)
    if not cause:
        return Proof(ran=True, reasons=(f"a container with all GPUs failed: {line}",))
    why = "no container was run, so there is no verdict about the GPUs"
    if loaded and request.image not in loaded:
        why += f": the archive {request.archive} has {', '.join(loaded)} and not the image {request.image}"
        return Proof(ran=True, unproved=(f"{why}; set gpu_health_container_image to an image of the archive",))
    why = f"{why}: {cause}"
    return Proof(ran=True, unproved=(f"{why}, and the image {request.image} was not pulled ({line}); {_ADVICE}",))


def _differences(host: Host, uuids: Collection[str]) -> Iterator[str]:
    missing = {*host.uuids} - {*uuids, *host.unusable}
    unknown = {*uuids} - {*host.uuids}
    if missing:
        yield f"a container with all GPUs does not see {', '.join(sorted(missing))}"
    if unknown:
        yield f"a container with all GPUs sees {', '.join(sorted(unknown))}, which the host does not have"


# The result


def judged(verdict: Mapping[str, Any], fail_on: str) -> dict[str, Any]:
    """The fact gpu_health_result by the module's verdict alone. An empty list of reasons means healthy."""
    reasons = [one["message"] for one in verdict["findings"] if one["verdict"] in _REFUSED[fail_on]]
    return {
        "ok": not reasons,
        "reasons": reasons,
        "unproved": [],
        "notes": [],
        "containers": dict.fromkeys(("gpus", "mig_devices", "mode")),
        **{name: verdict[name] for name in ("verdict", "remedy", "findings")},
    }


def result(
    request: Request, found: Mapping[str, Any], verdict: Mapping[str, Any], proved: Proof | None = None
) -> dict[str, Any]:
    """The fact gpu_health_result by the plan as tasks have it, the module's verdict and the proof, if one was due."""
    shown, by_module = proved or Proof(), judged(verdict, request.fail_on)
    reasons = [*by_module["reasons"], *shown.reasons, *found["vulnerable"]]
    return {
        **by_module,
        "ok": not reasons,
        "reasons": reasons,
        "unproved": list(shown.unproved),
        "notes": list(found["notes"]),
        "containers": found["proved"] if found["proved"] and not shown.ran else dict(shown.seen),
    }


def lines_of(health: Mapping[str, Any]) -> list[str]:
    """One line for each finding that is not ok."""
    return [one["message"] for one in health["findings"] if one["verdict"] != OK]


def has_report(health: Mapping[str, Any]) -> bool:
    """Whether a run has to report something of this gpu_health_result."""
    return bool(not health["ok"] or health["unproved"] or health["notes"] or lines_of(health))


def report(health: Mapping[str, Any], check_mode: bool, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a run prints about a result, and why the host is refused. Ansible begins it with a green ok."""
    lines, title = lines_of(health), f"{health['verdict']}, remedy {health['remedy']}:"
    # In check mode the driver may be still to be installed by this run.
    counts = not check_mode or (facts.get("nvidia_smi") or {}).get("available")
    return {
        "lines": [title, *lines] if lines else [],
        "unhealthy": f"{title} {'; '.join(lines)}",
        "notes": "; ".join(health["notes"]),
        "refusal": "; ".join((*health["reasons"], *health["unproved"])) if counts else "",
    }


def reports(request: Request, verdict: Mapping[str, Any], host: str) -> dict[str, list[dict[str, str]]]:
    """The files with the verdict, on the controller and on the host."""
    data = {name: item for name, item in verdict.items() if name not in ("failed", "warnings", "deprecations")}
    on_controller = {"json": json.dumps(data, indent=4, sort_keys=True) + "\n"} if request.files["json"] else {}
    if request.files["junit"]:
        on_controller["junit"] = junit(verdict, host, request.fail_on)
    endings = {"json": "json", "junit": "xml"}
    return {
        "on_controller": [
            {"path": f"{request.files[kind]}/{host}.{endings[kind]}", "content": content}
            for kind, content in on_controller.items()
        ],
        "on_host": [{"path": path, "content": metrics(verdict)} for path in (request.files["textfile"],) if path],
    }


# For the tasks


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """`facts_are_read` by the play, which may have changed the host since, unless it `is_converged`.

    `is_alone`: the verdict of the module alone, which needs no facts.
    """
    request = Request.read(variables)
    if given.get("is_alone"):
        return Plan(request.refusals, (JUDGE, *request.reports), tasks={"options": request.options})
    run = Run(
        check_mode=bool(given.get("check_mode")),
        facts_are_current=not given.get("facts_are_read") or bool(given.get("is_converged")),
        today=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    )
    return plan(request, Host.of(facts), run)


def _engine(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """How the container is run; `engine` is the result of docker_host_info with the images of this name."""
    request, engine = Request.read(variables), given["engine"]
    responds = "host_info" in engine
    return {
        "responds": responds,
        "loads_image": responds and bool(request.archive) and not engine.get("images"),
        "device_requests": [DEVICE_REQUESTS[gpu_mode(request.modes, engine)]],
    }


def _proof(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the container has shown. Also a failure is recorded, which must not leave an earlier proof."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = proof(Request.read(variables), Host.of(facts), given, now)
    return {"shown": asdict(found), "state": "present" if found.worked and not found.reasons else "absent"}


def _result(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The result by a plan, the verdict alone where it is, with its files and with what is printed about it.

    `proof` comes from an earlier run of the role where this one had no container.
    """
    request, planned, verdict = Request.read(variables), given["plan"], given["verdict"]
    proved = Proof(**given["proof"]["shown"]) if CONTAINER in planned["steps"] else None
    is_alone = "vulnerable" not in planned
    found = judged(verdict, request.fail_on) if is_alone else result(request, planned, verdict, proved)
    return {
        "health": found,
        "has_report": has_report(found),
        **report(found, given["check_mode"], facts),
        **reports(request, verdict, given["host"]),
    }


PLANNER = RolePlanner(
    "gpu_health",
    {
        "plan": _plan,
        "engine": _engine,
        "proof": _proof,
        "result": _result,
        "evidence": evidence.fetched,
    },
    others=(TOOLKIT_MODE, _DRIVER_VERSION, _EXPECTED_GPUS, *_EVIDENCE),
    reads=(*_EVIDENCE, "gpu_health_container_archive", "gpu_health_container_image", "gpu_health_kernel_log"),
    runs_by_default=True,
    is_removed=False,
    collections=("community.docker",),
)
