# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""agent.toml, packages and unit from variables, and what a real backend.ai-agent 26.9.6 prints.

fixtures/26.9.6: keys.json has the keys of the package's own model of agent.toml, by table; the rest is what the agent
printed with real etcd and Redis, over Podman's interface for Docker.
"""

from __future__ import annotations

import base64
import configparser
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Ask, Plan, command
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.backend_ai_agent import PLANNER, Request, failed_checks
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.backend_ai_agent import plan as plan_for

from tests.checks.tools import ROOT
from tests.unit.plays import run_play

tomllib = pytest.importorskip("tomllib")

FIXTURES = Path(__file__).parent / "fixtures" / "26.9.6"
ROLE = ROOT / "roles" / "backend_ai_agent"
DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
FIRST = next(
    task for task in yaml.safe_load((ROLE / "tasks" / "main.yml").read_text()) if "gpu.fleet.role_plan" in task
)
INSTALLED = {"gpu_fleet_managed": {"backend_ai_agent": {"data": {"home": True}}}}
NEEDED = {"version": "26.9.6", "etcd_addresses": ["etcd1:2379"], "address": "10.0.0.7"}
HOST: dict[str, Any] = {
    "python": "3.13.5",
    "docker": '{"runc": {}, "nvidia": {}}',
    "gpus": [{"index": 0}, {"index": 1}],
    "directory": False,
    "home": False,
    "recorded": {},
    "check_mode": False,
}
"""What is read on a host; docker is the output of its command."""
MIG = [{"index": 0, "mig_mode_current": "disabled"}, {"index": 1, "mig_mode_current": "enabled"}]
SECRETS: dict[str, Any] = {
    "etcd_user": "agent",
    "etcd_password": 'p"a\\ss\x7f',
    "manager_public_key": "public",
    "keypair": "pair",
}


def variables(**given: Any) -> dict[str, Any]:
    """All variables of the role, named without its prefix."""
    named = {f"backend_ai_agent_{name}": value for name, value in {**NEEDED, **given}.items()}
    assert named.keys() <= DEFAULTS.keys()
    return {**DEFAULTS, **named}


def facts(gpus: list[dict[str, Any]], recorded: dict[str, Any]) -> dict[str, Any]:
    """Facts of a host with these GPUs, and with what the last run has recorded."""
    record = {"backend_ai_agent": {"data": recorded}} if recorded else {}
    return {"nvidia_smi": {"gpus": gpus}, "gpu_fleet_managed": record}


def stage(name: str, given: dict[str, Any], of: dict[str, Any], known: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a stage returns to the tasks for the variables `of`."""
    found = PLANNER.stages[name](variables(**of), known or {}, given)
    if isinstance(found, Plan):
        return found.as_dict()
    assert isinstance(found, dict)
    return found


def plan(**given: Any) -> dict[str, Any]:
    """The plan of a host that has nothing."""
    return plan_for(Request.read(variables(**given)), {}).as_dict()


def secrets(content: str | None = None, check_mode: bool = False, **given: Any) -> dict[str, Any]:
    """The files that may have secrets; `content` is that of agent.toml."""
    present = {} if content is None else {"content": base64.b64encode(content.encode()).decode()}
    return stage("secrets", {"present": present, "check_mode": check_mode}, given)


