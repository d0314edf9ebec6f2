# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/pull_tasks/files/gpu_fleet_pull.py with real git repositories and signatures: whoever pushes is hostile."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.unit.pull.git_server import Keys, Origin

PROGRAM = ROOT / "playbooks" / "pull_tasks" / "files" / "gpu_fleet_pull.py"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    found = Keys(tmp_path_factory.mktemp("g"))
    found.home.chmod(0o700)
    for name in ("ops", "left"):
        found.make(name)
    found.make("old", at="20200101T000000", expires="20200201T000000")
    return found


@dataclass
class Host:
    """A host that follows a repository, with the key `ops` alone."""

    directory: Path
    origin: Origin
    keyring: Path | None
    env: dict[str, str] = field(default_factory=dict)
    timeout: int = 60

    def pull(self, version: str = "main", url: str = "") -> tuple[str, str]:
        """What was applied, which is the content of the file `version`, and what was printed."""
        applied = self.directory / "applied"
        applied.unlink(missing_ok=True)
        keyring = [f"--keyring={self.keyring}"] if self.keyring else []
        argv: list[str | Path] = [
            *(sys.executable, "-I", PROGRAM, f"--repository={url or self.origin.url}", f"--version={version}"),
            *(f"--checkout={self.directory}/checkout", f"--timeout={self.timeout}", *keyring),
            *("--", "sh", "-c", "cat version > ../applied"),
        ]
        env = {**os.environ, **self.env}
        done = subprocess.run(argv, env=env, cwd=self.directory, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == applied.exists(), done.stdout + done.stderr
        return (applied.read_text() if applied.exists() else ""), done.stdout + done.stderr

    def version(self) -> str:
        return (self.directory / "checkout" / "version").read_text()


@pytest.fixture
def host(tmp_path: Path, keys: Keys) -> Iterator[Host]:
    origin = Origin(tmp_path / "origin", keys)
    origin.start()
    origin.commit("1", key="ops")
    (tmp_path / "host").mkdir()
    yield Host(tmp_path / "host", origin, keys.export(tmp_path / "keyring", "ops"))


def test_a_signed_branch_is_followed(host: Host) -> None:
    applied, printed = host.pull()
    assert applied == "1" and "of refs/heads/main, signed with " in printed
    host.origin.commit("2", key="ops")
    host.origin.commit("3", key="ops")
    assert host.pull()[0] == "3"
    assert host.pull()[0] == "3", "again, without a new commit"


@pytest.mark.parametrize("target", ["signed", "signed tag"])
def test_a_tag_of_the_same_name_is_not_the_branch(host: Host, target: str) -> None:
    host.pull()
    if target == "signed":
        host.origin.git("tag", "main")
    else:
        host.origin.git("tag", "--sign", "--local-user=ops@example.com", "--message=main", "main")
    host.origin.commit("evil")
    applied, printed = host.pull()
    assert applied == "" and "is not signed" in printed
    assert host.version() == "1", "no file of the commit is written"
    host.origin.commit("3", key="ops")
    assert host.pull()[0] == "3", "the branch goes on, whatever the tag is"


def test_a_branch_does_not_become_a_tag_nor_a_tag_a_branch(host: Host) -> None:
    host.origin.git("tag", "v1")
    host.origin.commit("2", key="ops")
    host.pull("main")
    host.pull("v1")
    host.origin.git("tag", "main", "HEAD~1")
    host.origin.git("checkout", "--quiet", "-b", "v1")
    host.origin.git("branch", "-D", "main")
    assert "refs/tags/main has taken the place of the branch" in host.pull("main")[1]
    assert "refs/heads/v1 has taken the place of the tag" in host.pull("v1")[1]
    assert host.pull("refs/tags/v1")[0] == "1", "the full name is never ambiguous"


def test_an_older_signed_commit_and_a_rewritten_branch_are_refused(host: Host) -> None:
    host.origin.commit("2", key="ops")
    assert host.pull()[0] == "2"
    host.origin.git("reset", "--quiet", "--hard", "HEAD~1")
    applied, printed = host.pull()
    assert applied == "" and "is older than" in printed and "gpu_fleet_pull_version" in printed
    host.origin.commit("other 2", key="ops")
    applied, printed = host.pull()
    assert applied == "" and "does not descend from" in printed
    assert host.version() == "2"


def test_the_owner_rolls_back_and_goes_on(host: Host) -> None:
    first = host.origin.git("rev-parse", "HEAD")
    host.origin.git("tag", "v1")
    second = host.origin.commit("2", key="ops")
    host.origin.commit("3", key="ops")
    assert host.pull()[0] == "3"
    assert host.pull(first)[0] == "1", "by the ID of a commit"
    assert host.pull("v1")[0] == "1", "by a tag"
    # What the branch had counts, and not what was pinned: the pusher offers the commit between them.
    host.origin.git("reset", "--quiet", "--hard", second)
    assert "is older than" in host.pull()[1]
    # Rewritten on purpose: the owner pins the new commit.
    rewritten = host.origin.commit("3 without its mistake", key="ops")
    assert "does not descend from" in host.pull()[1]
    assert host.pull(rewritten)[0] == "3 without its mistake"
    host.origin.commit("4", key="ops")
    assert host.pull()[0] == "4"


def test_a_tag_does_not_move(host: Host, keys: Keys) -> None:
    host.origin.commit("2", key="ops")
    host.origin.git("tag", "v2")
    assert host.pull("v2")[0] == "2"
    host.origin.git("tag", "--force", "v2", "HEAD~1")
    assert "a tag must not move" in host.pull("v2")[1]


def test_a_signed_tag_counts_under_its_own_name_only(host: Host) -> None:
    host.origin.commit("old, unsigned")
    host.origin.git("tag", "--sign", "--local-user=ops@example.com", "--message=v1", "v1")
    assert host.pull("v1")[0] == "old, unsigned", "who signs the tag vouches for its commit"
    host.origin.git("update-ref", "refs/tags/v2", host.origin.git("rev-parse", "v1"))
    applied, printed = host.pull("v2")
    assert applied == "" and "refs/tags/v2 is the tag of another object" in printed
    host.origin.git("tag", "--annotate", "--message=v3", "v3")
    assert "refs/tags/v3 is not signed" in host.pull("v3")[1]


def test_keys_that_do_not_count(host: Host, keys: Keys, tmp_path: Path) -> None:
    assert host.pull()[0] == "1"
    host.origin.commit("2", key="left")
    assert "which is not in gpu_fleet_pull_keyring" in host.pull()[1]
    # Not trusted any more, and so is what the host has.
    keys.export(tmp_path / "keyring", "left")
    host.origin.git("reset", "--quiet", "--hard", "HEAD~1")
    assert "which is not in gpu_fleet_pull_keyring" in host.pull()[1]
    keys.export(tmp_path / "keyring", "ops", "old")
    commit = ("-c", "gpg.program=" + str(faketime(tmp_path)), "commit", "--quiet", "--allow-empty", "--message=3")
    host.origin.git(*commit, "--gpg-sign=old@example.com")
    assert "which has expired" in host.pull()[1]


def faketime(directory: Path) -> Path:
    """gpg at a time when the key was valid."""
    program = directory / "gpg-of-2020"
    program.write_text('#!/bin/sh\nexec gpg --faked-system-time="20200115T000000!" "$@"\n')
    program.chmod(0o755)
    return program


def test_a_signature_of_another_kind_does_not_count(host: Host, tmp_path: Path) -> None:
    """Git would ask ssh-keygen and gpgsm, which know keys that are not in the keyring."""
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (tmp_path / "allowed").write_text("ops@example.com " + (tmp_path / "id.pub").read_text())
    (tmp_path / ".gitconfig").write_text(f'[gpg "ssh"]\nallowedSignersFile = {tmp_path}/allowed\n')
    settings = ("-c", "gpg.format=ssh", "-c", f"user.signingKey={key}")
    host.origin.git(*settings, "commit", "--quiet", "--allow-empty", "--message=2", "--gpg-sign")
    host.env["HOME"] = str(tmp_path)
    applied, printed = host.pull()
    assert applied == "" and "is not signed with a key of OpenPGP" in printed


def test_a_replaced_commit_and_a_changed_one(host: Host) -> None:
    """The ID determines what is in a commit: neither refs/replace nor an edited signature passes for another."""
    good = host.origin.git("rev-parse", "HEAD")
    evil = host.origin.commit("evil")
    host.origin.git("replace", evil, good)
    assert "is not signed" in host.pull()[1]
    signed = host.origin.git("cat-file", "commit", good)
    changed = host.directory / "commit"
    changed.write_text(signed.replace("\n1", "\nanother message"))
    edited = host.origin.git("hash-object", "-t", "commit", "-w", str(changed))
    host.origin.git("update-ref", "refs/heads/main", edited)
    assert "does not match its signature" in host.pull()[1]


def test_nothing_of_an_unsigned_commit_is_carried_out(host: Host, tmp_path: Path) -> None:
    host.pull()
    proof = tmp_path / "proof"
    script = f"#!/bin/sh\ntouch {proof}\n"
    files = {
        "ansible.cfg": "[defaults]\ninventory = ./run\n",
        ".gitattributes": "* filter=evil\n",
        ".gitmodules": f'[submodule "evil"]\n\tpath = evil\n\turl = {host.origin.url}\n\tupdate = !touch {proof}\n',
        "run": script,
        "sitecustomize.py": f"open('{proof}', 'w')",
        "gnupg/gpg.conf": "",
    }
    host.origin.commit("evil", files=files)
    assert host.pull()[0] == ""
    assert not proof.exists()
    assert sorted(path.name for path in (host.directory / "checkout").iterdir()) == [".git", "version"]


def test_links_in_the_checkout_are_replaced_and_not_followed(host: Host, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (host.origin.directory / "group_vars").symlink_to(outside)
    host.origin.commit("2", key="ops")
    assert host.pull()[0] == "2"
    (host.origin.directory / "group_vars").unlink()
    host.origin.commit("3", key="ops", files={"group_vars/all.yml": "a: 1"})
    assert host.pull()[0] == "3"
    assert not list(outside.iterdir()) and (host.directory / "checkout" / "group_vars" / "all.yml").exists()


def test_hooks_and_variables_of_git_do_not_count(host: Host, tmp_path: Path) -> None:
    host.pull()
    proof = tmp_path / "proof"
    for name in ("post-checkout", "reference-transaction", "pre-auto-gc"):
        hook = host.directory / "checkout" / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {proof}\n")
        hook.chmod(0o755)
    host.env |= {
        "GIT_DIR": str(host.origin.directory / ".git"),
        "GIT_REPLACE_REF_BASE": "refs/tags/",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "gpg.program",
        "GIT_CONFIG_VALUE_0": "true",
    }
    host.origin.commit("2", key="ops")
    assert host.pull()[0] == "2"
    host.origin.commit("evil")
    assert "is not signed" in host.pull()[1]
    assert not proof.exists()


def test_submodules_of_a_signed_commit(host: Host, tmp_path: Path, keys: Keys) -> None:
    roles = Origin(tmp_path / "roles", keys)
    roles.start()
    roles.commit("of the submodule")
    allowed = ("-c", "protocol.file.allow=always")
    host.origin.git(*allowed, "submodule", "--quiet", "add", roles.url, "roles")
    host.origin.commit("2", key="ops")
    (tmp_path / ".gitconfig").write_text('[protocol "file"]\nallow = always\n')
    host.env["HOME"] = str(tmp_path)
    assert host.pull()[0] == "2"
    assert (host.directory / "checkout" / "roles" / "version").read_text() == "of the submodule"


def test_names_that_end_like_the_one_that_was_asked_for(host: Host) -> None:
    """git ls-remote lists them too."""
    host.origin.commit("evil")
    host.origin.git("branch", "a/refs/heads/stable")
    host.origin.git("tag", "refs/heads/stable")
    assert "neither a branch nor a tag 'stable'" in host.pull("stable")[1]
    host.origin.git("branch", "stable", "HEAD~1")
    assert host.pull("stable")[0] == "1"


def test_a_checkout_that_lost_power_goes_on(host: Host) -> None:
    first = host.origin.git("rev-parse", "HEAD")
    host.origin.commit("2", key="ops")
    subprocess.run(["git", "clone", "--quiet", host.origin.url, host.directory / "checkout"], check=True)
    (host.directory / "checkout" / "version").write_text("changed locally")
    (host.directory / "checkout" / ".git" / "index.lock").touch()
    host.origin.commit("3", key="ops")
    assert host.pull()[0] == "3"
    assert host.pull(first)[0] == "1"


def test_another_repository_starts_again(host: Host, tmp_path: Path, keys: Keys) -> None:
    host.pull()
    other = Origin(tmp_path / "other", keys)
    other.start()
    other.commit("of another", key="ops")
    assert "does not descend from" in host.pull(url=f"file://{_moved(host.origin, other)}")[1]
    assert host.pull(url=other.url)[0] == "of another"


def _moved(origin: Origin, other: Origin) -> Path:
    """The history of another repository in the place of the first one."""
    shutil.rmtree(origin.directory)
    shutil.copytree(other.directory, origin.directory)
    return origin.directory


def test_a_repository_with_sha_256(tmp_path: Path, keys: Keys, host: Host) -> None:
    host.origin = Origin(tmp_path / "sha256", keys)
    host.origin.start("--object-format=sha256")
    first = host.origin.commit("1", key="ops")
    host.origin.commit("2", key="ops")
    assert host.pull()[0] == "2"
    assert host.pull(first)[0] == "1"
    host.origin.commit("evil")
    assert "is not signed" in host.pull()[1]


def test_without_signatures_a_branch_moves_forward_too(host: Host) -> None:
    host.keyring = None
    host.origin.commit("2")
    assert host.pull()[0] == "2"
    host.origin.git("reset", "--quiet", "--hard", "HEAD~1")
    assert "is older than" in host.pull()[1]


def test_what_a_server_prints_is_no_command_of_a_terminal(host: Host, tmp_path: Path) -> None:
    printing = "printf '\\033]0;owned\\007\\033[2J fatal: \\302\\233 no\\n' >&2; exit 1"
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\n{printing}\n")
    program.chmod(0o755)
    host.env["GIT_SSH_COMMAND"] = str(program)
    applied, printed = host.pull(url="ssh://git@git.example.com/fleet.git")
    assert applied == "" and "reading the repository fails" in printed
    assert printed.rstrip("\n").isprintable(), repr(printed)


def test_a_fetch_that_stalls_leaves_nothing_that_stops_the_next_one(host: Host, tmp_path: Path) -> None:
    """git's own server, which never sends the objects: its hook waits in the place of what packs them."""
    first = host.pull()[0]
    host.origin.commit("2", key="ops")
    for name, text in {
        "wait": f"echo $$ > {tmp_path}/pid; exec sleep 600",
        # As sshd would start it.
        "ssh": f"exec git -c uploadpack.packObjectsHook={tmp_path}/wait upload-pack {host.origin.directory}",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    url = host.origin.url
    host.env |= {"GIT_SSH_COMMAND": str(tmp_path / "ssh"), "GIT_SSH_VARIANT": "simple"}
    host.timeout = 5
    applied, printed = host.pull(url="ssh://git.example.com/fleet.git")
    assert applied == "" and "fetching the repository did not end within 5 seconds" in printed
    assert host.version() == first
    # The whole session of the fetch has ended; in a container nothing may collect its status.
    process = Path("/proc", (tmp_path / "pid").read_text().strip(), "cmdline")
    assert not process.exists() or process.read_bytes() == b""
    host.timeout = 60
    assert host.pull(url=url)[0] == "2"


def test_a_server_that_stalls_ends_the_run_and_not_the_pulls(host: Host) -> None:
    """A listener accepts, and sends nothing: neither the protocol nor TCP ends that."""
    host.pull()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        host.timeout = 2
        applied, printed = host.pull(url=f"git://127.0.0.1:{port}/fleet.git")
    assert applied == "" and "did not end within 2 seconds" in printed and "the next run tries again" in printed
    host.timeout = 60
    host.origin.commit("2", key="ops")
    assert host.pull()[0] == "2"
