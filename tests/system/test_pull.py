# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/pull.yml on real hosts: their timer applies a repository that a third host serves over SSH.

Ansible comes from the package index, gpu.fleet from a git repository with the deploy key, and what it depends on as
archives from a web server. The tests run in order.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import release, settings
from tests.system.support import Result, run
from tests.unit.pull.git_server import Keys

DIRECTORY = "tests/system/pull"
HOSTS = ("p-deb12", "p-deb13")
SERVER = "p-server"
STATE = "/var/lib/gpu-fleet-pull"
FILES = (
    *(STATE, "/etc/gpu-fleet-pull"),
    *("/etc/systemd/system/gpu-fleet-pull.service", "/etc/systemd/system/gpu-fleet-pull.timer"),
)
# A network may have an authority of its own, which pip does not know: the hosts trust what this machine does.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP = "[global]\ncert = /etc/ssl/gpu-fleet-testbed.pem\n"
DEPENDENCIES = (
    *("community.docker", "community.general", "community.library_inventory_filtering_v1"),
    "containers.podman",
)
CHANGED_KEY = "Host key verification failed"
LIMIT_S = 1800
UNCHANGED = dict.fromkeys(HOSTS, 0)


def on_host(host: str, script: str) -> Result:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", "sh", "-c", script])


def read(host: str, script: str) -> str:
    """Output of a script that has to succeed."""
    done = on_host(host, script)
    assert done.status == 0, f"{script}: {done.output}"
    return done.output.strip()


def git(directory: Path, *arguments: str, keys: Path | None = None) -> str:
    identity = ("-c", "user.name=ops", "-c", "user.email=ops@example.com", "-c", "user.signingKey=ops@example.com")
    signs = ("-c", f"commit.gpgSign={bool(keys)}")
    env = {"GIT_SSH_COMMAND": f"ssh -F {settings.SSH_CONFIG}", "GNUPGHOME": str(keys or "")}
    done = run(["git", *identity, *signs, "-C", str(directory), *arguments], env=env)
    assert done.status == 0, done.output
    return done.output.strip()


def journal(host: str) -> str:
    return on_host(host, "journalctl --no-pager --unit=gpu-fleet-pull.service").output


def wait(what: str, is_so: Callable[[str], bool]) -> None:
    """Wait until it is so on both hosts: nothing but the timer starts the service."""
    end = time.monotonic() + LIMIT_S
    for host in HOSTS:
        while not is_so(host):
            shown = "journalctl --no-pager --lines=80 --unit=gpu-fleet-pull.service; systemctl list-timers --all"
            assert time.monotonic() < end, f"{host}: {what}\n{on_host(host, shown).output}"
            time.sleep(5)


@dataclass
class Fleet:
    """The fleet as its operators see it: the repository in `directory`, and the variables of pull.yml."""

    directory: Path
    keys: Path
    variables: dict[str, Any] = field(default_factory=dict)

    def play(self, name: str, *words: str, **changes: Any) -> Result:
        given = self.directory.parent / "variables.json"
        variables = {**self.variables, **changes}
        given.write_text(json.dumps({"all": {"children": {"pulling": {"vars": variables}}}}), encoding="utf-8")
        return play(name, "-i", str(given), "-e", "gpu_fleet_targets=pulling", *words)

    def commit(self, signed: bool = True, **variables: Any) -> None:
        """Have the hosts of the repository's inventory apply site.yml with these variables."""
        hosts = {"hosts": dict.fromkeys(HOSTS), "vars": {"gpu_fleet_roles": ["gpu_state"], **variables}}
        (self.directory / "inventory").mkdir(exist_ok=True)
        (self.directory / "inventory" / "hosts.yml").write_text(yaml.safe_dump({"all": hosts}), encoding="utf-8")
        site = [{"name": "Apply", "ansible.builtin.import_playbook": "gpu.fleet.site"}]
        (self.directory / "site.yml").write_text(yaml.safe_dump(site), encoding="utf-8")
        push(self.directory, "fleet", self.keys if signed else None)


def push(directory: Path, name: str, keys: Path | None = None) -> str:
    """Push all files of a directory as a commit; returns its ID."""
    if not (directory / ".git").exists():
        git(directory, "init", "--quiet", "--initial-branch=main")
    git(directory, "add", "--all", "--force")
    git(directory, "commit", "--quiet", "--allow-empty", "--message=change", keys=keys)
    git(directory, "push", "--quiet", "--force", f"ssh://git@{SERVER}/srv/git/{name}.git", "refs/heads/main")
    return git(directory, "rev-parse", "HEAD")


def play(name: str, *words: str) -> Result:
    argv = ["ansible-playbook", "-i", f"{DIRECTORY}/hosts.yml", name, *words]
    return run(argv, env={"GPU_FLEET_TESTBED_INVENTORY": "pull"})


