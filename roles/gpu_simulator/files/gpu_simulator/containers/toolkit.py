# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated container toolkit: ``nvidia-ctk``, ``nvidia-container-runtime`` and its prestart hook.

All three give a container the same: the device nodes of the requested GPUs and read-only mounts of the simulator. An
engine with CDI makes them from the output of ``nvidia-ctk cdi generate``; for an older one the hook makes them in the
container's root file system just before the container starts.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys

from ..host import kernel as host
from ..mig import devices as mig_devices
from ..state import store
from . import capabilities, toolkit_config, toolkit_hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..state.shapes import Gpu, State

TOOLKIT_VERSION = "1.20.0"
CDI_KIND = "nvidia.com/gpu"
# Names that begin with a digit came with CDI 0.5.0; nvidia-ctk writes the lowest version that has what it needs.
CDI_VERSION = "0.5.0"
_CDI_VERSION_WITHOUT_DIGITS = "0.3.0"
_STRATEGIES = ("index", "uuid", "type-index")
# Of the packages that have the simulator's programs: the version whose command line it is to have.
_VERSION_VARIABLE = "GPU_SIMULATOR_TOOLKIT_VERSION"
CDI_DIRECTORIES = ("etc/cdi", "var/run/cdi")

LIBRARY = "/usr/lib/gpu-simulator"
STATE_DIRECTORY = "/var/lib/gpu-simulator"
PROGRAM = "/usr/bin/nvidia-smi"
_HOOK = "nvidia-container-runtime-hook"
_DEVICE_MOUNTS = "/var/run/nvidia-container-devices/"
_LOW_LEVEL_RUNTIMES = ("runc", "crun")

_COMMON_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_CLONE_NEWNS = 0x00020000


ContainerError = toolkit_hooks.ContainerError


def devices(state: State, whole_gpus: bool = False) -> dict[str, tuple[str, ...]]:
    """Return the device nodes for each name that a container can request, in order.

    A GPU is named by index and UUID, a MIG device by ``0:1`` and ``MIG-...``; ``all`` is every one of them. A GPU in
    MIG mode appears as its MIG devices alone, as in a CDI specification, unless ``whole_gpus``, as with the hook.
    """
    named: dict[str, tuple[str, ...]] = {}
    for index, gpu in enumerate(state["gpus"]):
        node = "/dev/nvidia{}".format(gpu["minor"])
        parts = {device: _capabilities(gpu, device) for device in mig_devices.mig_devices(gpu)}
        if whole_gpus or not (gpu["mig_mode"] and gpu["mig_mode"]["current"]):
            named[str(index)] = named[gpu["uuid"]] = _once([(node,), *parts.values()])
        for device, nodes in parts.items():
            named[f"{index}:{device.index}"] = named[device.uuid] = (node, *nodes)
    if named:
        named["all"] = _once(named.values())
    return named


def _capabilities(gpu: Gpu, device: mig_devices.MigDevice) -> tuple[str, ...]:
    minor, instance = gpu["minor"], device.gpu_instance_id
    return (
        capabilities.node(capabilities.of_gpu_instance(minor, instance)),
        capabilities.node(capabilities.of_compute_instance(minor, instance, device.compute_instance_id)),
    )


def _once(several: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for nodes in several for node in nodes))


def _edits_of_all(state: State, is_management: bool, common_nodes: Iterable[str]) -> dict[str, Any]:
    """Return what each container gets, whichever device it requests."""
    # Prevents a runtime hook that also runs from adding GPUs.
    environment = [] if _is_before("1.15") else ["NVIDIA_VISIBLE_DEVICES=void"]
    if not _is_before("1.18"):
        environment.insert(0, f"NVIDIA_CTK_LIBCUDA_DIR={LIBRARY}")
    options = ["ro", "nosuid", "nodev", *(["bind"] if _is_before("1.18") else ["rbind", "rprivate"])]
    return {
        **({"env": environment} if environment else {}),
        **({} if is_management else {"deviceNodes": [_device_node(node, {}) for node in common_nodes]}),
        "hooks": toolkit_hooks.of_all(_is_before, str(state["driver"]["loaded"]), is_management),
        "mounts": [{"hostPath": path, "containerPath": path, "options": options} for path in mounts()],
    }


def mounts() -> tuple[str, ...]:
    """Return the simulator's paths that a container needs, mounted read-only at the same path.

    The state's directory is mounted, because the file is replaced at each change.
    """
    return (LIBRARY, STATE_DIRECTORY, PROGRAM)


