# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the XML document of `nvidia-smi -q -x`, of any driver. Private to this collection.

Only the part between `<nvidia_smi_log>` and `</nvidia_smi_log>` is passed to the XML parser, so there is no document
type to load and there are no entities to expand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Iterable, Sequence
from xml.etree import ElementTree

from . import gpu as gpu_schema
from . import values as readings

MAX_CHARACTERS = 100 * 1024 * 1024
"""Longer documents are refused: the largest real one (8 GPUs) has 0.4 million characters."""

_ROOT_START = re.compile(r"<nvidia_smi_log(?:\s[^>]*)?>")
_ROOT_END = "</nvidia_smi_log>"
_GPU_START = re.compile(r"<gpu\s[^>]*>")
_GPU_END = "</gpu>"
_GPU_ID = re.compile(r"<gpu\s+id=\"([^\"]*)\"")
_LONG_LIST = re.compile(r"<(supported_clocks|processes|accounted_processes)>.*?</\1>", re.DOTALL)
_LEAF = re.compile(r"<(\w+)>([^<]*)</\1>")
_DECLARATION = re.compile(r"<\?xml[^>]*\?>|<!--.*?-->|<!DOCTYPE\s[^>\[]*(?:\[.*?\]\s*)?>", re.DOTALL)
_STRAY_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);)")
_CHARACTER = re.compile(r"&#(?:([0-9]+)|x([0-9a-fA-F]+));")
# Process names are copied into the document without escaping.
_PROCESS_NAME = re.compile(r"(<process_name>)((?:(?!</?process_info>)[^\n])*?)(</process_name>)(?=\s*<)")
_LEAF_LINE = re.compile(r"^([ \t]*<(?!nvidia_smi_log>|gpu>)(\w+)>)((?:(?!</)[^\n])*)(</\2>[ \t\r]*)$", re.MULTILINE)
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# Elements with repeated children, which are left out of the flat view of a GPU.
_LISTS = frozenset(("mig_devices", "processes", "compute_processes", "accounted_processes", "supported_clocks"))
_RETIREMENTS = (("multiple_single_bit_retirement", "single_bit"), ("double_bit_retirement", "double_bit"))
# Repeated elsewhere in the document, or capability lists, which are kept unchanged in `other`.
_REDUNDANT = re.compile(
    r"pci/pci_(?:bus|device|domain)|module_power_readings/power_state|retired_pages/\w+/retired_page(?:list|_addresses)(?:/.*)?"
)
_RAW = ("vgpu_driver_capability/", "vgpu_device_capability/")
_POWER_SMOOTHING = "power_smoothing"


