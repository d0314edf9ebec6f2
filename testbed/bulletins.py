# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's security bulletins in CSAF, as rows of the table of vulnerabilities.

The index of a year has their titles and dates (https://github.com/NVIDIA/product-security, YEAR/README.md), the CSAF
document of one (YEAR/NUMBER/NUMBER.json) which version of which product fixes which vulnerability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._knowledge import vulnerabilities
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.vulnerabilities import Bulletin

RAW = "https://raw.githubusercontent.com/NVIDIA/product-security/main"
# The product of a CSAF document, the platforms that count, and its name in the table.
_PRODUCTS = (
    ("Tesla", re.compile(r"Linux\(R([0-9]+)\)"), vulnerabilities.DRIVER),
    ("NVIDIA Container Toolkit", re.compile(r"(?:Linux|All)()"), vulnerabilities.TOOLKIT),
    ("DCGM", re.compile(r"(?:Linux|All)(?:\([0-9.]+\))?()"), vulnerabilities.DCGM),
)
FIRST_YEAR = 2022
"""The first of which there are documents."""
OF_OTHERS = frozenset({"5557"})
"""Bulletins with such a title and without a row for Linux."""
_TITLE = re.compile(r"\b(?:GPU Display Driver|Container Toolkit|DCGM)\b")
_INDEX_ROW = re.compile(
    r"\| \[([0-9]+)\]\([^)]*\) \| ([^|]*) \| ([0-9]{4}-[0-9]{2}-[0-9]{2}) \| ([0-9]{4}-[0-9]{2}-[0-9]{2}) \|"
)
_VERSION = re.compile(r"v?([0-9]+(?:\.[0-9]+)+)")
_CVE = re.compile(r"CVE-[0-9]{4}-[0-9]{4,9}")


class BulletinError(Exception):
    """A document is not what it is expected to be; the message has what."""


@dataclass(frozen=True)
class Listed:
    """A bulletin of the index, with the dates of its first and last publication."""

    number: str
    title: str
    date: str
    updated: str

    @property
    def address(self) -> str:
        """Its CSAF document."""
        return f"{RAW}/{self.date[:4]}/{self.number}/{self.number}.json"


def listed(index: str) -> list[Listed]:
    """The bulletins of an index that are about products of the table. Raises BulletinError."""
    rows = [Listed(*match.groups()) for match in _INDEX_ROW.finditer(index)]
    if not rows:
        raise BulletinError("it has no row of a bulletin")
    return [row for row in rows if _TITLE.search(row.title) and row.number not in OF_OTHERS]


def missing(index: str) -> list[tuple[str, Listed]]:
    """The bulletins of an index that the table has not (`new`), or with another date of the last publication."""
    updated = {row.number: row.updated for row in vulnerabilities.BULLETINS}
    found = [(("changed" if row.number in updated else "new"), row) for row in listed(index)]
    return [(kind, row) for kind, row in found if updated.get(row.number) != row.updated]


def bulletin(document: Any, read: str) -> list[Bulletin]:
    """The rows of a CSAF document, one for each product that it fixes. Raises BulletinError."""
    try:
        tracking = document["document"]["tracking"]
        number, date = str(tracking["id"]), str(tracking["initial_release_date"])[:10]
        updated = str(tracking["current_release_date"])[:10]
        versions = list(_versions(document["product_tree"]["branches"]))
        found = document["vulnerabilities"]
        fixes = {str(one["cve"]): frozenset(one["product_status"].get("fixed", ())) for one in found}
    except (KeyError, TypeError, AttributeError) as error:
        raise BulletinError(f"it is no CSAF advisory: {error!r}") from None
    rows = []
    for product, platform, name in _PRODUCTS:
        by_branch: dict[str, tuple[str, str]] = {}
        for architecture, of_product, version, identity in versions:
            match, number_of = platform.fullmatch(architecture), _VERSION.match(version)
            if of_product == product and match and number_of and any(identity in fixed for fixed in fixes.values()):
                by_branch[match[1]] = (number_of[1], identity)
        names = {
            cve: tuple(branch for branch, (_version, identity) in sorted(by_branch.items()) if identity not in fixed)
            for cve, fixed in sorted(fixes.items())
            if _CVE.fullmatch(cve) and any(identity in fixed for _version, identity in by_branch.values())
        }
        if names:
            fixed_in = {branch: version for branch, (version, _identity) in sorted(by_branch.items())}
            rows.append(Bulletin(name, number, date, updated, read, fixed_in, names))
    return rows


def _versions(branches: Iterable[Mapping[str, Any]], platform: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Platform, product, version and identity of each version in a product tree."""
    for branch in branches:
        here = branch["name"] if branch["category"] == "architecture" else platform
        if branch["category"] == "product_version":
            yield here, branch["name"], branch["product"]["name"], branch["product"]["product_id"]
        yield from _versions(branch.get("branches", ()), here)


def with_rows(rows: Iterable[Bulletin], state: Mapping[str, str]) -> list[Bulletin]:
    """The table with `rows`, which replace rows of the same bulletin.

    `state` has the date of each year's index: where that still names the last update of a row, the row is of that date.
    """
    table = {(row.product, row.number): row for row in vulnerabilities.BULLETINS}
    table.update({(row.product, row.number): row for row in rows})
    dated = [replace(row, read=max(row.read, state.get(row.date[:4], ""))) for row in table.values()]
    return sorted(dated, key=lambda row: (row.date, row.number, row.product))


def rendered(rows: Iterable[Bulletin]) -> str:
    """The rows as Python that `ruff format` leaves as it is."""
    return "BULLETINS = (\n" + "".join(_row(row) for row in rows) + ")\n"


def _row(row: Bulletin) -> str:
    fixed = ", ".join(f'"{branch}": "{version}"' for branch, version in row.fixed_in.items())
    names = "\n".join(
        f'            "{cve}": ({", ".join(f"{branch!r}" for branch in without)}{"," if len(without) == 1 else ""}),'
        for cve, without in row.names.items()
    ).replace("'", '"')
    strings = "".join(f'        "{text}",\n' for text in (row.number, row.date, row.updated, row.read))
    return (
        f"    Bulletin(\n        {row.product.upper()},\n{strings}        {{{fixed}}},\n"
        f"        {{\n{names}\n        }},\n    ),\n"
    )


def written(text: str, rows: Iterable[Bulletin]) -> str:
    """The text of the module with these rows as its table."""
    head, separator, _table = text.partition("BULLETINS = (\n")
    if not separator:
        raise BulletinError("the module has no table")
    return head + rendered(rows)


TABLE = Path(vulnerabilities.__file__)