def toolkit_version() -> str:
    """Return the version of the toolkit that is simulated."""
    return os.environ.get(_VERSION_VARIABLE, TOOLKIT_VERSION)


def _is_before(version: str) -> bool:
    numbers = [[int(part) for part in re.findall(r"\d+", text)[:2]] for text in (toolkit_version(), version)]
    return numbers[0] < numbers[1]


def default_strategies() -> tuple[str, ...]:
    """Return how devices are named: by index, and since 1.15 by UUID as well."""
    return ("index",) if _is_before("1.15") else ("index", "uuid")


def _named(state: State, strategies: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the device nodes of each name by these strategies, in the order of the names."""
    found = {}
    for name, nodes in devices(state).items():
        strategy = "index" if name[0].isdigit() else "uuid"
        if name == "all" or strategy in strategies:
            found[name] = nodes
        if strategy == "index" and "type-index" in strategies:
            found[("mig" if ":" in name else "gpu") + name] = nodes
    return dict(sorted(found.items()))


def _management(state: State) -> dict[str, tuple[str, ...]]:
    """Return the device of agents that manage GPUs: all nodes, and those that configure and monitor MIG."""
    nodes = ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    nodes += ["/dev/nvidia{}".format(gpu["minor"]) for gpu in state["gpus"]]
    nodes += ["/dev/nvidiactl", capabilities.node(capabilities.CONFIG), capabilities.node(capabilities.MONITOR)]
    return {"all": tuple(nodes)}


def _device_node(path: str, minors: dict[str, int]) -> dict[str, Any]:
    """Return a node of a CDI document; since 1.19 with numbers, of which 0 is left out, and mode."""
    if _is_before("1.19"):
        return {"path": path}
    major, minor, mode = _node_numbers(path, minors)
    numbers = {"major": major, **({"minor": minor} if minor else {})}
    return {"path": path, **numbers, "fileMode": mode, "permissions": "rwm"}


def cdi_specification(
    state: State,
    strategies: Iterable[str] = ("index", "uuid"),
    mode: str = "auto",
    kind: str = CDI_KIND,
    common_nodes: Iterable[str] = _COMMON_NODES,
) -> dict[str, Any]:
    """Return the CDI document of the host's GPUs; the same state always gives the same document."""
    is_management = mode == "management"
    named = _management(state) if is_management else _named(state, strategies)
    minors = _minors(state)
    return {
        "cdiVersion": CDI_VERSION if any(name[0].isdigit() for name in named) else _CDI_VERSION_WITHOUT_DIGITS,
        "kind": kind,
        "devices": [{"name": name, "containerEdits": _edits_of_device(nodes, minors)} for name, nodes in named.items()],
        "containerEdits": _edits_of_all(state, is_management, common_nodes),
    }


def _edits_of_device(nodes: tuple[str, ...], minors: dict[str, int]) -> dict[str, Any]:
    hooks = toolkit_hooks.of_device(_is_before, nodes)
    return {"deviceNodes": [_device_node(node, minors) for node in nodes], **({"hooks": hooks} if hooks else {})}


def _minors(state: State) -> dict[str, int]:
    """Return the minor number of each GPU's node by its name."""
    return {"nvidia{}".format(gpu["minor"]): gpu["minor"] for gpu in state["gpus"]}


def to_yaml(value: Any, indent: str = "") -> str:
    """Render dicts, lists, strings and numbers as YAML, with strings quoted as in JSON, which is valid YAML."""
    lines = []
    if isinstance(value, dict):
        for key in sorted(value):
            child = value[key]
            is_scalar = isinstance(child, (str, int))
            lines.append(f"{indent}{key}: {json.dumps(child)}\n" if is_scalar else f"{indent}{key}:\n")
            if not is_scalar:
                lines.append(to_yaml(child, indent + "  "))
        return "".join(lines)
    for child in value:
        if isinstance(child, str):
            lines.append(f"{indent}- {json.dumps(child)}\n")
        else:
            lines.append(f"{indent}- {to_yaml(child, indent + '  ').lstrip(' ')}")
    return "".join(lines)


def requested(variable: str | None, available: dict[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """Turn ``NVIDIA_VISIBLE_DEVICES`` into device nodes; None when the container is to be left unchanged.

    ``none`` gives nvidia-smi without a GPU. Raises ContainerError for a device that does not exist.
    """
    if variable in (None, "", "void"):
        return None
    if variable == "none":
        return ()
    names = str(variable).split(",")
    for name in names:
        if name not in available:
            raise ContainerError(f"nvidia-container-cli: device error: {name}: unknown device")
    return _once(available[name] for name in names)


def _node_numbers(path: str, minors: dict[str, int]) -> tuple[int, int, int]:
    name = path.rpartition("/")[2]
    if name.startswith("nvidia-cap"):
        return capabilities.MAJOR, int(name[len("nvidia-cap") :]), 0o444
    if name in minors:
        return host.NVIDIA_MAJOR, minors[name], 0o666
    return host.COMMON_NODES[name]


def read_state(root: str) -> State:
    """Read the state of a host whose driver is loaded; raises ContainerError with the toolkit's message."""
    state = store.read(root)
    if state is None or state["driver"]["loaded"] is None:
        raise ContainerError("failed to initialize NVML: Driver Not Loaded")
    return state


# The prestart hook


def prestart(root: str, text: str) -> None:
    """Set up the container whose OCI state is ``text`` with the GPUs that its environment requests."""
    container = json.loads(text)
    bundle, config = toolkit_hooks.bundle_of(container)
    variable = _request(root, config)
    if variable in (None, "", "void"):
        return
    state = read_state(root)
    nodes = requested(variable, devices(state, whole_gpus=True))
    if nodes is None:
        return
    root_fs = toolkit_hooks.root_directory(bundle, config)
    _enter_mount_namespace(container["pid"])
    _edit_root(root_fs, [*_COMMON_NODES, *nodes] if nodes else [], state)


def _request(root: str, config: dict[str, Any]) -> str | None:
    """The devices that a container requests by mounts or by its environment, as far as the toolkit accepts either.

    As getDevices in cmd/nvidia-container-runtime-hook/container_config.go of the container toolkit 1.18.
    """
    options = _options(root)
    if options.get("accept-nvidia-visible-devices-as-volume-mounts") == "true":
        targets = [mount.get("destination", "") for mount in config.get("mounts", [])]
        names = [path[len(_DEVICE_MOUNTS) :] for path in targets if path.startswith(_DEVICE_MOUNTS)]
        if names:
            return ",".join(names)
    is_privileged = "CAP_SYS_ADMIN" in config["process"].get("capabilities", {}).get("bounding", [])
    if not is_privileged and options.get("accept-nvidia-visible-devices-envvar-when-unprivileged") == "false":
        return None
    environment = dict(item.partition("=")[::2] for item in config["process"].get("env", []))
    return environment.get("NVIDIA_VISIBLE_DEVICES")


def _options(root: str) -> dict[str, str]:
    """The options of the toolkit that are outside of its sections; none where the file is missing."""
    path = os.path.join(root, "etc/nvidia-container-runtime/config.toml")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        top = re.split(r"^\[", file.read(), maxsplit=1, flags=re.MULTILINE)[0]
    return dict(re.findall(r"^([\w-]+)\s*=\s*(\w+)", top, re.MULTILINE))


def _enter_mount_namespace(pid: int) -> None:
    """Enter the container's mount namespace. Its root is not switched yet, so the host's paths are still valid."""
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNS) != 0:
            number = ctypes.get_errno()
            raise ContainerError(f"cannot enter the mounts of process {pid}: {os.strerror(number)}")
    finally:
        os.close(namespace)


def _edit_root(root_fs: str, nodes: list[str], state: State) -> None:
    minors = _minors(state)
    kernel = host.Kernel()
    for node in nodes:
        target = toolkit_hooks.inside(root_fs, node)
        if not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            kernel.make_node(target, *_node_numbers(node, minors))
    for path in mounts():
        target = toolkit_hooks.inside(root_fs, path)
        is_program = path == PROGRAM
        os.makedirs(os.path.dirname(target) if is_program else target, exist_ok=True)
        if is_program and not os.path.exists(target):
            with open(target, "w", encoding="utf-8"):
                pass
        kernel.mount("--bind", path, target)
        kernel.mount("-o", "remount,bind,ro,nosuid,nodev", target)


# The runtime: adds the hook, then hands over


def runtime(arguments: list[str]) -> int:
    """Run as ``nvidia-container-runtime``: add the hook on ``create``, then execute the host's own runtime."""
    program = next((path for path in map(shutil.which, _LOW_LEVEL_RUNTIMES) if path), None)
    if program is None:
        raise ContainerError("nvidia-container-runtime: neither runc nor crun is installed")
    if "create" in arguments:
        _add_hook(os.path.join(_bundle(arguments), "config.json"))
    os.execv(program, [program, *arguments])


def _bundle(arguments: list[str]) -> str:
    for position, argument in enumerate(arguments):
        if argument in ("--bundle", "-b", "-bundle"):
            return arguments[position + 1]
        if re.match(r"--?bundle=", argument):
            return argument.partition("=")[2]
    return os.getcwd()


def _add_hook(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    hooks = config.setdefault("hooks", {}).setdefault("prestart", [])
    if any(os.path.basename(hook["path"]) == _HOOK for hook in hooks):
        return
    hooks.append(
        {"path": f"/usr/bin/{_HOOK}", "args": [_HOOK, "prestart"], "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}
    )
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


# nvidia-ctk


def _log(level: str, message: str) -> None:
    print(f"level={level} msg={json.dumps(message)}", file=sys.stderr)


def _option(arguments: list[str], name: str, default: str) -> str:
    """Take ``--name VALUE`` or ``--name=VALUE`` out of the arguments."""
    for position, argument in enumerate(arguments):
        if argument == f"--{name}" and position + 1 < len(arguments):
            value = arguments[position + 1]
            del arguments[position : position + 2]
            return value
        if argument.startswith(f"--{name}="):
            del arguments[position]
            return argument.partition("=")[2]
    return default


def _flag(arguments: list[str], name: str) -> bool:
    for form, value in ((f"--{name}", True), (f"--{name}=true", True), (f"--{name}=false", False)):
        if form in arguments:
            arguments.remove(form)
            return value
    return False


def cdi_generate(root: str, arguments: list[str]) -> None:
    """Handle ``nvidia-ctk cdi generate`` with output, format, mode, naming, vendor and class."""
    output = _option(arguments, "output", "")
    form = _option(arguments, "format", "json" if output.endswith(".json") else "yaml")
    if form not in ("yaml", "json"):
        raise ContainerError(f"invalid output format: {form}")
    mode = _option(arguments, "mode", "auto")
    if mode not in ("auto", "nvml", "management"):
        raise ContainerError(f"the simulated nvidia-ctk has no mode {mode}")
    kind = "/".join((_option(arguments, "vendor", "nvidia.com"), _option(arguments, "class", "gpu")))
    strategies = _strategies(arguments)
    _refuse_rest(arguments)
    try:
        state = read_state(root)
    except ContainerError as error:
        raise ContainerError(f"failed to generate CDI spec: failed to create device CDI specs: {error}") from error
    # An engine can pass on only nodes that the host has.
    host.Host(root).make_capability_nodes(state["gpus"])
    common_nodes = [node for node in _COMMON_NODES if os.path.exists(os.path.join(root, node[1:]))]
    specification = cdi_specification(state, strategies, mode, kind, common_nodes)
    text = json.dumps(specification, indent=2) + "\n" if form == "json" else "---\n" + to_yaml(specification)
    if output:
        store.write_file(os.path.abspath(output), text)
    else:
        print(text, end="")
    _log("info", "Generated CDI spec with version {}".format(specification["cdiVersion"]))


def _strategies(arguments: list[str]) -> tuple[str, ...]:
    """Take ``--device-name-strategy`` out of the arguments: once up to 1.14, any number of times since."""
    found = []
    while True:
        strategy = _option(arguments, "device-name-strategy", "")
        if not strategy:
            break
        if strategy not in _STRATEGIES:
            raise ContainerError(f"invalid device name strategy: {strategy}")
        found.append(strategy)
    return tuple(found[-1:] if _is_before("1.15") else found) or default_strategies()


def cdi_list(root: str) -> None:
    """Handle ``nvidia-ctk cdi list``: the devices of all specifications in the engines' directories."""
    found = sorted({name for directory in CDI_DIRECTORIES for name in _specified(os.path.join(root, directory))})
    _log("info", f"Found {len(found)} CDI devices")
    for name in found:
        print(name)


def _specified(directory: str) -> list[str]:
    """Read the device names of the specifications in a directory, whichever generator wrote them."""
    names: list[str] = []
    for file_name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        if file_name.endswith((".yaml", ".json")):
            with open(os.path.join(directory, file_name), encoding="utf-8") as file:
                text = file.read()
            kind = re.search(r'^\s*"?kind"?:\s*"?([^"\s,]+)', text, re.MULTILINE)
            if kind:
                found = re.findall(r'^\s*(?:- )?"?name"?:\s*"?([^"\s,]+)', text, re.MULTILINE)
                names += [f"{kind.group(1)}={name}" for name in found]
    return names


def runtime_configure(root: str, arguments: list[str]) -> None:
    """Handle ``nvidia-ctk runtime configure --runtime=docker``: add the runtime to the engine's options."""
    engine = _option(arguments, "runtime", "docker")
    path = _option(arguments, "config", os.path.join(root, "etc/docker/daemon.json"))
    default = any([_flag(arguments, "set-as-default"), _flag(arguments, "nvidia-set-as-default")])
    cdi = any([_flag(arguments, "cdi.enabled"), _flag(arguments, "enable-cdi")])
    dry_run = _flag(arguments, "dry-run")
    if engine != "docker":
        raise ContainerError(f"the simulated nvidia-ctk configures docker only, not {engine}")
    _refuse_rest(arguments)
    options: dict[str, Any] = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            options = json.load(file)
    options.setdefault("runtimes", {})["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
    if default:
        options["default-runtime"] = "nvidia"
    if cdi:
        options.setdefault("features", {})["cdi"] = True
    text = json.dumps(options, indent=4, sort_keys=True)
    if dry_run:
        print(text)
        return
    store.write_file(path, text)
    _log("info", f"Wrote updated config to {path}")
    _log("info", "It is recommended that docker daemon be restarted.")


def config(root: str, arguments: list[str]) -> None:
    """Handle ``nvidia-ctk config``: print the configuration or the default, or write it where there is none."""
    place = os.path.join(root, "etc/nvidia-container-runtime/config.toml")
    for name in ("config-file", "config"):
        place = _option(arguments, name, place)
    output = _option(arguments, "output", "")
    in_place = any([_flag(arguments, "in-place"), _short_flag(arguments, "-i")])
    is_default = arguments[:1] in (["default"], ["create-default"], ["generate-default"])
    _refuse_rest(arguments[1:] if is_default else arguments)
    text = toolkit_config.default_config(_is_before, root)
    if os.path.exists(place) and not is_default:
        with open(place, encoding="utf-8") as file:
            text = file.read()
    if in_place or output:
        store.write_file(place if in_place else os.path.abspath(output), text)
    else:
        print(text, end="")


def _short_flag(arguments: list[str], name: str) -> bool:
    if name in arguments:
        arguments.remove(name)
        return True
    return False


def _refuse_rest(arguments: list[str]) -> None:
    if arguments:
        raise ContainerError(f"the simulated nvidia-ctk does not know {arguments[0]}")


def ctk(root: str, arguments: list[str]) -> None:
    """Run as ``nvidia-ctk``."""
    words = [argument for argument in arguments if argument not in ("--quiet", "-q", "--debug", "-d")]
    if words in (["--version"], ["-v"]):
        print(f"NVIDIA Container Toolkit CLI version {toolkit_version()}\ncommit: simulated")
    elif words[:2] == ["cdi", "generate"]:
        cdi_generate(root, words[2:])
    elif words == ["cdi", "list"]:
        cdi_list(root)
    elif words[:2] == ["runtime", "configure"]:
        runtime_configure(root, words[2:])
    elif words[:1] == ["config"]:
        config(root, words[1:])
    elif words[:1] == ["hook"]:
        toolkit_hooks.run(words[1:], sys.stdin.read())
    else:
        raise ContainerError(
            "the simulated nvidia-ctk has: --version, cdi generate, cdi list, config, hook, runtime configure"
        )


def main(program: str, arguments: list[str], root: str | None = None) -> int:
    """Run the program of this name; returns the exit status."""
    place = store.root_of(root)
    try:
        if program == "nvidia-container-runtime":
            return runtime(arguments)
        if program == _HOOK:
            # It is called for the other hook points as well, and does nothing there.
            if arguments[:1] == ["prestart"]:
                prestart(place, sys.stdin.read())
        else:
            ctk(place, arguments)
    except ContainerError as error:
        print(error, file=sys.stderr) if program == _HOOK else _log("error", str(error))
        return 1
    except (OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return 0