def on_host(host: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    """The plan after a host was read."""
    read = {**HOST, **(host or {})}
    needed = PLANNER.needs(variables(**given))
    there = zip(needed.files, (read["directory"], read["home"]), strict=True)
    printed = zip(needed.commands, (read["python"], read["docker"]), strict=True)
    readings = {
        "files": {path: "" if exists else None for path, exists in there},
        "commands": [{"argv": [*argv], "stdout": text} for argv, text in printed],
    }
    results = {"readings": readings, "check_mode": read["check_mode"]}
    return stage("plan", results, given, facts(read["gpus"], read["recorded"]))


def configuration(**given: Any) -> dict[str, Any]:
    """agent.toml as it is read."""
    assert plan(**given)["refusals"] == []
    read: dict[str, Any] = tomllib.loads(secrets(**given)["configuration"])
    return read


PACKAGES = ["backend.ai-agent==26.9.6", "backend.ai-accelerator-cuda-open==26.9.6"]


def test_only_what_is_not_installed_is_missing() -> None:
    frozen = {"stdout_lines": ["attrs==25.3.0", PACKAGES[0], "backend.ai-accelerator-cuda-open==26.9.5"]}
    predicted = stage("installed", {"run": {}, "frozen": frozen, "check_mode": True}, {})
    assert (predicted["missing"], predicted["refusals"]) == (PACKAGES[1:], [])
    # In check mode there may be no pip.
    assert stage("installed", {"run": {}, "frozen": {"rc": 2}, "check_mode": True}, {})["missing"] == PACKAGES
    done = {"run": {"rc": 0}, "check_mode": False}
    (refusal,) = stage("installed", {**done, "frozen": frozen}, {})["refusals"]
    assert refusal.startswith("/opt/backend.ai lacks backend.ai-accelerator-cuda-open==26.9.6 after the installation")
    assert stage("installed", {**done, "frozen": {"stdout_lines": PACKAGES}}, {})["refusals"] == []
    asked = PLANNER.stages["installed"](variables(), {}, done)
    pip = "/opt/backend.ai/bin/pip"
    assert isinstance(asked, Ask)
    assert asked.readings == {"frozen": command(pip, "freeze", "--disable-pip-version-check")}


def test_pip_gets_the_requirements_with_hashes_or_the_packages() -> None:
    own = "--index-url 'https://index.example.com/a b/'"
    common = ["/opt/backend.ai/bin/pip", "install", "--disable-pip-version-check", "--no-input"]
    common += ["--index-url", "https://index.example.com/a b/"]
    assert plan(pip_arguments=own)["install"] == [*common, *PACKAGES]
    hashed = ["--require-hashes", "--requirement", "/etc/backend.ai/requirements.txt"]
    assert plan(pip_arguments=own, requirements="files/hashes.txt")["install"] == [*common, *hashed]


def test_why_pip_failed_is_stated_without_the_address_of_the_index() -> None:
    run = {"rc": 1, "stdout": "Looking in indexes: https://a:b@c", "stderr": "ERROR: No matching distribution found"}
    (refusal,) = stage("installed", {"run": run, "check_mode": False}, {})["refusals"]
    assert refusal == f"pip cannot install {', '.join(PACKAGES)}: No matching distribution found"
    (refusal,) = stage("installed", {"run": {"rc": 2, "msg": "no such file"}, "check_mode": False}, {})["refusals"]
    assert refusal.endswith(": no such file")


ADDRESS = "http://reader:s3cret@127.0.0.1:{port}/simple"


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("--index-url={0} --pre", {"index-url": ["{0}"]}),
        ("--pre -i {0}", {"index-url": ["{0}"]}),
        ("--extra-index-url {0} --pre --extra-index-url={0}/b", {"extra-index-url": ["{0}", "{0}/b"]}),
        ("--proxy {0} --pre -f {0}/c", {"proxy": ["{0}"], "find-links": ["{0}/c"]}),
    ],
)
def test_no_password_is_an_argument_of_pip(given: str, options: dict[str, list[str]]) -> None:
    found = plan(pip_arguments=given.format(ADDRESS))
    assert found["refusals"] == []
    assert found["install"][2:] == ["--disable-pip-version-check", "--no-input", "--pre", *PACKAGES]
    read = configparser.RawConfigParser()
    read.read_string(secrets(pip_arguments=given.format(ADDRESS))["pip_configuration"])
    expected = {name: [value.format(ADDRESS) for value in values] for name, values in options.items()}
    assert {name: value.split() for name, value in read["install"].items()} == expected


