# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take a commit of a git repository, prove that this host may apply it, check it out, and run a command in it.

Who pushes to the repository need not be trusted: names of branches and tags, and what the server prints, are theirs.
So the commit is known by its ID alone once it is fetched, its signature is verified before any file of it is written,
and a branch only moves forward: an older commit has a valid signature as well. What the host has accepted are refs
below refs/gpu-fleet of the checkout, which a fetch never writes.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

OID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
FINGERPRINT = re.compile(r"[0-9A-F]{16,64}\Z")
BRANCH, TAG, COMMIT = "branch", "tag", "commit"
PREFIXES = {"refs/heads/": BRANCH, "refs/tags/": TAG}
FETCHED = "refs/gpu-fleet/fetched"
PINNED = "refs/gpu-fleet/pinned"
# Left by a run that lost power; nobody else works here, see `Repository.lock`.
LOCKS = ("index", "HEAD", "shallow", "config", "packed-refs", FETCHED, PINNED)
# Programs of the checkout's configuration do not count, and a fetch has no process left that holds its output open.
SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "gc.autoDetach": "false",
    "maintenance.autoDetach": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
}
# Only OpenPGP, with the keyring alone: a certificate that the system trusts is none of the operators'.
SIGNATURES = {
    "gpg.program": "gpg",
    "gpg.openpgp.program": "gpg",
    "gpg.x509.program": "false",
    "gpg.ssh.program": "false",
    "gpg.minTrustLevel": "undefined",
}
# No key is fetched from elsewhere, whatever gpg.conf of the system has.
GPG_CONF = "no-auto-key-retrieve\n"
WAYS = ("GIT_SSH", "GIT_SSL_", "GIT_PROXY_", "GIT_HTTP_", "GIT_ASKPASS")
MAX_OUTPUT = 1 << 20
MAX_REASON = 1000


class RefusalError(Exception):
    """Why this host applies nothing."""


@dataclass(frozen=True)
class Request:
    """What the owner of the host asks for."""

    repository: str
    version: str
    checkout: Path
    keyring: str
    timeout_s: int


@dataclass(frozen=True)
class Found:
    """What the repository has under the name that was asked for."""

    kind: str
    ref: str
    """refs/heads/NAME or refs/tags/NAME; empty for a commit."""
    commit: str


@dataclass(frozen=True)
class Accepted:
    """What this host has accepted before, of this repository."""

    branch: str = ""
    """The commit that the branch of this name had."""
    tag: str = ""
    """The commit that the tag of this name had."""
    pinned: str = ""
    """The last commit that the owner has chosen by a tag or a commit."""


def refusal(found: Found, accepted: Accepted, is_ancestor: Callable[[str, str], bool]) -> str:
    """Why the host must not move to what was found; empty if it may. Signatures are not judged here."""
    if found.kind == COMMIT:
        return ""
    was = {BRANCH: accepted.branch, TAG: accepted.tag}
    other = TAG if found.kind == BRANCH else BRANCH
    if was[other] and not was[found.kind]:
        return f"{found.ref} has taken the place of the {other} that this host has followed under this name"
    before = was[found.kind]
    if not before or before == found.commit:
        return ""
    if found.kind == TAG:
        return f"{found.ref} was commit {before} and is {found.commit} now; a tag must not move"
    if is_ancestor(before, found.commit):
        return ""
    # The owner has chosen a commit by hand that the branch did not have before: it was rewritten on purpose.
    pinned = accepted.pinned
    if pinned and not is_ancestor(pinned, before) and is_ancestor(pinned, found.commit):
        return ""
    how = "is older than" if is_ancestor(found.commit, before) else "does not descend from"
    return f"{found.ref} is commit {found.commit}, which {how} {before}, which this host has had"


