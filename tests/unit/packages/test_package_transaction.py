# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""package_transaction with scripted apt and dnf: commands, their order, and error messages."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import RunError
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._packages import apt, dnf, run
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import (
    PackageError,
    PackagePlan,
    PackageRequest,
    RefusedError,
)

# Printed by apt-get 2.6.1 on Debian 12 and dnf 4.14, with our mock packages.
_SIMULATED = """\
Reading package lists...
Building dependency tree...
The following packages will be REMOVED:
  nvidia-dkms-580-open nvidia-utils-580
Inst libnvidia-compute [580.95.05-1] (610.57.04-1ubuntu1 NVIDIA:/ [amd64])
Remv nvidia-dkms-580-open [580.95.05-1ubuntu1]
Remv nvidia-utils-580 [580.95.05-1ubuntu1]
Inst nvidia-dkms-open (610.57.04-1ubuntu1 NVIDIA:/ [amd64])
Conf nvidia-dkms-open (610.57.04-1ubuntu1 NVIDIA:/ [amd64])
"""
_DNF_TABLE = """\
Dependencies resolved.
================================================================================
 Package                  Arch       Version              Repository       Size
================================================================================
Installing:
 kmod-nvidia-open-dkms    x86_64     3:610.57.04-1.el9    cuda-rhel9       9.0 k
Upgrading:
 nvidia-driver-cuda       x86_64     3:610.57.04-1.el9    cuda-rhel9       9.4 k
Installing dependencies:
 a-package-with-a-name-that-is-longer-than-the-column
                          noarch     1.0-1.el9            appstream        6.1 k
Removing:
 kmod-nvidia-latest-dkms  x86_64     3:580.95.05-1.el9    @cuda-rhel9      1.0 k

Transaction Summary
================================================================================
Install  2 Packages
Upgrade  1 Package
Remove   1 Package

Operation aborted.
"""


@dataclass
class Host:
    """Replies to a command with the first entry whose word it contains; records all commands."""

    results: list[tuple[str, CommandResult]]
    asked: list[str] = field(default_factory=list)

    def __call__(self, argv: Sequence[str]) -> CommandResult:
        command = " ".join(argv)
        self.asked.append(command)
        for number, (word, result) in enumerate(self.results):
            if word in command:
                # The last result for a word stays, earlier ones are returned once.
                if any(word == other for other, _result in self.results[number + 1 :]):
                    self.results.pop(number)
                return result
        raise AssertionError(f"not expected: {command}")


def _output(stdout: str = "", stderr: str = "", rc: int = 0) -> CommandResult:
    return CommandResult(("apt-get",), rc, stdout.encode(), stderr.encode(), 0.1)


def _installed(**packages: str) -> CommandResult:
    """Output of dpkg-query: status and version by name, with underscores for dashes."""
    rows = (
        f"{value.split()[0].ljust(3)}\t{name.replace('_', '-')}\t{value.split()[1]}" for name, value in packages.items()
    )
    return _output("\n".join(rows) + "\n")


def test_status_of_dpkg() -> None:
    text = "ii \tbash\t5.2-1\nhi \theld\t1\niF \tnvidia-dkms-580\t580.1\nrc \tgone\t1\niiR\tbad\t1\nun \tnever\t\n"
    assert apt.parse_status(text) == (
        {"bash": "5.2-1", "held": "1", "bad": "1"},
        {"nvidia-dkms-580": "iF", "bad": "iiR"},
        ["held"],
    )


_OF_TWO = """\
ii \tdpkg\t1.22.21\tamd64
ii \tnvidia-settings\t580-1\tall
ii \tlibnvidia-gl-580\t580-1\tamd64
hi \tlibnvidia-gl-580\t580-1\ti386
"""


def test_a_package_of_another_architecture_is_not_removed_in_silence() -> None:
    both = {"libnvidia-gl-580": "580-1", "libnvidia-gl-580:i386": "580-1"}
    assert apt.parse_status(_OF_TWO) == (
        {"dpkg": "1.22.21", "nvidia-settings": "580-1", **both},
        {},
        ["libnvidia-gl-580:i386"],
    )
    simulated = _output(
        "Inst libnvidia-gl-580 [580-1] (580-2 NVIDIA:/ [amd64]) []\nRemv libnvidia-gl-580:i386 [580-1]\n"
    )
    host = Host([("dpkg-query", _output(_OF_TWO.replace("hi ", "ii "))), ("--simulate", simulated)])
    with pytest.raises(PackageError, match=r"^libnvidia-gl-580:i386 would have to be removed, which was not requested"):
        apt.plan(PackageRequest(install=("libnvidia-gl-580=580-2",)), host)


