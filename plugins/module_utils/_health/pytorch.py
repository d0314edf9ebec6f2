# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What framework_test.py of the role gpu_workload prints about PyTorch. Private to this collection."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from .._common.json_text import parse_json
from .outcome import CONFIGURATION, FAILED, UNKNOWN, Outcome
from .readings import Facts

PROGRAM = "/usr/local/lib/gpu-fleet-workload/framework_test.py"
"""Where the role gpu_workload installs it."""

Document = Mapping[str, Any]


def read_document(text: str) -> Document | None:
    """The last line that is a document of the program; None where there is none."""
    for line in reversed(text.splitlines()):
        try:
            document = parse_json(line)
        except ValueError:
            continue
        if isinstance(document, dict) and document.get("framework") == "pytorch":
            return document
    return None


def outcomes(document: Document, facts: Facts) -> tuple[Outcome, ...]:
    """What did not pass. That a Python has no PyTorch, or cannot use the GPUs, is no failure of the GPUs."""
    errors = "; ".join(map(str, document.get("errors") or ()))
    if document.get("version") is None:
        return (Outcome(UNKNOWN, f"PyTorch cannot be imported ({errors}); name a Python that has it"),)
    name = f"PyTorch {document['version']}"
    if document.get("cuda") is None:
        return (Outcome(UNKNOWN, f"{name} is built without CUDA; name a Python with a build with CUDA"),)
    if document.get("unavailable"):
        return (Outcome(CONFIGURATION, f"{name} cannot use CUDA: {document['unavailable']}"),)
    return tuple(_outcomes(document, facts, name, errors))


def _outcomes(document: Document, facts: Facts, name: str, errors: str) -> Iterator[Outcome]:
    if errors:
        yield Outcome(FAILED, f"{name}: {errors}")
    devices, indices = _devices(document), _indices(facts)
    seen = {_bare(device.get("uuid")) for device in devices}
    for uuid, index in indices.items():
        if None not in seen and uuid not in seen:
            yield Outcome(CONFIGURATION, f"{name} does not see GPU {index}; see CUDA_VISIBLE_DEVICES")
    for device in devices:
        gpu = indices.get(_bare(device.get("uuid")))
        where = f"device {device.get('index')}" if gpu is None else f"GPU {gpu}"
        if device.get("error"):
            yield Outcome(FAILED, f"{name}: {where} cannot compute a matrix product: {device['error']}", gpu)
        elif device.get("rows_wrong") != 0:
            wrong = f"{device.get('rows_wrong')} of {device.get('rows')} rows of a matrix product are wrong"
            yield Outcome(FAILED, f"{name}: {where}: {wrong}", gpu)
    reduced = document.get("all_reduce") or {"correct": True}
    if not reduced.get("correct"):
        reason = "; ".join(map(str, reduced.get("errors") or ())) or "the sum is wrong"
        yield Outcome(FAILED, f"{name}: an all-reduce over {reduced.get('ranks')} GPUs failed: {reason}")


def evidence(document: Document) -> str:
    """What was computed, in one line."""
    computed = [device for device in _devices(document) if device.get("rows_wrong") is not None]
    rows, wrong = (sum(device[name] for device in computed) for name in ("rows", "rows_wrong"))
    parts = [f"matrix products on {len(computed)} GPUs, {wrong} of {rows} rows wrong"] if computed else []
    reduced = document.get("all_reduce")
    if reduced:
        result = "right" if reduced.get("correct") else "wrong"
        parts.append(f"all-reduce over {reduced.get('ranks')} GPUs by {reduced.get('backend')} {result}")
    versions = [f"{label} {document[key]}" for key, label in _VERSIONS.items() if document.get(key)]
    return f"{', '.join(versions) or 'no PyTorch'}: {'; '.join(parts) or 'nothing was computed'}"


_VERSIONS = {"version": "PyTorch", "cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL"}


def _devices(document: Document) -> list[Document]:
    found = document.get("devices")
    return [device for device in found if isinstance(device, dict)] if isinstance(found, list) else []


def _indices(facts: Facts) -> dict[str | None, int]:
    """The indices of nvidia-smi by UUID; PyTorch may have another order."""
    return {_bare(gpu["uuid"]): gpu["index"] for gpu in facts["gpus"] if gpu.get("uuid")}


def _bare(uuid: object) -> str | None:
    """A UUID as PyTorch prints it, without the prefix of nvidia-smi."""
    text = str(uuid or "").lower()
    return (text[4:] if text.startswith("gpu-") else text) or None