def test_pip_takes_the_password_from_its_configuration(tmp_path: Path) -> None:
    asked = []

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_error(404)

        def log_message(self, *_arguments: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    Thread(target=server.serve_forever, daemon=True).start()
    address = ADDRESS.format(port=server.server_port)
    arguments = f"--index-url={address} --extra-index-url {address}/b"
    (tmp_path / "pip.conf").write_text(secrets(pip_arguments=arguments)["pip_configuration"])
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--retries=0",
            *plan(pip_arguments=arguments)["install"][2:],
        ],
        env={"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PATH": "/usr/bin", "HOME": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    server.shutdown()
    login = "Basic " + base64.b64encode(b"reader:s3cret").decode()
    assert {("/simple/backend-ai-agent/", login), ("/simple/b/backend-ai-agent/", login)} <= set(asked)


@pytest.mark.parametrize("given", ["https://a:b@index/simple", "--cert=https://a:b@c", "'backend.ai @ https://a:b@c'"])
def test_a_password_that_would_be_an_argument_is_refused_without_it(given: str) -> None:
    (refusal,) = plan(pip_arguments=given)["refusals"]
    assert refusal.startswith("backend_ai_agent_pip_arguments has a URL with a user in it")
    assert "a:b" not in refusal


@pytest.mark.plays
@pytest.mark.parametrize(
    ("docker", "message"),
    [
        ("echo 4f5e", "1 containers of Backend.AI's sessions run on this host; terminate"),
        (
            "echo 'Cannot connect to the Docker daemon' >&2; exit 1",
            "may run on this host: Cannot connect to the Docker",
        ),
        ("kill -TERM $PPID; sleep 9", "so that sessions of Backend.AI may run on this host: "),
    ],
)
def test_an_agent_is_removed_only_where_no_sessions_are_known_to_run(tmp_path: Path, docker: str, message: str) -> None:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{docker}\n")
    program.chmod(0o755)
    # Nothing after the plan is to run on the machine of the tests.
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "environment": {"PATH": f"{program.parent}:/usr/bin:/bin"},
        "vars": {
            **{**DEFAULTS, "backend_ai_agent_state": "absent"},
            **{"__common_facts_are_read": True, "ansible_facts": INSTALLED},
        },
        "tasks": [
            {"block": [FIRST], "rescue": [{"ansible.builtin.debug": {"var": "ansible_failed_result.msg"}}]},
            {"ansible.builtin.debug": {"msg": "removed"}, "when": "ansible_failed_result is not defined"},
        ],
    }
    output = run_play(tmp_path, play)
    assert message in output
    assert '"msg": "removed"' not in output


@pytest.mark.plays
@pytest.mark.parametrize("fact", ["backend_ai_agent_requirements", "site_requirements"])
def test_a_fact_that_becomes_a_variable_names_no_file_of_the_controller(fact: str, tmp_path: Path) -> None:
    """Facts may become variables; a host whose fact has the name of one of ours is refused, before anything else."""
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults" / "main.yml")],
        "tasks": [
            {"ansible.builtin.set_fact": {fact: "/etc/shadow", "cacheable": True}},
            {"block": [FIRST], "rescue": [{"ansible.builtin.debug": {"var": "ansible_failed_result.msg"}}]},
        ],
    }
    output = run_play(tmp_path, play, env={"ANSIBLE_INJECT_FACT_VARS": "true"})
    is_lie = fact == "backend_ai_agent_requirements"
    assert (f"facts of this host are named {fact}, as variables of gpu.fleet are called" in output) == is_lie
    assert ("backend_ai_agent_version" in output) != is_lie, "what is wrong in the variables alone"


@pytest.mark.parametrize("docker", ["", "null", "Cannot connect", '["runc"]'])
def test_a_host_that_still_lacks_docker_has_a_plan_for_check_mode(docker: str) -> None:
    assert len(on_host({"docker": docker})["refusals"]) == 1
    predicted = on_host({"docker": docker, "check_mode": True})
    assert (predicted["refusals"], predicted["owner"]) == ([], "")
    assert len(on_host({"docker": docker, "check_mode": True, "python": ""})["refusals"]) == 1


def test_the_agent_and_its_plugins_have_one_version() -> None:
    assert plan()["install"][-2:] == PACKAGES
    other = [{"package": "acme-cuda", "module": "acme.cuda", "version": "2.1.0", "mig": True}]
    assert plan(plugins=other)["install"][-2:] == ["backend.ai-agent==26.9.6", "acme-cuda==2.1.0"]


def test_only_the_environment_that_the_role_has_made_is_used() -> None:
    own = {"directory": True, "recorded": {"directory": "/opt/backend.ai", "home": True}, "home": True}
    assert on_host(own)["refusals"] == []
    # One that was there before the role is not its own.
    for host, is_own in ((own, True), ({"home": True}, False), ({}, True)):
        assert on_host(host)["data"] == {"directory": "/opt/backend.ai", "home": is_own}
    for recorded in ({}, {"directory": "/srv/agent"}):
        (refusal,) = on_host({"directory": True, "recorded": recorded})["refusals"]
        assert refusal.startswith("/opt/backend.ai exists and was not created by this role")


def test_a_new_configuration_is_verified_but_for_check_mode() -> None:
    present = secrets()["configuration"]
    assert [secrets(one)["verifies"] for one in (present, "other", "", None)] == [False, True, True, True]
    assert secrets("other", check_mode=True)["verifies"] is False


