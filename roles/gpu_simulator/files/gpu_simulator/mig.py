# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi mig``: its arguments, which GPUs it acts on, and what it prints while doing so."""

from __future__ import annotations

from . import catalogue, health, mig_instances, mig_listing, mig_profiles, nvml, placement, selection, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .mig_profiles import Profile
    from .selection import Selected
    from .shapes import Answer, Gpu, GpuInstance, State, Version
    from .verbs import Call

ALIASES = {
    "--help": "-h",
    "--id": "-i",
    "--gpu-instance-id": "-gi",
    "--compute-instance-id": "-ci",
    "--list-gpu-instance-profiles": "-lgip",
    "--list-gpu-instance-possible-placements": "-lgipp",
    "--default-compute-instance": "-C",
    "--create-gpu-instance": "-cgi",
    "--destroy-gpu-instance": "-dgi",
    "--list-gpu-instances": "-lgi",
    "--list-compute-instance-profiles": "-lcip",
    "--list-compute-instance-possible-placements": "-lcipp",
    "--create-compute-instance": "-cci",
    "--destroy-compute-instance": "-dci",
    "--list-compute-instances": "-lci",
}
WITH_VALUE = ("-i", "-gi", "-ci", "-cgi")
WITH_OPTIONAL_VALUE = ("-cci",)
FILTERS = ("-h", "-i", "-gi", "-ci", "-C")

NO_DEVICES = "No devices were found\n"
NOT_SUPPORTED = "No MIG-supported devices found.\n"
NOT_ENABLED = "No MIG-enabled devices found.\n"
NO_GPU_INSTANCES = "No GPU instances found: {}"
NO_COMPUTE_INSTANCES = "No compute instances found: {}"
MODE_OFF_IS_NO_ERROR_SINCE = 550
FREE_WITH_MODE_OFF_SINCE = 580


class UsageError(Exception):
    """Arguments that nvidia-smi refuses; the text is what it prints."""


class Request:
    """What the arguments ask for; ``options`` maps the short names that were given to their values."""

    def __init__(self, options: dict[str, str | None]) -> None:
        self.options = options
        self.action = next((name for name in options if name not in FILTERS), None)

    @property
    def value(self) -> str | None:
        """Give the value of the action."""
        return self.options[self.action] if self.action else None

    def wants(self, option: str, number: int) -> bool:
        """Tell whether ``-gi`` or ``-ci`` leaves an instance of this id in."""
        chosen = self.options.get(option)
        return chosen is None or str(number) in [part.lstrip("0") or "0" for part in chosen.split(",")]


class Session:
    """One run of an action: the GPUs in MIG mode, and the text so far."""

    def __init__(self, request: Request, state: State, gpus: Selected, version: Version, root_user: bool) -> None:
        self.request = request
        self.gpus = gpus
        self.version = version
        self.text = ""
        self._state = state
        self._root_user = root_user

    def begin(self, operation: str, index: int) -> None:
        """Begin an operation of the driver; raises NvmlError."""
        nvml.begin(self._state, self._root_user, operation, index)

    def say(self, line: str) -> None:
        """Print a line."""
        self.text += line + "\n"

    def fail(self, error: nvml.NvmlError, line: str) -> Answer:
        """End with a last line about an error."""
        self.say(line.format(error))
        return self.text, error.exit_status

    def instances(self) -> list[tuple[int, Gpu, Profile, GpuInstance]]:
        """List the GPU instances that ``-i`` and ``-gi`` leave in; raises NvmlError when there is none."""
        if not self._root_user:
            raise nvml.NvmlError(nvml.NO_PERMISSION)
        found = [
            (index, gpu, profile, instance)
            for index, gpu in self.gpus
            for profile, instance in mig_instances.listed(gpu, self.version)
            if self.request.wants("-gi", instance["id"])
        ]
        if not found:
            raise nvml.NvmlError(nvml.NOT_FOUND)
        return found


def mig(call: Call) -> Answer:
    """Answer ``nvidia-smi mig ...``."""
    try:
        request = parse(call.arguments)
    except UsageError as error:
        return f"{error}\n", 2
    if request.action is None or "-h" in request.options:
        return catalogue.read_text("help", "mig.txt"), 0
    if request.action in CHANGES and call.root_user:
        try:
            with store.transaction(call.root) as state:
                return _act(call, request, state)
        except store.StoreError:
            # A container sees the state, read-only: there even root may change nothing.
            call.root_user = False
    return _act(call, request, call.state)


def parse(arguments: list[str]) -> Request:
    """Read the arguments after the word ``mig``; raises UsageError."""
    options: dict[str, str | None] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        short = ALIASES.get(name, name)
        if short not in ALIASES.values():
            raise UsageError(f'Option "{word}" is not recognized.')
        takes_next = not equals and bool(rest)
        if short in WITH_VALUE:
            if not equals and not rest:
                raise UsageError(f'Option "{word}" is missing its value.')
            options[short] = rest.pop(0) if takes_next else value
        elif short in WITH_OPTIONAL_VALUE:
            takes_next = takes_next and not rest[0].startswith("-")
            options[short] = rest.pop(0) if takes_next else value or None
        else:
            options[short] = None
    return Request(options)