def test_rpm_has_packages_of_32_bits_besides() -> None:
    listed = "nvidia-driver-libs\t3:580-1.el9\tx86_64\nnvidia-driver-libs\t3:580-1.el9\ti686\n"
    table = "Upgrading:\n nvidia-driver-libs  x86_64  3:610-1.el9  cuda  9 k\nRemoving:\n nvidia-driver-libs  i686  "
    aborted = _output(table + "3:580-1.el9  @cuda  9 k\n", "Operation aborted.", 1)
    request = PackageRequest(install=("nvidia-driver-libs=610",))
    with pytest.raises(PackageError, match=r"^nvidia-driver-libs\.i686 would have to be removed"):
        dnf.plan(request, Host([("rpm", _output(listed)), ("--assumeno", aborted)]))
    needs = ("repoquery", _output("nvidia-driver-libs x86_64\n"))
    host = Host([("rpm", _output(listed)), needs, ("--assumeno", aborted)])
    plan = dnf.plan(replace(request, remove=("nvidia-driver-libs.i686",)), host)
    assert plan.remove == {"nvidia-driver-libs.i686": "3:580-1.el9"}
    undo = PackageRequest(install=("nvidia-driver-libs.i686=3:580-1.el9",))
    dnf.plan(undo, undone := Host([("rpm", _output()), ("--assumeno", _output("", "Operation aborted.", 1))]))
    assert undone.asked[-1].endswith("install nvidia-driver-libs-3:580-1.el9.i686")


_DKMS = """\
Error! Bad return status for module build on kernel: 6.12.48+deb13-amd64 (x86_64)
Consult /var/lib/dkms/nvidia-current/550.163.01/build/make.log for more information.
dpkg: error processing package nvidia-kernel-dkms (--configure):
 installed nvidia-kernel-dkms package post-installation script subprocess returned error exit status 10
Errors were encountered while processing:
 nvidia-kernel-dkms
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
_SOLVER = """\
E: Unable to satisfy dependencies. Reached two conflicting assignments:
   1. nvidia-smi:amd64=550.163.01-2 is selected for install
   2. nvidia-smi:amd64 is not selected for install because:
      1. libnvidia-ml1:amd64=580.159.04-1 is selected for install
"""
_CONFLICT = """\
Error: Transaction test error:
  file /usr/bin/nvidia-smi from install of nvidia-driver-cuda-3:580-1 conflicts with file from package xorg-x11-drv
"""
_SCRIPTLET = """\
error: %prein(kmod-nvidia-3:580-1.x86_64) scriptlet failed, exit status 1
error: kmod-nvidia-3:580-1.x86_64: install failed
Error: Transaction failed
"""
_PROBLEM = """\
Error:
 Problem: conflicting requests
  - cannot install both nvidia-a-1 and nvidia-a-2
(try to add '--allowerasing' to command line)
"""


@pytest.mark.parametrize(
    ("manager", "text", "parts"),
    [
        (apt, _DKMS, ["(--configure): installed nvidia-kernel-dkms package post-installation", "; Error! Bad return"]),
        (apt, _DKMS, ["; Consult /var/lib/dkms/nvidia-current/550.163.01/build/make.log"]),
        (apt, _SOLVER, ["assignments: 1. nvidia-smi:amd64=550.163.01-2 is", "1. libnvidia-ml1:amd64=580.159.04-1 is"]),
        (
            dnf,
            _CONFLICT.replace("conflicts with", "is in the way of"),
            ["Transaction test error: file /usr/bin/nvidia"],
        ),
        (dnf, _SCRIPTLET, ["Transaction failed; error: %prein(kmod-nvidia-3:580-1.x86_64) scriptlet failed"]),
        (dnf, _PROBLEM, ["Problem: conflicting requests - cannot install both nvidia-a-1 and nvidia-a-2"]),
    ],
)
def test_the_reason_has_what_follows_a_colon_and_what_scripts_print(manager: Any, text: str, parts: list[str]) -> None:
    found = manager._explain(text)
    assert "\n" not in found
    assert [part for part in parts if part not in found] == [], found


def test_simulation_of_apt() -> None:
    assert apt.parse_simulation(_SIMULATED) == (
        {"libnvidia-compute": "610.57.04-1ubuntu1", "nvidia-dkms-open": "610.57.04-1ubuntu1"},
        {"nvidia-dkms-580-open": "580.95.05-1ubuntu1", "nvidia-utils-580": "580.95.05-1ubuntu1"},
    )


# From the output of apt-cache 2.6.1 on Debian 12.
_DEPENDENCIES = """\
nvidia-smi
  Depends: nvidia-alternative
  Depends: libnvidia-ml1
  Depends: libc6
nvidia-kernel-dkms
  PreDepends: nvidia-installer-cleanup
 |Depends: firmware-nvidia-gsp
  Depends: <firmware-nvidia-gsp-535.261.03>
    firmware-nvidia-gsp
  Depends: <nvidia-kernel-support--v1>
    nvidia-kernel-support
  Depends: dkms
nvidia-persistenced
 |Depends: libnvidia-cfg1
 |Depends: libnvidia-tesla-470-cfg1
  Depends: <libnvidia-cfg.so.1>
    libnvidia-cfg1
    libnvidia-tesla-535-cfg1
  Depends: adduser
nvidia-alternative
  Depends: glx-alternative-nvidia
glx-alternative-nvidia
  Depends: glx-diversions
libc6
  Depends: libgcc-s1
