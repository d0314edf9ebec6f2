# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the signatures of kernel modules with the certificates that the firmware trusts. Private."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def signature_problems(modules: Mapping[str, str], serials: Iterable[str]) -> list[str]:
    """What is wrong with the signature of each module, a phrase each; empty when the kernel will load them.

    `modules`: what `modinfo` prints about the module, by kernel. `serials`: of the trusted certificates, as
    `openssl x509 -serial` prints them; with none, only a module without signature is a problem.
    """
    trusted = {_serial(line) for line in serials} - {""}
    problems = []
    for kernel, printed in modules.items():
        fields = dict(re.findall(r"^(sig_id|signer|sig_key):[ \t]*(.*?)[ \t]*$", printed, re.MULTILINE))
        key = _serial(fields.get("sig_key", ""))
        if not fields.get("sig_id") and not fields.get("signer"):
            problems.append(f"for kernel {kernel} is not signed")
        # A kmod without OpenSSL names no key of a PKCS#7 signature: that proves nothing either way.
        elif trusted and key and key not in trusted:
            signer = fields.get("signer") or "an unnamed signer"
            problems.append(f"for kernel {kernel} is signed by {signer} with the key {fields['sig_key']}")
    return problems


def _serial(text: str) -> str:
    """Hexadecimal digits without colons, leading zeros and the word in front: serial=0A12 and 0A:12 are both A12."""
    value = text.rpartition("=")[2].replace(":", "").strip().upper()
    return value.lstrip("0") if re.fullmatch(r"[0-9A-F]+", value) else ""
