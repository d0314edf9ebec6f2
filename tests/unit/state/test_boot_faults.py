# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot program: nvidia-smi calls fail in every way; it never reports false success."""

from __future__ import annotations

import re
from typing import Any

from tests.unit.faults import WAYS, FaultInjector, ModuleKilledError
from tests.unit.state.state_host import StateHost, boot_without_program


def _is_as_saved(host: StateHost, desired: Any) -> bool:
    seen = [(gpu["power_limit_w"], gpu["persistence_mode"], gpu["mig_mode"]["current"]) for gpu in host.state["gpus"]]
    return bool((seen, host.devices()) == desired)


def test_every_call_fails_in_every_way_and_success_is_never_reported_falsely(host: StateHost) -> None:
    seen = [(gpu["power_limit_w"], gpu["persistence_mode"], gpu["mig_mode"]["current"]) for gpu in host.state["gpus"]]
    desired = (seen, host.devices())
    boot_without_program(host)
    booted = host.snapshot()
    assert host.boot_program() == 0
    host.restore(booted)
    (host.root / "run" / "clocks.json").unlink(missing_ok=True)
    host.calls = []
    assert host.boot_program() == 0
    calls = len(host.calls)
    assert calls > 8 and _is_as_saved(host, desired)
    failures = 0
    for number in range(1, calls + 1):
        for name in WAYS:
            for lasts in (False, True) if name in ("unknown error", "hang before", "silent no-op") else (False,):
                host.restore(booted)
                (host.root / "run" / "clocks.json").unlink(missing_ok=True)
                fault_injector = FaultInjector(host, WAYS[name], number, lasts, lambda _call: True)
                host.intercept = fault_injector
                try:
                    status = host.boot_program()
                except ModuleKilledError:
                    status = None
                finally:
                    host.intercept = None
                where = f"call {number} {name} {'from then on' if lasts else 'once'}"
                assert fault_injector.struck, where
                assert status != 0 or _is_as_saved(host, desired), where
                if status:
                    failures += 1
                    assert re.search(r"GPU|nvidia-smi|plan", host.status), where
                if status != 0:
                    # The next start of the service repairs it.
                    assert host.boot_program() == 0 and _is_as_saved(host, desired), (where, host.status)
    assert failures