"""


def test_dependencies_by_apt_cache() -> None:
    needs = apt.parse_dependencies(_DEPENDENCIES)
    assert needs["nvidia-kernel-dkms"] == [
        {"nvidia-installer-cleanup"},
        {"firmware-nvidia-gsp", "firmware-nvidia-gsp-535.261.03"},
        {"nvidia-kernel-support--v1", "nvidia-kernel-support"},
        {"dkms"},
    ]
    assert needs["nvidia-persistenced"] == [
        {"libnvidia-cfg1", "libnvidia-tesla-470-cfg1", "libnvidia-cfg.so.1", "libnvidia-tesla-535-cfg1"},
        {"adduser"},
    ]
    assert needs["libc6"] == [{"libgcc-s1"}]


def test_what_is_needed_stays_although_it_was_to_go() -> None:
    # One package is missing; the installed ones are requested for removal, as they are not desired by name.
    before = _installed(
        nvidia_smi="ii 535.1-1",
        nvidia_alternative="ii 535.1-1",
        glx_alternative_nvidia="ii 1-1",
        glx_diversions="ii 1-1",
        libnvidia_tesla_535_cfg1="ii 535.1-1",
        libnvidia_tesla_470_cfg1="ii 470.1-1",
        libnvidia_cfg1="ii 535.1-1",
        nvidia_settings="ii 535.1-1",
    )
    simulated = _output("Inst nvidia-persistenced (535.1-1 x)\n")
    host = Host(
        [
            ("dpkg-query", before),
            ("depends", _output(_DEPENDENCIES)),
            ("nvidia-settings-", _output("Inst nvidia-persistenced (535.1-1 x)\nPurg nvidia-settings [535.1-1]\n")),
            ("--simulate", simulated),
        ]
    )
    parts = ("nvidia-alternative", "glx-alternative-nvidia", "glx-diversions", "nvidia-settings")
    # libnvidia-cfg1, which is not to be removed, satisfies this alternative dependency.
    choice = ("libnvidia-tesla-470-cfg1", "libnvidia-tesla-535-cfg1")
    plan = apt.plan(PackageRequest(install=("nvidia-smi", "nvidia-persistenced"), remove=(*parts, *choice)), host)
    assert host.asked[2].endswith("depends --recurse --important nvidia-smi=535.1-1 nvidia-persistenced=535.1-1")
    assert host.asked[-1].endswith(
        "install nvidia-smi nvidia-persistenced nvidia-settings- libnvidia-tesla-470-cfg1- libnvidia-tesla-535-cfg1-"
    )
    assert plan.remove == {"nvidia-settings": "535.1-1"}


@pytest.mark.parametrize("purge", [True, False])
def test_configuration_stays_where_it_is_not_to_be_purged(purge: bool) -> None:
    """A purge of Debian's packages of Docker deletes all images and containers."""
    removal = f"{'Purg' if purge else 'Remv'} docker-engine [26.1-1]\n"
    host = Host(
        [
            ("dpkg-query", _installed(docker_engine="ii 26.1-1")),
            ("depends", _output("docker-ce\n")),
            ("--simulate", _output("Inst docker-ce (28.0-1 x)\n" + removal)),
        ]
    )
    request = PackageRequest(install=("docker-ce",), remove=("docker-engine",), purge=purge)
    assert apt.plan(request, host).remove == {"docker-engine": "26.1-1"}
    assert {"--purge" in command.split() for command in host.asked if "--simulate" in command} == {purge}


def test_what_is_needed_goes_down_with_what_needs_it() -> None:
    # NVIDIA's packages depend on "this version or newer" of each other: apt would leave a newer library in place.
    before = _installed(driver_cuda="hi 610.57.04-1", libnvidia_ml1="hi 610.57.04-1", libnvidia_egl="ii 1.1.13-1")
    after = _installed(driver_cuda="ii 580.159.04-1", libnvidia_ml1="ii 580.159.04-1", libnvidia_egl="ii 1.1.13-1")
    step = "Inst driver-cuda [610.57.04-1] (580.159.04-1 x)\n"
    host = Host(
        [
            ("dpkg-query", before),
            ("depends", _output("driver-cuda\n  Depends: libnvidia-ml1\n  Depends: libnvidia-egl\n")),
            (
                "madison",
                _output(
                    "libnvidia-ml1 | 610.57.04-1 | https://x.example  Packages\n"
                    "libnvidia-ml1 | 580.159.04-1 | https://x.example  Packages\n"
                    "libnvidia-egl |   1.1.13-1 | https://x.example  Packages\n"
                ),
            ),
            (
                "--simulate install driver-cuda=580.159.04-* libnvidia-ml1=580.159.04-*",
                _output(step + "Inst libnvidia-ml1 [610.57.04-1] (580.159.04-1 x)\n"),
            ),
            ("--simulate", _output(step)),
            ("apt-get", _output()),
            ("dpkg-query", after),
        ]
    )
    family = ("driver-cuda", "libnvidia-egl", "libnvidia-ml1")
    request = PackageRequest(install=("driver-cuda=580.159.04-*",), remove=family, release_holds=family)
    plan = apt.plan(request, host)
    assert plan.install == {"driver-cuda": "580.159.04-1", "libnvidia-ml1": "580.159.04-1"}
    assert plan.remove == {}
    assert apt.apply(request, plan, host)["libnvidia-ml1"] == "580.159.04-1"
    assert plan.undo()["install"] == ["driver-cuda=610.57.04-1", "libnvidia-ml1=610.57.04-1"]


def test_table_of_dnf() -> None:
    assert dnf.parse_transaction(_DNF_TABLE) == (
        {
            "kmod-nvidia-open-dkms": "3:610.57.04-1.el9",
            "nvidia-driver-cuda": "3:610.57.04-1.el9",
            "a-package-with-a-name-that-is-longer-than-the-column": "1.0-1.el9",
        },
        {"kmod-nvidia-latest-dkms": "3:580.95.05-1.el9"},
    )