class DocumentError(Exception):
    """The text holds no readable document; `reason` is `broken_xml`, `too_large` or `no_document`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Document:
    """One `nvidia_smi_log`. `warnings` has every line around the document and the parts that could not be parsed.

    `cut` is where a truncated document ends; GPUs after that are not in `gpus`.
    """

    driver_version: str | None
    cuda_version: str | None
    attached_gpus: int | None
    timestamp: str | None
    gpus: tuple[gpu_schema.Gpu, ...]
    warnings: tuple[str, ...]
    unknown: tuple[tuple[str, str], ...] = ()
    cut: str | None = None


def disagreement(counted: int | None, gpus: Sequence[gpu_schema.Gpu]) -> str | None:
    """How `gpus`, all that were described, differ from the number that nvidia-smi counts; None where they do not."""
    names = [gpu.basics.uuid or gpu.basics.pci_bus_id for gpu in gpus]
    twice = sorted({name for name in names if name is not None and names.count(name) > 1})
    if twice:
        return f"it describes {', '.join(twice)} more than once"
    if counted is None or counted == len(gpus):
        return None
    return f"it counts {counted} GPU{'' if counted == 1 else 's'} and describes {len(gpus)}"


@dataclass(frozen=True)
class Host:
    """The readings of the document that do not belong to a GPU."""

    # Driver 610 has both names; the older one may hold a deprecation notice instead of, or next to, the version.
    driver_version: str | None = gpu_schema.reading(readings.plain, "kmd_version", "driver_version")
    cuda_version: str | None = gpu_schema.reading(readings.plain, "cuda_umd_version", "cuda_version")
    attached_gpus: int | None = gpu_schema.reading(readings.count, "attached_gpus")
    timestamp: str | None = gpu_schema.reading(readings.plain, "timestamp")


_HOST_PATHS = gpu_schema.declared_paths(Host)
_GPU_PATHS = frozenset().union(*(gpu_schema.declared_paths(section) for section in gpu_schema.SECTIONS.values()))
_CONTAINERS = frozenset(
    "/".join(parts[:depth]) for parts in (path.split("/") for path in _GPU_PATHS) for depth in range(1, len(parts))
)


def parse_document(text: str, *, partial: bool = False) -> Document:
    """Parse the last complete document in `text`.

    Raises DocumentError where there is none, where it is truncated, or where it is refused. A GPU whose own part is
    damaged is kept with `error`. With `partial`, the GPUs before the cut of a truncated document are given: good enough
    for a report, but never for planning a change.
    """
    if len(text) > MAX_CHARACTERS:
        raise DocumentError("too_large", f"refused: {len(text)} characters of XML, more than {MAX_CHARACTERS}")
    body, around, cut = _cut_out(text, partial)
    warnings = list(around)
    root, damage = _read_root(body, cut)
    warnings += damage
    gaps = gpu_schema.Gaps()
    strings = _flatten(child for child in root if child.tag != "gpu")
    host = gpu_schema.build(Host, strings, gaps)
    gpus = [_read_gpu(element, index) for index, element in enumerate(root.iter("gpu"))]
    if "error_string" in strings:
        warnings.append(strings["error_string"].strip())
    unrecognised = {path for path in strings if path not in _HOST_PATHS and path != "error_string"}
    for gpu in gpus:
        unrecognised.update("gpu/" + path for path, text in gpu.other if _has_unknown_layout(text))
    unrecognised = {path for path in unrecognised if not any(raw in path for raw in _RAW)}
    if unrecognised:
        warnings.append("elements of an unknown layout: " + ", ".join(sorted(unrecognised)))
    return Document(
        driver_version=host.driver_version,
        cuda_version=host.cuda_version,
        attached_gpus=host.attached_gpus,
        timestamp=host.timestamp,
        gpus=tuple(gpus),
        warnings=tuple(warnings),
        unknown=tuple(gaps.reasons.items()),
        cut=cut,
    )


def _cut_out(text: str, partial: bool) -> tuple[str, list[str], str | None]:
    """Split `text` into the last complete document and the lines around it; the third item describes a truncation."""
    starts = list(_ROOT_START.finditer(text))
    if not starts:
        raise DocumentError("no_document", "no <nvidia_smi_log> in the output")
    prolog = text[: starts[0].start()]
    if "<!ENTITY" in prolog:
        raise DocumentError("broken_xml", "refused: the document declares entities, which nvidia-smi never does")
    # The last complete one: with --loop later documents are newer.
    for start in reversed(starts):
        # The last end tag: a process name may contain one.
        end = text.rfind(_ROOT_END, start.end())
        if end >= 0:
            break
    else:
        cut = f"the document ends at line {text.count(chr(10)) + 1} without </nvidia_smi_log>"
        if partial and _GPU_END in text[start.end() :]:
            return text[start.start() :], _lines(prolog), cut
        raise DocumentError("broken_xml", cut)
    end += len(_ROOT_END)
    around = _lines(prolog) + _lines(text[end:])
    if len(starts) > 1:
        around.append(f"{len(starts)} documents in the output; the last complete one counts")
    return text[start.start() : end], around, None


def _lines(text: str) -> list[str]:
    """Lines that do not belong to a document's prolog."""
    without = _DECLARATION.sub("", text)
    return [line.strip() for line in without.splitlines() if line.strip(" \t\r\n\ufeff\0")]


def _read_root(body: str, cut: str | None) -> tuple[ElementTree.Element, list[str]]:
    """Parse one document; where it is damaged or truncated, drop only what is damaged, GPU by GPU."""
    damage = cut
    if damage is None:
        try:
            return ElementTree.fromstring(body), []
        except (ElementTree.ParseError, ValueError) as error:
            damage = str(error)
    mended = _mend(body)
    if cut is None:
        try:
            return ElementTree.fromstring(mended), [f"characters that XML does not allow were replaced ({damage})"]
        except (ElementTree.ParseError, ValueError):
            pass
    starts = [match.start() for match in _GPU_START.finditer(mended)]
    blocks = [mended[start:end] for start, end in zip(starts, [*starts[1:], len(mended)])]
    try:
        root = ElementTree.fromstring((mended[: starts[0]] if starts else mended) + (_ROOT_END if starts else ""))
    except (ElementTree.ParseError, ValueError):
        if not starts:
            raise DocumentError("broken_xml", f"the document is damaged: {damage}") from None
        root = _read_head(mended[: starts[0]])
    root.extend(_read_block(block, damage) for block in blocks)
    return root, [damage if cut else f"the document is damaged: {damage}"]


