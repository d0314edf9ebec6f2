# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures shared by the unit tests."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common import resets
from ansible_collections.gpu.fleet.plugins.module_utils._mig import explain, observe
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import client, xml
from ansible_collections.gpu.fleet.plugins.module_utils._state import service_files

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def _quick_disk() -> Iterator[None]:
    """Skip fsync: no power is cut during these tests, and it would take most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _resets_of_simulated_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let no record of a reset of a simulated GPU be kept on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resets, "FILE", str(tmp_path_factory.mktemp("run") / "resets.json"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _documents_parsed_once() -> Iterator[None]:
    """Let modules parse equal documents once: simulated hosts repeat them, and a parsed document is immutable."""
    with pytest.MonkeyPatch.context() as patch:
        parse = functools.lru_cache(64)(xml.parse_document)
        for module in (client, observe):
            patch.setattr(module, "parse_document", parse)
        yield


@pytest.fixture(scope="session", autouse=True)
def _imports_parsed_once() -> Iterator[None]:
    """Let gpu_state parse each module of the boot program once: its source does not change between two runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_files, "imported", functools.cache(service_files.imported))
        yield


@pytest.fixture(scope="session", autouse=True)
def _layouts_enumerated_once() -> Iterator[None]:
    """Let modules enumerate all layouts of a GPU model once; a refusal names the nearest of some hundred."""
    enumerate_layouts = explain.layouts
    every = functools.cache(lambda table: tuple(enumerate_layouts(table)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain, "layouts", lambda table: iter(every(table)))
        yield


@pytest.fixture(scope="session")
def corpus() -> Path | None:
    """Outputs of many GPUs and drivers, too big to ship: the directory GPU_FLEET_CORPUS, or one next to the checkout.

    None if it does not exist. A test that reads it also reads shipped fixtures, so that it always tests something.
    """
    named = os.environ.get("GPU_FLEET_CORPUS")
    directory = Path(named) if named else ROOT.parent / "shared" / "corpus"
    if named and not directory.is_dir():
        raise pytest.UsageError(f"GPU_FLEET_CORPUS is {named}, which is not a directory")
    return directory if directory.is_dir() else None