def test_secrets_are_in_no_other_stage() -> None:
    given = {**SECRETS, "pip_arguments": "--index-url https://reader:s3cret@index/simple"}
    assert {one["path"]: one["content"] for one in secrets(**given)["keys"]} == {
        "/etc/backend.ai/manager.key": "public",
        "/etc/backend.ai/agent.key_secret": "pair",
    }
    assert (secrets()["keys"], plan(**given)["undeclared_keys"], len(plan()["undeclared_keys"])) == ((), [], 2)
    assert PLANNER.secret == ("secrets",)
    request = Request.read(variables(**given))
    for printed in (plan(**given), on_host(**given), request):
        assert {word for word in ("s3cret", SECRETS["etcd_password"], "pair'") if word in str(printed)} == set()


def test_all_that_is_written_is_known_to_the_package() -> None:
    known = json.loads((FIXTURES / "keys.json").read_text())
    written = configuration(**SECRETS, id="i-gpu1")
    unknown = {(table, key) for table, values in written.items() for key in values if key not in known[table]}
    assert unknown == set()
    assert {"rpc-auth-agent-keypair", "rpc-auth-manager-public-key", "id"} <= written["agent"].keys()


def test_agent_toml_has_what_the_variables_set() -> None:
    written = configuration(
        **SECRETS, settings={"agent": {"region": "seoul"}, "api": {"pull timeout": [1, 2.5, False]}}
    )
    assert written["etcd"] == {
        "namespace": "local",
        "addr": {"host": "etcd1", "port": 2379},
        "user": "agent",
        "password": SECRETS["etcd_password"],
    }
    assert written["agent"]["rpc-listen-addr"] == {"host": "10.0.0.7", "port": 6001}
    assert written["agent"]["allow-compute-plugins"] == ["ai.backend.accelerator.cuda_open"]
    assert written["agent"]["region"] == "seoul"
    assert written["api"] == {"pull timeout": [1, 2.5, False]}
    assert written["resource"] == {"reserved-cpu": 1, "reserved-disk": "8G", "reserved-mem": "1G"}
    assert "public" not in secrets(**SECRETS)["configuration"].replace("rpc-auth-manager-public-key", "")


def test_several_addresses_of_etcd_are_a_list() -> None:
    addresses = [{"host": "10.0.0.1", "port": 2379}, {"host": "fd00::2", "port": 2379}]
    assert configuration(etcd_addresses=["10.0.0.1:2379", "[fd00::2]:2379"])["etcd"]["addr"] == addresses


def test_an_agent_without_plugins_loads_none() -> None:
    assert on_host({"docker": '{"runc": {}}'}, plugins=[])["refusals"] == []
    assert configuration(plugins=[])["agent"]["allow-compute-plugins"] == []
    assert reported(LOG, plugins=[]) == []


