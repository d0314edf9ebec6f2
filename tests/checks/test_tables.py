# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of the guides are those of argument_specs and DOCUMENTATION: `make tables` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import tables
from tests.checks.tools import ROOT

PAGE = Path("roles/docker/README.md")


@pytest.mark.parametrize("page", tables.pages(), ids=str)
def test_the_tables_of_a_page_are_current(page: Path) -> None:
    assert (ROOT / page).read_text(encoding="utf-8") == tables.current(page), "run: make tables"


def test_every_page_with_tables_is_found() -> None:
    assert {Path("docs/README.md"), Path("docs/roles.md"), PAGE} <= set(tables.pages())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("V(a|b) of O(docker_state=absent)", "`a\\|b` of `docker_state=absent`"),
        ("as in O(gpu.fleet.gpu_health#module:tests)", "as in `tests` of the module `gpu_health`"),
        ("O(gpu.fleet.nvidia_driver#role:main:nvidia_driver_version)", "`nvidia_driver_version`"),
        (
            "see P(gpu.fleet.cuda#role) and M(gpu.fleet.mig_profile)",
            "see [`cuda`](../../roles/cuda/README.md) and `mig_profile`",
        ),
        ("V($(id -u\\)) in docs/sharing.md#mps.", "`$(id -u)` in [docs/sharing.md#mps](../../docs/sharing.md#mps)."),
        ("L(NVIDIA,https://example.com/a)", "[NVIDIA](https://example.com/a)"),
    ],
)
def test_markup_of_ansible_becomes_markdown(text: str, expected: str) -> None:
    assert tables.markdown(text, PAGE) == expected