def result(host: str) -> Mapping[str, Any]:
    """What the last run on a host reports of it; empty before the first run."""
    text = on_host(host, f"cat {STATE}/result.json").output
    return json.loads(text)["hosts"] if text.startswith("{") else {}


def power_limit(host: str) -> str:
    return read(host, "nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits | sort -u")


def archive_of(name: str, directory: Path) -> dict[str, str]:
    """Build the archive of a collection that we use; returns its entry for gpu_fleet_pull_collections."""
    source = directory / "source" / name
    shutil.copytree(settings.COLLECTIONS / "ansible_collections" / Path(*name.split(".")), source)
    described = json.loads((source / "MANIFEST.json").read_text(encoding="utf-8"))["collection_info"]
    kept = {key: described[key] for key in ("namespace", "name", "version", "readme", "authors", "dependencies")}
    (source / "galaxy.yml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    for of_the_build in ("MANIFEST.json", "FILES.json"):
        (source / of_the_build).unlink()
    target = directory / "archives"
    built = run(["ansible-galaxy", "collection", "build", "--output-path", str(target), str(source)])
    assert built.status == 0, built.output
    (archive,) = target.glob(f"{name.replace('.', '-')}-*.tar.gz")
    return {"name": f"http://{SERVER}/{archive.name}", "type": "url", "version": described["version"]}


def push_collection(directory: Path) -> str:
    """Push what a release has of this checkout to the repository of the collection; returns the commit."""
    archive = release.build_archive(settings.VENV / "bin" / "ansible-galaxy", directory)
    source = directory / "gpu.fleet"
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="data")
    for of_the_build in ("MANIFEST.json", "FILES.json"):
        (source / of_the_build).unlink()
    shutil.copy2(settings.ROOT / "galaxy.yml", source)
    return push(source, "collection")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Bare hosts with GPUs, a server with both repositories and all archives."""
    scratch = tmp_path_factory.mktemp("pull")
    directory = scratch / "fleet"
    directory.mkdir()
    key = scratch / "deploy"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "deploy", "-f", str(key)])
    (scratch / "archives").mkdir()
    # gpg listens on a socket there, whose path has to be short.
    keys = Path(tempfile.mkdtemp(prefix="g"))
    Keys(keys).make("ops")
    Keys(keys).export(scratch / "keyring", "ops")
    archives = [archive_of(name, scratch) for name in DEPENDENCIES]
    serving = {"testbed_key": f"{settings.SSH_KEY}.pub", "deploy_key": str(key), "archives": f"{scratch}/archives"}
    play("testbed/playbooks/destroy.yml")
    try:
        for name, words in (
            ("testbed/playbooks/create.yml", ()),
            ("testbed/playbooks/simulate.yml", ("--limit=pulling",)),
            (f"{DIRECTORY}/server.yml", ("-e", json.dumps(serving))),
        ):
            made = play(name, *words)
            assert made.status == 0, made.output[-4000:]
        for host in HOSTS:
            for text, path in ((AUTHORITIES.read_text(), "/etc/ssl/gpu-fleet-testbed.pem"), (PIP, "/etc/pip.conf")):
                local = scratch / "file"
                local.write_text(text, encoding="utf-8")
                run(["podman", "cp", str(local), f"gpu-fleet-{settings.TESTBED_ID}-{host}:{path}"])
        collection = f"ssh://git@{SERVER}/srv/git/collection.git"
        given: dict[str, Any] = {
            "gpu_fleet_pull_repository": f"ssh://git@{SERVER}/srv/git/fleet.git",
            "gpu_fleet_pull_host_key_fingerprints": [fingerprint()],
            "gpu_fleet_pull_deploy_key": str(key),
            "gpu_fleet_pull_collections": [
                {"name": collection, "type": "git", "version": push_collection(scratch)},
                *archives,
            ],
            "gpu_fleet_pull_verify_commit": True,
            "gpu_fleet_pull_keyring": str(scratch / "keyring"),
            "gpu_fleet_pull_fetch_timeout_s": 20,
            "gpu_fleet_pull_interval_s": 30,
            "gpu_fleet_pull_random_delay_s": 10,
        }
        yield Fleet(directory, keys, given)
    finally:
        run(["gpgconf", f"--homedir={keys}", "--kill", "all"])
        shutil.rmtree(keys)
        play("testbed/playbooks/destroy.yml")


def fingerprint() -> str:
    """As the administrator of the server publishes it."""
    return read(SERVER, "ssh-keygen -l -f /etc/ssh/ssh_host_ed25519_key.pub").split()[1]


def test_1_check_mode_on_bare_hosts_predicts_and_changes_nothing(fleet: Fleet) -> None:
    predicted = fleet.play("playbooks/pull.yml", "--check", "--diff")
    assert predicted.status == 0, predicted.output[-6000:]
    assert all(predicted.changed[host] > 5 for host in HOSTS), predicted.output[-6000:]
    shown = re.findall(r'"msg": "(.*)"', predicted.output)
    assert [set(line.split(", ")) for line in shown] == [{"git", "python3-packaging", "python3-venv"}] * 2, shown
    for host in HOSTS:
        assert on_host(host, f"ls -d {' '.join(FILES)} 2>/dev/null; command -v git").output.strip() == ""


def test_2_a_server_with_another_host_key_is_refused(fleet: Fleet) -> None:
    other = {"gpu_fleet_pull_host_key_fingerprints": ["SHA256:LyP8qH8camuY8znb32odpM/6cdrR3eM4MFLpFzZsNZ8"]}
    refused = fleet.play("playbooks/pull.yml", **other)
    assert {host: refused.recap[host].failed for host in HOSTS} == dict.fromkeys(HOSTS, 1), refused.output[-6000:]
    assert "and none of them is in gpu_fleet_pull_host_key_fingerprints" in " ".join(refused.output.split())
    for host in HOSTS:
        assert on_host(host, f"ls -d {' '.join(FILES)} 2>/dev/null").output == ""


def test_3_bare_hosts_get_ansible_the_collections_and_a_timer(fleet: Fleet) -> None:
    fleet.commit(gpu_state_power_limit=600)
    installed = fleet.play("playbooks/pull.yml")
    assert installed.status == 0, installed.output[-8000:]
    core = run(["ansible-playbook", "--version"]).output.splitlines()[0]
    for host in HOSTS:
        assert read(host, f"{STATE}/venv/bin/ansible-playbook --version").splitlines()[0] == core
        listed = read(host, f"ls {STATE}/collections/ansible_collections/*")
        assert all(name.split(".")[1] in listed.split() for name in ("gpu.fleet", *DEPENDENCIES)), listed
        assert read(host, "find /etc/gpu-fleet-pull -type f -printf '%f %m %u\\n' | sort").splitlines() == [
            "deploy_key 600 root",
            "known_hosts 600 root",
            "pubring.gpg 600 root",
        ]
        assert read(host, "stat --format=%a%U /etc/gpu-fleet-pull /var/lib/gpu-fleet-pull").split() == ["700root"] * 2
        assert read(host, "systemd-analyze verify /etc/systemd/system/gpu-fleet-pull.timer") == ""
        shown = "systemctl show --property=ActiveState,UnitFileState,RandomizedDelayUSec gpu-fleet-pull.timer"
        assert set(read(host, shown).split()) == {
            *("ActiveState=active", "UnitFileState=enabled", "RandomizedDelayUSec=10s"),
        }


def test_4_the_timer_applies_what_was_committed(fleet: Fleet) -> None:
    wait("the first run has no result", lambda host: result(host) != {})
    for host in HOSTS:
        # The other host of the inventory is not this one's business.
        assert {name: one["status"] for name, one in result(host).items()} == {host: "ok"}
        assert power_limit(host) == "600.00"
        assert read(host, "systemctl show --property=LastTriggerUSec gpu-fleet-pull.timer") != "LastTriggerUSec="
    fleet.commit(gpu_state_power_limit=500)
    wait("the new limit is not applied", lambda host: power_limit(host) == "500.00")


def test_4_a_pusher_without_a_key_changes_nothing(fleet: Fleet) -> None:
    url = f"ssh://git@{SERVER}/srv/git/fleet.git"
    signed = git(fleet.directory, "rev-parse", "HEAD")
    git(fleet.directory, "tag", "main")
    git(fleet.directory, "push", "--quiet", url, "refs/tags/main")
    fleet.commit(signed=False, gpu_state_power_limit=300)
    wait("the unsigned commit is not refused", lambda host: "is not signed with a key of OpenPGP" in journal(host))
    git(fleet.directory, "push", "--quiet", "--force", url, f"{signed}~1:refs/heads/main")
    wait("the older commit is not refused", lambda host: f"is older than {signed}" in journal(host))
    assert {power_limit(host) for host in HOSTS} == {"500.00"}
    git(fleet.directory, "reset", "--quiet", "--hard", signed)
    fleet.commit(gpu_state_power_limit=450)
    wait("the signed commit is not applied", lambda host: power_limit(host) == "450.00")


def test_4_a_server_that_stalls_stops_no_later_run(fleet: Fleet) -> None:
    """git's own server, which is asked for objects and never sends them, over a connection that lives."""
    hook = "printf '#!/bin/sh\\nexec sleep 3600\\n' > /srv/stall && chmod 755 /srv/stall"
    read(SERVER, f"{hook} && git config --system uploadpack.packObjectsHook /srv/stall")
    fleet.commit(gpu_state_power_limit=500)
    wait("the fetch is not ended", lambda host: "did not end within 20 seconds and was stopped" in journal(host))
    assert {power_limit(host) for host in HOSTS} == {"450.00"}
    read(SERVER, "git config --system --unset uploadpack.packObjectsHook")
    wait("the commit is not applied", lambda host: power_limit(host) == "500.00")


