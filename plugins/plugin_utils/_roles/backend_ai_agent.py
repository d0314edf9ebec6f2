# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backend.AI's agent on a host: its packages, agent.toml and unit, and what it reports. Private to this collection.

Pure: the variables of the role and what was read of the host in, the content of the files out. Names of keys are those
of backend.ai-agent 26.9.6, whose `backend.ai ag config generate-sample` lists them.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...module_utils._common.json_text import parse_json
from .._pip import pip_configuration, pip_errors
from .._planning.contract import Ask, Needs, Outlook, Plan, Reading, Readings, RolePlanner, command, is_true, unread
from .._planning.variable_forms import is_list, shown

ROLE = "backend_ai_agent"
INSTALL, REMOVE = "install", "remove"
"""Steps: the agent is installed, configured and started, or removed where the role has installed it."""
PYTHON = "3.13"
"""What releases from FIRST_RELEASE to at least 26.9 require: `Requires-Python: >=3.13,<3.14`."""
FIRST_RELEASE = (26, 4)
"""The first release whose own checker is known; it takes agent.toml as it is written here."""
CUDA_SLOT = "cuda.device"

USER = "backend-ai"
CONFIGURATION_DIRECTORY = "/etc/backend.ai"
CONFIGURATION = f"{CONFIGURATION_DIRECTORY}/agent.toml"
MANAGER_KEY = f"{CONFIGURATION_DIRECTORY}/manager.key"
AGENT_KEY = f"{CONFIGURATION_DIRECTORY}/agent.key_secret"
REQUIREMENTS = f"{CONFIGURATION_DIRECTORY}/requirements.txt"
STATE_DIRECTORY = "/var/lib/backend.ai"
IPC_DIRECTORY = "/run/backend.ai"
UNIT = "/etc/systemd/system/backend-ai-agent.service"
# Without a limit a Docker that hangs would hold up the run.
_SESSIONS = command("timeout", "60", "docker", "ps", "--quiet", "--filter", "label=ai.backend.kernel-id")
# The first one does not connect to Docker, and the second one does not name what it cannot initialize.
_CHECKS = (("dependencies", "verify"), ("health", "check"))
_READ_RUNTIMES = ("docker", "info", "--format", "{{json .Runtimes}}")
READY = "started handling RPC requests"
"""What the agent logs once it serves the manager, after its resources."""

_VERSION = re.compile(r"[0-9]+[.][0-9]+[.][0-9]+[0-9a-z.]*")
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_WITH_USER = re.compile(r"://[^/\s]*@")
# Options of pip that take URLs, by the names that its configuration has of them.
_CONFIGURABLE = {
    **{f"--{name}": name for name in ("index-url", "extra-index-url", "find-links", "proxy")},
    **{"-i": "index-url", "-f": "find-links"},
}
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*")
_ANY_ADDRESS = ("", "0.0.0.0", "::")
_SLOTS = re.compile(r"Resource slots: \{(.*)\}")
_NO_REASON = "its log shows no reason"
_TIMED_OUT, _NO_PROGRAM = 124, 127  # of timeout
_LONGEST_REASON = 500
_INTERVAL = 5
"""Seconds between two looks at the log."""
_SLOT = re.compile(r"'([^']+)': Decimal\('([0-9]+(?:[.][0-9]+)?)'\)")
_SLOT_COUNT = re.compile(r"[0-9]+(?:[.][0-9]+)?")
_FAILED_CHECK = re.compile(r"^✗ (.+?)(?: - (.*))?$")
# What the agent logs where it goes on without a plugin or does not start.
_REASON = re.compile(
    r"(?:ERROR|WARNING|CRITICAL) .*?(?:could not|ignores|init error|failure|failed).*|.*(?:Error|Exception): .*"
)
_WAITS = "watching etcd to wait for the manager being available"


@dataclass(frozen=True)
class Plugin:
    """A compute plugin: its package, and whether it gives MIG devices to sessions."""

    package: str
    has_mig: bool = False


