# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The generic resources (GRES) of a node of Slurm: gres.conf, its node line, and the check of both. Private.

Pure: facts about GPUs and outputs of slurmd in, the content of the files out. A device is a GPU, or a MIG device of it.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._planning.contract import Ask, Needs, Outlook, Plan, Reading, Readings, RolePlanner, command, unread

EXPLICIT, AUTO, NVML, NVIDIA = "explicit", "auto", "nvml", "nvidia"
_HEADER = "# Written by the role gpu.fleet.slurm_gres; changes are overwritten.\n"
# AutoDetect=nvidia needs no library and detects no MIG devices.
_FIRST_WITH_NVIDIA = (24, 11)
# From this version on, `scontrol reconfigure` reads all of slurm.conf; before, slurmctld kept a node's GRES.
_FIRST_WITH_RECONFIGURE = (23, 11)
_GRES_LINE = re.compile(r"\bGres Name=gpu Type=(\S+) Count=([0-9]{1,9}) .*?\bFile=(\S+)(?: Cores=(\S+))?")
# slurmd's lines have less; the time to search one grows with the square of its length.
_LONGEST_LINE = 4000
# Behind the name of the program, or from 26.05 on behind the time.
_MESSAGE = re.compile(r"^\S+ ((?:error|fatal|warning|WARNING): .*|We were configured (?:with|to autodetect) .*)")
# What is gathered by default, and the topology.
_GPUS_OF_NODE: Reading = ("gpu.fleet.nvidia_smi_facts", {"gather_subset": ["!clocks", "!supported_clocks", "!nvlink"]})
# One process a step of a job; `slurmstepd infinity`, which holds a cgroup, is none.
_JOBS = command("pgrep", "--full", "--list-full", r"^slurmstepd: \[")
# Takes slurmd, the node and a slurm.conf of only this node, and reads gres.conf. Leaves nothing.
_CHECK = """\
set -e
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf %s "$3" >"$scratch/slurm.conf"
cat >"$scratch/gres.conf"
"$1" -G -N "$2" -f "$scratch/slurm.conf"
"""
_CPUS = ("lscpu", "--parse=CPU,CORE,SOCKET")
_PARAMETER = re.compile(r"[A-Za-z]+")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Neither a comment nor a backslash, at the end of a line the sign that it goes on, can take the rest of the file away.
_PARAMETER_VALUE = re.compile(r'[^\s"\\#]+|"[^"\n\\#]*"')

# A host may lie to the controller. What it reports enters the configuration of slurmctld and of all nodes: no names and
# values but those that slurmd prints, each up to what Slurm holds, which is 16 bits for all counts.
_LARGEST_COUNT = 65535
_HARDWARE = {
    **dict.fromkeys(("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore"), _LARGEST_COUNT),
    "RealMemory": 10**10,  # MiB
}
_GPUS, _MIG_DEVICES = 256, 64
_LARGEST_ID = 1 << 20
_PRODUCT = re.compile(r"[ -~]{1,96}")
_PLAIN = (str, int, float, type(None))
_PROFILE = re.compile(r"[0-9A-Za-z.+_-]{1,32}")
# In nvidia-smi's topology, the class of paths over NVLinks: how many there are.
_NVLINKS = re.compile(r"NV([1-9][0-9]{0,2})")
_CPU_LIST = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")


@dataclass(frozen=True)
class Device:
    """What a job can request.

    type: of the GRES. files: its device files. cores: those next to it as Slurm counts them, "" for all. links: the
    number of NVLinks to each device in their order, -1 for itself, "" where there are none.
    """

    type: str
    files: tuple[str, ...]
    cores: str = ""
    links: str = ""


