# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another value of each variable of each role is work on a host that has what the variables requested before.

Unless the documentation of the variable has the sentence `RUN_ONLY`, both ways. Roles with a plan are converged by
their records, and have work as the playbook site finds it. gpu_state is converged by its module on simulated GPUs,
and predicts the change. Other roles look at the host in each run: there the tasks have the value, or a stage of the
planner that they carry out returns something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpu.fleet.plugins.action.role_plan import planned
from ansible_collections.gpu.fleet.plugins.module_utils._state.module import ARGUMENT_SPEC
from ansible_collections.gpu.fleet.plugins.module_utils._state.run import NO_EVIDENCE
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Needs, Plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import options_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import Preflight
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import PLANNERS, REPOSITORY_ROLE, WITH_PLAN
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import gpu_state, nvidia_repository
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers.engines import LABEL, ROLE

from tests.conftest import ROOT
from tests.unit.site.converged import CUDA, NVIDIA_SMI, PACKAGES
from tests.unit.site.known import check, read
from tests.unit.site.mock_host import MockHost
from tests.unit.site.test_refusals_both_ways import FIRST
from tests.unit.site.test_variables import FILES, NEEDED
from tests.unit.state.state_host import StateHost, in_this_process

RUN_ONLY = "Run-only; a new value alone is no work on a converged host."
SPECIFIED = sorted(path.parts[-3] for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
_GENERIC = {"int": 7, "str": "other", "path": "/srv/other", "list": ["other"], "dict": {"other": "1"}}
_URL, _SHA256, _OTHER_SHA256 = "https://mirror.example.com/", "5" * 64, "6" * 64
_ARTIFACT = {"url": f"{_URL}file.tar.gz", "sha256": _SHA256}
_OTHER_ARTIFACT = {**_ARTIFACT, "sha256": _OTHER_SHA256}
_KEYPAIR = {"backend_ai_agent_manager_public_key": "public", "backend_ai_agent_keypair": "pair"}
_ETCD = {"backend_ai_agent_etcd_user": "agent", "backend_ai_agent_etcd_password": "secret"}
_CONTAINER = {"gpu_containers_declared": [{"name": "notebook", "image": "torch:1", "gpus": "all"}]}
_OTHER_CONTAINER = {"gpu_containers_declared": [{"name": "training", "image": "torch:1", "gpus": "all"}]}
_TEST = {"gpu_workload_tests": [{"framework": "pytorch", "image": "torch:1", "gpus": [0]}]}
_PERSISTENT = {"gpu_state_persistence_mode": True}
_LAYOUTS = {"gpu_state_reset": "if_required", "gpu_state_mig_layouts": {"half": [{"profiles": {"3g.71gb": 1}}]}}
_SLICED = {"kubernetes_node_time_slicing": {"nvidia.com/gpu": 2}}
_MPS = {"kubernetes_node_mps": {"nvidia.com/gpu": 2}}
_HEARD = {
    "host": "gpu1",
    "hosts": ["gpu1"],
    "announced": [{"stdout": "FAIL: Xid 79; remedy reboot"}],
    "clusters": [{"cluster": []}],
    "found": [{"resources": [{"metadata": {"name": "gpu1"}}]}],
    "nodes": {"resources": [{"metadata": {"name": "gpu1"}}]},
}
_DRA = {"kubernetes_node_gpus_by": "dra_driver"}
_INSTALLER = {"installer": r"C:\driver.exe", "checksum": _SHA256}
_COUNTER = {"field": "DCGM_FI_DEV_GPU_TEMP", "type": "gauge", "help": "Temperature."}
_ROW = {"id": "hot", "reading": "temperature_memory_c", "operator": "above", "value": 90, "verdict": "warn"}
_LOCAL = [{"source": "/srv/one.deb", "sha256": _SHA256}]
CASES: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "backend_ai_agent_container_ports": ([31000, 32000], {}),
    "backend_ai_agent_etcd_addresses": (["etcd2:2379"], {}),
    "backend_ai_agent_etcd_password": ("other", _ETCD),
    "backend_ai_agent_etcd_user": ("other", _ETCD),
    "backend_ai_agent_keypair": ("other", _KEYPAIR),
    "backend_ai_agent_manager_public_key": ("other", _KEYPAIR),
    "backend_ai_agent_plugins": ([], {}),
    "backend_ai_agent_rpc_port": (6101, {}),
    "backend_ai_agent_service_port": (6103, {}),
    "backend_ai_agent_settings": ({"agent": {"region": "other"}}, {}),
    "backend_ai_agent_slots": ({"cuda.device": 9}, {}),
    "backend_ai_agent_version": ("26.9.7", {}),
    "cuda_components": (["compiler"], {}),
    "cuda_default": ("12.9", {"cuda_versions": ["12.9", "13.0"]}),
    "cuda_runfiles": ({"13.0": _OTHER_ARTIFACT}, {"cuda_source": "runfile", "cuda_runfiles": {"13.0": _ARTIFACT}}),
    "cuda_versions": (["12.9"], {}),
    "cudnn_additional_libraries": ([{"library": "nccl", "version": "2.28.3", "cuda": "13.0"}], {}),
    "cudnn_versions": ([{"version": "9", "cuda": "12"}], {}),
    "docker_daemon_options": ({"debug": True}, {}),
    "docker_image_exports": ([{"image": "alpine:3", "path": "/srv/alpine.tar"}], {}),
    "docker_images": ([{"name": "alpine:3"}], {}),
    "docker_proxy": ({"https": "http://proxy.example.com:3128"}, {}),
    "docker_purge": (True, {"docker_state": "absent"}),
    "docker_registries": ([{"registry": "nvcr.io", "password": "key"}], {}),
    "docker_repository_key_fingerprint": ("A" * 40, {}),
    "docker_repository_key_url": (f"{_URL}key.asc", {}),
    "docker_repository_url": (_URL, {}),
    "docker_version": ("28.5", {}),
    "enroot_hooks": (["50-slurm-pmi.sh"], {}),
    "enroot_packages": ([_OTHER_ARTIFACT], {"enroot_packages": [_ARTIFACT]}),
    "enroot_pyxis": (_ARTIFACT, {}),
    "enroot_pyxis_options": ({"container_scope": "job"}, {"enroot_pyxis": _ARTIFACT}),
    "enroot_settings": ({"ENROOT_DATA_PATH": "/scratch"}, {}),
    "enroot_slurm_config_directory": ("/srv/slurm", {"enroot_pyxis": _ARTIFACT}),
    "enroot_slurm_directory": ("/opt/slurm", {"enroot_pyxis": _ARTIFACT}),
    "gpu_containers_adopt": (["notebook"], _CONTAINER),
    "gpu_containers_declared": ([], _CONTAINER),
    "gpu_containers_mode": ("legacy", _OTHER_CONTAINER),
    "gpu_health_expected": ({"gpu_count": 8}, {}),
    "gpu_health_history": ("/srv/other", {}),
    "gpu_health_ignore_vulnerabilities": (["5861"], {}),
    "gpu_health_kernel_log": ("none", {}),
    "gpu_health_policy": ([_ROW], {}),
    "gpu_health_textfile": ("/srv/other.prom", {}),
    "gpu_monitoring_expected": ({"gpu_count": 8}, {}),
    "gpu_monitoring_history": ("/srv/other", {}),
    "gpu_monitoring_interval": (77, {}),
    "gpu_monitoring_kernel_log": ("none", {}),
    "gpu_monitoring_max_drained": ("5", {}),
    "gpu_monitoring_policy": ([_ROW], {}),
    "gpu_monitoring_textfile": ("/srv/other.prom", {}),
    "gpu_state_accounting_mode": (True, {}),
    "gpu_state_boot_timeout": (900, _PERSISTENT),
    "gpu_state_cdi_specification": ("/srv/nvidia.yaml", _PERSISTENT),
    "gpu_state_clients": (["jobs.service"], {"gpu_state_mps": {"active_thread_percentage": 50}}),
    "gpu_state_compute_mode": ("exclusive_process", {}),
    "gpu_state_ecc": (False, {}),
    "gpu_state_gpu_clocks": ("1000-1500", {}),
    "gpu_state_gpus": (["all"], {**_PERSISTENT, "gpu_state_gpus": ["0"]}),
    "gpu_state_memory_clocks": ("2201-2619", {}),
    "gpu_state_mig": ("half", _LAYOUTS),
    "gpu_state_mig_layouts": ({"half": [{"profiles": {"3g.71gb": 2}}]}, {**_LAYOUTS, "gpu_state_mig": "half"}),
    "gpu_state_mps": ({"active_thread_percentage": 50}, {}),
    "gpu_state_on_unsupported": ("skip", _PERSISTENT),
    "gpu_state_power_limit": ("500", {}),
    "gpu_state_reboot": ("if_required", _PERSISTENT),
    "gpu_state_reset": ("if_required", _PERSISTENT),
    "gpu_state_state": ("absent", _PERSISTENT),
    "gpu_workload_container_mode": ("legacy", _TEST),
    "gpu_workload_state": ("absent", _TEST),
    "gpu_workload_tests": ([], _TEST),
    "gpu_workload_timeout": (7, _TEST),
    "kubernetes_node_device_list_strategy": ("cdi-annotations", {}),
    "kubernetes_node_dra_driver_image": ("other", _DRA),
    "kubernetes_node_dra_driver_sharing": (["time_slicing"], _DRA),
    "kubernetes_node_dra_driver_version": ("v9.9.9", _DRA),
    "kubernetes_node_mig_strategy": ("mixed", {}),
    "kubernetes_node_mps": ({"nvidia.com/gpu": 2}, {}),
    "kubernetes_node_mps_fail_requests_greater_than_one": (False, _MPS),
    "kubernetes_node_mps_rename": (True, _MPS),
    "kubernetes_node_taint": ("nvidia.com/gpu=present:NoSchedule", {}),
    "kubernetes_node_taint_unhealthy": (True, {"kubernetes_node_apply": True}),
    "kubernetes_node_taint_unhealthy_max": ("0", {}),
    "kubernetes_node_time_slicing": ({"nvidia.com/gpu": 2}, {}),
    "kubernetes_node_time_slicing_fail_requests_greater_than_one": (False, _SLICED),
    "kubernetes_node_time_slicing_rename": (True, _SLICED),
    "nvidia_container_toolkit_mode": ("legacy", {}),
    "nvidia_container_toolkit_runtimes": (["docker", "containerd"], {}),
    "nvidia_container_toolkit_version": ("1.19.1", {}),
    "nvidia_dcgm_exporter": (True, {}),
    "nvidia_dcgm_exporter_address": (":9400", {"nvidia_dcgm_exporter": True}),
    "nvidia_dcgm_exporter_counters": ([_COUNTER], {"nvidia_dcgm_exporter": True}),
    "nvidia_dcgm_exporter_version": ("4.8.2", {"nvidia_dcgm_exporter": True}),
    "nvidia_dcgm_version": ("4.5.3", {}),
    "nvidia_driver_debian_mirror": (_URL, {}),
    "nvidia_driver_epel_fingerprint": ("5" * 40, {}),
    "nvidia_driver_epel_key_url": (_URL, {}),
    "nvidia_driver_epel_url": (_URL, {}),
    "nvidia_driver_imex_address": ("10.0.0.3", {"nvidia_driver_imex": "present"}),
    "nvidia_driver_imex_settings": ({"SERVER_PORT": 50001}, {}),
    "nvidia_driver_module_options": ({"NVreg_EnableGpuFirmware": 0}, {}),
    "nvidia_driver_secure_boot": (
        "enroll",
        {"nvidia_driver_mok_key": "/etc/mok/key.priv", "nvidia_driver_mok_certificate": "/etc/mok/key.der"},
    ),
    "nvidia_driver_version": ("580", {}),
    "nvidia_repository_attempts": (2, {}),
    "nvidia_repository_local": (
        [{"source": "/srv/other.deb", "sha256": _OTHER_SHA256}],
        {"nvidia_repository_repositories": ["local"], "nvidia_repository_local": _LOCAL},
    ),
    "nvidia_repository_repositories": (["container_toolkit"], {}),
    **{
        f"nvidia_repository_{name}": ({"url": _URL}, {"nvidia_repository_repositories": [name]})
        for name in ("cuda", "container_toolkit", "graphics_drivers")
    },
    "slurm_gres_directory": ("/opt/slurm", {}),
    "slurm_gres_types": ({"NVIDIA H200": "h200"}, {}),
    "windows_gpu_cuda": ({**_INSTALLER, "version": "12.9", "components": ["nvcc"]}, {}),
    "windows_gpu_cudnn": ({**_INSTALLER, "version": "9.12.0"}, {}),
    "windows_gpu_downgrade": (True, {"windows_gpu_driver": {**_INSTALLER, "version": "572.13"}}),
    "windows_gpu_driver": ({**_INSTALLER, "version": "581.15"}, {}),
    "windows_gpu_reboot": ("if_required", {"windows_gpu_driver": {**_INSTALLER, "version": "580.88"}}),
}
"""Another value than before, and what else is requested before and after: of variables that take particular values."""

