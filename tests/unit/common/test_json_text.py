# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that is nested deeper than Python can follow is damaged JSON like any other, for every file that is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _common
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.json_text import parse_json
from ansible_collections.gpu.fleet.plugins.module_utils._files.daemon_json import OptionsError
from ansible_collections.gpu.fleet.plugins.module_utils._files.daemon_json import parse as parse_daemon_json
from ansible_collections.gpu.fleet.plugins.module_utils._health.history import History
from ansible_collections.gpu.fleet.plugins.module_utils._health.history import parse as parse_history
from ansible_collections.gpu.fleet.plugins.module_utils._managed.record import RecordError
from ansible_collections.gpu.fleet.plugins.module_utils._managed.record import parse as parse_record

DEEP = "[" * 100_000
MODULE_UTILS = Path(_common.__path__[0]).parent


def test_a_deeply_nested_text_is_an_error_of_value() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP)


@pytest.mark.parametrize("text", [DEEP, '{"a": {"key": null, "text": ' + DEEP, "[]", '{"a": 1}', "", "\udcff"])
def test_a_damaged_cache_is_no_cache(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cache.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    cache = BootCache(str(path))
    assert cache.get(("a",), None) is None
    cache.invalidate(("a",))
    cache.put(("a",), None, ("new",))
    assert cache.get(("a",), None) == ("new",)


def test_files_of_others_are_refused_or_left_out() -> None:
    assert parse_history(DEEP) == History()
    with pytest.raises(RecordError):
        parse_record(DEEP)
    with pytest.raises(OptionsError, match="nested too deeply"):
        parse_daemon_json(DEEP)


def test_no_other_code_on_the_hosts_parses_json_by_itself() -> None:
    found = {
        str(path.relative_to(MODULE_UTILS))
        for path in MODULE_UTILS.rglob("*.py")
        if re.search(r"json\.loads?\((?!json\.dumps)", path.read_text())
    }
    assert found == {"_common/json_text.py"}