@dataclass(frozen=True)
class Request:
    """The variables of the role: `types` by product name, more `parameters` of the node line, Slurm's `directory`."""

    node: str | None
    detection: str
    types: Mapping[str, str]
    parameters: Mapping[str, Any]
    directory: str = ""

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request of these variables."""
        node = variables["slurm_gres_node"]
        return cls(
            node=None if node is None else str(node),
            detection=variables["slurm_gres_detection"],
            types=variables["slurm_gres_types"],
            parameters=variables["slurm_gres_node_parameters"],
            directory=str(variables["slurm_gres_directory"]),
        )

    @property
    def slurmd(self) -> str:
        """Its program."""
        return f"{self.directory}/sbin/slurmd" if self.directory else "slurmd"

    @property
    def refusals(self) -> tuple[str, ...]:
        """What is wrong with the variables; the name of the node is known to its host only, by default."""
        return tuple(_request_refusals(self))


@dataclass(frozen=True)
class Found:
    """What was read on the node.

    gpus and topology: of nvidia_smi_facts. mig_minors: the driver's file of that name. cpus: output of
    `lscpu --parse=CPU,CORE,SOCKET`. hardware and version: outputs of `slurmd -C` and `slurmd -V`, empty without slurmd.
    """

    gpus: Sequence[Mapping[str, Any]]
    topology: Sequence[Mapping[str, Any]]
    mig_minors: str
    cpus: str
    hardware: str
    version: str


@dataclass(frozen=True)
class GresPlan:
    """The contents of gres.conf and of the node line, or `refusals`.

    slurm_conf: a configuration of this node alone, for `slurmd -G`. gres: the value of Gres= in the node line.
    controller_restart: whether slurmctld has to be restarted for another GRES, since a reconfiguration has no effect.
    """

    detection: str
    devices: tuple[Device, ...] = ()
    gres: str = ""
    gres_conf: str = ""
    node_line: str = ""
    slurm_conf: str = ""
    controller_restart: bool = False
    refusals: tuple[str, ...] = ()


def slurm_gres(request: Request, found: Found) -> GresPlan:
    """The plan for a node."""
    refusals = tuple(_shape_refusals(found))
    if refusals:
        return GresPlan(request.detection, refusals=refusals)
    version = _version(found.version)
    detection = _detection(found) if request.detection == AUTO else request.detection
    refusals = (
        *_slurmd_refusals(request, found),
        *_detection_refusals(detection, found, version),
        *_gpu_refusals(found, detection),
    )
    if refusals:
        return GresPlan(detection, refusals=refusals)
    hardware = _hardware(found.hardware)
    devices = tuple(_devices(request, found, _cores(found.cpus, hardware)))
    gres = ",".join(f"gpu:{name}:{count}" for name, count in sorted(Counter(one.type for one in devices).items()))
    listed = [_line(device) for device in devices]
    if detection == EXPLICIT:
        lines = ["AutoDetect=off", *listed]
    else:
        # slurmd detects devices when it starts, and is restarted where this file changes: so it changes with them.
        lines = [f"AutoDetect={detection}", *(f"# {line}" for line in listed)]
    given = {**hardware, **({"Gres": gres} if gres else {}), **request.parameters}
    node_line = " ".join([f"NodeName={request.node}", *(f"{name}={value}" for name, value in given.items())])
    return GresPlan(
        detection,
        devices,
        gres,
        _HEADER + "".join(f"{line}\n" for line in lines),
        node_line,
        f"ClusterName=validation\nSlurmctldHost={request.node}\nGresTypes=gpu\n{node_line}\n",
        version < _FIRST_WITH_RECONFIGURE,
    )


def gres_errors(plan: GresPlan, output: str) -> list[str]:
    """How the devices in the output of `slurmd -G` differ from the devices of the plan, and its error messages.

    Its exit status is 0 also for another type, for cores that the node does not have, and where nothing was detected.
    """
    expected = [(device.type, device.files, device.cores) for device in plan.devices]
    lines = [line for line in output.splitlines() if len(line) <= _LONGEST_LINE]
    found = (match for line in lines for match in _GRES_LINE.finditer(line))
    read = [(match[1], int(match[2]), match[3], match[4] or "") for match in found]
    if plan.detection == EXPLICIT:
        actual = [(name, tuple(files.split(",")), cores) for name, _count, files, cores in read]
        differs = sorted(actual) != sorted(expected)
    else:
        # The type in slurm.conf may be a part of the detected one, in which case slurmd prints the type of slurm.conf.
        counts: Counter[str] = Counter()
        for name, count, _files, _cores_of in read:
            counts[name] += count
        differs = counts != Counter(name for name, _files, _cores_of in expected)
    messages = [match[1].strip() for match in map(_MESSAGE.match, lines) if match]
    errors = [text for text in messages if re.search("gres|gpu:", text, re.IGNORECASE)]
    if differs:
        # Others, such as those about cgroups, are shown only where none of these explains it.
        errors = [text for text in messages if re.search("gres|gpu|nvml", text, re.IGNORECASE)] or messages
        shown = ", ".join(f"{name} ({files})" for name, _count, files, _cores_of in read) or "no GPU"
        errors.insert(0, f"slurmd has {shown} instead of {plan.gres or 'no GPU'}")
    return errors


def _shape_refusals(found: Found) -> Iterator[str]:
    """What is not of the form in which the modules return it, as a host can report anything."""
    if not _is_list(found.gpus, _GPUS) or not _is_list(found.topology, _GPUS * 4):
        yield f"the facts of its GPUs are not a list of up to {_GPUS} GPUs"
        return
    for number, gpu in enumerate(found.gpus):
        wrong = _wrong_gpu(gpu)
        if wrong:
            yield f"the facts of GPU {number} have {wrong}"
    for row in found.topology:
        cpus = row.get("cpu_affinity")
        if cpus not in (None, "") and not _is_cpu_list(cpus):
            label = _shown(row.get("label"))
            yield f"{label} has the CPU affinity {_shown(cpus)}; it takes CPUs up to {_LARGEST_COUNT}"


def _wrong_gpu(gpu: Mapping[str, Any]) -> str:
    """What is wrong in what slurm_gres takes of a GPU, "" for nothing. A GPU that does not respond has no name."""
    devices = gpu.get("mig_devices") or ()
    numbers = {"index": gpu.get("index"), "minor_number": gpu.get("minor_number")}
    if not _is_list(devices, _MIG_DEVICES):
        return f"mig_devices that are not a list of up to {_MIG_DEVICES} MIG devices"
    for device in devices:
        if not _matches(_PROFILE, device.get("profile")):
            return f"the MIG profile {_shown(device.get('profile'))}"
        for name in ("gpu_instance_id", "compute_instance_id"):
            if not _is_number(device.get(name)):
                return f"the {name} {_shown(device.get(name))}"
    if not gpu.get("error") and not _matches(_PRODUCT, gpu.get("name")):
        return f"the product name {_shown(gpu.get('name'))}"
    wrong = [name for name, value in numbers.items() if value is not None and not _is_number(value)]
    return f"the {wrong[0]} {_shown(numbers[wrong[0]])}" if wrong else ""


def _is_list(value: object, longest: int) -> bool:
    return isinstance(value, (list, tuple)) and len(value) <= longest and all(isinstance(row, Mapping) for row in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_ID


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_cpu_list(value: object) -> bool:
    if not (isinstance(value, str) and len(value) <= _LONGEST_LINE and _CPU_LIST.fullmatch(value)):
        return False
    # In order and without overlap, as the driver prints them, so that all ranges together have no more CPUs than fit.
    ends = [int(end) for part in value.split(",") for end in (part.split("-") * 2)[:2]]
    return ends == sorted(ends) and ends[-1] <= _LARGEST_COUNT


def _shown(value: object) -> str:
    """A value of a host in a message: short, on one line, and without control characters."""
    return ascii(value[:60] if isinstance(value, str) else value)[:62] if isinstance(value, _PLAIN) else "no text"


def _line_of(text: object) -> str:
    """A text of a host in a message."""
    return " ".join(re.sub(r"[^ -~]", " ", str(text)[:1000]).split())[:150]


def _request_refusals(request: Request) -> Iterator[str]:
    if request.node is not None and not _NODE.fullmatch(request.node):
        yield f"slurm_gres_node is {_shown(request.node)}; it takes the name of one node: letters, digits, and . _ -"
    for name, value in request.parameters.items():
        if not _PARAMETER.fullmatch(name) or name.lower() in ("nodename", "gres") or not str(value):
            yield f"slurm_gres_node_parameters has {name}: it takes parameters of a node line but NodeName and Gres"
        elif re.search(r"\s", str(value)) and not re.fullmatch(r'"[^"\n]*"', str(value)):
            yield f"slurm_gres_node_parameters: the value of {name} has a space; put it in quotation marks"
        elif not _PARAMETER_VALUE.fullmatch(str(value)):
            yield f'slurm_gres_node_parameters: the value of {name} has a character out of # \\ " in it'
    if request.directory and not request.directory.startswith("/"):
        yield f"slurm_gres_directory is {request.directory[:60]}, and has to be an absolute path"
    for product, name in request.types.items():
        if name != _word(name):
            yield f"slurm_gres_types: {name} of {product} takes lower-case letters, digits, and . _ -"


def _detection(found: Found) -> str:
    return NVML if _has_mig(found.gpus) else NVIDIA


def _slurmd_refusals(request: Request, found: Found) -> Iterator[str]:
    reported = _line_of(found.hardware)
    if not reported:
        program = request.slurmd[:132]
        yield f"{program} cannot be run; slurm_gres_directory has to name the directory of Slurm if it is not in PATH"
    elif not _hardware(found.hardware):
        yield f"slurmd -C printed no node line: {reported}"
    elif _version(found.version) == (0, 0):
        yield f"slurmd -V printed no version: {found.version[:60].strip() or 'nothing'}"


def _detection_refusals(detection: str, found: Found, version: tuple[int, int]) -> Iterator[str]:
    if detection == NVIDIA and (0, 0) != version < _FIRST_WITH_NVIDIA:
        number = ".".join(map(str, version))
        yield f"Slurm {number} has no AutoDetect=nvidia, which came with 24.11; set slurm_gres_detection to explicit"
    if detection == NVIDIA and _has_mig(found.gpus):
        yield "AutoDetect=nvidia detects no MIG devices; set slurm_gres_detection to auto, nvml or explicit"


def _gpu_refusals(found: Found, detection: str) -> Iterator[str]:
    """A GPU that is left out without a word would take jobs' GPUs away, and Slurm would drain the node."""
    minors = _mig_minors(found.mig_minors)
    for gpu in found.gpus:
        name = f"GPU {gpu.get('index')}"
        if gpu.get("error"):
            yield f"{name} does not respond: {_line_of(gpu['error'])}; repair it, or it is missing in gres.conf"
        elif gpu.get("minor_number") is None:
            yield f"{name} has no minor number, the number of its device file; nvidia-smi does not report it"
        elif detection == EXPLICIT:
            for device in gpu.get("mig_devices") or ():
                if not set(_capabilities(gpu, device)) <= minors.keys():
                    yield (
                        f"{name}: the driver's list of minor numbers (slurm_gres_mig_minors) has no MIG device "
                        f"{device['profile']} of GPU instance {device['gpu_instance_id']}"
                    )