def _read_head(text: str) -> ElementTree.Element:
    """The intact readings of the host where the part before the first GPU is damaged."""
    root = ElementTree.Element("nvidia_smi_log")
    for name, value in _LEAF.findall(text):
        ElementTree.SubElement(root, name).text = value
    return root


def _mend(body: str) -> str:
    """Escape process names and remove control characters."""
    mended = _STRAY_AMPERSAND.sub("&amp;", _NOT_IN_XML.sub("\ufffd", body))
    mended = _CHARACTER.sub(_escape_character, mended)
    return _LEAF_LINE.sub(_escape_brackets, _PROCESS_NAME.sub(_escape_process_name, mended))


def _escape_character(match: re.Match[str]) -> str:
    """Escape a reference to a character that XML does not allow."""
    code = int(match[1]) if match[1] else int(match[2], 16)
    allowed = len(match[0]) < 12 and code <= 0x10FFFF and not _NOT_IN_XML.match(chr(code))
    return match[0] if allowed else "&amp;" + match[0][1:]


def _escape_process_name(match: re.Match[str]) -> str:
    return match[1] + match[2].replace("<", "&lt;").replace(">", "&gt;") + match[3]


def _escape_brackets(match: re.Match[str]) -> str:
    return match[1] + match[3].replace("<", "&lt;").replace(">", "&gt;") + match[4]


def _read_block(block: str, damage: str) -> ElementTree.Element:
    """One `<gpu>`, without its damaged lists; where more is damaged, only its id and an error."""
    whole, end, _rest = block.partition(_GPU_END)
    for attempt in (whole + end, _LONG_LIST.sub(_without_damage, whole) + end) if end else ():
        try:
            return ElementTree.fromstring(attempt)
        except (ElementTree.ParseError, ValueError):
            continue
    found = _GPU_ID.match(block)
    return ElementTree.Element("gpu", {"id": found[1] if found else "N/A", "error": damage})


def _without_damage(match: re.Match[str]) -> str:
    """A list unchanged, or empty with a marker where it is not XML."""
    try:
        ElementTree.fromstring(match[0])
        return match[0]
    except (ElementTree.ParseError, ValueError):
        return f"<{match[1]}>{readings.DAMAGED}</{match[1]}>"


def _flatten(elements: Iterable[ElementTree.Element], prefix: str = "") -> dict[str, str]:
    """The text of each leaf by its path; the first of several with the same path is used."""
    strings: dict[str, str] = {}
    stack = [(prefix, element) for element in elements]
    stack.reverse()
    while stack:
        path, element = stack.pop()
        path += element.tag
        if len(element) == 0:
            strings.setdefault(path, element.text or "")
        elif element.tag not in _LISTS:
            stack.extend((path + "/", child) for child in reversed(element))
    return strings


def _read_gpu(element: ElementTree.Element, index: int) -> gpu_schema.Gpu:
    """One `<gpu>` element; `index` is its position in the document."""
    strings = _flatten(element)
    strings["@id"] = element.get("id", "")
    gaps = gpu_schema.Gaps()
    sections = {name: gpu_schema.build(of, strings, gaps) for name, of in gpu_schema.SECTIONS.items()}
    gpu = gpu_schema.Gpu(
        index=index,
        retired_pages=tuple(_retired_pages(element)),
        processes=_list(_first(element, "processes", "compute_processes"), gpu_schema.Process, "processes", gaps),
        accounted_processes=_list(
            element.find("accounted_processes"), gpu_schema.AccountedProcess, "accounted_processes", gaps
        ),
        mig_devices=_list(element.find("mig_devices"), gpu_schema.MigDevice, "mig_devices", gaps) or (),
        supported_clocks=_supported_clocks(element, strings, gaps),
        power_smoothing=_power_smoothing(strings, gaps),
        other=tuple((path, text.strip()) for path, text in strings.items() if not _is_understood(path, text)),
        error=element.get("error"),
        **sections,
    )
    if gpu.error is not None:
        # For a damaged part it is unknown even what this driver or GPU lacks.
        gaps.reasons = {
            name: readings.BROKEN if reason == readings.ABSENT else reason for name, reason in gaps.reasons.items()
        }
    return replace(gpu, unknown=tuple(gaps.reasons.items()), other=(*gpu.other, *gaps.strings.items()))


def _is_understood(path: str, text: str) -> bool:
    """Whether an element is read elsewhere, or is a container that holds a text such as N/A."""
    if path in _GPU_PATHS:
        return True
    if path in _LISTS or path in _CONTAINERS or path.startswith(_POWER_SMOOTHING):
        reason = readings.interpret(text, readings.never)[1]
        return reason not in readings.VAGUE if path in _CONTAINERS else reason != readings.FAILED
    return _REDUNDANT.fullmatch(path) is not None


