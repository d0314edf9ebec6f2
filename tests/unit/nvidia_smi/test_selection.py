# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU selection: how selectors limit each other, and warnings about entries that match nothing."""

from __future__ import annotations

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import gpu as gpu_schema
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import selection


def _gpu_of(index: int, name: str) -> gpu_schema.Gpu:
    return gpu_schema.Gpu(
        index, gpu_schema.Basics(uuid=f"GPU-{index}", pci_bus_id=f"00000000:0{index + 6}:00.0", name=name)
    )


GPUS = [_gpu_of(0, "NVIDIA H200"), _gpu_of(1, "NVIDIA H200"), _gpu_of(2, "Tesla T4")]


@pytest.mark.parametrize(
    ("limit", "entries", "chosen", "warnings"),
    [
        (["all"], None, [[0, 1, 2]], []),
        (["1", "GPU-0"], None, [[0, 1]], []),
        (["0"], [["all"]], [[0]], []),
        (["0"], [["1"], ["NVIDIA*"]], [[], [0]], []),
        (["all"], [["*A100*"], ["all"]], [[], [0, 1, 2]], ["entries[0]: no GPU of this host matches '*A100*'"]),
        (["all"], [["0", "9", "GPU-x"]], [[0]], ["entries[0]: no GPU of this host matches '9', 'GPU-x'"]),
        (["all"], [[]], [[]], ["entries[0]: gpus is empty: the entry is for no GPU"]),
        (["all"], [], [], ["entries is empty: it declares nothing for any GPU"]),
        (["2"], [["0"], ["1"]], [[], []], ["entries: no entry is for a GPU that the top-level gpus names ('2')"]),
        # Non-ASCII digits, more digits than Python converts, blanks, and names that are too long.
        (["0"], [["\uff10"]], [[]], ["entries[0]: no GPU of this host matches '\uff10'"]),
        (["0"], [["9" * 5000]], [[]], [f"entries[0]: no GPU of this host matches '{'9' * 59}…"]),
        (["0"], [["0" * 5000]], [[0]], []),
        (["0"], [[" "]], [[]], ["entries[0]: no GPU of this host matches ' '"]),
        (["0"], [["*a" * 500]], [[]], [f"entries[0]: no GPU of this host matches '{'*a' * 29}*…"]),
    ],
)
def test_entries_are_limited_and_what_matches_nothing_is_named(
    limit: list[str], entries: list[list[str]] | None, chosen: list[list[int]], warnings: list[str]
) -> None:
    found = selection.choose(GPUS, limit, entries, "entries")
    assert [[gpu.index for gpu in gpus] for gpus in found.gpus] == chosen
    assert list(found.warnings) == warnings


@pytest.mark.parametrize(
    ("gpus", "limit", "why"),
    [
        (GPUS, [], "gpus is empty"),
        (GPUS, ["0", "9"], "gpus: no GPU matches '9'; this host has: 0 = GPU-0"),
        ([], ["all"], "this host has no GPU"),
    ],
)
def test_a_limit_that_names_nothing_is_an_error(gpus: list[gpu_schema.Gpu], limit: list[str], why: str) -> None:
    for entries in (None, [["all"]]):
        with pytest.raises(ChangeError, match=why):
            selection.choose(gpus, limit, entries, "entries")


def test_a_gpu_without_name_and_uuid_is_matched_by_no_empty_selector() -> None:
    silent = gpu_schema.Gpu(0, gpu_schema.Basics())
    assert not selection.matches(silent, "") and selection.matches(silent, "all")