def test_the_unit_numbers_gpus_as_nvml_does_and_is_not_root() -> None:
    unit = plan(directory="/srv/agent")["unit"]
    assert "\nEnvironment=CUDA_DEVICE_ORDER=PCI_BUS_ID\n" in unit
    assert "\nUser=backend-ai\n" in unit
    assert "\nExecStart=/srv/agent/bin/backend.ai ag start-server --config-path /etc/backend.ai/agent.toml\n" in unit


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"version": ""}, 'backend_ai_agent_version is ""; set it to the release of the manager'),
        ({"version": "26.9"}, "backend_ai_agent_version is"),
        ({"version": "25.12.0"}, "backend_ai_agent_version is 25.12.0; the role supports releases from 26.4 on"),
        ({"etcd_addresses": []}, "backend_ai_agent_etcd_addresses is empty"),
        (
            {"etcd_addresses": ["etcd1"]},
            'backend_ai_agent_etcd_addresses has "etcd1"; an address has the form HOST:PORT',
        ),
        ({"etcd_addresses": ["etcd1:70000"]}, 'backend_ai_agent_etcd_addresses has "etcd1:70000"'),
        ({"address": ""}, 'backend_ai_agent_address is ""'),
        ({"address": "0.0.0.0"}, 'backend_ai_agent_address is "0.0.0.0"'),
        ({"etcd_user": "agent"}, "one of backend_ai_agent_etcd_user and backend_ai_agent_etcd_password is set"),
        ({"keypair": "hunter2"}, "one of backend_ai_agent_manager_public_key and backend_ai_agent_keypair is set"),
        ({"container_ports": [31000, 30000]}, "backend_ai_agent_container_ports is [31000, 30000]"),
        ({"container_ports": [30000]}, "backend_ai_agent_container_ports is [30000]"),
        ({"pip_arguments": "--index-url 'x"}, "backend_ai_agent_pip_arguments cannot be split into arguments"),
        ({"rpc_port": 80}, "backend_ai_agent_rpc_port is 80"),
        ({"rpc_port": "80"}, "backend_ai_agent_rpc_port is 80"),
        ({"slots": {"cuda.device": "many"}}, 'backend_ai_agent_slots.cuda.device is "many"; it takes a number'),
        ({"slots": {"cuda.device": -1}}, "backend_ai_agent_slots.cuda.device is -1"),
        ({"reserved": {"cpu": None}}, "backend_ai_agent_reserved.cpu is null; it takes a number or a size such as 8G"),
        ({"reserved": {"mem": ["1G"]}}, "backend_ai_agent_reserved.mem is"),
        # To systemd no limit.
        ({"timeout": 0}, "backend_ai_agent_timeout is 0; it takes a number of seconds from 1"),
        ({"timeout": "-5"}, 'backend_ai_agent_timeout is "-5"'),
        ({"plugins": [{"package": "a b", "module": "a"}]}, "backend_ai_agent_plugins has"),
        ({"plugins": [{"package": "a", "module": "../a"}]}, "backend_ai_agent_plugins has"),
        ({"settings": {"agent": {"rpc_listen_addr": 1}}}, "has agent.rpc_listen_addr; use backend_ai_agent_address"),
        (
            {"settings": {"etcd": {"addr": 1}}},
            "backend_ai_agent_settings has etcd.addr; use backend_ai_agent_etcd_addresses",
        ),
        ({"settings": {"agent": 1}}, "backend_ai_agent_settings.agent is no dictionary"),
        ({"settings": {"agent": {"region": None}}}, "backend_ai_agent_settings.agent.region has null"),
    ],
)
def test_a_request_is_refused_by_the_name_of_the_variable(given: dict[str, Any], refusal: str) -> None:
    (found,) = plan(**given)["refusals"]
    assert refusal in found
    assert "hunter2" not in found
    assert plan(**given)["steps"] == []


def test_numbers_are_those_of_the_command_line_as_well() -> None:
    given: dict[str, Any] = {"rpc_port": "6001", "service_port": "6003", "timeout": "180"}
    given["container_ports"] = ["30000", "31000"]
    assert (plan(**given), secrets(**given)) == (plan(), secrets())
    assert [plan(timeout=seconds)["retries"] for seconds in (1, 4, "11")] == [1, 1, 2]


@pytest.mark.parametrize(
    ("host", "refusal"),
    [
        ({"python": ""}, "backend_ai_agent_python, python3.13, cannot make virtual environments on this host: install"),
        ({"python": "3.11.2"}, "is Python 3.11.2, and backend.ai-agent 26.9.6 requires 3.13"),
        ({"python": "3.130.0"}, "is Python 3.130.0"),
        ({"docker": ""}, "Docker does not respond on this host; run the role gpu.fleet.docker first"),
        ({"docker": '{"runc": {}}'}, "Docker has no runtime nvidia"),
        ({"gpus": MIG}, "GPU 1 is in MIG mode, and backend.ai-accelerator-cuda-open gives sessions whole GPUs"),
    ],
)
def test_a_host_that_lacks_something_is_refused(host: dict[str, Any], refusal: str) -> None:
    refusals = on_host(host)["refusals"]
    assert len(refusals) == 1
    assert refusal in refusals[0]
    assert plan()["refusals"] == on_host()["refusals"] == []


def test_a_plugin_that_supports_mig_is_accepted_on_a_host_with_mig() -> None:
    plugin = {"package": "acme-cuda", "module": "acme.cuda", "mig": True}
    assert on_host({"gpus": MIG}, plugins=[plugin])["refusals"] == []


def test_what_is_removed_needs_nothing_but_the_record() -> None:
    def removed(recorded: dict[str, Any]) -> dict[str, Any]:
        given = {"state": "absent", "version": "", "etcd_addresses": []}
        return stage("plan", {"sessions": {"rc": 0}}, given, facts([], recorded))

    assert (removed({})["steps"], removed({})["refusals"]) == ([], [])
    own = removed({"directory": "/srv/agent", "home": True})
    assert own["steps"] == ["remove"]
    assert own["removes"][-3:] == ["/srv/agent", "/run/backend.ai", "/var/lib/backend.ai"]
    assert {"/etc/backend.ai/agent.toml", "/etc/backend.ai/agent.key_secret"} < {*own["removes"]}
    assert "/var/lib/backend.ai" not in removed({"directory": "/srv/agent"})["removes"]