@pytest.mark.parametrize(
    ("text", "stream"),
    [
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n", "nvidia-driver:580-open"),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=\nprofiles=\nstate=\n", ""),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nstate=disabled\n", ""),
        ("", ""),
    ],
)
def test_enabled_stream(text: str, stream: str) -> None:
    assert dnf.parse_stream(text, "nvidia-driver") == stream


@pytest.mark.parametrize(
    ("desired", "fits"),
    [("580.95.05", True), ("580.*", True), ("3:580.95.05-1.el9", True), ("580.95.05-1.el9", True), ("580.95", False)],
)
def test_versions_of_rpm(desired: str, fits: bool) -> None:
    assert dnf.matches_rpm("3:580.95.05-1.el9", desired) is fits


def test_what_gives_way_is_part_of_one_command_and_can_be_undone() -> None:
    before = _installed(libnvidia_compute="ii 580.95.05-1", nvidia_dkms_580_open="ii 580.95.05-1", bash="ii 5-1")
    after = _installed(libnvidia_compute="ii 610.57.04-1", nvidia_dkms_open="ii 610.57.04-1", bash="ii 5-1")
    simulated = "Inst libnvidia-compute [580.95.05-1] (610.57.04-1 x)\nInst nvidia-dkms-open (610.57.04-1 x)\n"
    with_removal = simulated + "Remv nvidia-dkms-580-open [580.95.05-1]\n"
    host = Host(
        [
            ("dpkg-query", before),
            ("depends", _output("nvidia-dkms-open\n  Depends: dkms\n")),
            ("nvidia-dkms-580-open- ", _output()),
            ("--simulate", _output(simulated)),
            ("--simulate", _output(with_removal)),
            ("apt-get", _output()),
            ("dpkg-query", after),
        ]
    )
    request = PackageRequest(
        install=("libnvidia-compute=610.57.04-*", "nvidia-dkms-open=610.57.04-*"),
        remove=("nvidia-dkms-580-open", "nvidia-never-there"),
    )
    plan = apt.plan(request, host)
    assert apt.apply(request, plan, host)["nvidia-dkms-open"] == "610.57.04-1"
    assert host.asked[-2].endswith(
        "install libnvidia-compute=610.57.04-* nvidia-dkms-open=610.57.04-* nvidia-dkms-580-open- "
        "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
    )
    assert plan.undo() == {
        "install": ["libnvidia-compute=580.95.05-1", "nvidia-dkms-580-open=580.95.05-1"],
        "remove": ["nvidia-dkms-open"],
        "stream": "",
        "release_holds": ["libnvidia-compute", "nvidia-dkms-580-open", "nvidia-dkms-open"],
        "repair": True,
    }


def test_what_was_done_is_read_from_the_installed_packages() -> None:
    before = {"driver": "580.1-1", "settings": "580.1-1", "bash": "5-1"}
    planned = PackagePlan({"driver": "610.1-1"}, {"settings": "580.1-1", "half": "580.1-1"}, before)
    done = planned.done({"driver": "610.1-1", "library": "610.1-1", "bash": "5-1"})
    assert done.install == {"driver": "610.1-1", "library": "610.1-1"}
    assert done.remove == {"settings": "580.1-1", "half": "580.1-1"}
    assert done.undo()["install"] == ["driver=580.1-1", "settings=580.1-1"], "not what was half installed"
    assert done.undo()["remove"] == ["library"]


def test_nothing_to_do_is_no_change() -> None:
    host = Host([("dpkg-query", _installed(bash="ii 5-1")), ("--simulate", _output("Reading package lists...\n"))])
    assert not apt.plan(PackageRequest(install=("bash",), remove=("zsh",)), host).changes


def test_what_nobody_asked_to_remove_stays() -> None:
    host = Host(
        [("dpkg-query", _installed(cuda="ii 1-1")), ("--simulate", _output("Inst new (2-1 x)\nRemv cuda [1-1]\n"))]
    )
    with pytest.raises(
        PackageError, match="cuda would have to be removed, which was not requested; nothing was changed"
    ):
        apt.plan(PackageRequest(install=("new",)), host)


# Messages of apt-get and dpkg on Debian 12.
@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)\n",
            "process 4711 (unattended-upgr) holds apt's lock; wait until it has ended",
        ),
        (
            "E: Unable to locate package nvidia-dkms-999\n",
            "Unable to locate package nvidia-dkms-999; see `apt-cache policy`",
        ),
        (
            "E: Version '999*' for 'nvidia-utils' was not found\n",
            "Version '999*' for 'nvidia-utils' was not found; see `apt-cache policy`",
        ),
        (
            "Err:1 https://x.example x 1\n  503  Unavailable\nE: Failed to fetch https://x.example/x.deb  503\n",
            "a repository cannot be reached: E: Failed to fetch https://x.example/x.deb  503",
        ),
        (
            """\
The following packages have unmet dependencies:
 nvidia-open-kernel-dkms : Depends: firmware-nvidia-gsp (= 535.261.03) but 535.309.01 is to be installed
E: Unable to correct problems, you have held broken packages.
""",
            "nvidia-open-kernel-dkms : Depends: firmware-nvidia-gsp (= 535.261.03) but 535.309.01 is to be installed",
        ),
    ],
)
def test_apt_is_quoted_in_one_line_with_what_to_do(stderr: str, message: str) -> None:
    host = Host([("dpkg-query", _installed(bash="ii 5-1")), ("--simulate", _output(stderr=stderr, rc=100))])
    with pytest.raises(PackageError) as caught:
        apt.plan(PackageRequest(install=("nvidia-dkms",)), host)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not caught.value.begun


