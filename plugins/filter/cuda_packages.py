# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Name the packages of CUDA toolkits and companion libraries by part and version, from a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from ansible.errors import AnsibleFilterError

MANAGERS = ("apt", "dnf")
_VERSION = re.compile(r"\d+(\.\d+)*")
_PLACE = re.compile(r"<(\w+)>")

Table = Mapping[str, Sequence[Mapping[str, Any]]]


class CudaRequestError(Exception):
    """No package fits the request; the message is for the user."""


@dataclass(frozen=True)
class CudaPackage:
    """A package: `version` is a pattern with `*`, empty for any; `kind` is the package's purpose in the table."""

    name: str
    version: str
    kind: str


def packages_for(part: str, version: str, cuda: str, table: Table, manager: str) -> Iterator[CudaPackage]:
    """The packages of one part in one version; raises CudaRequestError when there are none."""
    if part not in table:
        raise CudaRequestError(f"{part} is none of {', '.join(table)}")
    if not _VERSION.fullmatch(version) or not (cuda == "" or _VERSION.fullmatch(cuda)):
        raise CudaRequestError(f"{part}: {version!r} for CUDA {cuda!r} is no version, as 13.0 is")
    rows = [
        row for row in table[part] if _reaches(version, row.get("since")) and not _passes(version, row.get("until"))
    ]
    if not rows:
        raise CudaRequestError(f"there are no packages of {part} {version}")
    for row in rows:
        values = {
            "version": version.replace(".", "-"),
            "major": version.partition(".")[0],
            "cuda": cuda.partition(".")[0],
            "pin": version + ("-*" if len(_numbers(version)) >= int(row.get("numbers", 0)) else ".*-*"),
            "cuda_pin": cuda if "." in cuda else f"{cuda}.*",
        }
        yield CudaPackage(
            name=_filled(row.get(manager, row.get("name", "")), values),
            version=_filled(row.get("versions", ""), values),
            kind=row.get("kind", ""),
        )


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: values[place[1]], text)


def _reaches(version: str, since: str | None) -> bool:
    return since is None or _numbers(version) >= _numbers(since)


def _passes(version: str, until: str | None) -> bool:
    """Whether a version is newer than the last one; `until: 8` includes all of 8."""
    return until is not None and _numbers(version)[: len(_numbers(until))] > _numbers(until)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def cuda_packages(requests: Sequence[Mapping[str, Any]], table: Table, manager: str) -> list[dict[str, Any]]:
    """The filter: each request has `part` and `version`, a string or a list of them, and may have `cuda`."""
    if manager not in MANAGERS:
        raise AnsibleFilterError(f"gpu.fleet.cuda_packages: {manager!r} is none of {', '.join(MANAGERS)}")
    found: dict[str, CudaPackage] = {}
    try:
        for request in requests:
            cuda = str(request.get("cuda", ""))
            for version, part in product(_strings(request["version"]), _strings(request["part"])):
                for package in packages_for(part, version, cuda, table, manager):
                    found.setdefault(package.name, package)
    except KeyError as error:
        raise AnsibleFilterError(f"gpu.fleet.cuda_packages: a request has no {error}") from None
    except CudaRequestError as error:
        raise AnsibleFilterError(f"gpu.fleet.cuda_packages: {error}") from None
    return [asdict(package) for package in found.values()]


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else [str(value)]


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"cuda_packages": cuda_packages}
