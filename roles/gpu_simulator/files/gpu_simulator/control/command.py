# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``gpu-simulator``: the command that controls the simulator behind nvidia-smi."""

from __future__ import annotations

import argparse
import json
import sys

from ..command_line import selection
from ..host import nics
from ..queries import nvlink as nvlink_queries
from ..rendering import layout
from ..state import branches, catalogue, nvml, recovery, reset, slowdowns, store
from . import dcgmi, faults, xid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from ..rendering.layout import Element
    from ..state.shapes import Gpu, KernelLine, Process, State

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

FIRST_PID = 4001
_OF_GPUS = (
    ("nvlink", "inactive_nvlinks"),
    ("nvlink", "slow_nvlinks"),
    ("nvlink", "nvlink_errors"),
    ("slowdown", "slowdowns"),
    ("field", "overrides"),
)


class ControlError(Exception):
    """A command that cannot be executed."""


def main(argv: list[str] | None = None, root: str | None = None) -> int:
    """Run one control command; the exit status is 0, or 1 with a line on standard error."""
    arguments = _parser().parse_args(_with_dashed_verb(sys.argv[1:] if argv is None else argv))
    try:
        output = arguments.run(arguments, store.root_of(root))
    except (ControlError, store.StoreError, catalogue.UnknownModelError) as error:
        print(f"gpu-simulator: {error}", file=sys.stderr)
        return 1
    if output:
        print(output)
    return 0