def signer(status: str, passed: bool) -> str:
    """The fingerprint of the primary key of a signature, from gpg's status lines. Raises RefusalError for all else."""
    lines = [line.split()[1:] for line in status.splitlines() if line.startswith("[GNUPG:] ") and len(line.split()) > 1]
    words = [line[0] for line in lines]
    keys = [line[1] for line in lines if line[0] in ("EXPKEYSIG", "REVKEYSIG", "BADSIG", "ERRSIG", "EXPSIG")]
    key = next((one for one in keys if FINGERPRINT.match(one)), "of an unknown ID")
    for word, reason in (
        ("REVKEYSIG", f"is signed with the revoked key {key}"),
        ("EXPKEYSIG", f"is signed with the key {key}, which has expired"),
        ("EXPSIG", f"has a signature of the key {key} that has expired"),
        ("BADSIG", f"does not match its signature of the key {key}"),
        ("NO_PUBKEY", f"is signed with the key {key}, which is not in gpu_fleet_pull_keyring"),
        ("ERRSIG", f"has a signature of the key {key} that cannot be verified"),
    ):
        if word in words:
            raise RefusalError(reason)
    valid = [line for line in lines if line[0] == "VALIDSIG"]
    if not passed or len(valid) != 1 or words.count("GOODSIG") != 1 or not FINGERPRINT.match(valid[0][-1]):
        raise RefusalError("has no single valid signature" if lines else "is not signed with a key of OpenPGP")
    return valid[0][-1]


def printable(text: str) -> str:
    """The last lines that a program or a server printed, without characters that a terminal would run as a command."""
    lines = [line.strip() for line in text.splitlines() if line.strip()][-5:]
    return "".join(one if one.isprintable() else "?" for one in "; ".join(lines))[-MAX_REASON:]


@dataclass(frozen=True)
class Done:
    """The end of a program."""

    status: int
    output: str
    errors: str


def _drain(stream: IO[bytes], kept: deque[bytes]) -> None:
    for block in iter(lambda: stream.read1(4096), b""):  # type: ignore[attr-defined]
        kept.append(block)


