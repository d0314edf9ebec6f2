# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Only a key that DKMS really signs with counts: that of shim-signed on Ubuntu 22.04, whatever is configured."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.platforms import platform_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.request import Request

from tests.unit.driver.plans import UBUNTU, driver, facts

OWN = {"nvidia_driver_mok_key": "/etc/mok/mok.priv", "nvidia_driver_mok_certificate": "/etc/mok/mok.der"}
SHIM_CERTIFICATE = "/var/lib/shim-signed/mok/MOK.der"
SHIM = {
    "nvidia_driver_mok_key": "/var/lib/shim-signed/mok/MOK.priv",
    "nvidia_driver_mok_certificate": SHIM_CERTIFICATE,
}
# Release of Ubuntu, variables; the certificates that are looked for in the firmware, whether DKMS is configured, and
# a part of the refusal.
CASES: dict[str, tuple[str, dict[str, Any], list[str], bool, str]] = {
    "22.04 and a key of its own": (
        "22.04",
        OWN,
        [SHIM_CERTIFICATE],
        False,
        "the dkms of Ubuntu 22.04 signs modules with /var/lib/shim-signed/mok/MOK.priv and takes no other key",
    ),
    "22.04 and the key of shim": ("22.04", SHIM, [SHIM_CERTIFICATE], False, ""),
    "22.04 and no key": ("22.04", {}, [SHIM_CERTIFICATE], False, ""),
    "24.04 and a key of its own": ("24.04", OWN, ["/etc/mok/mok.der"], True, ""),
    "24.04 and no key": ("24.04", {}, ["/var/lib/dkms/mok.pub", SHIM_CERTIFICATE], False, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_the_key_that_signs(case: str) -> None:
    release, variables, certificates, configures, refusal = CASES[case]
    system = {**UBUNTU, "distribution_version": release}
    request = Request.read({**RoleData.read().defaults(["nvidia_driver"]), **variables})
    assert request.certificates(platform_of(system)) == certificates
    assert request.configures_signing(platform_of(system)) is configures
    refusals = driver(facts(system), **variables)["refusals"]
    assert [refusal in text for text in refusals] == [True] * bool(refusal)