def test_half_installed_packages_are_named_first() -> None:
    host = Host([("dpkg-query", _installed(nvidia_dkms_580="iF 580.1-1"))])
    with pytest.raises(
        PackageError, match=r"nvidia-dkms-580 is only half installed \(iF in `dpkg -l`\); run `dpkg --configure -a`"
    ) as caught:
        apt.plan(PackageRequest(install=("nvidia-utils-580",)), host)
    assert "another run is at work, wait until it has ended" in str(caught.value)


def test_a_hold_of_another_admin_is_respected() -> None:
    held = _installed(nvidia_utils_580="hi 580.95.05-1", bash="hi 5-1")
    request = PackageRequest(install=("nvidia-utils-580=580.159.04-*",))
    reply = _output("Inst nvidia-utils-580 [580.95.05-1] (580.159.04-1 x)\n")
    with pytest.raises(PackageError, match=r"^nvidia-utils-580 is on hold, and not by this role; run `apt-mark unhold"):
        apt.plan(request, Host([("dpkg-query", held), ("--simulate", reply)]))
    ours = PackageRequest(install=request.install, release_holds=("nvidia-utils-580",))
    assert apt.plan(ours, Host([("dpkg-query", held), ("--simulate", reply)])).changes


def test_a_hold_of_another_admin_keeps_what_would_have_to_give_way() -> None:
    # Not requested, but in conflict with the packages to be installed.
    held = _installed(nvidia_driver_pinning_580="hi 580-1")
    reply = _output("Remv nvidia-driver-pinning-580 [580-1]\nInst nvidia-driver-pinning-610 (610-1 x)\n")
    with pytest.raises(PackageError, match="nvidia-driver-pinning-580 is on hold, and not by this role"):
        apt.plan(
            PackageRequest(install=("nvidia-driver-pinning-610",)), Host([("dpkg-query", held), ("--simulate", reply)])
        )


def test_what_is_half_installed_is_removed_too_and_does_not_come_back() -> None:
    host = Host(
        [
            ("dpkg-query", _installed(nvidia_dkms="iF 590.44.01-1", bash="ii 5-1")),
            ("nvidia-dkms- ", _output()),
            ("--simulate", _output()),
            ("--simulate", _output("Remv nvidia-dkms [590.44.01-1]\n")),
            ("apt-get", _output()),
            ("dpkg-query", _installed(bash="ii 5-1")),
        ]
    )
    request = PackageRequest(remove=("nvidia-dkms",), repair=True)
    plan = apt.plan(request, host)
    assert plan.remove == {"nvidia-dkms": "590.44.01-1"}
    assert apt.apply(request, plan, host) == {"bash": "5-1"}
    assert plan.undo()["install"] == []


def test_a_failed_script_is_reported_with_the_packages_it_left() -> None:
    request = PackageRequest(install=("nvidia-dkms=590.44.01-*",))
    host = Host(
        [
            ("--download-only", _output()),
            (
                "apt-get",
                _output(stderr="dpkg: error processing package nvidia-dkms (--configure):\nE: Sub-process", rc=100),
            ),
            ("dpkg-query", _installed(nvidia_dkms="iF 590.44.01-1")),
        ]
    )
    with pytest.raises(
        PackageError, match=r"error processing package nvidia-dkms .* nvidia-dkms is only half installed"
    ) as e:
        apt.apply(request, PackagePlan(install={"nvidia-dkms": "590.44.01-1"}), host)
    assert e.value.begun


def test_a_download_that_fails_changes_nothing() -> None:
    host = Host([("--download-only", _output(stderr="E: Failed to fetch https://example.org/a.deb  404", rc=100))])
    with pytest.raises(PackageError, match="a repository cannot be reached") as caught:
        apt.apply(PackageRequest(install=("a",)), PackagePlan(install={"a": "1"}), host)
    assert not caught.value.begun
    assert len(host.asked) == 1
    # apt itself tries again before that, with a pause in between.
    assert "-o Acquire::Retries=5" in host.asked[0]


@pytest.mark.parametrize(("size", "needed"), [("332 MB", 317), ("5542 MB", 5286), ("999 kB", 1), ("12.0 GB", 11445)])
def test_packages_that_do_not_fit_change_nothing(monkeypatch: pytest.MonkeyPatch, size: str, needed: int) -> None:
    """With the line of apt-get 2.6 and 3.0, which compare only the download with the room."""
    line = f"Need to get 176 MB of archives.\nAfter this operation, {size} of additional disk space will be used.\n"
    host = Host([("--download-only", _output(line))])
    monkeypatch.setattr(apt, "read_file_systems", lambda *_asked: {"/usr": {"mount": "/", "available_mib": needed - 1}})
    with pytest.raises(RefusedError, match=rf"/ has {needed - 1} MiB free, and {needed} MiB are needed") as caught:
        apt.apply(PackageRequest(install=("a",)), PackagePlan(install={"a": "1"}), host)
    assert not caught.value.begun
    assert len(host.asked) == 1