def test_5_a_second_run_and_check_mode_change_nothing(fleet: Fleet) -> None:
    for words in ((), ("--check",)):
        again = fleet.play("playbooks/pull.yml", *words)
        assert again.status == 0, again.output[-6000:]
        assert again.changed == UNCHANGED, again.output[-6000:]


def test_6_a_virtual_environment_of_another_python_is_made_again(fleet: Fleet) -> None:
    """As after an upgrade of the distribution."""
    for host in HOSTS:
        read(host, f"cd {STATE}/venv/lib && mv python3.* python3.8")
    for words in (("--check",), ()):
        repaired = fleet.play("playbooks/pull.yml", *words)
        assert repaired.status == 0, repaired.output[-6000:]
        assert "Remove a virtual environment of another Python" in repaired.output
        assert all(repaired.changed[host] >= 1 for host in HOSTS), repaired.output[-6000:]
    for host in HOSTS:
        read(host, f"{STATE}/venv/bin/ansible-pull --version")
    again = fleet.play("playbooks/pull.yml")
    assert (again.status, again.changed) == (0, UNCHANGED), again.output[-6000:]


def test_7_the_report_collects_the_results(fleet: Fleet, tmp_path: Path) -> None:
    fleet.commit(gpu_state_power_limit=5000)
    wait("the run does not fail", lambda host: result(host).get(host, {}).get("status") == "failed")
    collected = fleet.play("playbooks/report.yml", "-e", f"gpu_fleet_report_dir={tmp_path}")
    assert collected.status == 0, collected.output[-6000:]
    for host in HOSTS:
        found = json.loads((tmp_path / "runs" / f"{host}.json").read_text(encoding="utf-8"))
        assert found["hosts"].keys() == {host}
        assert found["hosts"][host]["status"] == "failed"
        assert "5000" in found["hosts"][host]["message"]
        assert power_limit(host) == "500.00"
    fleet.commit(gpu_state_power_limit=550)
    wait("the corrected limit is not applied", lambda host: power_limit(host) == "550.00")