@dataclass(frozen=True)
class Request:
    """The variables of the role; the defaults are for the removal of an agent, which needs none of them.

    packages: requirements for pip. requirements: a file on the controller, "" for none. pip_arguments: those that
    everybody may read; pip_options: those that may not, by name. slots: the resources that the agent has to report, by
    name. tables: the content of agent.toml. keys: the content of the files with keys, none where no keys are
    declared. timeout: in seconds. pip_options, tables and keys may be secret.
    """

    is_present: bool = False
    version: str = ""
    python: str = ""
    directory: str = ""
    requirements: str = ""
    packages: tuple[str, ...] = ()
    pip_arguments: tuple[str, ...] = ()
    pip_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    plugins: tuple[Plugin, ...] = ()
    slots: Mapping[str, float] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    scratch_directory: str = ""
    health: str = ""
    timeout: int = 0
    refusals: tuple[str, ...] = ()

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables of the role; with refusals it has nothing else."""
        if variables[f"{ROLE}_state"] != "present":
            return cls()
        wrong = tuple(_variable_refusals(variables))
        settings = () if wrong else tuple(_settings(variables))
        if refusals := (*wrong, *_override_refusals(variables, settings)):
            return cls(is_present=True, refusals=refusals)

        def given(name: str) -> str:
            return str(variables[f"{ROLE}_{name}"])

        plugins, version = variables[f"{ROLE}_plugins"], given("version")
        own, secret = _split(given("pip_arguments"))
        keys = {MANAGER_KEY: given("manager_public_key"), AGENT_KEY: given("keypair")}
        return cls(
            is_present=True,
            version=version,
            python=given("python"),
            directory=given("directory"),
            requirements=given("requirements"),
            packages=(
                f"backend.ai-agent=={version}",
                *(f"{plugin['package']}=={plugin.get('version') or version}" for plugin in plugins),
            ),
            pip_arguments=tuple(own),
            pip_options=tuple(secret),
            plugins=tuple(Plugin(str(plugin["package"]), is_true(plugin.get("mig"))) for plugin in plugins),
            slots={str(name): float(count) for name, count in variables[f"{ROLE}_slots"].items()},
            tables=_tables(variables, settings),
            keys=keys if given("keypair") else {},
            scratch_directory=given("scratch_directory"),
            health=f"http://{given('address')}:{given('service_port')}/health",
            timeout=_number(variables[f"{ROLE}_timeout"]),
        )


@dataclass(frozen=True)
class Found:
    """What was read on the host.

    python: the version of the interpreter that is to make the virtual environment, "" where there is none that can.
    docker_runtimes: names of Docker's runtimes, None where Docker does not respond. gpus: of nvidia_smi_facts.
    has_directory, has_home: the virtual environment and the agent's directory are there. recorded: by the last run.
    """

    python: str = ""
    docker_runtimes: Collection[str] | None = None
    gpus: Sequence[Mapping[str, Any]] = ()
    has_directory: bool = False
    has_home: bool = False
    recorded: Mapping[str, Any] = field(default_factory=dict)
    check_mode: bool = False


@dataclass(frozen=True)
class _Setting:
    """A key of agent.toml that a variable sets; None leaves it to the agent's default."""

    section: str
    key: str
    value: Any
    variable: str


