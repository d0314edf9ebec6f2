# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The requested MIG layout, in terms of GPU instances. Private to this collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Iterator, Mapping, Sequence

from .._common.bounds import shown
from .._common.errors import ChangeError
from .profiles import ProfileName, compute_name, parse_name

MOST_INSTANCES = 1024
"""Layouts with more instances are refused before they are expanded.

No GPU has more than a dozen memory slices; up to this limit the error message states what the GPU can hold.
"""
_LAST_START = 255


@dataclass(frozen=True)
class DesiredInstance:
    """One desired GPU instance: `compute` has the slices of its compute instances, largest first."""

    profile: str
    slices: int
    compute: tuple[int, ...]
    start: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether one compute instance takes all of it, which nvidia-smi creates along with the GPU instance."""
        return self.compute == (self.slices,)

    def __str__(self) -> str:
        names = "+".join(compute_name(self.profile, self.slices, size) for size in self.compute)
        text = names or f"{self.profile} without compute instances"
        return text if self.start is None else f"{text}:{self.start}"


@dataclass(frozen=True)
class Item:
    """One entry of the requested layout."""

    name: ProfileName
    start: int | None


def parse_layout(layout: object) -> tuple[Item, ...]:
    """Parse a list of names, `name:start` for a fixed place, or a map of such names to counts; raises ChangeError.

    Time and memory are bounded by the size of `layout` itself, whatever the counts.
    """
    if isinstance(layout, Mapping):
        _refuse_too_many(len(layout))
        counted = [(_parse_item(text), _count(text, count)) for text, count in layout.items()]
        _refuse_too_many(sum(count for _item, count in counted))
        return tuple(item for item, count in counted for _number in range(count))
    if isinstance(layout, Sequence) and not isinstance(layout, (str, bytes)):
        _refuse_too_many(len(layout))
        return tuple(_parse_item(text) for text in layout)
    raise ChangeError(f"a layout is a list of profile names or a map of names to counts, not {shown(layout)}")


def _refuse_too_many(number: int) -> None:
    if number > MOST_INSTANCES:
        raise ChangeError(f"a layout has at most {MOST_INSTANCES} profiles, which is far more than any GPU can hold")


def _parse_item(text: object) -> Item:
    if not isinstance(text, str):
        raise ChangeError(f"a profile is a name like '1g.18gb' or '1g.18gb:3', not {shown(text)}")
    name, colon, start = text.partition(":")
    parsed = parse_name(name)
    # nvidia-smi ignores an invalid start and lets the driver choose.
    if colon and not (start.isascii() and start.isdigit()):
        raise ChangeError(
            f"{shown(text)}: the memory slice where the instance starts follows the colon, as in {name}:0"
        )
    # Length first: Python refuses to convert thousands of digits.
    if colon and (len(start) > len(str(_LAST_START)) or int(start) > _LAST_START):
        raise ChangeError(f"{shown(text)}: no GPU has so many memory slices; {_LAST_START} is the highest allowed")
    return Item(parsed, int(start) if colon else None)


def _count(text: object, count: object) -> int:
    if isinstance(count, str) and count.isascii() and count.isdigit():
        digits = count.lstrip("0") or "0"
        # Python refuses to convert thousands of digits.
        count = int(digits) if len(digits) <= len(str(MOST_INSTANCES)) else MOST_INSTANCES + 1
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ChangeError(f"the count of {shown(text)} is a whole number from 0, not {shown(count)}")
    if count > MOST_INSTANCES:
        raise ChangeError(
            f"the count of {shown(text)} is at most {MOST_INSTANCES}, which is far more than any GPU can hold"
        )
    return count


def group(items: Sequence[Item], most: Mapping[str, int]) -> tuple[tuple[DesiredInstance, ...], ...]:
    """All ways to group the requested compute instances into GPU instances, the fewest GPU instances first.

    Whole GPU instances and those without compute instances leave no choice. Compute instances with the same place share
    the GPU instance there; the others of one profile may share GPU instances in any way, at most `most` of the profile.
    Raises ChangeError.
    """
    fixed: list[DesiredInstance] = []
    placed: dict[tuple[str, int], list[int]] = {}
    loose: dict[str, list[int]] = {}
    slices = {item.name.gpu_instance: item.name.slices for item in items}
    for item in items:
        name = item.name
        if name.compute in (0, name.slices):
            fixed.append(
                DesiredInstance(name.gpu_instance, name.slices, (name.compute,) if name.compute else (), item.start)
            )
        elif item.start is None:
            loose.setdefault(name.gpu_instance, []).append(name.compute)
        else:
            placed.setdefault((name.gpu_instance, item.start), []).append(name.compute)
    for (profile, start), sizes in placed.items():
        if sum(sizes) > slices[profile]:
            raise ChangeError(
                f"the compute instances at {profile}:{start} take {sum(sizes)} slices; it has {slices[profile]}"
            )
        fixed.append(DesiredInstance(profile, slices[profile], tuple(sorted(sizes, reverse=True)), start))
    ways: list[tuple[DesiredInstance, ...]] = [()]
    for profile, sizes in loose.items():
        shares = _shares(Counter(sizes), slices[profile], most[profile])
        if not shares:
            raise ChangeError(
                f"compute instances of {sum(sizes)} slices do not fit into {most[profile]} x {profile} "
                f"of {slices[profile]} slices each, all that one GPU can hold"
            )
        ways = [
            way + tuple(DesiredInstance(profile, slices[profile], compute) for compute in share)
            for way in ways
            for share in shares
        ]
    return tuple((*fixed, *way) for way in sorted(ways, key=len))


def _shares(sizes: Counter[int], capacity: int, most: int) -> list[tuple[tuple[int, ...], ...]]:
    """All distinct ways to divide `sizes` among at most `most` instances of `capacity` slices."""
    found: list[tuple[tuple[int, ...], ...]] = []

    def fill(left: Counter[int], largest: tuple[int, ...], done: tuple[tuple[int, ...], ...]) -> None:
        if not left:
            found.append(done)
            return
        if sum(left.elements()) > capacity * (most - len(done)):
            return
        # Each instance takes the largest size left, and no more than the previous one: no duplicates.
        for share in _subsets(left, capacity):
            if share[0] == max(left) and share <= largest:
                fill(left - Counter(share), share, (*done, share))

    fill(+sizes, (capacity + 1,), ())
    return found


def _subsets(sizes: Counter[int], capacity: int) -> Iterator[tuple[int, ...]]:
    """The non-empty selections from `sizes` that fit into `capacity`, largest size first within each."""

    def extend(chosen: tuple[int, ...], left: Counter[int], room: int) -> Iterator[tuple[int, ...]]:
        if chosen:
            yield chosen
        for size in sorted(left, reverse=True):
            if size <= room and (not chosen or size <= chosen[-1]):
                yield from extend((*chosen, size), left - Counter((size,)), room - size)

    return extend((), sizes, capacity)