def test_8_a_server_whose_host_key_changes_is_trusted_no_more(fleet: Fleet) -> None:
    known = {host: read(host, "cat /etc/gpu-fleet-pull/known_hosts") for host in HOSTS}
    before = fingerprint()
    read(SERVER, "cd /etc/ssh && mkdir old && mv ssh_host_* old && ssh-keygen -A && systemctl restart ssh")
    assert fingerprint() != before
    fleet.commit(gpu_state_power_limit=400)
    wait("the run does not refuse the new key", lambda host: CHANGED_KEY in journal(host))
    refused = fleet.play("playbooks/pull.yml")
    assert {host: refused.recap[host].failed for host in HOSTS} == dict.fromkeys(HOSTS, 1), refused.output[-6000:]
    assert {host: read(host, "cat /etc/gpu-fleet-pull/known_hosts") for host in HOSTS} == known
    assert {power_limit(host) for host in HOSTS} == {"550.00"}
    # The administrator publishes it.
    accepted = fleet.play("playbooks/pull.yml", gpu_fleet_pull_host_key_fingerprints=[fingerprint()])
    assert accepted.status == 0, accepted.output[-6000:]
    assert accepted.changed == dict.fromkeys(HOSTS, 1), "the known host keys"
    wait("the commit is not applied", lambda host: power_limit(host) == "400.00")


def test_9_decommissioned_hosts_have_nothing_of_it(fleet: Fleet) -> None:
    confirmed = ("-e", "gpu_fleet_decommission_confirm=true")
    # A run that failed last would be listed by systemd.
    read(SERVER, "systemctl stop ssh.socket ssh.service")
    wait("the run does not fail", lambda host: on_host(host, "systemctl is-failed gpu-fleet-pull.service").status == 0)
    removed = fleet.play("playbooks/decommission.yml", *confirmed)
    assert removed.status == 0, removed.output[-6000:]
    for host in HOSTS:
        assert on_host(host, f"ls -d {' '.join(FILES)} 2>/dev/null").output == ""
        assert read(host, "systemctl list-units --all --plain --no-legend 'gpu-fleet*'") == ""
        assert power_limit(host) == "700.00"
    again = fleet.play("playbooks/decommission.yml", *confirmed)
    assert again.status == 0, again.output[-6000:]
    assert again.changed == UNCHANGED, again.output[-6000:]
