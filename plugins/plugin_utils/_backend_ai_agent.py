# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backend.AI's agent on a host: its packages, agent.toml and unit, and what it reports. Private to this collection.

Pure: the variables of the role and what was read of the host in, the content of the files out. Names of keys are those
of backend.ai-agent 26.9.6, whose `backend.ai ag config generate-sample` lists them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ._pip import pip_configuration
from ._variable_forms import is_list, shown

ROLE = "backend_ai_agent"
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
_READY = "started handling RPC requests"
_SLOT = re.compile(r"'([^']+)': Decimal\('([0-9.]+)'\)")
_FAILED_CHECK = re.compile(r"^✗ (.+?)(?: - (.*))?$")
# What the agent logs where it goes on without a plugin or does not start.
_REASON = re.compile(
    r"(?:ERROR|WARNING|CRITICAL) .*?(?:could not|ignores|init error|failure|failed).*|.*(?:Error|Exception): .*"
)
_WAITS = "watching etcd to wait for the manager being available"


@dataclass(frozen=True)
class Found:
    """What was read on the host.

    python: the version of the interpreter that is to make the virtual environment, "" where there is none that can.
    docker_runtimes: names of Docker's runtimes, None where Docker does not respond. gpus: of nvidia_smi_facts.
    installed: what pip lists in the virtual environment.
    """

    python: str | None = None
    docker_runtimes: Sequence[str] | None = None
    gpus: Sequence[Mapping[str, Any]] = ()
    installed: Sequence[str] = ()
    is_read: bool = False


@dataclass(frozen=True)
class AgentPlan:
    """What the host gets; or `refusals`, and nothing else where these are about the variables.

    packages: requirements for pip. missing: those that are not installed. pip_arguments: those of `pip install`, which
    every user of the host can read while it runs. pip_configuration: the text of pip.conf, which has what may not be
    read, such as the password of an index. configuration: the text of agent.toml, which may have a password. slots: the
    resources that the agent has to report, by name.
    """

    packages: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    pip_arguments: tuple[str, ...] = ()
    pip_configuration: str = ""
    configuration: str = ""
    unit: str = ""
    slots: Mapping[str, float] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The plan for a playbook."""
        return asdict(self)


@dataclass(frozen=True)
class _Setting:
    """A key of agent.toml that a variable sets; None leaves it to the agent's default."""

    section: str
    key: str
    value: Any
    variable: str


def agent_plan(variables: Mapping[str, Any], found: Found) -> AgentPlan:
    """The plan for a host. Without `found.is_read` only the variables are checked."""
    if variables[f"{ROLE}_state"] != "present":
        return AgentPlan()
    settings = () if (wrong := tuple(_variable_refusals(variables))) else tuple(_settings(variables))
    of_variables = (*wrong, *_override_refusals(variables, settings))
    refusals = (*of_variables, *_host_refusals(variables, found))
    if of_variables:
        return AgentPlan(refusals=refusals)
    # What the host lacks does not keep check mode from showing the rest: an earlier role may add it.
    version = variables[f"{ROLE}_version"]
    plugins = variables[f"{ROLE}_plugins"]
    packages = (
        f"backend.ai-agent=={version}",
        *(f"{plugin['package']}=={plugin.get('version') or version}" for plugin in plugins),
    )
    return AgentPlan(
        packages,
        tuple(name for name in packages if name not in found.installed),
        _pip_arguments(variables, packages),
        _pip_configuration(variables),
        _configuration(variables, settings),
        _unit(variables),
        _slots(variables, found),
        refusals,
    )


def _pip_arguments(variables: Mapping[str, Any], packages: Sequence[str]) -> tuple[str, ...]:
    requested = ("--require-hashes", "--requirement", REQUIREMENTS) if variables[f"{ROLE}_requirements"] else packages
    own, _secret = _split(variables[f"{ROLE}_pip_arguments"])
    return ("--disable-pip-version-check", "--no-input", *own, *requested)