def _devices(request: Request, found: Found, cores: Mapping[int, int]) -> Iterator[Device]:
    affinity = {row["label"]: row.get("cpu_affinity") or "" for row in found.topology}
    minors = _mig_minors(found.mig_minors)
    links = _links(found)
    for gpu in found.gpus:
        file = f"/dev/nvidia{gpu['minor_number']}"
        near = _near(affinity.get(f"GPU{gpu['index']}", ""), cores)
        name = request.types.get(gpu["name"]) or _word(gpu["name"])
        if not _is_mig(gpu):
            yield Device(name, (file,), near, links.get(gpu["index"], ""))
            continue
        for device in gpu.get("mig_devices") or ():
            numbers = [minors.get(path) for path in _capabilities(gpu, device)]
            files = tuple(f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers if number is not None)
            yield Device(f"{name}_{_word(device['profile'])}", (file, *files), near)


def _links(found: Found) -> dict[int, str]:
    """By the index of a GPU its links to all of them, by which Slurm chooses GPUs for a job that are well connected.

    None where no GPU has links to another one, or where one is in MIG mode: MIG devices have no links.
    """
    rows = {row["label"]: row["links"] for row in found.topology if isinstance(row.get("links"), Mapping)}
    indexes = [gpu["index"] for gpu in found.gpus]
    if _has_mig(found.gpus) or not all(f"GPU{index}" in rows for index in indexes):
        return {}
    counts = {one: [_link_count(one, other, rows[f"GPU{one}"]) for other in indexes] for one in indexes}
    linked = any(count > 0 for row in counts.values() for count in row)
    return {index: ",".join(map(str, row)) for index, row in counts.items()} if linked else {}