def _act(call: Call, request: Request, state: State) -> Answer:
    try:
        gpus = selection.select(selection.visible(state, call.root), request.options.get("-i"))
    except selection.UnparsableSelectorError:
        gpus = []
    if not gpus:
        return NO_DEVICES, nvml.NOT_FOUND
    lost = health.lost(gpus)
    if lost:
        return lost
    branch = call.version[0]
    capable = [(index, gpu) for index, gpu in gpus if gpu["mig_mode"]]
    if not capable:
        return (NOT_SUPPORTED if branch >= MODE_OFF_IS_NO_ERROR_SINCE else NOT_ENABLED), nvml.NOT_FOUND
    enabled = [(index, gpu) for index, gpu in capable if in_mig_mode(gpu)]
    if request.action in ("-lgip", "-lgipp") and branch >= MODE_OFF_IS_NO_ERROR_SINCE:
        enabled = capable
    if not enabled:
        return NOT_ENABLED, (0 if branch >= MODE_OFF_IS_NO_ERROR_SINCE else nvml.NOT_FOUND)
    session = Session(request, state, enabled, call.version, call.root_user)
    return ACTIONS[request.action or ""](session)


def in_mig_mode(gpu: Gpu) -> bool:
    """Tell whether a GPU is in MIG mode now."""
    return bool(gpu["mig_mode"] and gpu["mig_mode"]["current"])


def _list_gpu_profiles(session: Session) -> Answer:
    rows = []
    branch = session.version[0]
    for index, gpu in session.gpus:
        profiles = mig_instances.profiles_of(gpu, session.version)
        counted = in_mig_mode(gpu) or branch >= FREE_WITH_MODE_OFF_SINCE
        for profile in profiles:
            free = placement.free_count(profile, profiles, gpu["gpu_instances"]) if counted else 0
            rows.append((index, profile, free))
    return mig_listing.gpu_profiles(branch, rows), 0


def _list_gpu_placements(session: Session) -> Answer:
    rows = [
        (index, profile) for index, gpu in session.gpus for profile in mig_instances.profiles_of(gpu, session.version)
    ]
    return mig_listing.gpu_placements(rows), 0


def _list_gpu_instances(session: Session) -> Answer:
    try:
        found = session.instances()
    except nvml.NvmlError as error:
        refused = error.code == nvml.NO_PERMISSION
        return session.fail(error, "Failed to display GPU instances: {}" if refused else NO_GPU_INSTANCES)
    rows = [(index, profile, instance) for index, _, profile, instance in found]
    return mig_listing.gpu_instances(session.version[0], rows), 0


def _list_compute_instances(session: Session) -> Answer:
    rows = []
    for index, gpu, profile, instance in session.instances():
        model = catalogue.load(gpu["model"])
        for compute in instance["compute_instances"]:
            compute_profile = mig_profiles.compute_profile(model, profile, compute["profile_id"])
            rows.append((index, instance["id"], compute_profile, compute))
    if not rows:
        return session.fail(nvml.NvmlError(nvml.NOT_FOUND), NO_COMPUTE_INSTANCES)
    return mig_listing.compute_instances(rows), 0


def _list_compute_profiles(session: Session) -> Answer:
    rows = []
    for index, gpu, profile, instance in session.instances():
        for compute in mig_instances.compute_profiles_of(gpu, instance):
            free = placement.free_compute_starts(profile["slices"], compute["slices"], instance["compute_instances"])
            rows.append((index, instance["id"], profile, compute, len(free)))
    return mig_listing.compute_profiles(rows), 0


def _list_compute_placements(session: Session) -> Answer:
    rows = []
    for index, gpu, profile, instance in session.instances():
        for compute in mig_instances.compute_profiles_of(gpu, instance):
            starts = placement.compute_starts(profile["slices"], compute["slices"])
            rows.append((index, instance["id"], compute, starts))
    return mig_listing.compute_placements(rows), 0


def _create_gpu_instances(session: Session) -> Answer:
    wanted = session.request.value
    if not wanted:
        return "", 0
    for index, gpu in session.gpus:
        for chosen in wanted.split(","):
            name, _, place = chosen.partition(":")
            if not name:
                session.say(
                    f"Unable to create a GPU instace on GPU {index:>2} using profile {chosen}: invalid placement syntax"
                )
                return session.fail(nvml.NvmlError(nvml.INVALID_ARGUMENT), "Failed to create GPU instances: {}")
            blamed = f"Unable to create a GPU instance on GPU {index:>2} using profile {chosen}"
            try:
                profile = find_profile(mig_instances.profiles_of(gpu, session.version), name)
                session.begin("create_gpu_instance", index)
                instance = mig_instances.create_gpu_instance(gpu, session.version, profile, read_start(place))
                session.say(
                    f"Successfully created GPU instance ID {instance['id']:>2} on GPU {index:>2} "
                    f"using profile MIG {profile['name']} (ID {profile['id']:>2})"
                )
                if "-C" in session.request.options:
                    blamed = _compute_blame(index, instance, "default")
                    _create_compute_instance(session, index, gpu, instance, None)
            except nvml.NvmlError as error:
                session.say(f"{blamed}: {error}")
                return session.fail(error, "Failed to create GPU instances: {}")
    return session.text, 0