def _has_unknown_layout(text: str) -> bool:
    """Whether a text is of an unknown layout; an NVML error in place of a reading is not."""
    return readings.interpret(text, readings.never)[1] == readings.UNREADABLE


def _power_smoothing(strings: dict[str, str], gaps: gpu_schema.Gaps) -> tuple[tuple[str, str | None], ...] | None:
    """The settings by name, as strings: no chip with values for them has been seen."""
    prefix = _POWER_SMOOTHING + "/"
    settings = []
    for path, text in strings.items():
        if path.startswith(prefix):
            name = path[len(prefix) :]
            value, reason = readings.interpret(text, readings.plain)
            settings.append((name, value))
            if reason is not None:
                gaps.reasons[f"{_POWER_SMOOTHING}.{name}"] = reason
    if not settings:
        gaps.reasons[_POWER_SMOOTHING] = readings.interpret(strings.get(_POWER_SMOOTHING), readings.never)[1] or ""
    return tuple(settings) or None


def _first(element: ElementTree.Element, *names: str) -> ElementTree.Element | None:
    """The first existing child of `names`."""
    return next((child for child in map(element.find, names) if child is not None), None)


def _list(container: ElementTree.Element | None, of: type, name: str, gaps: gpu_schema.Gaps) -> tuple[Any, ...] | None:
    """The children of a list: empty for none, and None where a text such as N/A takes their place."""
    text = None if container is None else (container.text or "").strip()
    if container is None or (len(container) == 0 and text not in ("", "None")):
        gaps.reasons[name] = readings.interpret(text, readings.never)[1] or readings.UNREADABLE
        return None
    return tuple(
        gpu_schema.build(of, _flatten(item), gaps, name=f"{name}.{place}.") for place, item in enumerate(container)
    )


def _retired_pages(element: ElementTree.Element) -> Iterable[gpu_schema.RetiredPage]:
    """Addresses in both layouts: until driver 384 bare addresses, since 410 elements with a timestamp each."""
    for retirement, cause in _RETIREMENTS:
        base = f"retired_pages/{retirement}/"
        for page in element.findall(base + "retired_pagelist/retired_page"):
            address, _reason = readings.interpret(page.findtext("retired_page_address"), readings.plain)
            if address:
                stamp, _reason = readings.interpret(page.findtext("retired_page_timestamp"), readings.plain)
                yield gpu_schema.RetiredPage(address, cause, stamp)
        for page in element.findall(base + "retired_page_addresses/retired_page_address"):
            address, _reason = readings.interpret(page.text, readings.plain)
            if address:
                yield gpu_schema.RetiredPage(address, cause)


def _supported_clocks(
    element: ElementTree.Element, strings: dict[str, str], gaps: gpu_schema.Gaps
) -> tuple[gpu_schema.SupportedClocks, ...] | None:
    """Graphics clocks by memory clock; values that are not clocks are left out, with the reason."""
    found = element.findall("supported_clocks/supported_mem_clock")
    if not found:
        gaps.reasons["supported_clocks"] = readings.interpret(strings.get("supported_clocks"), readings.never)[1] or ""
        return None
    clocks: list[gpu_schema.SupportedClocks] = []
    reasons: list[str] = []
    for item in found:
        # Until driver 535 some documents have the clock outside of its element.
        text = item.findtext("value", item.text or "")
        memory, reason = readings.interpret(text, readings.mhz)
        graphics = [readings.interpret(clock.text, readings.mhz) for clock in item.iter("supported_graphics_clock")]
        if reason is not None:
            reasons.append(reason)
            if reason in readings.VAGUE:
                gaps.strings["supported_clocks/supported_mem_clock"] = text.strip()
            continue
        for clock, (_value, why) in zip(item.iter("supported_graphics_clock"), graphics):
            if why in readings.VAGUE:
                gaps.reasons[f"supported_clocks.{len(clocks)}.graphics_mhz"] = why
                gaps.strings["supported_clocks/supported_graphics_clock"] = (clock.text or "").strip()
        values = tuple(value for value, _reason in graphics if value is not None)
        if not values:
            gaps.reasons[f"supported_clocks.{len(clocks)}.graphics_mhz"] = (
                graphics[0][1] if graphics and graphics[0][1] else readings.ABSENT
            )
        clocks.append(gpu_schema.SupportedClocks(memory, values))
    if reasons:
        gaps.reasons["supported_clocks"] = reasons[0]
    return tuple(clocks) or None