def _with_dashed_verb(argv: list[str]) -> list[str]:
    """Rewrite ``--verb -mig``, whose value argparse would read as an option."""
    if "--verb" not in argv[:-1]:
        return argv
    place = argv.index("--verb")
    return [*argv[:place], "--verb=" + argv[place + 1], *argv[place + 2 :]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu-simulator", description="Control the simulated GPUs of this host.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_host(commands)
    _add_state(commands)
    _add_processes(commands)
    fault = commands.add_parser("fault", help="set, list and clear faults")
    _add_faults(fault.add_subparsers(metavar="FAULT", required=True))
    return parser


def _add_host(commands: Subparsers) -> None:
    init = commands.add_parser("init", help="make a new state from the host description")
    init.add_argument("--host", choices=sorted(store.DEFAULT_HOSTS), help="write this description first")
    init.set_defaults(run=_init)
    boot = commands.add_parser("boot", help="apply what a reboot applies, reset what it resets")
    boot.set_defaults(run=_boot)


def _add_state(commands: Subparsers) -> None:
    dmesg = commands.add_parser("dmesg", help="print what the driver has logged since the boot")
    dmesg.add_argument("--form", choices=xid.FORMS, default="dmesg", help="as this prints it (default: dmesg)")
    dmesg.set_defaults(run=_dmesg)
    show = commands.add_parser("show", help="print the state as JSON")
    show.add_argument("--gpu", help="of this GPU only: index, UUID or bus id")
    show.set_defaults(run=_show)
    change = commands.add_parser("set", help="change one value of a GPU's state")
    change.add_argument("path", help="names joined by dots, as show prints them: ecc_errors.volatile.dram_correctable")
    change.add_argument("value", help="JSON of the type that is there")
    change.add_argument("--gpu", default="0", help="index, UUID or bus id (default: 0)")
    change.set_defaults(run=_set)


def _add_processes(commands: Subparsers) -> None:
    busy = commands.add_parser("busy", help="let a process use a GPU or a MIG instance")
    busy.add_argument("--gpu", default="0", help="index, UUID or bus id (default: 0)")
    busy.add_argument("--pid", type=int, help=f"default: the next free one from {FIRST_PID}")
    busy.add_argument("--name", default="python3")
    busy.add_argument("--type", default="C", choices=("C", "G", "C+G", "M+C"))
    busy.add_argument("--memory-mib", type=int, default=512)
    busy.add_argument("--gpu-instance", type=int, metavar="ID")
    busy.add_argument("--compute-instance", type=int, metavar="ID", help="default: 0 where a GPU instance is given")
    busy.set_defaults(run=_busy)
    idle = commands.add_parser("idle", help="end processes that use a GPU")
    idle.add_argument("--gpu", help="only of this GPU: index, UUID or bus id")
    idle.add_argument("--pid", type=int, help="only this one")
    idle.set_defaults(run=_idle)


def _add_faults(kinds: Subparsers) -> None:
    kinds.add_parser("list", help="print the faults as JSON").set_defaults(run=_list_faults)
    clear = kinds.add_parser("clear", help="take faults back: one, or all with what they did to GPUs")
    clear.add_argument("id", type=int, nargs="?")
    clear.set_defaults(run=_clear_faults)

    hang = _timed(kinds, "hang", "sleep before responding")
    hang.add_argument("seconds", type=float)
    slow = _timed(kinds, "slow", "take as long as a real host")
    slow.add_argument("--factor", type=float, default=1.0)
    leave = _timed(kinds, "exit", "exit with a status instead of doing anything")
    leave.add_argument("status", type=int)
    leave.add_argument("--text", default="", help="print this")
    noop = _timed(kinds, "noop", "do nothing, print nothing, exit 0", kind="exit", status=0)
    noop.add_argument("--text", default="", help="print this")
    kill = _timed(kinds, "kill", "die by SIGKILL")
    kill.add_argument("--moment", choices=("before", "after"), default="before", help="of doing what was asked")
    truncate = _timed(kinds, "truncate", "cut the output short")
    truncate.add_argument("--share", type=float, default=0.5, help="how much to print (default: 0.5)")
    truncate.set_defaults(verb="-q -x")

    driver = _counted(kinds, "driver", "let an operation of the driver fail", kind="driver", verb="")
    driver.add_argument("operation", choices=faults.OPERATIONS)
    driver.add_argument("--error", choices=sorted(nvml.NAMES), default="unknown")
    driver.add_argument("--gpu", type=int, help="only on the GPU of this index")
    compute = _counted(
        kinds,
        "compute-instance",
        "let a compute instance fail after its GPU instance was made",
        kind="driver",
        verb="",
        operation="create_compute_instance",
    )
    compute.add_argument("--error", choices=sorted(nvml.NAMES), default="unknown")
    compute.add_argument("--gpu", type=int, help="only on the GPU of this index")

    for name, text in (
        ("lost", "let a GPU fall off the bus"),
        ("missing", "let nvidia-smi not list a GPU that is on the PCI bus"),
        ("passthrough", "keep a GPU for a virtual machine: vfio-pci has it from the next boot on, and nvidia-smi not"),
        ("inforom", "report a corrupted infoROM"),
    ):
        health = kinds.add_parser(name, help=text)
        health.add_argument("--gpu", default="0", help="index, UUID or bus id (default: 0)")
        health.set_defaults(run=_set_health, health=name)
    _add_xid(kinds)
    _add_lines(kinds)
    nvlink = kinds.add_parser(
        "nvlink", help="let NVLinks of a GPU go down, become slow or have errors until it is reset"
    )
    nvlink.add_argument("links", type=int, nargs="+", metavar="LINK")
    nvlink.add_argument("--speed", help="they stay up, with so many GB/s")
    nvlink.add_argument("--errors", type=int, help="they stay up, with so many errors more")
    nvlink.add_argument("--counter", choices=nvlink_queries.COUNTERS, default="Replay", help="of this kind")
    nvlink.add_argument("--gpu", default="0", help="index, UUID or bus id (default: 0)")
    nvlink.set_defaults(run=_set_nvlinks)
    slowdown = kinds.add_parser("slowdown", help="lower the clocks of a GPU; the counter of that grows")
    slowdown.add_argument("reason", choices=list(slowdowns.REASONS))
    slowdown.add_argument("--seconds", type=float, default=0.0, help="since so many seconds (default: 0)")
    slowdown.add_argument("--gpu", default="0", help="index, UUID or bus id (default: 0)")
    slowdown.set_defaults(run=_set_slowdown)
    dcgm = kinds.add_parser("dcgm", help="let a test of `dcgmi diag` end with something else than Pass")
    dcgm.add_argument("test", choices=dcgmi.TESTS)
    dcgm.add_argument("--status", choices=dcgmi.STATUSES, default="Fail")
    dcgm.add_argument("--text", default="", help="the warning")
    dcgm.add_argument("--gpu", default="0", help="index, UUID or bus id (default: 0)")
    dcgm.set_defaults(run=_set_dcgm_result)
    nic = kinds.add_parser("nic", help="let something be wrong with an InfiniBand adapter")
    nic.add_argument("fault", choices=nics.FAULTS)
    nic.add_argument("--nic", type=int, default=0, metavar="NUMBER", help="of this adapter (default: 0)")
    nic.add_argument("--count", type=int, default=1, help="how many links are lost or symbols are wrong (default: 1)")
    nic.set_defaults(run=_set_nic)
    action = kinds.add_parser("recovery-action", help="let the driver ask for an action that recovers a GPU")
    action.add_argument("action", choices=list(recovery.NAMES))
    action.add_argument("--gpu", default="0", help="index, UUID or bus id (default: 0)")
    action.set_defaults(run=_set_recovery_action)
    field = kinds.add_parser("field", help="print something else, ERR! by default, in a field")
    field.add_argument("path", help="as in the XML document: fan_speed, gpu_power_readings/instant_power_draw")
    field.add_argument("--text", default="ERR!")
    field.add_argument("--gpu", default="0", help="index, UUID or bus id (default: 0)")
    field.set_defaults(run=_set_field)


def _add_xid(kinds: Subparsers) -> None:
    error = kinds.add_parser("xid", help="log an Xid error of a GPU, and let it happen")
    error.add_argument("code", type=int)
    error.add_argument("--text", help="what follows (default: as on a real host, where it is known)")
    error.add_argument("--pid", type=int, help="the process that is named (default: none is known)")
    error.add_argument("--name", default="python3", help="its name (default: python3)")
    error.add_argument("--gpu-instance", type=int, metavar="ID", help="the MIG instance that is named")
    error.add_argument("--compute-instance", type=int, metavar="ID")
    error.add_argument(
        "--action",
        choices=list(recovery.NAMES),
        help="what the driver asks for after it (default: what the code means)",
    )
    error.add_argument("--log-only", action="store_true", help="only the line: nothing happens to the GPU")
    error.add_argument("--kmsg", action="store_true", help="also write to /dev/kmsg, the log of the real kernel")
    error.add_argument("--gpu", default="0", help="index, UUID or bus id (default: 0)")
    error.set_defaults(run=_log_xid)


def _add_lines(kinds: Subparsers) -> None:
    switch = kinds.add_parser("sxid", help="log an SXid error of an NVSwitch")
    switch.add_argument("code", type=int)
    switch.add_argument("--text", help="what follows (default: as on a real host, where it is known)")
    switch.add_argument(
        "--severity",
        choices=("fatal", "nonfatal"),
        help="what the line states (default: with --text nothing, else as on a real host)",
    )
    switch.add_argument("--switch", type=int, default=0, metavar="NUMBER", help="of this NVSwitch (default: 0)")
    switch.add_argument("--link", type=int, default=0, metavar="NUMBER", help="of this link (default: 0)")
    switch.add_argument("--kmsg", action="store_true", help="also write to /dev/kmsg, the log of the real kernel")
    switch.set_defaults(run=_log_sxid)
    line = kinds.add_parser("log", help="log a line as the kernel prints it, without its time")
    line.add_argument("text")
    line.add_argument("--kmsg", action="store_true", help="also write to /dev/kmsg, the log of the real kernel")
    line.set_defaults(run=_log_line)


def _timed(kinds: Subparsers, name: str, text: str, **fixed: Any) -> argparse.ArgumentParser:
    """Add a fault that matches command lines."""
    parser = _counted(kinds, name, text, **{"kind": name, **fixed})
    parser.add_argument(
        "--verb", default="", help="words that the command must have: 'mig -cgi' (default: any command)"
    )
    return parser


def _counted(kinds: Subparsers, name: str, text: str, **fixed: Any) -> argparse.ArgumentParser:
    """Add a fault that counts calls."""
    parser = kinds.add_parser(name, help=text)
    parser.add_argument("--at", type=int, help="at the n-th time (default: from the first on)")
    parser.add_argument("--times", type=int, help="for so many times (default: once with --at, else for ever)")
    parser.set_defaults(run=_set_fault, **fixed)
    return parser


def _init(arguments: argparse.Namespace, root: str) -> str:
    description = store.DEFAULT_HOSTS[arguments.host] if arguments.host else store.read_description(root)
    store.initialise(description, root)
    return ""


def _boot(_unused: argparse.Namespace, root: str) -> str:
    with store.transaction(root) as state:
        reset.boot(state)
        xid.write_boot_log(root, state)
    nics.show(root, state)
    return ""


def _show(arguments: argparse.Namespace, root: str) -> str:
    state = store.read(root)
    if state is None:
        raise store.StoreError("there is no state: run `gpu-simulator init` first")
    shown: Any = _one_gpu(state, arguments.gpu) if arguments.gpu else state
    return json.dumps(shown, indent=1)


def _set(arguments: argparse.Namespace, root: str) -> str:
    with store.transaction(root) as state:
        place: Any = _one_gpu(state, arguments.gpu)
        *parents, name = arguments.path.split(".")
        try:
            for parent in parents:
                place = place[parent]
            before = place[name]
            value = json.loads(arguments.value)
        except (KeyError, TypeError):
            raise ControlError(f"a GPU's state has no {arguments.path}") from None
        except ValueError:
            raise ControlError(f"{arguments.value} is not JSON") from None
        if before is not None and value is not None and type(value) is not type(before):
            raise ControlError(f"{arguments.path} is {json.dumps(before)}: {arguments.value} is of another type")
        place[name] = value
    return ""


def _busy(arguments: argparse.Namespace, root: str) -> str:
    gpu_instance, compute_instance = arguments.gpu_instance, arguments.compute_instance
    if gpu_instance is None and compute_instance is not None:
        raise ControlError("a compute instance is one of a GPU instance: give --gpu-instance as well")
    if gpu_instance is not None and compute_instance is None:
        compute_instance = 0
    with store.transaction(root) as state:
        gpu = _one_gpu(state, arguments.gpu)
        places = [
            (instance["id"], compute["id"])
            for instance in gpu["gpu_instances"]
            for compute in instance["compute_instances"]
        ]
        if gpu_instance is not None and (gpu_instance, compute_instance) not in places:
            raise ControlError(f"this GPU has no compute instance {compute_instance} in a GPU instance {gpu_instance}")
        taken = {process["pid"] for other in state["gpus"] for process in other["processes"]}
        pid = arguments.pid or next(number for number in range(FIRST_PID, FIRST_PID + 2**16) if number not in taken)
        process: Process = {
            "pid": pid,
            "name": arguments.name,
            "type": arguments.type,
            "used_memory_mib": arguments.memory_mib,
            "gpu_instance_id": gpu_instance,
            "compute_instance_id": compute_instance,
        }
        gpu["processes"].append(process)
    return str(pid)


def _idle(arguments: argparse.Namespace, root: str) -> str:
    with store.transaction(root) as state:
        gpus = [_one_gpu(state, arguments.gpu)] if arguments.gpu else state["gpus"]
        for gpu in gpus:
            gpu["processes"] = [
                process for process in gpu["processes"] if arguments.pid is not None and process["pid"] != arguments.pid
            ]
    return ""


def _list_faults(_unused: argparse.Namespace, root: str) -> str:
    state = store.read(root)
    return json.dumps([*state["faults"], *_lasting_faults(state)] if state else [], indent=1)


def _lasting_faults(state: State) -> Iterator[dict[str, Any]]:
    """What faults did to GPUs and adapters, which has no number: `fault clear` takes back all of it."""
    for index, gpu in enumerate(state["gpus"]):
        if gpu["health"] != "ok":
            yield {"kind": gpu["health"], "gpu": index}
        for name, action in recovery.NAMES.items():
            if action == gpu.get("recovery_action") != recovery.NONE:
                yield {"kind": "recovery-action", "gpu": index, "action": name}
        for kind, name in _OF_GPUS:
            found = gpu.get(name)
            if found:
                yield {"kind": kind, "gpu": index, name: found}
    if state.get("dcgm_results"):
        yield {"kind": "dcgm", "results": state["dcgm_results"]}
    for place, nic in enumerate(state.get("nics", [])):
        if nic.get("faults"):
            yield {"kind": "nic", "nic": place, "faults": nic["faults"]}


def _clear_faults(arguments: argparse.Namespace, root: str) -> str:
    with store.transaction(root) as state:
        if arguments.id is not None:
            kept = [fault for fault in state["faults"] if fault["id"] != arguments.id]
            if len(kept) == len(state["faults"]):
                raise ControlError(f"there is no fault {arguments.id}")
            state["faults"] = kept
        else:
            state["faults"] = []
            state["dcgm_results"] = {}
            for nic in state.get("nics", []):
                nic["faults"] = []
            for gpu in state["gpus"]:
                gpu["health"] = "ok"
                gpu["recovery_action"] = recovery.NONE
                gpu["inactive_nvlinks"] = []
                gpu["slow_nvlinks"] = {}
                gpu["nvlink_errors"] = {}
                gpu["slowdowns"] = {}
                gpu["overrides"] = {}
    nics.show(root, state)
    return ""


def _set_nic(arguments: argparse.Namespace, root: str) -> str:
    if arguments.count < 1:
        raise ControlError("--count is 1 or more")
    with store.transaction(root) as state:
        found = state.get("nics", [])
        if not 0 <= arguments.nic < len(found):
            raise ControlError(f"this host has {len(found)} adapters: there is no adapter {arguments.nic}")
        nics.add_fault(found[arguments.nic], arguments.fault, arguments.count)
    nics.show(root, state)
    return ""


def _set_fault(arguments: argparse.Namespace, root: str) -> str:
    at, times = arguments.at, arguments.times
    if any(number is not None and number < 1 for number in (at, times)):
        raise ControlError("--at and --times count from 1")
    fault: dict[str, Any] = {
        "kind": arguments.kind,
        "verb": arguments.verb,
        "at": 1 if at is None else at,
        "times": 1 if times is None and at is not None else times,
        "seen": 0,
    }
    for name in ("seconds", "factor", "status", "text", "moment", "share", "operation"):
        if hasattr(arguments, name):
            fault[name] = getattr(arguments, name)
    if fault["kind"] == "driver":
        fault.update(gpu=arguments.gpu, code=nvml.NAMES[arguments.error])
    with store.transaction(root) as state:
        fault["id"] = max((other["id"] for other in state["faults"]), default=0) + 1
        state["faults"].append(fault)
    return str(fault["id"])


def _set_health(arguments: argparse.Namespace, root: str) -> str:
    with store.transaction(root) as state:
        _one_gpu(state, arguments.gpu)["health"] = arguments.health
    return ""


def _set_nvlinks(arguments: argparse.Namespace, root: str) -> str:
    with store.transaction(root) as state:
        gpu = _one_gpu(state, arguments.gpu)
        model = catalogue.load(gpu["model"])
        there = range(model["nvlink"]["links"] if model["nvlink"] else 0)
        missing = sorted(set(arguments.links) - set(there))
        if missing:
            raise ControlError("{} has no NVLink {}".format(model["name"], missing[0]))
        if arguments.errors is not None:
            errors = gpu.setdefault("nvlink_errors", {})
            for name in (f"{link} {arguments.counter}" for link in arguments.links):
                errors[name] = errors.get(name, 0) + arguments.errors
        elif arguments.speed is None:
            gpu["inactive_nvlinks"] = sorted(set(gpu.get("inactive_nvlinks", [])) | set(arguments.links))
        else:
            slow = {str(link): arguments.speed for link in arguments.links}
            gpu["slow_nvlinks"] = {**gpu.get("slow_nvlinks", {}), **slow}
    return ""


def _set_slowdown(arguments: argparse.Namespace, root: str) -> str:
    with store.transaction(root) as state:
        slowdowns.begin(_one_gpu(state, arguments.gpu), arguments.reason, arguments.seconds)
    return ""


def _log_xid(arguments: argparse.Namespace, root: str) -> str:
    code = arguments.code
    if arguments.text is None and code not in xid.KNOWN and code != xid.RECOVERY_ACTION_CHANGED:
        raise ControlError(f"no real line of Xid {code} is known: give its text with --text")
    if arguments.compute_instance is not None and arguments.gpu_instance is None:
        raise ControlError("a compute instance is one of a GPU instance: give --gpu-instance as well")
    with store.transaction(root) as state:
        gpu = _one_gpu(state, arguments.gpu)
        driver = state["driver"]["installed"]
        lines = [] if _has_logged(state, gpu) else [xid.introduction(gpu)]
        before, after = recovery.action(gpu), _action_after(arguments, driver)
        if code != xid.RECOVERY_ACTION_CHANGED:
            process = (arguments.pid, arguments.name) if arguments.pid is not None else None
            origin = xid.Origin(process, arguments.gpu_instance, arguments.compute_instance)
            lines.append(xid.line(gpu, state["gpus"].index(gpu), code, arguments.text, origin))
        if code == xid.RECOVERY_ACTION_CHANGED or (after not in (recovery.NONE, before) and not arguments.log_only):
            lines.append(xid.action_line(gpu, before, after, driver))
        if not arguments.log_only:
            xid.happen(gpu, code)
            gpu["recovery_action"] = after if after != recovery.NONE or arguments.action else gpu["recovery_action"]
        new = xid.log(state, lines)
        xid.write_boot_log(root, state)
    return _write_log(new, arguments.kmsg, root)


def _log_sxid(arguments: argparse.Namespace, root: str) -> str:
    known = xid.KNOWN_SXIDS.get(arguments.code)
    if arguments.text is None and known is None:
        raise ControlError(f"no real line of SXid {arguments.code} is known: give its text with --text")
    is_fatal = known.is_fatal if known and arguments.text is None else None
    if arguments.severity is not None:
        is_fatal = arguments.severity == "fatal"
    text = known.text if known and arguments.text is None else arguments.text
    return _log(xid.sxid_lines(arguments.code, text, is_fatal, arguments.switch, arguments.link), arguments.kmsg, root)


def _log_line(arguments: argparse.Namespace, root: str) -> str:
    return _log([arguments.text], arguments.kmsg, root)


def _log(lines: Sequence[str], to_kernel: bool, root: str) -> str:
    with store.transaction(root) as state:
        new = xid.log(state, lines)
        xid.write_boot_log(root, state)
    return _write_log(new, to_kernel, root)


def _write_log(new: Sequence[KernelLine], to_kernel: bool, root: str) -> str:
    """Write new lines where the kernel's messages are kept; return them."""
    xid.append_to_file(root, new)
    if to_kernel:
        try:
            xid.write_to_kernel(new)
        except OSError as error:
            raise ControlError(f"cannot write to /dev/kmsg: {error.strerror}") from None
    return "\n".join(line["text"] for line in new)


def _has_logged(state: State, gpu: Gpu) -> bool:
    return any(xid.place_of(gpu) in line["text"] for line in state.get("kernel_log", []))


def _action_after(arguments: argparse.Namespace, driver: str) -> int:
    """Return the recovery action after an Xid; unless requested, only one that the driver knows."""
    if arguments.action is not None:
        return _known_action(arguments.action, driver)
    if arguments.code == xid.RECOVERY_ACTION_CHANGED:
        raise ControlError("an Xid 154 needs --action")
    known = xid.KNOWN.get(arguments.code)
    number = known.action if known else recovery.NONE
    return number if branches.parse(driver)[0] >= recovery.SINCE[number] else recovery.NONE


def _dmesg(arguments: argparse.Namespace, root: str) -> str:
    state = store.read(root)
    return "\n".join(xid.render(state.get("kernel_log", []) if state else [], arguments.form))


def _set_dcgm_result(arguments: argparse.Namespace, root: str) -> str:
    with store.transaction(root) as state:
        index = str(state["gpus"].index(_one_gpu(state, arguments.gpu)))
        results = state.setdefault("dcgm_results", {}).setdefault(arguments.test, {})
        results[index] = {"status": arguments.status, "text": arguments.text}
    return ""


def _set_recovery_action(arguments: argparse.Namespace, root: str) -> str:
    with store.transaction(root) as state:
        gpu = _one_gpu(state, arguments.gpu)
        gpu["recovery_action"] = _known_action(arguments.action, state["driver"]["installed"])
    return ""


def _known_action(name: str, driver_version: str) -> int:
    """Look up a recovery action; raises ControlError for one that this driver does not have yet."""
    number = recovery.NAMES[name]
    branch = branches.parse(driver_version)[0]
    if branch < recovery.SINCE[number]:
        raise ControlError(
            f"driver {driver_version} has no recovery action {name}: it came with {recovery.SINCE[number]}"
        )
    return number


def _set_field(arguments: argparse.Namespace, root: str) -> str:
    path = arguments.path
    # Readings below csv/ and samples/ have no element; the other renderings print them.
    if not path.startswith(("csv/", "samples/")) and path not in _paths(layout.GPU):
        raise ControlError(f"the document of a GPU has no element {path}")
    with store.transaction(root) as state:
        _one_gpu(state, arguments.gpu)["overrides"][arguments.path] = arguments.text
    return ""


def _paths(elements: Sequence[Element], parent: str = "") -> Iterator[str]:
    """Yield the paths of elements of the document, of all drivers and GPUs."""
    for element in elements:
        if element.tag is not None:
            yield parent + element.tag
            if not element.repeats:
                yield from _paths(element.children, f"{parent}{element.tag}/")


def _one_gpu(state: State, selector: str) -> Gpu:
    """Find a GPU of the host, visible or not."""
    found = selection.select(list(enumerate(state["gpus"])), selector)
    if len(found) != 1:
        raise ControlError(f"no one GPU is meant by {selector!r}")
    return found[0][1]


if __name__ == "__main__":
    sys.exit(main())
