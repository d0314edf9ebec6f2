# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of ``nvidia-smi mig``, with the column widths of each driver branch."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence

    from ..state.shapes import ComputeInstance, GpuInstance
    from .profiles import Profile

    Rows = List[List[str]]

WIDER_NAMES_SINCE = 575


def _rule(fill: str, width: int) -> str:
    return f"+{fill * width}+"


def _table(headers: Sequence[str], rows: Rows) -> str:
    width = len(headers[0])
    lines = [_rule("-", width), *(f"|{header}|" for header in headers), f"|{'=' * width}|"]
    for row in rows:
        lines += [f"|{line}|" for line in row]
        lines.append(_rule("-", width))
    return "\n".join(lines) + "\n"


def _pad(branch: int) -> int:
    """Return by how many characters the name column is wider than in older branches with shorter names."""
    return 2 if branch >= WIDER_NAMES_SINCE else 0


def gpu_profiles(branch: int, profiles: Sequence[tuple[int, Profile, int]]) -> str:
    """Print ``-lgip`` from (GPU index, profile, free instances)."""
    pad = " " * _pad(branch)
    headers = (
        " GPU instance profiles:                                                      " + pad,
        " GPU   Name             " + pad + "ID    Instances   Memory     P2P    SM    DEC   ENC  ",
        "                              " + pad + "Free/Total   GiB              CE    JPEG  OFA  ",
    )
    rows = []
    for gpu, profile, free in profiles:
        name, count = "{:<{}}".format(profile["name"], 14 + len(pad)), f"{free}/{profile['max']}"
        engines = profile["engines"]
        first = (
            f"{gpu:>4}  MIG {name}{profile['id']:>2}     {count:<11}{profile['memory_mib'] / 1024:<11.2f}No     "
            f"{profile['sm']:<7}{engines['dec']:<6}{engines['enc']:<4}"
        )
        second = " " * (len(first) - 16) + "{ce:<6}{jpeg:<6}{ofa:<4}".format(**engines)
        rows.append([first, second])
    return _table(headers, rows)


def gpu_placements(profiles: Sequence[tuple[int, Profile]]) -> str:
    """Print ``-lgipp``."""
    return "".join(
        "GPU {:>2} Profile ID {:>2} {}\n".format(gpu, profile["id"], placements(profile["starts"], profile["size"]))
        for gpu, profile in profiles
    )


def placements(starts: Sequence[int], size: int) -> str:
    """Print a list of starts; a single one is a ``Placement`` with a space for the missing letter."""
    label = "Placement " if len(starts) == 1 else "Placements"
    return "{}: {{{}}}:{}".format(label, ",".join(map(str, starts)), size)


def gpu_instances(branch: int, instances: Sequence[tuple[int, Profile, GpuInstance]]) -> str:
    """Print ``-lgi``."""
    pad = " " * _pad(branch)
    headers = (
        " GPU instances:                                        " + pad,
        " GPU   Name             " + pad + "Profile  Instance   Placement  ",
        "                        " + pad + "  ID       ID       Start:Size ",
    )
    rows = []
    for gpu, profile, instance in instances:
        name = "{:<{}}".format(profile["name"], 16 + len(pad))
        rows.append([f"{gpu:>4}  MIG {name}{profile['id']:>2}{instance['id']:>9}{_place(instance)}"])
    return _table(headers, rows)


def compute_instances(instances: Sequence[tuple[int, int, Profile, ComputeInstance]]) -> str:
    """Print ``-lci`` from (GPU index, GPU instance id, compute profile, compute instance)."""
    headers = (
        " Compute instances:                                                 ",
        " GPU     GPU       Name             Profile   Instance   Placement  ",
        "       Instance                       ID        ID       Start:Size ",
        "         ID                                                         ",
    )
    rows = []
    for gpu, gpu_instance, profile, instance in instances:
        row = f"{gpu:>4}{gpu_instance:>7}       MIG {profile['name']:<16}{profile['id']:>2}{instance['id']:>10}"
        rows.append([row + _place(instance)])
    return _table(headers, rows)


def compute_profiles(profiles: Sequence[tuple[int, int, Profile, Profile, int]]) -> str:
    """Print ``-lcip`` from (GPU index, GPU instance id, its profile, compute profile, free instances)."""
    headers = (
        " Compute instance profiles:                                                           ",
        " GPU     GPU       Name             Profile  Instances   Exclusive       Shared       ",
        "       Instance                       ID     Free/Total     SM       DEC   ENC   OFA  ",
        "         ID                                                          CE    JPEG       ",
    )
    rows = []
    for gpu, gpu_instance, shared, profile, free in profiles:
        mark = "*" if profile["default"] else " "
        count, engines = f"{free}/{profile['max']}", shared["engines"]
        first = (
            f"{gpu:>4}{gpu_instance:>7}       MIG {profile['name']:<16}{profile['id']:>2}{mark}     "
            f"{count:<14}{profile['sm']:<10}{engines['dec']:<6}{engines['enc']:<6}{engines['ofa']:<4}"
        )
        second = " " * (len(first) - 16) + "{ce:<6}{jpeg:<10}".format(**engines)
        rows.append([first, second])
    return _table(headers, rows)


def compute_placements(profiles: Sequence[tuple[int, int, Profile, list[int]]]) -> str:
    """Print ``-lcipp`` from (GPU index, GPU instance id, compute profile, starts)."""
    return "".join(
        "GPU {:>2} GI {:>2} Profile ID {:>2} {}\n".format(
            gpu, gpu_instance, profile["id"], placements(starts, profile["slices"])
        )
        for gpu, gpu_instance, profile, starts in profiles
    )


def _place(instance: GpuInstance | ComputeInstance) -> str:
    return f"{instance['start']:>11}:{instance['size']:<6}"
