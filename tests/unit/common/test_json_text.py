# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that is nested deeper than Python can follow is damaged JSON like any other, for every file that is read."""

from __future__ import annotations

import json
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
from ansible_collections.gpu.fleet.plugins.plugin_utils._gpu_operator import KEPT, resume

DEEP = "[" * 100_000
MODULE_UTILS = Path(_common.__path__[0]).parent


@pytest.mark.parametrize("text", [DEEP, "[" * 101 + "]" * 101, '{"a":' * 101 + "0" + "}" * 101])
def test_a_deeply_nested_text_is_an_error_of_value(text: str) -> None:
    """Newer versions of Python read thousands of levels."""
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(text)


def test_other_documents_are_what_they_are() -> None:
    deep = "[" * 98 + '{"a": [], "b": "["}' + "]" * 98
    assert parse_json(deep) == json.loads(deep)
    assert (parse_json("1"), parse_json("[]"), parse_json(b'{"a": [1]}')) == (1, [], {"a": [1]})
    assert parse_json('\ufeff{"a": 1}') == parse_json('\ufeff{"a": 1}'.encode()) == {"a": 1}


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


def test_an_annotation_of_a_node_that_is_nested_deeply_is_none_of_ours() -> None:
    assert resume({"labels": {}, "annotations": {KEPT: DEEP}}) == {"labels": {}, "annotations": {KEPT: None}}


def test_no_other_code_parses_json_by_itself() -> None:
    plugins = MODULE_UTILS.parent
    found = {
        str(path.relative_to(plugins))
        for path in plugins.rglob("*.py")
        if re.search(r"json\.loads?\((?!json\.dumps)", path.read_text())
    }
    assert found == {"module_utils/_common/json_text.py"}