def test_success_is_what_was_read_back() -> None:
    host = Host([("apt-get", _output()), ("dpkg-query", _installed(a="ii 1-1"))])
    with pytest.raises(PackageError, match="apt-get reported no error; a is 1-1, not 2-1"):
        apt.apply(PackageRequest(install=("a=2-1",)), PackagePlan(install={"a": "2-1"}, before={"a": "1-1"}), host)


def test_dnf_changes_stream_first_and_then_all_packages_in_one_run() -> None:
    before = _output("kmod-nvidia-latest-dkms\t3:580.95.05-1.el9\n")
    host = Host(
        [
            ("rpm", before),
            ("module reset nvidia-driver", _output()),
            ("module enable nvidia-driver:580-open", _output()),
            ("shell", _output()),
            ("rpm", _output("kmod-nvidia-open-dkms\t3:580.95.05-1.el9\n")),
        ]
    )
    request = PackageRequest(
        install=("kmod-nvidia-open-dkms=580.95.05",),
        remove=("kmod-nvidia-latest-dkms",),
        stream="nvidia-driver:580-open",
    )
    plan = dnf.plan(request, host, "nvidia-driver:580-dkms")
    assert dnf.apply(request, plan, host) == {"kmod-nvidia-open-dkms": "3:580.95.05-1.el9"}
    assert plan.undo()["stream"] == "nvidia-driver:580-dkms"
    assert plan.undo()["install"] == ["kmod-nvidia-latest-dkms=3:580.95.05-1.el9"]


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (
            "Error: Unable to find a match: kmod-nvidia-open-dkms-999\n",
            "Unable to find a match: kmod-nvidia-open-dkms-999",
        ),
        (
            "Errors during downloading metadata for repository 'cuda':\n  - Curl error (7): Couldn't connect\n",
            "a repository cannot be reached: - Curl error (7)",
        ),
        ("Error: GPG check FAILED\n", "a signature was not made with the repository's key"),
        (
            "error: can't create transaction lock on /var/lib/rpm/.rpm.lock (Resource temporarily unavailable)\n",
            "another rpm is running (`fuser -v /var/lib/rpm/.rpm.lock` names it); wait until it has ended",
        ),
        (
            "error: db5 error(-30973) from dbenv->open: BDB0087 DB_RUNRECOVERY: Fatal\nError: rpmdb open failed\n",
            "rpm's database is damaged: error: db5 error(-30973)",
        ),
        (
            "error: sqlite failure: database disk image is malformed\n",
            "run `rpm --rebuilddb` on the host",
        ),
    ],
)
def test_dnf_is_quoted_in_one_line(stderr: str, message: str) -> None:
    host = Host([("rpm", _output("bash\t0:5-1\n")), ("--assumeno", _output(stderr=stderr, rc=1))])
    with pytest.raises(PackageError) as caught:
        dnf.plan(PackageRequest(install=("kmod-nvidia-open-dkms",), lock_timeout=0), host)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_dnf_is_asked_again_while_another_one_has_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    busy = _output(stderr="Error: Failed to obtain the transaction lock (logged in as: root).\n", rc=1)
    host = Host(
        [("rpm", _output()), ("--assumeno", busy), ("--assumeno", busy), ("--assumeno", _output(_DNF_TABLE, rc=1))]
    )
    assert dnf.plan(
        PackageRequest(install=("kmod-nvidia-open-dkms",), remove=("kmod-nvidia-latest-dkms",)), host
    ).changes
    retrying = Host([("rpm", _output()), ("--assumeno", busy)])
    with pytest.raises(PackageError, match="another dnf is running; wait until it has ended"):
        dnf.plan(PackageRequest(install=("kmod-nvidia-open-dkms",), lock_timeout=0), retrying)


def test_dnf_leaves_no_stream_that_is_not_desired_where_it_is_to_be_reset() -> None:
    host = Host(
        [("rpm", _output("kmod-nvidia-open-dkms\t3:580.95.05-1.el9\n")), ("dnf", _output()), ("rpm", _output())]
    )
    request = PackageRequest(remove=("kmod-nvidia-open-dkms",), module="nvidia-driver")
    plan = dnf.plan(request, host, "nvidia-driver:580-open")
    assert dnf.apply(request, plan, host) == {}
    assert [command.split("--assumeyes ")[1] for command in host.asked if "--assumeyes" in command] == [
        "module reset nvidia-driver",
        "remove kmod-nvidia-open-dkms",
    ]


# Printed by dnf 4.14 for `install` of two packages at 580.*, without and with the newest installed.
_UPGRADE = """\
Dependencies resolved.
================================================================================
 Package                     Arch       Version                  Repo      Size
================================================================================
Upgrading:
 kmod-nvidia-open-dkms       noarch     3:580.159.04-1.el9       cuda     5.5 k
 nvidia-driver-cuda          noarch     3:580.159.04-1.el9       cuda     5.5 k
 nvidia-driver-cuda-libs     noarch     3:580.159.04-1.el9       cuda     5.5 k

Transaction Summary
================================================================================
Upgrade  3 Packages

Total size: 16 k
Operation aborted.
"""
_UP_TO_DATE = """\
Package nvidia-driver-cuda-3:580.159.04-1.el9.noarch is already installed.
Dependencies resolved.
Nothing to do.
"""
_DRIVER = ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "kmod-nvidia-open-dkms")