UNRECORDED = {"nvidia_driver_replace_unmanaged"}
"""Variables that count on a host with what the role has not installed."""


def variables_around(role: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The variables before the change of one of the role, or of the repository that it adds, and after it."""
    specs = {**options_of(REPOSITORY_ROLE), **options_of(role)}
    spec = specs[name]
    kind = spec.get("type", "str")
    if name in CASES:
        value, others = CASES[name]
    elif "choices" in spec:
        choice = next(one for one in spec["choices"] if one not in (spec["default"], "auto"))
        value, others = [choice] if kind == "list" else choice, {}
    else:
        value, others = not spec.get("default") if kind == "bool" else _GENERIC[kind], {}
    before = {**{one: spec.get("default") for one, spec in specs.items()}, **NEEDED, **others}
    assert value != before[name]
    return before, {**before, name: value}


def facts_with(
    inputs: Mapping[str, str], data: Mapping[str, Any] | None = None, packages: Mapping[str, str] = PACKAGES
) -> dict[str, Any]:
    """The facts of a host with these records, each with its inputs."""
    data = data or {}
    records = {name: {"inputs": text, "data": data.get(name, {}), "drift": []} for name, text in inputs.items()}
    host = MockHost(nvidia_smi=NVIDIA_SMI, cuda=CUDA, packages={**packages, "containerd": "1.6.20"}, records=records)
    facts = host.modules()["host_facts"]["ansible_facts"]
    return {name.removeprefix("ansible_"): value for name, value in facts.items()}


# Roles with a plan, and the repository that some of them add


def _repositories(variables: Mapping[str, Any], facts: Mapping[str, Any], *names: str) -> dict[str, Plan]:
    """The plans of repositories by their records: of those that are requested, or of these."""
    host = nvidia_repository.Host.of(facts)
    return {
        f"{REPOSITORY_ROLE}.{name}": nvidia_repository.plan(
            nvidia_repository.Request.read(variables, name), host, FILES.tables.keys
        )
        for name in names or variables["nvidia_repository_repositories"]
    }


def is_work_by_the_repositories(name: str) -> bool:
    before, after = variables_around(REPOSITORY_ROLE, name)
    inputs = {record: plan.inputs for record, plan in _repositories(before, facts_with({})).items()}
    facts = facts_with(inputs)
    assert not any(plan.has_work for plan in _repositories(before, facts).values())
    return any(plan.has_work for plan in _repositories(after, facts).values())


def _planned(role: str, variables: Mapping[str, Any], facts: Mapping[str, Any]) -> Preflight:
    return check([role], variables, {"ansible_facts": facts, "missing_users": [], "gpu_operator": {}})


def is_work_by_the_plan(role: str, name: str) -> bool:
    before, after = variables_around(role, name)
    facts = facts_with({}, packages={}) if before[f"{role}_state"] == "absent" else _converged(role, name, before)

    def work(variables: Mapping[str, Any]) -> list[str]:
        known = {**facts, **_domain(variables)}
        found = _planned(role, variables, known)
        assert found.plans[role].refusals == ()
        return list(found.work)

    assert work(before) == []
    return work(after) == [role]


def _domain(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The addresses of an NVLink domain, of which the host's own is a variable, as host_facts reads them."""
    return {"imex_domain": ["10.0.0.2", str(variables.get("nvidia_driver_imex_address"))]}


def _converged(role: str, name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a host on which the role has run."""
    facts = facts_with({})
    inputs = {role: _planned(role, variables, {**facts, **_domain(variables)}).plans[role].inputs}
    needed = {**variables, "nvidia_repository_needed_by": role}
    repositories = _repositories(needed, facts, "cuda", "container_toolkit")
    inputs |= {record: plan.inputs for record, plan in repositories.items()}
    if name in UNRECORDED:
        del inputs[role]
    return facts_with(inputs, data={record: {"needed_by": [role]} for record in repositories})


# The GPUs


def is_work_by_prediction(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    before, after = (_options(variables) for variables in variables_around("gpu_state", name))
    root.mkdir()
    host = StateHost.with_gpus(root, "h200", "h200")
    host.install_mps()
    with in_this_process(monkeypatch, host):
        # The action has had gpu_health keep the evidence.
        first = host.state_run(**{**before, "evidence_kept": NO_EVIDENCE})
        again, changed = (host.state_run(check=True, **one) for one in (before, after))
    assert (first.error, again.error, changed.error, again.result["changed"]) == (None, None, None, False)
    return bool(changed.result["changed"])


def _options(variables: Mapping[str, Any]) -> dict[str, Any]:
    """What the module gets of Ansible."""
    request = gpu_state.Request.read(variables)
    given = {name: value for name, value in gpu_state.options(request, gpu_state.Run()).items() if value is not None}
    validated = ArgumentSpecValidator(ARGUMENT_SPEC).validate(given)
    assert (request.refusals, validated.error_messages) == ((), [])
    options: dict[str, Any] = validated.validated_parameters
    return options


# Roles that look at the host in each run


_ENGINE = {
    "host_info": {"Runtimes": {"nvidia": {}}, "ServerVersion": "28.5.1", "CDISpecDirs": ["/etc/cdi"]},
    "images": [],
    "containers": [{"Names": ["/notebook"], "State": "running", "Labels": {LABEL: ROLE}, "Id": "1f2e"}],
}
_FINDING = {"verdict": "fail", "message": "a GPU is lost", "row": "gpu_lost", "gpu": None, "remedy": "none"}
_VERDICT = {
    **{"verdict": "fail", "remedy": "none", "driver_version": "580.95.05", "time": "2026-11-28T10:00:00Z"},
    **{"gpus": [], "kernel_log": {"xids": []}, "findings": [_FINDING]},
}
_LOG = (ROOT / "tests/unit/backend_ai/fixtures/26.9.6/started_without_cuda.txt").read_text()
_GPU = {**NVIDIA_SMI["gpus"][0], "minor_number": 0, "pci_bus_id": "00000000:18:00.0"}
_DEVICES = [r"PCI\VEN_10DE&DEV_26B9&SUBSYS_185110DE&REV_A1\4&1B2C&0&0008"]
STAGES: Mapping[str, Mapping[str, Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]]] = {
    "backend_ai_agent": {
        "plan": {"check_mode": False, "sessions": {"rc": 0}},
        "secrets": {"present": {}, "check_mode": False},
        "reported": {"log": {"stdout": _LOG}, "health": {"status": 200}},
    },
    "enroot": {
        "plan": {"check_mode": True},
        "plugin": {"files": {"results": [{}, {}, {}]}, "check_mode": True},
    },
    "gpu_containers": {
        "plan": {},
        "host": {"docker": _ENGINE, "check_mode": False},
        "containers": {"docker": _ENGINE, "check_mode": False, "new_tokens": {}},
    },
    "gpu_health": {
        "plan": {},
        "engine": {"engine": _ENGINE},
        "result": lambda done: {
            **{"plan": done["plan"].as_dict(), "proof": {"shown": {}}, "verdict": _VERDICT, "host": "gpu1"},
            "check_mode": False,
        },
    },
    "gpu_monitoring": {"plan": {}, "prometheus": {"dashboard": "{}"}},
    "gpu_workload": {"plan": {"check_mode": False, "engine": _ENGINE, "existing": {"results": []}}},
    "kubernetes_node": {
        **{"request": {"host": "gpu1"}, "cluster": {}, "cap": _HEARD},
        "plan": {"gpus": {}, "managed": {"gpu_operator": {}}, "record": {}},
    },
    "slurm_gres": {
        "plan": FIRST["slurm_gres"][1],
        "changes": {
            **{"planned": {"previous": None, "gres_conf": "", "slurm_conf": ""}, "check_mode": False},
            **{"restart": {"reason": "slurmd has not read it"}, "lines": []},
        },
    },
    "windows_gpu": {
        "request": {},
        "plan": {
            **{"devices": {"output": _DEVICES}, "registry": {"value": "580.88"}},
            **{name: {} for name in ("smi", "nvcc", "headers")},
        },
    },
    # It has no planner: its tasks write the variables down.
    "gpu_simulator": {},
}
"""The stages that the tasks carry out, each with what the tasks have found."""


def is_work_by_the_tasks(role: str, name: str) -> bool:
    before, after = variables_around(role, name)
    if re.search(rf"(?<!\w){name}(?!\w)", _tasks(role)):
        return True
    # What the node is read for.
    if (
        role == "slurm_gres"
        and len({str(planned(role, "plan", one, facts_with({}), {})) for one in (before, after)}) > 1
    ):
        return True
    # gpu_health alone records what it was run for.
    facts = facts_with({role: _stages(role, before, facts_with({}))["plan"].inputs})
    found, changed = (_stages(role, variables, facts) for variables in (before, after))
    assert [
        changed[stage].refusals for stage in ("request", "plan") if stage in changed and changed[stage].refusals
    ] == []
    return found != changed


def _stages(role: str, variables: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    done: dict[str, Any] = {}
    needs = PLANNERS[role].needs(variables) if role in PLANNERS else Needs()
    readings = {"readings": read(needs)} if needs.as_dict() else {}
    known = {**facts, "nvidia_smi": {**facts["nvidia_smi"], "gpus": [_GPU]}} if role == "slurm_gres" else facts
    for stage, given in STAGES[role].items():
        done[stage] = planned(
            role, stage, variables, known, {**(given(done) if callable(given) else given), **readings}
        )
    return done


@cache
def _tasks(role: str) -> str:
    """The text of the role's files that Ansible evaluates."""
    directories = (ROOT / "roles" / role / name for name in ("tasks", "handlers", "templates", "vars"))
    return "".join(path.read_text(encoding="utf-8") for one in directories for path in one.rglob("*") if path.is_file())


def is_work(role: str, name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the role has work, on a host that it has set up, after a change of this variable alone."""
    if role == REPOSITORY_ROLE:
        return is_work_by_the_repositories(name)
    if role == "gpu_state":
        return is_work_by_prediction(name, root / name, monkeypatch)
    return is_work_by_the_plan(role, name) if role in WITH_PLAN else is_work_by_the_tasks(role, name)


def test_each_case_is_one_of_a_variable() -> None:
    assert {*CASES, *UNRECORDED} <= {name for role in SPECIFIED for name in options_of(role)}


@pytest.mark.parametrize("role", SPECIFIED)
def test_a_changed_value_of_each_variable_is_work(role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marked = {name for name, spec in options_of(role).items() if RUN_ONLY in spec["description"]}
    assert {name for name in options_of(role) if not is_work(role, name, tmp_path, monkeypatch)} == marked


WITH_REPOSITORY = [
    *((role, "cuda") for role in ("nvidia_driver", "cuda", "cudnn", "nvidia_dcgm")),
    ("nvidia_container_toolkit", "container_toolkit"),
]


@pytest.mark.parametrize(("role", "name"), WITH_REPOSITORY)
def test_so_is_one_of_the_repository_that_a_role_adds(role: str, name: str) -> None:
    assert is_work_by_the_plan(role, f"nvidia_repository_{name}")
    # What the role needs is not removed by the variable of others, and neither is another one added.
    assert not is_work_by_the_plan(role, "nvidia_repository_state")
    needed = {"state": "present", "repositories": [name], "needed_by": role}
    given = {"nvidia_repository_state": "absent", "nvidia_repository_repositories": ["local"]}
    variables = {**FILES.defaults([REPOSITORY_ROLE]), **given}
    (plan,) = _planned_for(variables, needed)
    assert (plan.tasks["name"], plan.tasks["needed_by"], plan.steps) == (name, [role], ("install",))
    assert plan == _planned_for({**variables, "nvidia_repository_state": "present"}, needed)[0]


def _planned_for(variables: Mapping[str, Any], needed: Mapping[str, Any]) -> list[Plan]:
    """The plans of the role of the repositories for a role that includes it."""
    plans = planned(REPOSITORY_ROLE, "plan", variables, facts_with({}), {"needed": needed})
    assert isinstance(plans, list)
    return plans


def test_a_role_that_includes_that_of_the_repositories_states_what_it_needs() -> None:
    found = [
        task
        for path in (ROOT / "roles").glob("*/tasks/**/*.yml")
        for task in _flat(yaml.safe_load(path.read_text(encoding="utf-8")) or [])
        if (task.get("ansible.builtin.include_role") or {}).get("name") == f"gpu.fleet.{REPOSITORY_ROLE}"
    ]
    assert len(found) >= 2 * len(WITH_REPOSITORY)
    assert all({*task["vars"]} == {"__nvidia_repository_needed"} for task in found)
    assert {task["vars"]["__nvidia_repository_needed"]["state"] for task in found} == {"present", "absent"}


def _flat(tasks: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from _flat(task.get(part, ()))
