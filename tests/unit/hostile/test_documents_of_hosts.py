# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of what hosts return: it is that which the modules document, and bounded."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import values
from ansible_collections.gpu.fleet.plugins.modules import cuda_facts, gpu_health, nvidia_smi_facts, report_facts
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet import documents
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.documents import (
    Adapters,
    Cuda,
    Ended,
    FormError,
    Health,
    Imex,
    Judged,
    LinkedGpus,
    Listed,
    Packages,
    Printed,
    Record,
    facts_of,
    health_of,
    read,
)

from tests.unit.report.fleets import bases


@functools.cache
def documented(module: Any) -> Mapping[str, Any]:
    """What a module returns, by its documentation."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: Mapping[str, Any] = yaml.load(module.RETURN, Loader=loader)
    return found


def differences(form: documents.Form, found: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Where a dataclass has another form than a module documents."""
    kinds = {"links": ("dict",), "float": ("float",)}.get(form.kind, (form.kind,))
    if found["type"] not in kinds:
        yield f"{path} is a {form.kind}, and documented as {found['type']}"
    elif form.element is not None:
        yield from differences(form.element, {**found, "type": found["elements"]}, f"{path}[]")
    for name, inner in (form.members or {}).items():
        key = inner.name or name
        if key not in found.get("contains", {}):
            yield f"{path}.{key} is not documented"
        else:
            yield from differences(inner, found["contains"][key], f"{path}.{key}")


@pytest.mark.parametrize(
    ("document", "module", "path"),
    [
        (Health, gpu_health, ()),
        (Judged, gpu_health, ()),
        (Adapters, report_facts, ("host",)),
        (Imex, report_facts, ("host", "imex")),
        (Listed, nvidia_smi_facts, ("ansible_facts", "nvidia_smi")),
        (LinkedGpus, nvidia_smi_facts, ("ansible_facts", "nvidia_smi")),
        (Cuda, cuda_facts, ("ansible_facts", "cuda")),
    ],
)
def test_what_decides_is_as_the_module_documents_it(document: Any, module: Any, path: tuple[str, ...]) -> None:
    found: Mapping[str, Any] = {"type": "dict", "contains": documented(module)}
    for name in path:
        found = found["contains"][name]
    assert [*differences(documents._form_of_class(document), found)] == []


def test_what_modules_returned_passes_and_is_what_they_returned() -> None:
    for facts, health in bases().values():
        assert facts_of(facts) == facts
        assert health_of(health) == health
        found = read(Health, health)
        assert (found.verdict, len(found.findings), len(found.gpus)) == (
            health["verdict"],
            len(health["findings"]),
            len(health["gpus"]),
        )
        assert len(read(Adapters, facts).nics) == len(facts["nics"])


@pytest.mark.parametrize(
    ("document", "value", "wrong"),
    [
        (Health, None, "it is null, not a dictionary"),
        (Health, {"verdict": "ok"}, "findings is missing"),
        (Health, {"verdict": "fine", "findings": []}, "verdict is 'fine', not one of ok, info, unknown, warn, fail"),
        (Health, {"verdict": "ok", "findings": [None]}, "findings[0] is null, not a dictionary"),
        (Health, {"verdict": "ok", "findings": [{"row": "a\nb"}]}, "findings[0].row is 'a\\nb', not the id of a row"),
        (Printed, {"seconds": [1, True], "wrong": 0}, "seconds[1] is True, not a number"),
        (
            Printed,
            {"seconds": [math.inf], "wrong": 0},
            "seconds[0] is inf, which nothing can have, from 1e-06 to 86400",
        ),
        (Printed, {"seconds": [0.1], "wrong": 10**400}, "wrong is a number, which nothing can have"),
        (Printed, {"seconds": [0.1] * 10_001, "wrong": 0}, "seconds has 10001 elements, more than 10000"),
        (Ended, {"rc": False}, "rc is False, not a whole number"),
        (
            Ended,
            {"stdout": "x" * (2 << 20) + "x"},
            "stdout is 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'..., which has 2097153",
        ),
        (Imex, {"nodes_not_ready": {"x" * 65: "a"}}, "nodes_not_ready has 'xxx"),
        (Imex, {"nodes_not_ready": dict.fromkeys(map(str, range(513)), "a")}, "nodes_not_ready has 513 elements"),
        (Packages, {"docker.io": [{"version": 5}]}, "docker.io[0].version is 5, not text"),
        (Record, {"drift": [{"message": "\udc80"}]}, "drift[0].message is '\\udc80', which is not Unicode"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(document: Any, value: Any, wrong: str) -> None:
    with pytest.raises(FormError) as raised:
        read(document, value)
    assert str(raised.value).startswith(wrong) and str(raised.value).isprintable()


def test_all_that_a_host_returns_is_bounded_together() -> None:
    finding = {"row": "x", "verdict": "ok", "remedy": "none", "message": "m" * 16_000, "gpu": None}
    with pytest.raises(FormError, match="there are more than 200000 values or 4 MiB of text"):
        read(Health, {"verdict": "ok", "findings": [finding] * 300})


def test_output_of_a_program_may_have_a_part_of_a_character() -> None:
    assert read(Ended, {"rc": 0, "stdout": "na\udcefve"}).stdout == "na\udcefve"


def test_numbers_are_bounded_as_the_modules_read_them() -> None:
    for unit, kind in (("mib", values.mib), ("w", values.watt), ("c", values.celsius), ("percent", values.percent)):
        least, most = documents._UNITS[unit]
        assert (kind(str(least)), kind(str(most))) == (least, most)
        for outside in (least - 1, most + 1):
            with pytest.raises(ValueError, match=str(outside)):
                kind(str(outside))
