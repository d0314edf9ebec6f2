# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml is killed inside the transaction of each role that installs packages; decommission.yml then leaves nothing.

apt starts a dpkg that unpacks the packages of one transaction and then kills apt and the module that has started it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from testbed import settings
from tests.system.support import Result, run

INVENTORY = "tests/system/kills/hosts.yml"
DPKG = r"""
printf 'Dir::Bin::dpkg "/srv/dpkg";\n' >/etc/apt/apt.conf.d/99kill
cat >/srv/dpkg <<'END'
#!/bin/sh
# apt gives a directory with links for many packages.
given="$* "
for one in "$@"; do [ ! -d "$one" ] || given="$given $(ls "$one")"; done
/usr/bin/dpkg "$@"
status=$?
case "$given" in *--unpack*VICTIM*) ;; *) exit $status ;; esac
# apt, the module and their shells, up to the connection, or the module alone. The highest first, which reports nothing.
pid=$PPID
all=
while [ "$pid" -gt 1 ] && ! grep --quiet UNTIL "/proc/$pid/comm"; do
    all="$pid $all"
    pid=$(cut --delimiter=' ' --fields=4 "/proc/$pid/stat")
done
kill -9 $all
END
chmod +x /srv/dpkg
"""
CASES = {
    "nvidia_driver": ("k-bare", "nvidia-driver", ["nvidia_driver"]),
    "cuda": ("k-driver", "cuda-nvcc", ["cuda"]),
    "cudnn": ("k-driver", "libcudnn9", ["cudnn"]),
    "docker": ("k-driver", "docker-ce", ["docker"]),
    "nvidia_container_toolkit": ("k-driver", "nvidia-container-toolkit", ["docker", "nvidia_container_toolkit"]),
    "nvidia_dcgm": ("k-driver", "datacenter-gpu-manager-4-core", ["nvidia_dcgm"]),
}
"""By role: the host, a package of its transaction, and the roles that run."""
CONNECTION, MODULE = "sshd", "^sh$"
"""What is killed up to: a connection that is lost leaves the host, a module that is killed is a failed task."""


def play(name: str, host: str, variables: dict[str, object] | None = None) -> Result:
    limit = ["--limit", host] if host else []
    return run(
        ["ansible-playbook", "-i", INVENTORY, *limit, name, "--extra-vars", json.dumps(variables or {})],
        env={"GPU_FLEET_TESTBED_INVENTORY": "kills"},
    )


def on_host(host: str, script: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", "sh", "-c", script]).output.strip()


def packages(host: str) -> dict[str, str]:
    """The state of each package; headers and compilers stay, as other packages may need them.

    A removed package whose configuration files stay, as of containerd, which other engines use, counts as removed.
    """
    shown = on_host(host, "dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n'")
    found = {line[3:]: line[:2] for line in shown.splitlines() if line[:2] != "rc"}
    return {
        name: state for name, state in found.items() if re.search("nvidia|cuda|cudnn|docker|containerd|gpu-m", name)
    }


def left(host: str) -> str:
    """Files of vendors, and the state of the collection."""
    names = (
        "\\( -iname '*nvidia*' -o -iname '*cuda*' -o -iname '*docker*' -o -iname '*dcgm*' -o -iname '*gpu-fleet*' \\)"
    )
    return on_host(
        host, f"find /etc/apt /etc/systemd /etc/docker /usr/local /etc/ld.so.conf.d {names} 2>/dev/null | sort"
    )


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    play("testbed/playbooks/destroy.yml", "")
    for name in ("create", "simulate"):
        done = play(f"testbed/playbooks/{name}.yml", "")
        assert done.status == 0, done.output[-4000:]
    yield
    play("testbed/playbooks/destroy.yml", "")


def kill(role: str, until: str) -> None:
    """Run site.yml for the role, and kill it in the middle of its packages."""
    host, victim, roles = CASES[role]
    on_host(host, DPKG.replace("VICTIM", victim).replace("UNTIL", f"'{until}'"))
    killed = play("playbooks/site.yml", host, {"gpu_fleet_roles": roles})
    on_host(host, "rm /etc/apt/apt.conf.d/99kill")
    assert killed.status != 0, killed.output[-3000:]
    assert ("nothing was rolled back" in " ".join(killed.output.split())) == (until == MODULE), killed.output[-3000:]
    unpacked = {name for name, state in packages(host).items() if state == "iU"}
    assert any(name.startswith(victim) for name in unpacked), packages(host)


def with_advice(playbook: str, host: str, variables: dict[str, object]) -> Result:
    """Run a playbook; if it fails, what it advises is what helps."""
    done = play(playbook, host, variables)
    if done.status != 0:
        advised = re.search(r"run `([^`]+)` on the host", " ".join(done.output.split()))
        assert advised is not None, done.output[-3000:]
        on_host(host, advised[1])
        done = play(playbook, host, variables)
    assert done.status == 0, done.output[-4000:]
    return done


@pytest.mark.parametrize(("role", "until"), [*((role, CONNECTION) for role in CASES), ("nvidia_driver", MODULE)])
def test_a_host_is_as_before_after_a_kill_inside_a_transaction(role: str, until: str) -> None:
    host = CASES[role][0]
    before = packages(host), left(host)
    kill(role, until)
    with_advice("playbooks/decommission.yml", host, {"gpu_fleet_decommission_confirm": True})
    assert (packages(host), left(host)) == before


def test_the_next_run_continues_where_a_module_was_killed() -> None:
    host, _victim, roles = CASES["nvidia_driver"]
    before = packages(host), left(host)
    kill("nvidia_driver", MODULE)
    with_advice("playbooks/site.yml", host, {"gpu_fleet_roles": roles})
    # Installed, and held: the role pins the version.
    assert set(packages(host).values()) == {"hi"}, packages(host)
    again = play("playbooks/site.yml", host, {"gpu_fleet_roles": roles})
    assert again.status == 0 and re.search(r"changed=0 .*failed=0", again.output), again.output[-3000:]
    with_advice("playbooks/decommission.yml", host, {"gpu_fleet_decommission_confirm": True})
    assert (packages(host), left(host)) == before