def _of_version(version: str) -> CommandResult:
    return _output("".join(f"{name}\t3:{version}-1.el9\n" for name in _DRIVER))


@pytest.mark.parametrize("names", [("nvidia-driver-cuda=580.*", "kmod-nvidia-open-dkms=580.*"), _DRIVER[::2]])
def test_dnf_upgrades_within_what_is_requested(names: tuple[str, ...]) -> None:
    host = Host(
        [
            ("rpm", _of_version("580.95.05")),
            ("--assumeno", _output(_UPGRADE, rc=1)),
            ("--assumeyes", _output()),
            ("rpm", _of_version("580.159.04")),
        ]
    )
    request = PackageRequest(install=names, upgrade=True)
    plan = dnf.plan(request, host)
    assert plan.install == dict.fromkeys(_DRIVER, "3:580.159.04-1.el9")
    assert dnf.apply(request, plan, host)["nvidia-driver-cuda"] == "3:580.159.04-1.el9"
    # dnf.conf may have best=False, with which dnf leaves what is installed.
    assert [" --best " in command for command in host.asked] == [False, True, True, False]
    # Without it, what is installed is enough, and dnf is not run at all.
    assert not dnf.plan(PackageRequest(install=names), Host([("rpm", _of_version("580.95.05"))])).changes


def test_dnf_has_nothing_to_upgrade() -> None:
    host = Host([("rpm", _of_version("580.159.04")), ("--assumeno", _output(_UP_TO_DATE))])
    assert not dnf.plan(PackageRequest(install=("nvidia-driver-cuda=580.*",), upgrade=True), host).changes


def test_an_upgrade_of_dnf_that_did_not_happen_is_a_failure() -> None:
    host = Host(
        [
            ("rpm", _of_version("580.95.05")),
            ("--assumeno", _output(_UPGRADE, rc=1)),
            ("--assumeyes", _output()),
            ("rpm", _of_version("580.95.05")),
        ]
    )
    request = PackageRequest(install=("nvidia-driver-cuda=580.*",), upgrade=True)
    with pytest.raises(PackageError, match=r"nvidia-driver-cuda is 3:580\.95\.05-1\.el9, not 3:580\.159\.04-1\.el9"):
        dnf.apply(request, dnf.plan(request, host), host)


def test_dnf_keeps_what_is_needed_although_it_was_to_go() -> None:
    installed = "nvidia-driver-cuda\t3:1-1\nnvidia-driver-cuda-libs\t3:1-1\nnvidia-settings\t3:1-1\n"
    table = "Removing:\n nvidia-settings  x86_64  3:1-1  @cuda-rhel9  1.0 k\n"
    needs = _output("nvidia-driver-cuda-libs\nglibc\n")
    aborted = _output(table, "Operation aborted.", 1)
    host = Host([("rpm", _output(installed)), ("repoquery", needs), ("--assumeno", aborted)])
    request = PackageRequest(install=("nvidia-driver-cuda",), remove=("nvidia-driver-cuda-libs", "nvidia-settings"))
    assert dnf.plan(request, host).remove == {"nvidia-settings": "3:1-1"}
    assert host.asked[1].endswith("--recursive --queryformat %{name} %{arch}\\n nvidia-driver-cuda")


# Printed by dnf 4.20 for a removal: what depends on the packages, and what only they needed.
_DNF_REMOVAL = """\
Dependencies resolved.
================================================================================
 Package                    Arch     Version               Repository      Size
================================================================================
Removing:
 nvidia-driver-cuda         x86_64   3:580.159.04-1.el10   @cuda           1.4 M
Removing unused dependencies:
 egl-wayland                x86_64   1.1.20-1.el10         @appstream       90 k
 nvidia-driver-cuda-libs    x86_64   3:580.159.04-1.el10   @cuda           410 M

Transaction Summary
================================================================================
Remove  3 Packages

Freed space: 412 M
Operation aborted.
"""
_DNF_DEPENDENT = _DNF_REMOVAL.replace("unused dependencies", "dependent packages").replace("egl-wayland", "dcgm-tools ")
_DNF_INSTALLED = "nvidia-driver-cuda\t3:1-1\nnvidia-driver-cuda-libs\t3:1-1\negl-wayland\t0:1-1\ndcgm-tools\t0:1-1\n"


@pytest.mark.parametrize("install", [(), ("bash",)])
def test_dnf_may_remove_dependencies_that_nothing_needs_any_more(install: tuple[str, ...]) -> None:
    aborted = _output(_DNF_REMOVAL, "Operation aborted.", 1)
    host = Host([("rpm", _output(_DNF_INSTALLED)), ("--assumeno", aborted)])
    found = dnf.plan(PackageRequest(install=install, remove=("nvidia-driver-cuda",)), host)
    assert set(found.remove) == {"nvidia-driver-cuda", "nvidia-driver-cuda-libs", "egl-wayland"}
    # They are kept where dnf can keep them, as with apt.
    assert "--setopt=clean_requirements_on_remove=False" in host.asked[-1]