def _create_compute_instances(session: Session) -> Answer:
    wanted: list[str | None] = list(session.request.value.split(",")) if session.request.value else [None]
    for index, gpu, _, instance in session.instances():
        for name in wanted:
            try:
                _create_compute_instance(session, index, gpu, instance, name)
            except nvml.NvmlError as error:
                session.say(f"{_compute_blame(index, instance, name or 'default')}: {error}")
                return session.fail(error, "Failed to create compute instances: {}")
    return session.text, 0


def _compute_blame(index: int, instance: GpuInstance, name: str) -> str:
    place = f"GPU {index:>2} GPU instance ID {instance['id']:>2}"
    return f"Unable to create a compute instance on {place} using profile {name}"


def _create_compute_instance(session: Session, index: int, gpu: Gpu, instance: GpuInstance, name: str | None) -> None:
    profiles = mig_instances.compute_profiles_of(gpu, instance)
    if name is None:
        profile = next(candidate for candidate in profiles if candidate["default"])
    else:
        profile = find_profile(profiles, name)
    session.begin("create_compute_instance", index)
    slices = max(candidate["slices"] for candidate in profiles)
    compute = mig_instances.create_compute_instance(instance, profile, slices)
    session.say(
        f"Successfully created compute instance ID {compute['id']:>2} on GPU {index:>2} "
        f"GPU instance ID {instance['id']:>2} using profile MIG {profile['name']} (ID {profile['id']:>2})"
    )


def _destroy_gpu_instances(session: Session) -> Answer:
    for index, gpu, _, instance in session.instances():
        what = f"GPU instance ID {instance['id']:>2} from GPU {index:>2}"
        try:
            session.begin("destroy_gpu_instance", index)
            mig_instances.destroy_gpu_instance(gpu, instance)
        except nvml.NvmlError as error:
            session.say(f"Unable to destroy {what}: {error}")
            return session.fail(error, "Failed to destroy GPU instances: {}")
        session.say(f"Successfully destroyed {what}")
    return session.text, 0


def _destroy_compute_instances(session: Session) -> Answer:
    for index, gpu, _, instance in session.instances():
        for compute in list(instance["compute_instances"]):
            if not session.request.wants("-ci", compute["id"]):
                continue
            what = f"compute instance ID {compute['id']:>2} from GPU {index:>2} GPU instance ID {instance['id']:>2}"
            try:
                session.begin("destroy_compute_instance", index)
                mig_instances.destroy_compute_instance(gpu, instance, compute)
            except nvml.NvmlError as error:
                session.say(f"Unable to destroy {what}: {error}")
                return session.fail(error, "Failed to destroy compute instances: {}")
            session.say(f"Successfully destroyed {what}")
    if not session.text:
        return session.fail(nvml.NvmlError(nvml.NOT_FOUND), NO_COMPUTE_INSTANCES)
    return session.text, 0


def find_profile(profiles: list[Profile], name: str) -> Profile:
    """Find a profile by its number (leading zeros allowed) or its name, with or without ``MIG``; raises NvmlError."""
    for profile in profiles:
        if name in (profile["name"], "MIG " + profile["name"]) or (_is_number(name) and int(name) == profile["id"]):
            return profile
    raise nvml.NvmlError(nvml.INVALID_ARGUMENT)


def read_start(text: str) -> int | None:
    """Read a start as strtol does: the leading digits; without any, or below zero, the driver chooses."""
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    return int(digits) if digits else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _needs_instances(action: Callable[[Session], Answer]) -> Callable[[Session], Answer]:
    """Let an action end with "No GPU instances found" when there is none, or none that the user may see."""

    def answer(session: Session) -> Answer:
        try:
            return action(session)
        except nvml.NvmlError as error:
            return session.fail(error, NO_GPU_INSTANCES)

    return answer


ACTIONS: dict[str, Callable[[Session], Answer]] = {
    "-lgip": _list_gpu_profiles,
    "-lgipp": _list_gpu_placements,
    "-lgi": _list_gpu_instances,
    "-lci": _needs_instances(_list_compute_instances),
    "-lcip": _needs_instances(_list_compute_profiles),
    "-lcipp": _needs_instances(_list_compute_placements),
    "-cgi": _create_gpu_instances,
    "-cci": _needs_instances(_create_compute_instances),
    "-dgi": _needs_instances(_destroy_gpu_instances),
    "-dci": _needs_instances(_destroy_compute_instances),
}
CHANGES = ("-cgi", "-cci", "-dgi", "-dci")