LOG = (FIXTURES / "started_without_cuda.txt").read_text()


def reported(log: str, status: int | None = 200, **given: Any) -> list[str]:
    """What is refused of an agent with this log, on a host with two GPUs."""
    health = {"skipped": True} if status is None else {"status": status}
    found = stage("reported", {"log": {"stdout": log}, "health": health}, given, facts(HOST["gpus"], {}))
    refusals: list[str] = found["refusals"]
    return refusals


def test_an_agent_that_runs_without_its_gpus_is_an_error() -> None:
    # The agent serves the manager all the same, with 0 GPUs.
    assert plan()["ready"] in LOG
    (refusal,) = reported(LOG)
    assert refusal.startswith("the agent reports 0 cuda.device instead of 2 (")
    assert "Podman Engine 4.3.1 ignores CDI device requests" in refusal
    assert refusal.endswith("; see journalctl -u backend-ai-agent")
    assert reported(LOG.replace("Decimal('0')", "Decimal('2')")) == []
    assert reported(LOG, slots={"cpu": 1, "cuda.device": "0"}) == []
    (refusal,) = reported(LOG, status=-1, slots={"cuda.device": 0})
    assert refusal.startswith("the agent does not respond at http://10.0.0.7:6003/health: ")


def test_an_agent_that_does_not_serve_is_not_ready() -> None:
    before = LOG.partition("started handling RPC")[0]
    assert plan()["ready"] not in before
    assert reported(before, None)[0].startswith("the agent does not run: ERROR Podman Engine 4.3.1")
    for log, reason in (
        (
            "INFO watching etcd to wait for the manager being available\n",
            "the agent waits for a manager to register in etcd",
        ),
        (
            "INFO x\naiodocker.exceptions.DockerError: [500] no image\n",
            "aiodocker.exceptions.DockerError: [500] no image",
        ),
        ("", "its log shows no reason"),
    ):
        assert reported(log, None) == [f"the agent does not run: {reason}; see journalctl -u backend-ai-agent"]


def checks(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The results of the agent's checker, as its stage gets them."""
    return {"directory": "/var/lib/backend.ai/new", "checks": {"results": results}}


def test_the_checker_runs_as_the_agent_does() -> None:
    asked = PLANNER.stages["checked"](variables(timeout=99), {}, {"directory": "/var/lib/backend.ai/new"})
    assert isinstance(asked, Ask) and isinstance(asked.readings["checks"], list)
    for words, (module, given) in zip(("dependencies verify", "health check"), asked.readings["checks"], strict=True):
        line = " ".join(given["argv"])
        assert module == "command" and line.endswith(
            f" ag --config-path=/var/lib/backend.ai/new/agent.toml {words} --no-timestamps"
        )
        assert "--uid=backend-ai --property=SupplementaryGroups=docker" in line and "RuntimeMaxSec=99" in line


@pytest.mark.parametrize(
    ("output", "causes"),
    [
        ("verify", []),
        (
            "verify_without_etcd",
            ["redis-config (temp): GRPCStatusError: {'code': 14, 'details': b'', 'message': 'tcp connect error'}"],
        ),
        (
            "health_without_docker",
            [
                (
                    "docker: [900] Cannot connect to Docker Engine via unix:///run/docker.sock "
                    "[Cannot connect to unix socket /run/docker.sock ssl:default [No such file or directory]]"
                )
            ],
        ),
    ],
)
def test_what_the_checker_cannot_use_is_named(output: str, causes: list[str]) -> None:
    printed = (FIXTURES / f"{output}.txt").read_text()
    assert list(failed_checks(printed)) == causes
    results = [{"rc": 0, "stdout": ""}, {"rc": int(bool(causes)), "stdout": printed, "stderr": "other"}]
    expected = f"the agent's own checker rejects the new /etc/backend.ai/agent.toml: {'; '.join(causes)}"
    assert stage("checked", checks(results), {})["refusals"] == ([expected] if causes else [])


def test_a_checker_that_does_not_run_is_refused_with_what_it_printed() -> None:
    results: list[dict[str, Any]] = [
        {"rc": 1, "stdout": "", "stderr": "Failed to start\n  transient service"},
        {"msg": "no rc"},
    ]
    (refusal,) = stage("checked", checks(results), {})["refusals"]
    assert refusal.endswith(": Failed to start transient service no rc")