def _pip_configuration(variables: Mapping[str, Any]) -> str:
    _own, secret = _split(variables[f"{ROLE}_pip_arguments"])
    return pip_configuration(ROLE, secret)


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
    if len(ports) != 2 or not 1024 <= ports[0] < ports[1] <= 65535:
        yield f"{ROLE}_container_ports is {shown(ports)}; it takes the first and the last port, from 1024 to 65535"
    for name in ("rpc_port", "service_port"):
        if not 1024 <= variables[f"{ROLE}_{name}"] <= 65535:
            yield f"{ROLE}_{name} is {variables[f'{ROLE}_{name}']}; it takes a port from 1024 to 65535"
    try:
        _own, secret = _split(variables[f"{ROLE}_pip_arguments"])
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
                "module, that of the plugin in Python"
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


def _host_refusals(variables: Mapping[str, Any], found: Found) -> Iterator[str]:
    """What the host lacks."""
    if not found.is_read:
        return
    python = variables[f"{ROLE}_python"]
    if not found.python:
        yield (
            f"{ROLE}_python, {python}, cannot make virtual environments on this host: install Python {PYTHON} with its "
            f"module venv (Debian 13: python3 and python3-venv; elsewhere for example `uv python install {PYTHON}`), "
            "and set the variable to its path"
        )
    elif not f"{found.python}.".startswith(f"{PYTHON}."):
        yield (
            f"{ROLE}_python, {python}, is Python {found.python}, and backend.ai-agent "
            f"{variables[f'{ROLE}_version']} requires {PYTHON}: install that, for example by `uv python install "
            f"{PYTHON}`, and set the variable to its path"
        )
    if found.docker_runtimes is None:
        yield "Docker does not respond on this host; run the role gpu.fleet.docker first"
    elif variables[f"{ROLE}_plugins"] and found.gpus and "nvidia" not in found.docker_runtimes:
        yield (
            "Docker has no runtime nvidia, by which the agent gives GPUs to containers; run the role "
            "gpu.fleet.nvidia_container_toolkit first"
        )
    for gpu in found.gpus:
        unable = [plugin["package"] for plugin in variables[f"{ROLE}_plugins"] if not plugin.get("mig")]
        if gpu.get("mig_mode_current") == "enabled" and unable:
            yield (
                f"GPU {gpu['index']} is in MIG mode, and {', '.join(unable)} gives sessions whole GPUs: turn MIG off "
                f"(gpu_state_mig), or name a plugin that supports it, with mig: true, in {ROLE}_plugins"
            )


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
        return variables[f"{ROLE}_{name}"]

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
        ("container", "port-range", "container_ports", list(given("container_ports"))),
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


def _configuration(variables: Mapping[str, Any], settings: Sequence[_Setting]) -> str:
    tables: dict[str, dict[str, Any]] = {}
    for setting in settings:
        tables.setdefault(setting.section, {})[setting.key] = setting.value
    for section, values in variables[f"{ROLE}_settings"].items():
        tables.setdefault(section, {}).update(values)
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
    # Strings of JSON are those of TOML, except that TOML has no pairs of surrogates and escapes DEL as well.
    text = json.dumps(str(value) if isinstance(value, str) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")


# The unit


def _unit(variables: Mapping[str, Any]) -> str:
    directory = variables[f"{ROLE}_directory"]
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


def _slots(variables: Mapping[str, Any], found: Found) -> dict[str, float]:
    """The resources that the agent has to report: those that were given, or all GPUs."""
    given: Mapping[str, float] = variables[f"{ROLE}_slots"]
    if given or not found.gpus or not variables[f"{ROLE}_plugins"]:
        return dict(given)
    return {CUDA_SLOT: len(found.gpus)}


def agent_errors(slots: Mapping[str, float], log: str) -> tuple[str, ...] | None:
    """How the resources in the log of an agent differ from `slots`; None while it does not serve the manager."""
    reported = [match[1] for line in log.splitlines() if (match := _SLOTS.search(line))]
    if not reported or _READY not in log:
        return None
    counts = {name: float(count) for name, count in _SLOT.findall(reported[-1])}
    reasons = "; ".join(dict.fromkeys(reasons_in(log)))
    return tuple(
        f"the agent reports {counts.get(name, 0):g} {name} instead of {float(count):g}"
        + (f" ({reasons})" if reasons else "")
        for name, count in slots.items()
        if counts.get(name, 0) != float(count)
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
