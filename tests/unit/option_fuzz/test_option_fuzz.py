# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every option of every module with all kinds of values: a result, or an error that names the option, within limits."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.torture.figures import FIGURES
from tests.unit.confined import refused
from tests.unit.option_fuzz import hostile
from tests.unit.option_fuzz.subjects import MODULES, SUBJECTS, Ran, Subject, run, with_root

# Each example is a whole run of a module, and there are two tests for each of the modules.
EXAMPLES = settings().max_examples // 4
SHOWN = 30
OF_ANSIBLE = "dictionary requested, could not parse JSON or key=value"
"""Message of ansible-core for an element that is not a mapping, whatever the option."""
MASK = "********"
ON_ONE_DIRECTORY = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)


ON_THE_CONTROLLER = {"fleet_acceptance", "fleet_report", "role_plan", "run_lock"}
"""Modules that only have the documentation of an action, and never run on a host."""


def _judge(ran: Ran, check: bool) -> None:
    """Check the properties of every run."""
    FIGURES["runs of modules with hostile options"] += 1
    if _is_of_ansible(ran.escaped):
        return
    if ran.escaped is not None:
        reported = "".join(traceback.format_exception(ran.escaped))
        pytest.fail(f"no result, but a traceback (refused: {refused()}):\n{reported}", pytrace=False)
    assert ran.result, "nothing was printed"
    if ran.result.get("failed"):
        assert isinstance(ran.result["msg"], str) and ran.result["msg"].strip(), "it fails without a message"
        assert "Traceback (most recent call last)" not in ran.result["msg"]
    if check:
        assert ran.after == ran.before, "check mode has changed something"


def _is_of_ansible(escaped: BaseException | None) -> bool:
    """Whether ansible-core itself raised this before the module saw its options.

    It does so for lone surrogates, and for JSON that is no mapping as an element of a list of mappings.
    """
    frames = traceback.extract_tb(escaped.__traceback__) if escaped is not None else []
    is_before = any(
        frame.filename.endswith("ansible/module_utils/basic.py") and frame.name == "__init__" for frame in frames
    )
    if is_before and frames[-1].name == "set_fallbacks":
        return True
    while escaped is not None and not isinstance(escaped, UnicodeEncodeError):
        escaped = escaped.__cause__
    return is_before and escaped is not None


def _names(ran: Ran, place: hostile.Place, option: Mapping[str, Any], value: Any) -> bool:
    """Whether the message identifies the option: by its name, or by a value that only this option has."""
    message = ran.result["msg"]
    # ansible-core replaces what a secret is equal to, in its own message as well.
    if message == OF_ANSIBLE or (option.get("no_log") and MASK in message):
        return True
    # The only option of its module that takes such a document.
    if place[-1] in ("config", "mig", "mig_layouts") and message.startswith("mig-parted document: "):
        return True
    names = (str(place[-1]), *option.get("options", ()))
    return any(text in message for text in (*names, *_strings(with_root(value, ran.bench.root))))


def _strings(value: Any) -> list[str]:
    """Forms in which a message may quote a value or a part of it: only the beginning of a long one."""
    parts: list[Any] = []
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    quoted = (
        [repr(value)[:SHOWN], repr(str(value))[:SHOWN]] if not isinstance(value, int) or abs(value) < 10**40 else []
    )
    # Of a profile with its start the name alone.
    if isinstance(value, str) and value.partition(":")[0] not in ("", value):
        parts = [value.partition(":")[0]]
    plain = [str(value)[:SHOWN]] if isinstance(value, (str, float)) and str(value).strip() else []
    return [*plain, *quoted, *(text for part in parts for text in _strings(part))]


def test_every_module_is_here() -> None:
    assert {subject.name for subject in SUBJECTS} == set(MODULES) - ON_THE_CONTROLLER


def test_no_run_is_the_first_to_import_a_part_of_a_module(tmp_path: Path) -> None:
    for subject in SUBJECTS:
        before = {*sys.modules}
        for options in subject.bases:
            run(subject, tmp_path, options, False)
        assert not [name for name in {*sys.modules} - before if ".gpu.fleet." in name], subject


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_the_options_that_others_begin_with_work(tmp_path: Path, subject: Subject) -> None:
    for options in subject.bases:
        for check in (True, False):
            ran = run(subject, tmp_path, options, check)
            _judge(ran, check)
            assert not ran.result.get("failed"), ran.result["msg"]


@pytest.mark.parametrize("subject", [item for item in SUBJECTS if item.module.ARGUMENT_SPEC], ids=str)
def test_one_option_has_any_value(tmp_path: Path, subject: Subject) -> None:
    """Valid options with one value replaced: a failure names that option."""
    spec = subject.module.ARGUMENT_SPEC
    words = st.sampled_from(subject.words or ("a",))
    ways = [(options, *found) for options in subject.bases for found in hostile.places(spec, options)]

    @settings(max_examples=EXAMPLES, suppress_health_check=ON_ONE_DIRECTORY)
    @given(data=st.data(), way=st.sampled_from(ways), check=st.booleans())
    def mutate(data: st.DataObject, way: tuple[Any, hostile.Place, Any], check: bool) -> None:
        options, place, option = way
        value = data.draw(hostile.of_option(option, words), label=".".join(map(str, place)))
        ran = run(subject, tmp_path, hostile.replaced(options, place, value), check)
        _judge(ran, check)
        if ran.result.get("failed"):
            assert _names(ran, place, option, value), f"{place} is not named: {ran.result['msg'][:2000]}"

    mutate()


@pytest.mark.parametrize("subject", [item for item in SUBJECTS if item.module.ARGUMENT_SPEC], ids=str)
def test_all_options_have_any_value(tmp_path: Path, subject: Subject) -> None:
    words = st.sampled_from(subject.words or ("a",))

    @settings(max_examples=EXAMPLES, suppress_health_check=ON_ONE_DIRECTORY)
    @given(options=hostile.of_spec(subject.module.ARGUMENT_SPEC, words), check=st.booleans())
    def anything(options: dict[str, Any], check: bool) -> None:
        _judge(run(subject, tmp_path, options, check), check)

    anything()