def test_dnf_removes_nothing_that_depends_on_what_goes() -> None:
    host = Host([("rpm", _output(_DNF_INSTALLED)), ("--assumeno", _output(_DNF_DEPENDENT, "Operation aborted.", 1))])
    with pytest.raises(PackageError, match="dcgm-tools, nvidia-driver-cuda-libs would have to be removed"):
        dnf.plan(PackageRequest(remove=("nvidia-driver-cuda",)), host)


@pytest.mark.parametrize(
    ("before", "restored"),
    [
        ("nvidia-driver:580-dkms", ["module reset nvidia-driver", "module enable nvidia-driver:580-dkms"]),
        ("", ["module reset nvidia-driver"]),
    ],
)
def test_dnf_refuses_unrelated_removals_in_another_stream(before: str, restored: list[str]) -> None:
    """What the other stream has is known once it is enabled; then the plan is checked, before any package moves."""
    host = Host(
        [
            ("rpm", _output(_DNF_INSTALLED)),
            ("module", _output()),
            ("--assumeno", _output(_DNF_DEPENDENT, "Operation aborted.", 1)),
        ]
    )
    request = PackageRequest(
        install=("nvidia-driver-cuda=580.159.04",), remove=("nvidia-driver-cuda",), stream="nvidia-driver:580-open"
    )
    plan = dnf.plan(request, host, before)
    with pytest.raises(PackageError, match="dcgm-tools, nvidia-driver-cuda-libs would have to be removed") as caught:
        dnf.apply(request, plan, host)
    assert not caught.value.begun
    changes = [command.split("--assumeyes ")[1] for command in host.asked if "--assumeyes" in command]
    assert changes == ["module reset nvidia-driver", "module enable nvidia-driver:580-open", *restored]


def test_a_stream_that_dnf_cannot_restore_has_changed_the_host() -> None:
    host = Host(
        [
            ("rpm", _output(_DNF_INSTALLED)),
            ("module reset", _output()),
            ("module reset", _output(stderr="Error: disk full", rc=1)),
            ("module enable", _output()),
            ("--assumeno", _output(stderr="Error: Unable to find a match: nvidia-driver-cuda", rc=1)),
        ]
    )
    request = PackageRequest(install=("nvidia-driver-cuda=580.1",), stream="nvidia-driver:580-open")
    with pytest.raises(PackageError, match=r"Unable to find a match: nvidia-driver-cuda; .*disk full") as caught:
        dnf.apply(request, dnf.plan(request, host), host)
    assert caught.value.begun


def test_the_plan_is_made_with_planned_preferences_in_place_of_the_file_and_all_others(tmp_path: Path) -> None:
    place = tmp_path / "etc/apt/preferences.d"
    place.mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text("ID=debian\n")
    for name in ("site", "ours"):
        (place / name).write_text("before")
    params = {"preferences": "planned", "preferences_file": "/etc/apt/preferences.d/ours"}
    with run.planned_preferences(params, HostFiles(str(tmp_path))) as directory:
        assert {path.name: path.read_text() for path in Path(directory).iterdir()} == {
            "site": "before",
            "ours": "planned",
        }
    assert not Path(directory).exists()
    assert (place / "ours").read_text() == "before"
    with run.planned_preferences({**params, "preferences_file": ""}, HostFiles(str(tmp_path))) as directory:
        assert directory == ""


_PARAMS: dict[str, Any] = {
    "install": ["pkg=2.0"],
    "remove": [],
    "purge": True,
    "stream": "",
    "module": "",
    "release_holds": [],
    "upgrade": False,
    "repair": False,
    "rollback": "required",
    "save_directory": "/saved",
    "sources": [],
    "preferences_file": "",
    "preferences": "",
    "lock_timeout": 1,
    "timeout": 60.0,
}


def _scripted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: PackagePlan, replies: list[tuple[str, CommandResult]]
) -> dict[str, Any]:
    """The result of a run on Debian that fails; `found` is its plan."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('ID=debian\nVERSION_ID="13"\n')
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    host = Host(replies)
    monkeypatch.setattr(run, "run_all", lambda commands, _timeout: [host(commands[0])])
    monkeypatch.setattr(run, "plan", lambda *_arguments: found)
    with pytest.raises(RunError) as caught:
        run.run(_PARAMS, False, HostFiles(str(tmp_path)))
    return dict(caught.value.result)


@pytest.mark.parametrize("rc", [0, 100])
def test_a_program_that_saves_packages_is_a_change_although_the_change_had_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rc: int
) -> None:
    found = PackagePlan({"pkg": "2.0"}, before={"pkg": "1.0"}, unavailable=("pkg",))
    failed = _output(stderr="E: no\n", rc=100)
    replies = [("--download-only", _output()), ("install dpkg-repack", _output(rc=rc)), ("env", failed)]
    monkeypatch.setattr(os, "makedirs", lambda *_arguments, **_options: None)
    monkeypatch.setattr(os, "listdir", lambda _path: [])
    result = _scripted(tmp_path, monkeypatch, found, replies)
    assert (result["refused"], result["begun"], result["changed"]) == (True, False, rc == 0)


def test_packages_that_cannot_be_read_after_the_change_may_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = PackagePlan({"pkg": "2.0"}, before={})
    replies = [("--download-only", _output()), ("dpkg-query", _output(rc=2)), ("install", _output())]
    result = _scripted(tmp_path, monkeypatch, found, replies)
    assert (result["begun"], result["changed"]) == (True, True)
