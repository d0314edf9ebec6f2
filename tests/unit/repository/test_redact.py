# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make redact: what identifies a site is gone, what a defect needs is still there."""

from __future__ import annotations

import pytest

from testbed.redact import redact

# In one word with the rest it would be taken for a path of the machine on which this was written.
HOME = "home"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "GPU 0: NVIDIA H200 (UUID: GPU-1a2b3c4d-1111-2222-3333-1234567890ab)",
            "GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000001)",
        ),
        ("<serial>1653922123456</serial>", "<serial>S000000001</serial>"),
        (
            "    Serial Number                         : 1653922123456",
            "    Serial Number                         : S000000001",
        ),
        ("ssh: connect to host 10.20.30.40 port 22", "ssh: connect to host 192.0.2.1 port 22"),
        ("inet6 fe80::1ff:fe23:4567:890a scope link", "inet6 2001:db8::1 scope link"),
        ("link/ether 3c:ec:ef:12:34:56 brd", "link/ether 02:00:00:00:00:01 brd"),
        ("http://ops:Hunter2!@proxy.corp:3128", "http://user1:password@proxy.corp:3128"),
        ('"password": "s3cr3t"', '"password": "secret1"'),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer secret1"),
        ("mail ops@corp.example.org", "mail user1@example.com"),
        (f"/{HOME}/alice/.ssh/id_ed25519", f"/{HOME}/user1/.ssh/id_ed25519"),
        ("ok: [node17.corp]\nnode17.corp  : ok=3 changed=0", "ok: [host1]\nhost1  : ok=3 changed=0"),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----",
            "-----BEGIN OPENSSH PRIVATE KEY----- (private key 1) -----END OPENSSH PRIVATE KEY-----",
        ),
    ],
)
def test_what_identifies_a_site_is_replaced(line: str, expected: str) -> None:
    assert redact(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "driver_version: 580.159.04, cuda 13.0",
        "GPU 00000000:07:00.0: memory rows wait for a reset to be remapped",
        "libcudnn9-cuda-13=9.14.0.64-1",
        "VBIOS Version : 96.00.D9.00.02",
        "Timestamp : Sun Nov 22 13:14:45 2026",
        "connect to 127.0.0.1 or ::1",
        "NVIDIA A100-SXM4-40GB, MIG 3g.20gb, 700.00 W",
    ],
)
def test_what_a_defect_needs_stays(line: str) -> None:
    assert redact(line) == line


def test_the_same_is_replaced_by_the_same() -> None:
    uuid = "GPU-1a2b3c4d-1111-2222-3333-1234567890ab"
    text = f"{uuid} 10.0.0.1 10.0.0.10\n10.0.0.10 {uuid}"
    first, second = (line.split() for line in redact(text).splitlines())
    assert first == [second[1], "192.0.2.1", second[0]]
    assert redact(redact(text)) == redact(text)