def plan(request: Request, record: Mapping[str, Any]) -> Plan:
    """What is installed and where, or what is removed of what the last run has recorded."""
    if not request.is_present or request.refusals:
        steps = (REMOVE,) if record and not request.is_present else ()
        return Plan(request.refusals, steps, tasks={"user": USER, "removes": _removes(record.get("data") or {})})
    pip = f"{request.directory}/bin/pip"
    requirements = ("--require-hashes", "--requirement", REQUIREMENTS) if request.requirements else request.packages
    return Plan(
        steps=(INSTALL,),
        tasks={
            "user": USER,
            "home": STATE_DIRECTORY,
            "directories": tuple(
                dict.fromkeys((STATE_DIRECTORY, f"{STATE_DIRECTORY}/commit", request.scratch_directory))
            ),
            "configuration_directory": CONFIGURATION_DIRECTORY,
            "configuration": CONFIGURATION,
            "requirements": request.requirements,
            "requirements_copy": REQUIREMENTS,
            "python": request.python,
            "directory": request.directory,
            "pip": pip,
            "install": (
                pip,
                "install",
                "--disable-pip-version-check",
                "--no-input",
                *request.pip_arguments,
                *requirements,
            ),
            "unit": _unit(request.directory),
            "unit_file": UNIT,
            "undeclared_keys": () if request.keys else (MANAGER_KEY, AGENT_KEY),
            # Files that the running process has to have read. The last one is modified when a package is
            # installed or removed.
            "started_after": (
                *(CONFIGURATION, UNIT, f"{CONFIGURATION_DIRECTORY}/*key*"),
                f"{request.directory}/lib/python*/site-packages",
            ),
            "ready": READY,
            "retries": max(request.timeout // _INTERVAL, 1),
            "interval": _INTERVAL,
            "health": request.health,
        },
    )


def _removes(recorded: Mapping[str, Any]) -> tuple[str, ...]:
    """The files of the role, and the directories that it has made by its record."""
    directory = (str(recorded["directory"]),) if recorded.get("directory") else ()
    home = (STATE_DIRECTORY,) if recorded.get("home") else ()
    return (UNIT, CONFIGURATION, REQUIREMENTS, MANAGER_KEY, AGENT_KEY, *directory, IPC_DIRECTORY, *home)


def on_host(request: Request, found: Found) -> Plan:
    """Refuses what the host lacks. data: what the role records. owner: of agent.toml; its user may be still to come."""
    home = found.recorded.get("home", not found.has_home)
    return Plan(
        refusals=tuple(_host_refusals(request, found)),
        tasks={
            "data": {"directory": request.directory, "home": bool(home)},
            "owner": "" if found.check_mode else USER,
        },
    )


def secrets(request: Request, present: str | None, check_mode: bool) -> dict[str, Any]:
    """The content of files that may have a password. `present` is the content of agent.toml, None without one.

    verifies: whether the agent's checker has to read the new one.
    """
    configuration = _configuration(request.tables)
    return {
        "pip_configuration": pip_configuration(ROLE, request.pip_options),
        "configuration": configuration,
        "verifies": configuration != present and not check_mode,
        "keys": tuple({"path": path, "content": content} for path, content in request.keys.items()),
    }


def after_pip(request: Request, installed: Collection[str], check_mode: bool) -> Plan:
    """Refuses other packages than the requested ones; check mode shows those that are `missing`."""
    missing = tuple(name for name in request.packages if name not in installed)
    refusal = (
        f"{request.directory} lacks {', '.join(missing)} after the installation; where {ROLE}_requirements is set, "
        "that file has to have them"
    )
    return Plan((refusal,) if missing and not check_mode else (), tasks={"missing": missing})


def _split(arguments: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The arguments that anybody may read, and options with a user or password in their URL, each with its value.

    An option without a name is one that pip's configuration does not have.
    """
    own: list[str] = []
    secret: list[tuple[str, str]] = []
    for word in shlex.split(arguments):
        if not _WITH_USER.search(word):
            own.append(word)
            continue
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if not equals:
            option = own.pop() if own and own[-1].startswith("-") else ""
        secret.append((_CONFIGURABLE.get(option, ""), value))
    return own, secret


# Refusals


def _variable_refusals(variables: Mapping[str, Any]) -> Iterator[str]:
    version = str(variables[f"{ROLE}_version"])
    if not _VERSION.fullmatch(version):
        yield f"{ROLE}_version is {shown(version)}; set it to the release of the manager, such as 26.9.6"
    elif _release(version) < FIRST_RELEASE:
        yield (
            f"{ROLE}_version is {version}; the role supports releases from {_text(FIRST_RELEASE)} on, whose agent "
            "checks its configuration itself"
        )
    addresses = variables[f"{ROLE}_etcd_addresses"]
    if not addresses:
        yield f"{ROLE}_etcd_addresses is empty; set it to the addresses of the manager's etcd, such as etcd1:2379"
    for address in addresses:
        if _address(str(address)) is None:
            yield f"{ROLE}_etcd_addresses has {shown(address)}; an address has the form HOST:PORT"
    if variables[f"{ROLE}_address"] in _ANY_ADDRESS:
        yield (
            f"{ROLE}_address is {shown(variables[f'{ROLE}_address'])}; set it to the address of this host at which "
            "the manager reaches the agent"
        )
    for one, other in (("etcd_user", "etcd_password"), ("manager_public_key", "keypair")):
        if bool(variables[f"{ROLE}_{one}"]) != bool(variables[f"{ROLE}_{other}"]):
            yield f"one of {ROLE}_{one} and {ROLE}_{other} is set; set both, or neither"
    ports = variables[f"{ROLE}_container_ports"]
    numbers = [_number(port) for port in ports]
    if len(numbers) != 2 or not 1024 <= numbers[0] < numbers[1] <= 65535:
        yield f"{ROLE}_container_ports is {shown(ports)}; it takes the first and the last port, from 1024 to 65535"
    for name in ("rpc_port", "service_port"):
        if not 1024 <= _number(variables[f"{ROLE}_{name}"]) <= 65535:
            yield f"{ROLE}_{name} is {variables[f'{ROLE}_{name}']}; it takes a port from 1024 to 65535"
    for name, count in variables[f"{ROLE}_slots"].items():
        if not _SLOT_COUNT.fullmatch(str(count)):
            yield f"{ROLE}_slots.{name} is {shown(count)}; it takes a number from 0"
    for name, amount in variables[f"{ROLE}_reserved"].items():
        if isinstance(amount, bool) or not isinstance(amount, (int, float, str)) or amount == "":
            yield f"{ROLE}_reserved.{name} is {shown(amount)}; it takes a number or a size such as 8G"
    if _number(variables[f"{ROLE}_timeout"]) < 1:
        yield f"{ROLE}_timeout is {shown(variables[f'{ROLE}_timeout'])}; it takes a number of seconds from 1"
    try:
        _own, secret = _split(str(variables[f"{ROLE}_pip_arguments"]))
    except ValueError as error:
        secret = []
        yield f"{ROLE}_pip_arguments cannot be split into arguments: {error}; quote as in a shell"
    if not all(option for option, _value in secret):
        yield (
            f"{ROLE}_pip_arguments has a URL with a user in it, which every user of the host could read there; give it "
            "with --index-url, --extra-index-url, --find-links or --proxy, which the role keeps in a file for root"
        )
    for plugin in variables[f"{ROLE}_plugins"]:
        if not _PACKAGE.fullmatch(str(plugin["package"])) or not _MODULE.fullmatch(str(plugin["module"])):
            yield (
                f"{ROLE}_plugins has {shown(dict(plugin))}; it takes package, the name in the package index, and "
                "module, the plugin's module in Python"
            )


def _override_refusals(variables: Mapping[str, Any], settings: Sequence[_Setting]) -> Iterator[str]:
    """What is wrong with the settings of the user's own."""
    own = {(one.section, one.key): one.variable for one in settings}
    for section, values in variables[f"{ROLE}_settings"].items():
        if not isinstance(values, Mapping):
            yield f"{ROLE}_settings.{section} is no dictionary; it takes the keys of a table of agent.toml"
            continue
        for key, value in values.items():
            # The agent reads both forms of a name.
            variable = own.get((section, str(key).replace("_", "-")))
            if variable:
                yield f"{ROLE}_settings has {section}.{key}; use {variable}"
            elif not _has_toml(value):
                yield f"{ROLE}_settings.{section}.{key} has null in it; leave the key out for the agent's default"


def _host_refusals(request: Request, found: Found) -> Iterator[str]:
    """What the host lacks. In check mode an earlier role may be still to install Docker and its runtime."""
    python = request.python
    if not found.python:
        yield (
            f"{ROLE}_python, {python}, cannot make virtual environments on this host: install Python {PYTHON} with its "
            "module venv (Debian 13: python3 and python3-venv; elsewhere for example with `uv python install "
            f"{PYTHON}`), "
            "and set the variable to its path"
        )
    elif not f"{found.python}.".startswith(f"{PYTHON}."):
        yield (
            f"{ROLE}_python, {python}, is Python {found.python}, and backend.ai-agent {request.version} requires "
            f"{PYTHON}: install that, for example with `uv python install {PYTHON}`, and set the variable to its path"
        )
    if found.docker_runtimes is None and not found.check_mode:
        yield "Docker does not respond on this host; run the role gpu.fleet.docker first"
    elif request.plugins and found.gpus and "nvidia" not in (found.docker_runtimes or ()) and not found.check_mode:
        yield (
            "Docker has no runtime nvidia, which the agent needs to give GPUs to containers; run the role "
            "gpu.fleet.nvidia_container_toolkit first"
        )
    unable = [plugin.package for plugin in request.plugins if not plugin.has_mig]
    for gpu in found.gpus:
        if gpu.get("mig_mode_current") == "enabled" and unable:
            yield (
                f"GPU {gpu['index']} is in MIG mode, and {', '.join(unable)} gives sessions whole GPUs: turn MIG off "
                f"(gpu_state_mig), or name a plugin that supports it, with mig: true, in {ROLE}_plugins"
            )
    if found.has_directory and found.recorded.get("directory") != request.directory:
        yield (
            f"{request.directory} exists and was not created by this role; remove it, or set {ROLE}_directory to "
            "another "
            "directory"
        )


def _number(value: object) -> int:
    """A whole number, also as the text that -e gives; 0 for anything else."""
    return int(str(value)) if str(value).isascii() and str(value).isdigit() else 0


def _release(version: str) -> tuple[int, int]:
    year, month = version.split(".")[:2]
    return int(year), int(month)


def _text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


def _address(text: str) -> dict[str, Any] | None:
    """An address as agent.toml has it, or None where it is none."""
    match = _ADDRESS.fullmatch(text)
    if not match or not 0 < int(match["port"]) < 65536:
        return None
    return {"host": match["host"].strip("[]"), "port": int(match["port"])}


# agent.toml


def _settings(variables: Mapping[str, Any]) -> Iterator[_Setting]:
    """What the variables set, in the order of the file."""

    def given(name: str) -> Any:
        value = variables[f"{ROLE}_{name}"]
        return _number(value) if name.endswith("_port") else value

    has_keys = bool(given("keypair"))
    etcd = [_address(one) for one in given("etcd_addresses")]
    for section, key, name, value in (
        ("etcd", "namespace", "etcd_namespace", given("etcd_namespace")),
        # Older releases take one address and no list.
        ("etcd", "addr", "etcd_addresses", etcd[0] if len(etcd) == 1 else etcd),
        ("etcd", "user", "etcd_user", given("etcd_user") or None),
        ("etcd", "password", "etcd_password", given("etcd_password") or None),
        ("agent", "backend", "", "docker"),
        ("agent", "id", "id", given("id") or None),
        ("agent", "rpc-listen-addr", "address", {"host": given("address"), "port": given("rpc_port")}),
        ("agent", "service-addr", "service_port", {"host": given("address"), "port": given("service_port")}),
        ("agent", "rpc-auth-manager-public-key", "manager_public_key", MANAGER_KEY if has_keys else None),
        ("agent", "rpc-auth-agent-keypair", "keypair", AGENT_KEY if has_keys else None),
        # Without the list each plugin of the virtual environment would be loaded.
        ("agent", "allow-compute-plugins", "plugins", sorted({one["module"] for one in given("plugins")})),
        ("agent", "ipc-base-path", "", IPC_DIRECTORY),
        ("agent", "var-base-path", "", STATE_DIRECTORY),
        ("agent", "image-commit-path", "", f"{STATE_DIRECTORY}/commit"),
        ("container", "port-range", "container_ports", list(map(_number, given("container_ports")))),
        ("container", "bind-host", "address", given("address")),
        ("container", "scratch-type", "scratch_type", given("scratch_type")),
        ("container", "scratch-root", "scratch_directory", given("scratch_directory")),
        # The other one reads cgroups, which needs root.
        ("container", "stats-type", "", "docker"),
        *(("resource", f"reserved-{one}", "reserved", given("reserved")[one]) for one in sorted(given("reserved"))),
        # Colours and a file of its own are of no use in the journal.
        ("logging", "drivers", "", ["console"]),
        ("logging", "console", "", {"colored": False, "format": "simple"}),
    ):
        if value is not None:
            yield _Setting(section, key, value, f"{ROLE}_{name}" if name else "another value: the unit needs this one")


def _tables(variables: Mapping[str, Any], settings: Sequence[_Setting]) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for setting in settings:
        tables.setdefault(setting.section, {})[setting.key] = setting.value
    for section, values in variables[f"{ROLE}_settings"].items():
        tables.setdefault(section, {}).update(values)
    return tables


def _configuration(tables: Mapping[str, Mapping[str, Any]]) -> str:
    return f"# Written by the role gpu.fleet.{ROLE}; changes are overwritten.\n" + "".join(
        f"\n[{_key(section)}]\n" + "".join(f"{_key(key)} = {_toml(value)}\n" for key, value in values.items())
        for section, values in tables.items()
    )


def _has_toml(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_has_toml(one) for one in value.values())
    if is_list(value):
        return all(_has_toml(one) for one in value)
    return isinstance(value, (str, bool, int, float))


def _key(name: object) -> str:
    return str(name) if _BARE_KEY.fullmatch(str(name)) else _toml(str(name))


def _toml(value: object) -> str:
    """A value in one line of TOML; _has_toml holds for it."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(one)}" for key, one in value.items()) + " }" if value else "{}"
    if is_list(value):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    # Strings of JSON are strings of TOML, except that TOML has no pairs of surrogates and escapes DEL as well.
    text = json.dumps(str(value) if isinstance(value, str) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")


# The unit


def _unit(directory: str) -> str:
    return f"""\
# Written by the role gpu.fleet.{ROLE}; changes are overwritten.
[Unit]
Description=Backend.AI agent
Wants=network-online.target docker.service
After=network-online.target docker.service

[Service]
Type=exec
# The group docker is as powerful as root; the rest keeps the agent's own process from more than it uses.
User={USER}
SupplementaryGroups=docker
WorkingDirectory={STATE_DIRECTORY}
# The agent numbers GPUs as the CUDA runtime does, and gives them to containers by that number as NVML counts them.
Environment=CUDA_DEVICE_ORDER=PCI_BUS_ID
ExecStart={directory}/bin/backend.ai ag start-server --config-path {CONFIGURATION}
Restart=on-failure
RestartSec=10
RuntimeDirectory=backend.ai
# Containers of sessions, which go on when the agent is restarted, have sockets in it.
RuntimeDirectoryPreserve=yes
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=full
ProtectHome=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
RestrictSUIDSGID=yes

[Install]
WantedBy=multi-user.target
"""


# What the agent reports


def slots(request: Request, gpus: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The resources that the agent has to report: those that were given, or all GPUs."""
    if request.slots or not gpus or not request.plugins:
        return dict(request.slots)
    return {CUDA_SLOT: len(gpus)}


def agent_errors(due: Mapping[str, float], log: str) -> tuple[str, ...] | None:
    """How the resources in an agent's log differ from those that are due; None while it does not serve the manager."""
    reported = [match[1] for line in log.splitlines() if (match := _SLOTS.search(line))]
    if not reported or READY not in log:
        return None
    counts = {name: float(count) for name, count in _SLOT.findall(reported[-1])}
    reasons = "; ".join(dict.fromkeys(reasons_in(log)))
    return tuple(
        f"the agent reports {counts.get(name, 0):g} {name} instead of {count:g}" + (f" ({reasons})" if reasons else "")
        for name, count in due.items()
        if counts.get(name, 0) != count
    )


def reasons_in(log: str) -> tuple[str, ...]:
    """Lines of the agent's log that state why it does not start, or goes on without a plugin; the last five."""
    waits = ("the agent waits for a manager to register in etcd",) if _WAITS in log else ()
    found = [" ".join(line.split())[-200:] for line in log.splitlines() if _REASON.search(line)]
    return (*waits, *found[-5:])


def failed_checks(output: str) -> tuple[str, ...]:
    """What the agent's checker, `dependencies verify` and `health check`, has found unusable, with the reason."""
    matches = [match for line in output.splitlines() if (match := _FAILED_CHECK.search(line.strip()))]
    # What is composed of a part that failed fails as well, with the same reason.
    parts = {"infrastructure", "bootstrap", "agent-dependencies"}
    found = [match[1][:200] + (f": {match[2].rstrip(': ')[:200]}" if match[2] else "") for match in matches]
    causes = [text for text, match in zip(found, matches, strict=True) if match[1] not in parts]
    return tuple(dict.fromkeys(causes or found))


# For the tasks


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """With what depends on the host, by the `readings` of what the role needs, or the refusals of a removal."""
    request = Request.read(variables)
    planned = plan(request, _record(facts))
    if REMOVE in planned.steps:
        asked = unread(given, {"sessions": _SESSIONS})
        return asked or replace(planned, refusals=tuple(_session_refusals(given["sessions"])))
    if INSTALL not in planned.steps:
        return planned
    found = _found(request, facts, Readings.of(given["readings"]), is_true(given["check_mode"]))
    host = on_host(request, found)
    return replace(host, steps=planned.steps, tasks={**planned.tasks, **host.tasks})


def _record(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    return (facts.get("gpu_fleet_managed") or {}).get(ROLE) or {}


def _gpus(facts: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (facts.get("nvidia_smi") or {}).get("gpus") or ()


def _needs(variables: Mapping[str, Any]) -> Needs:
    request = Request.read(variables)
    if not request.is_present or request.refusals:
        return Needs()
    return Needs((request.directory, STATE_DIRECTORY), (_interpreter(request), _READ_RUNTIMES))


def _interpreter(request: Request) -> tuple[str, ...]:
    return (request.python, "-c", "import ensurepip, platform, venv; print(platform.python_version())")


def _found(request: Request, facts: Mapping[str, Any], read: Readings, check_mode: bool) -> Found:
    return Found(
        python=read.output(_interpreter(request)).strip(),
        docker_runtimes=_runtimes(read.output(_READ_RUNTIMES)),
        gpus=_gpus(facts),
        has_directory=read.exists(request.directory),
        has_home=read.exists(STATE_DIRECTORY),
        recorded=_record(facts).get("data") or {},
        check_mode=check_mode,
    )


def _refusals(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> Iterable[str]:
    """Refusals before the first change of the run."""
    request = Request.read(variables)
    if not request.is_present or request.refusals:
        return request.refusals
    # As in check mode, Docker and its runtime may be still to be installed.
    is_coming = not outlook.coming.keys().isdisjoint(("docker", "nvidia_container_toolkit"))
    found = _found(request, {**facts, "nvidia_smi": outlook.gpus(facts)}, outlook.readings, is_coming)
    # Its virtual environments need the package python3-venv.
    is_python_coming = not found.python and "gpu_workload" in outlook.coming
    return _host_refusals(request, replace(found, python=PYTHON) if is_python_coming else found)


def _runtimes(output: str) -> Collection[str] | None:
    """The names in what `docker info` prints; None for anything else."""
    try:
        runtimes = parse_json(output)
    except ValueError:
        return None
    return {*runtimes} if isinstance(runtimes, Mapping) else None


def _secrets(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | Ask:
    """By agent.toml, which does not have to exist."""
    asked = unread(given, {"present": ("slurp", {"src": CONFIGURATION})})
    if asked:
        return asked
    content = given["present"].get("content")
    try:
        present = None if content is None else base64.b64decode(content).decode(errors="replace")
    except binascii.Error as error:
        raise ValueError("content") from error
    return secrets(Request.read(variables), present, is_true(given["check_mode"]))


def _installed(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """Refuses an installation that failed, by its `run`, or left out a package.

    Without the address of the index, which may have a password in it.
    """
    request, run, check_mode = Request.read(variables), given["run"], is_true(given["check_mode"])
    if run.get("rc") != 0 and not check_mode:
        output = "\n".join(str(run.get(name) or "") for name in ("stdout", "stderr"))
        reasons = "; ".join(pip_errors(output, f"{ROLE}_requirements")) or str(run.get("msg") or "it printed no error")
        return Plan((f"pip cannot install {', '.join(request.packages)}: {reasons}",))
    # In check mode there may be no pip.
    asked = unread(given, {"frozen": command(f"{request.directory}/bin/pip", "freeze", "--disable-pip-version-check")})
    return asked or after_pip(request, given["frozen"].get("stdout_lines") or (), check_mode)


def _checked(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """Refuses a configuration, in the file agent.toml of this `directory`, that the agent's own checker rejects."""
    request = Request.read(variables)
    asked = unread(given, {"checks": [_check(request, str(given["directory"]), *words) for words in _CHECKS]})
    if asked:
        return asked
    results = given["checks"]["results"]
    if all(one.get("rc") == 0 for one in results):
        return Plan()
    causes = "; ".join(failed_checks("\n".join(str(one.get("stdout") or "") for one in results)))
    printed = " ".join(" ".join(str(one.get("stderr") or one.get("msg") or "") for one in results).split())
    return Plan((f"the agent's own checker rejects the new {CONFIGURATION}: {causes or printed[-_LONGEST_REASON:]}",))


def _check(request: Request, directory: str, *words: str) -> Reading:
    """The checker as the unit runs the agent, with its rights: its directory below /run exists while it runs only."""
    properties = {
        "SupplementaryGroups": "docker",
        "RuntimeDirectory": "backend.ai",
        "RuntimeDirectoryPreserve": "yes",
        "WorkingDirectory": STATE_DIRECTORY,
        "RuntimeMaxSec": request.timeout,
    }
    return command(
        *("systemd-run", "--quiet", "--wait", "--pipe", f"--uid={USER}"),
        *(f"--property={name}={value}" for name, value in properties.items()),
        *(f"{request.directory}/bin/backend.ai", "ag", f"--config-path={directory}/agent.toml"),
        *(*words, "--no-timestamps"),
    )


def _reported(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """Refuses an agent that does not have the resources of the host, by its `log` and by its `health`."""
    request, log = Request.read(variables), str(given["log"].get("stdout") or "")
    errors = agent_errors(slots(request, _gpus(facts)), log)
    reasons = "; ".join(reasons_in(log)) or _NO_REASON
    if errors is None:
        errors = (f"the agent does not run: {reasons}",)
    elif not errors and given["health"].get("status") != 200:
        errors = (f"the agent does not respond at {request.health}: {reasons}",)
    return Plan((f"{'; '.join(errors)}; see journalctl -u backend-ai-agent",) if errors else ())


def _session_refusals(run: Mapping[str, Any]) -> Iterator[str]:
    """Why no agent is removed while sessions run, or may run: with live-restore containers outlive a stopped Docker."""
    count, rc = len(run.get("stdout_lines") or ()), run.get("rc")
    reason = str(run.get("stderr") or "").strip()[-_LONGEST_REASON:] or "no reason given"
    if count:
        yield (
            f"{count} containers of Backend.AI's sessions run on this host; terminate the sessions through the manager "
            "first"
        )
    elif rc not in (0, _NO_PROGRAM):
        yield (
            "Docker does not list its containers, so that sessions of Backend.AI may run on this host: "
            f"{'no response within 60 s' if rc == _TIMED_OUT else reason}; see journalctl -u docker, start it, then "
            "run again"
        )


PLANNER = RolePlanner(
    "backend_ai_agent",
    {
        "plan": _plan,
        "secrets": _secrets,
        "installed": _installed,
        "checked": _checked,
        "reported": _reported,
    },
    secret=("secrets",),
    needs=_needs,
    refuses=_refusals,
)
