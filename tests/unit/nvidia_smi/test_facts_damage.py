# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Damaged documents: surrounding text, other encodings, truncation, attacks, random mutations."""

from __future__ import annotations

import os
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import decode
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import gpu as gpu_schema
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import xml as xml_document
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import Document, DocumentError, parse_document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.nvidia_smi.facts_support import H200X8, WRITTEN

H200 = H200X8.output("-q -x")
H200_GPUS = parse_document(H200).gpus
K20 = (WRITTEN / "v6-340-gtx.xml").read_text()
A100 = (WRITTEN / "v12-535-mig-a100.xml").read_text()
NEW = (WRITTEN / "v14-unknown-layout.xml").read_text()
INLINE_DTD = """<!DOCTYPE nvidia_smi_log [
<!-- nvsmi_device_v13.dtd -->
<!ELEMENT nvidia_smi_log (timestamp, driver_version, gpu*)>
<!ELEMENT gpu (product_name)>
<!ATTLIST gpu id CDATA #REQUIRED>
]>"""


def bare(document: Document) -> Document:
    """A document without its warnings."""
    return replace(document, warnings=())


# Changes of the text, and the warnings about them; the facts stay the same.
HARMLESS: dict[str, tuple[Callable[[str], str], tuple[str, ...]]] = {
    "nothing": (lambda text: text, ()),
    "leading newline": (lambda text: "\n" + text, ()),
    "byte order mark": (lambda text: "\ufeff" + text, ()),
    "Windows line ends": (lambda text: text.replace("\n", "\r\n"), ()),
    "no DOCTYPE": (lambda text: re.sub(r"<!DOCTYPE[^>]*>", "", text), ()),
    "no prolog": (lambda text: text[text.index("<nvidia_smi_log>") :], ()),
    "inlined DTD": (lambda text: re.sub(r"<!DOCTYPE[^>]*>", INLINE_DTD, text), ()),
    "encoding in the prolog": (lambda text: text.replace('"1.0" ?>', '"1.0" encoding="latin1"?>'), ()),
    "comment in the prolog": (
        lambda text: text.replace("<nvidia_smi_log>", "<!-- a\nlicence -->\n<nvidia_smi_log>"),
        (),
    ),
    "indented": (lambda text: re.sub(r"^", "    ", text, flags=re.MULTILINE), ()),
    "line before": (lambda text: "Warning: persistence mode is off\n" + text, ("Warning: persistence mode is off",)),
    "line after": (
        lambda text: text + "\nWARNING: infoROM is corrupted at gpu 0000:00:06.0\n",
        ("WARNING: infoROM is corrupted at gpu 0000:00:06.0",),
    ),
    "an older document before": (
        lambda text: text.replace("H200", "H100").replace("MiB", "GiB") + text,
        ("2 documents in the output; the last complete one counts",),
    ),
    "half a newer document after": (
        lambda text: text + text[: len(text) // 2],
        ("2 documents in the output; the last complete one counts",),
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.parametrize("text", [H200, K20, A100], ids=["h200", "k20", "a100"])
def test_harmless_changes(text: str, name: str) -> None:
    change, message = HARMLESS[name]
    original = parse_document(text)
    changed = parse_document(change(text))
    assert bare(changed) == bare(original)
    assert [line for line in message if line not in changed.warnings] == []
    if not message:
        assert changed.warnings == original.warnings


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-16-le with mark", "utf-16-be with mark"]
)
def test_encodings(encoding: str) -> None:
    name, _unused, mark = encoding.partition(" ")
    data = (("\ufeff" if mark else "") + H200).encode(name)
    assert bare(parse_document(decode(data))) == bare(parse_document(H200))


def test_bytes_that_are_no_text_do_not_hide_the_rest() -> None:
    data = A100.encode().replace(b"/opt/train", b"/opt/\xff\xfe\x01train")
    document = parse_document(decode(data))
    (process,) = document.gpus[0].processes or ()
    assert process.pid == 21180
    assert process.memory_used_mib == 2296
    assert process.name is not None
    assert process.name.endswith("train & watch")


def test_a_bare_ampersand_in_a_process_name_is_kept() -> None:
    document = parse_document(A100.replace("train &amp; watch", "train & watch"))
    assert document.gpus == parse_document(A100).gpus
    assert "characters that XML does not allow" in document.warnings[0]


# Unusual process names.
NAMES = [
    "python <script>",
    "a < b",
    "<gpu>",
    "</gpu>",
    '<gpu id="0">',
    "</process_name>x",
    "</processes>",
    "</nvidia_smi_log>",
    "]]>",
    "<!-- x",
    "<![CDATA[",
    "&",
    "& <b",
    "&#0;",
    "&#x110000;",
    "\x01<\x02",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_process_name_costs_at_most_itself(name: str) -> None:
    whole = parse_document(A100).gpus
    document = parse_document(re.sub("(?<=<process_name>)[^<]*", lambda _match: name, A100))
    (process,) = document.gpus[0].processes or ()
    assert process.name == re.sub("[\x01\x02]", "\ufffd", name)
    (original,) = whole[0].processes or ()
    assert replace(document.gpus[0], processes=()) == replace(whole[0], processes=())
    assert replace(process, name=None) == replace(original, name=None)
    assert document.gpus[1:] == whole[1:]


@pytest.mark.parametrize("name", ["processes", "supported_clocks", "accounted_processes"])
def test_a_damaged_list_costs_only_itself(name: str) -> None:
    text = re.sub(f"<{name}>.*?</{name}>", f"<{name}><a></b></{name}>", H200, count=1, flags=re.DOTALL)
    first, *others = parse_document(text).gpus
    assert getattr(first, name) is None
    assert dict(first.unknown)[name] == "broken_xml"
    assert (first.basics, first.power, first.error) == (H200_GPUS[0].basics, H200_GPUS[0].power, None)
    assert tuple(others) == H200_GPUS[1:]


def test_a_gpu_without_its_end_does_not_take_the_next_one_along() -> None:
    document = parse_document(H200.replace("</gpu>", "", 1))
    assert document.gpus[1:] == H200_GPUS[1:]
    assert document.gpus[0].error is not None
    assert document.gpus[0].basics.pci_bus_id == H200_GPUS[0].basics.pci_bus_id
    assert {reason for name, reason in document.gpus[0].unknown if name != "pci_bus_id"} == {"broken_xml"}


def test_a_damaged_head_costs_only_the_head() -> None:
    document = parse_document(H200.replace("<cuda_version>", "<cuda_version", 1))
    assert document.gpus == H200_GPUS
    assert (document.driver_version, document.cuda_version, document.attached_gpus) == ("580.159.04", None, 8)


# Replacements of the memory clock's value, and the reason in `unknown`.
CLOCKS = [
    ("<value>N/A</value>", "not_available"),
    ("N/A", "not_available"),
    ("<value>Unknown Error</value>", "failed"),
    ("", "empty"),
    ("<value>fast</value>", "unreadable"),
]


@pytest.mark.parametrize(("text", "reason"), CLOCKS)
def test_clocks_without_a_value_state_why(text: str, reason: str) -> None:
    clocks = f"<supported_clocks><supported_mem_clock>{text}</supported_mem_clock></supported_clocks>"
    document = parse_document(re.sub("<supported_clocks>.*?</supported_clocks>", clocks, H200, flags=re.DOTALL))
    gpu = document.gpus[0]
    assert gpu.supported_clocks is None
    assert dict(gpu.unknown)["supported_clocks"] == reason


def test_a_memory_clock_without_graphics_clocks_states_why() -> None:
    clocks = (
        "<supported_clocks><supported_mem_clock><value>2619 MHz</value><supported_graphics_clock>N/A"
        "</supported_graphics_clock></supported_mem_clock></supported_clocks>"
    )
    document = parse_document(re.sub("<supported_clocks>.*?</supported_clocks>", clocks, H200, flags=re.DOTALL))
    gpu = document.gpus[0]
    assert gpu.supported_clocks == (gpu_schema.SupportedClocks(2619, ()),)
    assert dict(gpu.unknown)["supported_clocks.0.graphics_mhz"] == "not_available"


@settings(derandomize=True, database=None)
@given(st.integers(0, len(H200) - 1))
def test_whole_gpus_before_a_cut_are_read_where_that_is_enough(length: int) -> None:
    ends = H200[:length].count("</gpu>")
    if ends == 0:
        with pytest.raises(DocumentError):
            parse_document(H200[:length], partial=True)
        return
    document = parse_document(H200[:length], partial=True)
    assert document.gpus[:ends] == H200_GPUS[:ends]
    assert len(document.gpus) <= ends + 1
    assert all(gpu.error and "without </nvidia_smi_log>" in gpu.error for gpu in document.gpus[ends:])
    assert (document.driver_version, document.attached_gpus) == ("580.159.04", 8)
    end = H200.rindex("</nvidia_smi_log>") + len("</nvidia_smi_log>")
    assert (document.cut is None) == (length >= end)


def test_damaged_clocks_cost_only_the_clocks() -> None:
    damaged = K20.replace("<value>2600 MHz</value>", "2600 MHz</value>")
    document = parse_document(damaged)
    first, second = document.gpus
    whole = parse_document(K20).gpus
    assert first.supported_clocks is None
    assert replace(first, supported_clocks=None, unknown=()) == replace(whole[0], supported_clocks=None, unknown=())
    assert second == whole[1]
    assert "the document is damaged" in document.warnings[0]


def test_a_damaged_gpu_stays_in_the_list_next_to_the_healthy_one() -> None:
    document = parse_document(K20.replace("<fb_memory_usage>", "", 1))
    broken, healthy = document.gpus
    assert healthy == parse_document(K20).gpus[1]
    assert broken.basics.pci_bus_id == "00000000:0d:00.0"
    assert "mismatched tag" in (broken.error or "")
    assert broken.basics.memory_total_mib is None


BILLION_LAUGHS = '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">'
EXTERNAL = '<!ENTITY c SYSTEM "file:///etc/passwd">'

# Text of the document, reason, and a part of the message.
REFUSED = {
    "nothing": ("", "no_document", "no <nvidia_smi_log>"),
    "no document": ("No devices were found\n", "no_document", "no <nvidia_smi_log>"),
    "cut in a GPU": (H200[:100_000], "broken_xml", "without </nvidia_smi_log>"),
    "cut at the very end": (H200[: H200.rindex("</nvidia_smi_log>") + 10], "broken_xml", "without </nvidia_smi_log>"),
    "head lost": (H200[500:], "no_document", "no <nvidia_smi_log>"),
    "entities": (
        f"<!DOCTYPE nvidia_smi_log [{BILLION_LAUGHS}]><nvidia_smi_log><timestamp>&c;</timestamp></nvidia_smi_log>",
        "broken_xml",
        "refused: the document declares entities",
    ),
    "external entity": (
        f"<!DOCTYPE nvidia_smi_log [{EXTERNAL}]><nvidia_smi_log><timestamp>&c;</timestamp></nvidia_smi_log>",
        "broken_xml",
        "refused: the document declares entities",
    ),
    "undefined entity": ("<nvidia_smi_log><a><b>&c</b></nvidia_smi_log>", "broken_xml", "damaged"),
    "root damaged": ("<nvidia_smi_log><driver_version></nvidia_smi_log>", "broken_xml", "damaged"),
    "document type inside": (
        f"<nvidia_smi_log><!DOCTYPE x [{BILLION_LAUGHS}]><a>&c;</a></nvidia_smi_log>",
        "broken_xml",
        "damaged",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, reason, part = REFUSED[name]
    with pytest.raises(DocumentError, match=re.escape(part)) as caught:
        parse_document(text)
    assert caught.value.reason == reason


def test_the_line_of_a_cut_is_named() -> None:
    with pytest.raises(DocumentError, match="ends at line 1001 "):
        parse_document("\n".join(H200.splitlines()[:1000]) + "\n")


def test_a_document_of_100_mb_is_refused_without_being_read() -> None:
    text = "<nvidia_smi_log>" + "x" * xml_document.MAX_CHARACTERS
    tracemalloc.start()
    with pytest.raises(DocumentError, match=r"refused: \d+ characters") as caught:
        parse_document(text)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.reason == "too_large"
    assert peak < 1_000_000


def test_unknown_layout() -> None:
    document = parse_document(NEW)
    newer, lost = document.gpus
    assert (document.driver_version, document.cuda_version) == ("700.10", "14.1")
    assert newer.basics.memory_total_mib == 512 * 1024
    assert newer.fabric.fabric_state == "in_progress"
    assert newer.ecc.retired_pages_pending is False
    assert newer.power_smoothing == (("power_smoothing_enabled", "Enabled"),)
    (accounted,) = newer.accounted_processes or ()
    assert (accounted.pid, accounted.time_ms, accounted.running) == (99, 5000, False)
    assert dict(newer.unknown)["power_draw_w"] == "unreadable"
    assert dict(newer.other) == {"optical_links/active": "4", "gpu_power_readings/instant_power_draw": "1.2 kW"}
    assert document.warnings == (
        "elements of an unknown layout: gpu/gpu_power_readings/instant_power_draw, gpu/optical_links/active",
    )
    assert lost.basics.name == "NVIDIA R300"
    assert lost.processes is None
    reasons = dict(lost.unknown)
    assert reasons["memory_total_mib"] == reasons["remapped_rows_pending"] == reasons["processes"] == "lost"
    assert reasons["fan_speed_percent"] == "absent"


# One example yields several mutants, because drawing costs more than parsing.
MUTANTS_PER_EXAMPLE = 20
# 4 000 on each change, 40 000 each night; `make fuzz` sets more.
MUTATIONS = int(os.environ.get("GPU_FLEET_MUTATIONS", 2 * MUTANTS_PER_EXAMPLE * settings().max_examples))
SEEDS = (K20[: K20.index("</gpu>")] + "</gpu></nvidia_smi_log>", A100, NEW)
SNIPPETS = (
    "",
    "<",
    ">",
    "&",
    "\0",
    "\ud800",
    "\u20ac",
    "N/A",
    "GPU is lost",
    "-1",
    "9" * 400,
    "1e999",
    "nan MiB",
    "<gpu>",
    "</gpu>",
    '<gpu id="">',
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<!DOCTYPE x>",
    '<!ENTITY x "y">',
    "&amp;",
    "&#0;",
    "&#xffffffff;",
    "<nvidia_smi_log>",
    "</nvidia_smi_log>",
    "<mig_device><index>x</index></mig_device>",
)


def mutate(text: str, numbers: list[int]) -> str:
    """Change `text` in one place: insert a snippet, delete, duplicate or replace a part."""
    kind, place, length, snippet = numbers
    start = place % (len(text) + 1)
    end = min(len(text), start + 1 + length % 200)
    if kind % 4 == 0:
        return text[:start] + SNIPPETS[snippet % len(SNIPPETS)] + text[start:]
    if kind % 4 == 1:
        return text[:start] + text[end:]
    if kind % 4 == 2:
        return text[:end] + text[start:]
    return text[:start] + SNIPPETS[snippet % len(SNIPPETS)] + text[end:]


def check_one(text: str) -> bool:
    """Parse to a document with valid types or a DocumentError; anything else fails. True for a document."""
    try:
        document = parse_document(text, partial=True)
    except DocumentError as error:
        assert error.reason in ("broken_xml", "no_document", "too_large")
        assert str(error)
        return False
    assert document.driver_version is None or isinstance(document.driver_version, str)
    for gpu in document.gpus:
        assert gpu.basics.memory_total_mib is None or isinstance(gpu.basics.memory_total_mib, int)
        assert gpu.basics.power_limit_w is None or abs(gpu.basics.power_limit_w) < float("inf")
        assert all(reason for _name, reason in gpu.unknown)
    return True


@settings(
    max_examples=MUTATIONS // MUTANTS_PER_EXAMPLE,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    st.integers(0, len(SEEDS) - 1),
    st.lists(
        st.lists(st.integers(0, 1 << 20), min_size=4, max_size=4),
        min_size=MUTANTS_PER_EXAMPLE,
        max_size=MUTANTS_PER_EXAMPLE,
    ),
)
def test_mutations_give_a_document_or_a_typed_error(seed: int, changes: list[list[int]]) -> None:
    for numbers in changes:
        check_one(mutate(SEEDS[seed], numbers))


@settings(derandomize=True, database=None)
@given(st.text(max_size=400), st.sampled_from(SEEDS), st.integers(0, 4000))
def test_any_text_in_and_around_a_document(noise: str, seed: str, place: int) -> None:
    check_one(noise)
    check_one(noise + seed)
    check_one(seed[:place] + noise + seed[place:])


@settings(derandomize=True, database=None)
@given(st.integers(0, len(H200) - 1))
def test_a_truncated_document_is_never_facts(length: int) -> None:
    end = H200.rindex("</nvidia_smi_log>") + len("</nvidia_smi_log>")
    if length < end:
        with pytest.raises(DocumentError):
            parse_document(H200[:length])
    else:
        assert len(parse_document(H200[:length]).gpus) == 8