def run(argv: Sequence[str], env: Mapping[str, str], cwd: Path, timeout_s: float | None = None) -> Done:
    """Run a program, with bounds on its time and on how much of its output is kept: the last of it."""
    with subprocess.Popen(
        argv,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        kept: list[deque[bytes]] = []
        readers = []
        for stream in filter(None, (process.stdout, process.stderr)):
            kept.append(deque(maxlen=MAX_OUTPUT // 4096))
            readers.append(threading.Thread(target=_drain, args=(stream, kept[-1]), daemon=True))
            readers[-1].start()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # SIGTERM has git remove its lock files; ssh is in the same session.
            for number, wait_s in ((signal.SIGTERM, 10), (signal.SIGKILL, None)):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(wait_s)
            raise
        for reader in readers:
            reader.join(10)
    out, err = (b"".join(blocks).decode("utf-8", "replace") for blocks in kept)
    return Done(process.returncode, out, err)


class Repository:
    """The checkout of a host, and the repository that it comes from."""

    def __init__(self, request: Request, private: Path) -> None:
        """`private`: an empty directory, for the keyring and in place of a home with settings."""
        self.request = request
        self.directory = request.checkout
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        own = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
        # How the server is reached; others would name another repository, or other settings of it.
        ways = {name: value for name, value in os.environ.items() if name.startswith(WAYS)}
        self._outside = {**environ, **ways, **own}
        # What proves a commit has no settings but ours.
        self._proof = {
            **environ,
            **own,
            **dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "GNUPGHOME"), str(private)),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
        }
        if request.keyring:
            shutil.copyfile(request.keyring, private / "pubring.gpg")
            (private / "gpg.conf").write_text(GPG_CONF, encoding="utf-8")

    def lock(self) -> None:
        """No second run until this one has checked out; what an interrupted one has left locked is free again."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._locked = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RefusalError("another run is applying a commit") from None
        for name in LOCKS:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                (self.directory / ".git" / f"{name}.lock").unlink()

    def ask(self, *words: str) -> Done:
        """A question to the checkout alone."""
        return run(_git({**SETTINGS, **SIGNATURES}, words), self._proof, self.directory)

    def need(self, *words: str) -> str:
        """A question or a change that has to succeed, without the network."""
        done = self.ask(*words)
        if done.status != 0:
            raise RefusalError(f"git {words[0]} fails: {printable(done.errors)}")
        return done.output.strip()

    def reach(self, what: str, *words: str, cwd: Path | None = None) -> Done:
        """With the network and the settings of the host: its proxy, its authorities, its credentials."""
        try:
            return run(_git(SETTINGS, words), self._outside, cwd or self.directory, self.request.timeout_s)
        except subprocess.TimeoutExpired:
            raise RefusalError(
                f"{what} did not end within {self.request.timeout_s} seconds and was stopped; the next run tries again"
            ) from None

    def must_reach(self, what: str, *words: str, cwd: Path | None = None) -> str:
        done = self.reach(what, *words, cwd=cwd)
        if done.status != 0:
            raise RefusalError(f"{what} fails: {printable(done.errors)}")
        return done.output

    def find(self) -> Found:
        """What was asked for, fetched. A name is a branch, or else a tag."""
        version = self.request.version
        if OID.match(version):
            self._initialise(len(version))
            self._fetch_commit(version)
            return Found(COMMIT, "", version)
        names = [version] if version.startswith(tuple(PREFIXES)) else [prefix + version for prefix in PREFIXES]
        listed = self.must_reach("reading the repository", "ls-remote", self.request.repository, *names, cwd=Path("/"))
        # git compares the end of names: refs/heads/a/refs/heads/main is listed as well.
        rows = [line.split("\t") for line in listed.splitlines()]
        present = {row[1]: row[0] for row in rows if len(row) == 2 and row[1] in names and OID.match(row[0])}
        ref = next((name for name in names if name in present), "")
        if not ref:
            raise RefusalError(
                f"the repository has neither a branch nor a tag '{version}'; a commit takes its whole ID"
            )
        self._initialise(len(present[ref]))
        self._fetch(f"+{ref}:{FETCHED}")
        kind = next(kind for prefix, kind in PREFIXES.items() if ref.startswith(prefix))
        return Found(kind, ref, self.need("rev-parse", "--verify", "--quiet", f"{FETCHED}^{{commit}}"))

    def _initialise(self, digits: int) -> None:
        sha256 = ["--object-format=sha256"] if digits == 64 and not (self.directory / ".git").exists() else []
        self.need("init", "--quiet", "--template=", *sha256)
        url = self.ask("config", "--local", "remote.origin.url").output.strip()
        if url != self.request.repository:
            # What was accepted of another repository does not count for this one.
            for ref in self.need("for-each-ref", "--format=%(refname)", "refs/gpu-fleet/").splitlines():
                self.need("update-ref", "-d", ref)
            self.need("config", "--local", "remote.origin.url", self.request.repository)

    def _fetch(self, *words: str) -> None:
        options = ["--quiet", "--no-tags", "--no-recurse-submodules"]
        self.must_reach("fetching the repository", "fetch", *options, self.request.repository, *words)

    def _is_commit(self, oid: str) -> bool:
        return self.ask("rev-parse", "--verify", "--quiet", f"{oid}^{{commit}}").output.strip() == oid

    def _fetch_commit(self, oid: str) -> None:
        if self._is_commit(oid):
            return
        # Servers may give only what a branch or a tag has.
        if self.reach("fetching the commit", "fetch", "--quiet", "--no-tags", self.request.repository, oid).status != 0:
            self._fetch("refs/heads/*", "refs/tags/*")
        if not self._is_commit(oid):
            raise RefusalError(f"the repository has no commit {oid}")

    def accepted(self, found: Found) -> Accepted:
        name = found.ref.split("/", 2)[-1]
        branch, tag = (self._read(_record(prefix + name)) for prefix in PREFIXES)
        return Accepted(branch, tag, self._read(PINNED))

    def _read(self, ref: str) -> str:
        return self.ask("rev-parse", "--verify", "--quiet", ref).output.strip()

    def is_ancestor(self, older: str, newer: str) -> bool:
        done = self.ask("merge-base", "--is-ancestor", older, newer)
        if done.status not in (0, 1):
            raise RefusalError(f"git merge-base fails: {printable(done.errors)}")
        return done.status == 0

    def verify(self, found: Found) -> str:
        """The key that has signed the commit, or the tag by which the owner chose it."""
        done = self.ask("verify-commit", "--raw", found.commit)
        try:
            return signer(done.errors, done.status == 0)
        except RefusalError as reason:
            if found.kind != TAG:
                raise RefusalError(f"commit {found.commit} {reason}") from None
            by_commit = reason
        oid = self.need("rev-parse", "--verify", "--quiet", FETCHED)
        if self.need("cat-file", "-t", oid) != "tag":
            raise RefusalError(f"commit {found.commit} {by_commit}")
        # The name is part of what is signed: else a tag could be given the place of another one.
        signed = self.need("cat-file", "tag", oid).splitlines()[:3]
        if signed != [f"object {found.commit}", "type commit", f"tag {found.ref.split('/', 2)[-1]}"]:
            raise RefusalError(f"commit {found.commit} {by_commit}, and {found.ref} is the tag of another object")
        done = self.ask("verify-tag", "--raw", oid)
        try:
            return signer(done.errors, done.status == 0)
        except RefusalError as reason:
            raise RefusalError(f"commit {found.commit} {by_commit}, and {found.ref} {reason}") from None

    def accept(self, found: Found) -> None:
        self.need("update-ref", _record(found.ref) if found.kind == BRANCH else PINNED, found.commit)
        if found.kind == TAG:
            self.need("update-ref", _record(found.ref), found.commit)

    def check_out(self, commit: str) -> None:
        """Everything that git does in the checkout, such as filters and submodules, comes from a proven commit."""
        self.must_reach("the checkout", "checkout", "--quiet", "--force", "--detach", commit)
        if (self.directory / ".gitmodules").exists():
            for words in (
                ("sync", "--quiet", "--recursive"),
                ("update", "--quiet", "--init", "--recursive", "--force"),
            ):
                self.must_reach("fetching the submodules", "submodule", *words)
        head = self.need("rev-parse", "--verify", "HEAD^{commit}")
        if head != commit:
            raise RefusalError(f"the checkout is at {head} and not at {commit}")


def _git(settings: Mapping[str, str], words: Sequence[str]) -> Sequence[str]:
    return ["git", *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")), *words]


def _record(ref: str) -> str:
    """Flat, so that the branch a/b may follow a branch a; no name that pull.yml lets through has this character."""
    prefix = next(prefix for prefix in PREFIXES if ref.startswith(prefix))
    return f"refs/gpu-fleet/{PREFIXES[prefix]}/{ref[len(prefix) :].replace('/', '!')}"


def take(request: Request) -> str:
    """Have the checkout at the commit that was asked for; returns what was taken, in words."""
    with tempfile.TemporaryDirectory(prefix="gpu-fleet-pull-") as private:
        repository = Repository(request, Path(private))
        repository.lock()
        found = repository.find()
        key = repository.verify(found) if request.keyring else ""
        reason = refusal(found, repository.accepted(found), repository.is_ancestor)
        if reason:
            raise RefusalError(
                f"{reason}; pin the commit with gpu_fleet_pull_version if this is intended, see docs/pull.md"
            )
        repository.check_out(found.commit)
        repository.accept(found)
    signed = f", signed with {key}" if key else ""
    return f"commit {found.commit}{f' of {found.ref}' if found.ref else ''}{signed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repository", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--checkout", required=True, type=Path)
    parser.add_argument("--keyring", default="", help="file of public keys; without it no signature is asked for")
    parser.add_argument("--timeout", type=int, required=True, help="seconds for each step that needs the network")
    parser.add_argument("command", nargs="+", help="what is run in the checkout")
    given = parser.parse_args()
    request = Request(given.repository, given.version, given.checkout, given.keyring, given.timeout)
    try:
        print(take(request), flush=True)
    except (RefusalError, OSError) as error:
        sys.exit(f"nothing was applied: {printable(str(error))}")
    # No time limit from here on: it would end DKMS or a package manager in the middle of their work.
    os.chdir(request.checkout)
    os.execvp(given.command[0], given.command)


if __name__ == "__main__":
    main()