def _link_count(one: int, other: int, paths: Mapping[str, Any]) -> int:
    match = _NVLINKS.fullmatch(str(paths.get(f"GPU{other}"))[:_LONGEST_LINE])
    return -1 if one == other else int(match[1]) if match else 0


def _line(device: Device) -> str:
    key = "File" if len(device.files) == 1 else "MultipleFiles"
    cores = f" Cores={device.cores}" if device.cores else ""
    links = f" Links={device.links}" if device.links else ""
    return f"Name=gpu Type={device.type} {key}={','.join(device.files)}{cores}{links}"


def _has_mig(gpus: Iterable[Mapping[str, Any]]) -> bool:
    return any(map(_is_mig, gpus))


def _is_mig(gpu: Mapping[str, Any]) -> bool:
    return gpu.get("mig_mode_current") == "enabled"


def _word(name: str) -> str:
    """A type of GRES as Slurm makes it of a product's name; a profile's + is not allowed in one."""
    return re.sub(r"[^a-z0-9._-]", "_", str(name).lower().replace("+", "."))


def _capabilities(gpu: Mapping[str, Any], device: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the two device files that a process needs for a MIG device, in the driver's list."""
    instance = f"gpu{gpu['minor_number']}/gi{device['gpu_instance_id']}"
    return f"{instance}/access", f"{instance}/ci{device['compute_instance_id']}/access"


def _mig_minors(text: str) -> dict[str, int]:
    """Minor numbers by name, in lines such as `gpu0/gi1/access 12`."""
    return {name: int(number) for name, number in re.findall(r"^(\S+) ([0-9]{1,9})$", text, re.MULTILINE)}


def _version(text: str) -> tuple[int, int]:
    """The version in `slurm-wlm 24.11.5`; (0, 0) where there is none."""
    match = re.search(r"\b([0-9]{1,3})\.([0-9]{1,3})(?![0-9])", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _hardware(text: str) -> dict[str, str]:
    """The parameters in the node line of `slurmd -C`, those that are known; empty where one of them is no number."""
    line = next((line for line in text.splitlines() if line.startswith("NodeName=")), "")
    pairs = dict(word.split("=", 1) for word in line.split() if "=" in word)
    known = {name: pairs[name] for name in pairs if name in _HARDWARE}
    return known if all(map(_is_hardware, known.items())) else {}


def _is_hardware(pair: tuple[str, str]) -> bool:
    name, value = pair
    return re.fullmatch(r"[1-9][0-9]{0,10}", value) is not None and int(value) <= _HARDWARE[name]


def _cores(text: str, hardware: Mapping[str, str]) -> dict[int, int]:
    """The core of each CPU as Slurm numbers it: by socket, then core, each in the order of their first CPU.

    Empty where slurmd counts another number of cores, as in a container that may use only some of them.
    """
    rows = [tuple(map(int, row)) for row in re.findall(r"^([0-9]{1,5}),([0-9]{1,9}),([0-9]{1,9})$", text, re.MULTILINE)]
    first_of_socket: dict[int, int] = {}
    first_of_core: dict[tuple[int, int], int] = {}
    for cpu, core, socket in sorted(rows):
        first_of_socket.setdefault(socket, cpu)
        first_of_core.setdefault((socket, core), cpu)
    ordered = sorted(first_of_core, key=lambda key: (first_of_socket[key[0]], first_of_core[key]))
    numbers = {key: number for number, key in enumerate(ordered)}
    counted = 1
    for name in ("Boards", "SocketsPerBoard", "CoresPerSocket"):
        counted *= int(hardware.get(name, "1"))
    return {cpu: numbers[socket, core] for cpu, core, socket in rows} if len(numbers) == counted else {}


def _near(affinity: str, cores: Mapping[int, int]) -> str:
    """The cores of the CPUs in a list such as `0-31,64-95`; empty where these are all, or not known."""
    found = sorted({cores[cpu] for cpu in _numbers(affinity) if cpu in cores})
    return "" if not found or len(found) == len(set(cores.values())) else _ranges(found)


def _numbers(text: str) -> Iterator[int]:
    """The numbers in a list of CPUs that `_is_cpu_list` takes."""
    for first, last in re.findall(r"([0-9]+)(?:-([0-9]+))?", text):
        yield from range(int(first), int(last or first) + 1)


def _ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers as `0-3,8`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


# For the tasks

NODE_LINE, GRES_CONF, RESTART = "write_node_line", "write_gres_conf", "restart_slurmd"
"""Steps."""


def _needs(variables: Mapping[str, Any]) -> Needs:
    request = Request.read(variables)
    return Needs(commands=() if request.refusals else ((request.slurmd, "-C"), (request.slurmd, "-V"), _CPUS))


def _found(request: Request, smi: Mapping[str, Any], read: Readings, mig_minors: str) -> Found:
    hardware, version = (request.slurmd, "-C"), (request.slurmd, "-V")
    return Found(
        gpus=smi.get("gpus") or (),
        topology=smi.get("topology") or (),
        mig_minors=mig_minors,
        cpus=read.output(_CPUS),
        hardware=read.output(hardware) or read.output(hardware, "stderr"),
        version=read.output(version),
    )


def _refusals(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> Iterable[str]:
    """Refusals before the first change of the run: without GPUs no detection is chosen."""
    request = Request.read(variables)
    if request.refusals:
        return request.refusals
    found = _found(request, outlook.gpus(facts), outlook.readings, "")
    wrong = tuple(_shape_refusals(found))
    if wrong:
        return wrong
    detection = request.detection if request.detection != AUTO or not found.gpus else _detection(found)
    return (
        *_slurmd_refusals(request, found),
        *_detection_refusals(detection, found, _version(found.version)),
    )


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """What the files have to have, and gres.conf as it is, in base64; None where there is none."""
    request = Request.read(variables)
    if request.refusals:
        return Plan(request.refusals)
    paths = [str(variables[name]) for name in ("slurm_gres_file", "slurm_gres_mig_minors")]
    asked = unread(given, {"gpus": _GPUS_OF_NODE, "files": [("slurp", {"src": path}) for path in paths]})
    if asked:
        return asked
    read = given["files"]["results"]
    # Neither has to exist. One that cannot be read is not replaced, since the previous one could not be restored.
    unreadable = tuple(
        f"{path} cannot be read: {one.get('msg')}"
        for path, one in zip(paths, read, strict=True)
        if one.get("failed") and "not found" not in str(one.get("msg")).lower()
    )
    if unreadable:
        return Plan(unreadable)
    found = _found(
        request, facts["nvidia_smi"], Readings.of(given.get("readings") or {}), _text(read[1].get("content"))
    )
    planned = asdict(slurm_gres(request, found))
    return Plan(refusals=planned.pop("refusals"), tasks={**planned, "previous": read[0].get("content")})


def _text(content: str | None) -> str:
    return base64.b64decode(content or "").decode(errors="replace")


def _changes(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """What differs from the plan; refuses a restart while jobs run, and a gres.conf that slurmd reads differently.

    `planned` is the plan, `lines` are the predictions of the node line, one a host. In check mode the devices may be
    still to be made, and until a change is applied the node may be drained.
    """
    file, planned = str(variables["slurm_gres_file"]), given["planned"]
    restart: Reading = ("gpu.fleet.unit_restart", {"name": "slurmd.service", "started_after": [file]})
    asked = unread(given, {"restart": restart})
    if asked:
        return asked
    if given["restart"].get("failed"):
        return Plan((str(given["restart"].get("msg")),))
    unreachable = [one["item"] for one in given["lines"] if one.get("unreachable")]
    reached = [one for one in given["lines"] if not one.get("unreachable")]
    reasons = {
        NODE_LINE: "the node line differs" if any(one.get("msg") for one in reached) else "",
        GRES_CONF: "gres.conf differs" if _text(planned["previous"]) != planned["gres_conf"] else "",
        RESTART: given["restart"]["reason"],
    }
    steps = tuple(step for step, reason in reasons.items() if reason)
    hosts = ", ".join(unreachable)
    plan = Plan(
        steps=steps,
        reasons=tuple(reasons[step] for step in steps),
        warnings=(f"the node line is not written on {hosts}; run this again once they are reachable",) if hosts else (),
        tasks={
            "line_hosts": [one["item"] for one in reached] if NODE_LINE in steps else [],
            "writes_gres_conf": GRES_CONF in steps,
        },
    )
    if given["check_mode"] or not steps:
        return plan
    if variables["slurm_gres_running_jobs"] == "refuse":
        asked = unread(given, {"jobs": _JOBS}, plan)
        refusal = "" if asked else _refusal_of_jobs(file, given["jobs"])
        if asked or refusal:
            return asked or Plan((refusal,))
    if GRES_CONF not in steps:
        return plan
    node, slurm_conf = str(variables["slurm_gres_node"]), str(planned["slurm_conf"])
    name, arguments = command("sh", "-c", _CHECK, "sh", Request.read(variables).slurmd, node, slurm_conf)
    stdin = {"stdin": planned["gres_conf"], "stdin_add_newline": False, "expand_argument_vars": False}
    asked = unread(given, {"read": (name, {**arguments, **stdin})}, plan)
    refusal = "" if asked else _refusal_of_slurmd(file, planned, given["read"])
    return asked or (Plan((refusal,)) if refusal else plan)


def _refusal_of_jobs(file: str, found: Mapping[str, Any]) -> str:
    """Why slurmd is not restarted now. The exit status of pgrep is 1 where it finds none."""
    if found.get("rc") == 1:
        return ""
    if found.get("rc") != 0:
        return f"pgrep does not list the jobs of the node: {_line_of(found.get('stderr') or found.get('msg'))}"
    lines = str(found.get("stdout") or "").splitlines()
    jobs = ", ".join(re.sub(r"^.*\[(.*)\].*$", r"\1", line[:_LONGEST_LINE]) for line in lines)
    return (
        f"slurmd has to be restarted for {file} while jobs run ({jobs}); drain the node first, as gpu.fleet.upgrade "
        "does, or set slurm_gres_running_jobs to keep"
    )


def _refusal_of_slurmd(file: str, planned: Mapping[str, Any], read: Mapping[str, Any]) -> str:
    """What slurmd reads differently in the new gres.conf."""
    devices = tuple(Device(one["type"], tuple(one["files"]), one["cores"]) for one in planned["devices"])
    stdout, stderr = (str(read.get(name) or "") for name in ("stdout", "stderr"))
    errors = gres_errors(GresPlan(planned["detection"], devices, planned["gres"]), f"{stdout}\n{stderr}")
    if not errors and read.get("rc") == 0:
        return ""
    return f"slurmd -G rejects the new {file}: {'; '.join(errors) or stderr}"


PLANNER = RolePlanner(
    "slurm_gres",
    {"plan": _plan, "changes": _changes},
    reads=(
        "slurm_gres_controller",
        "slurm_gres_directory",
        "slurm_gres_file",
        "slurm_gres_node",
        "slurm_gres_node_file",
        "slurm_gres_node_file_hosts",
    ),
    needs=_needs,
    refuses=_refusals,
    # What Slurm has of a node is the operator's.
    is_removed=False,
)
