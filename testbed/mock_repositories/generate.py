# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generates the repositories, in a container of the image `vendors`.

Called as `python3 -m testbed.mock_repositories.generate OUTPUT PAYLOADS`.

OUTPUT then holds: www/HOST/PATH, served normally; rotated/HOST/PATH, served instead while a key is "rotated";
vendors.json, the fingerprints, checksums and host names for tests; keys/ and ca/, made once; packages/ and
repositories.json, so that only what has changed is built again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from testbed.mock_repositories import deb, rpm
from testbed.mock_repositories.content import Content, Materializer
from testbed.mock_repositories.description import Package, Place, read_places
from testbed.mock_repositories.keys import Key

# The key that signs all repositories under the fault "rotated".
ROTATED = "rotated"
# One more host: everything that is served, by host name, as on a site's mirror.
MIRROR = "mirror.testbed.invalid"


class Generator:
    """One run over all repositories."""

    def __init__(self, output: Path, payloads: Mapping[str, str]) -> None:
        self._output = output
        self._keys: dict[str, Key] = {}
        self._keyrings: dict[tuple[str, bool], bytes] = {}
        self._fingerprints: dict[str, str] = {}
        self._materializer = Materializer(self._keyring, payloads)
        self._code = _digest_of("generate", "content", "deb", "rpm")
        self._used: set[str] = set()

    def run(self) -> None:
        """Generate what has changed; remove stale files."""
        path = self._output / "repositories.json"
        old: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        new: dict[str, Any] = {}
        places = read_places()
        for place in places:
            began = time.monotonic()
            directory = self._directory(place)
            digests = {self._package_digest(package, place): package for package in place.packages}
            self._used |= set(digests)
            digest = self._place_digest(place, digests)
            state = old.get(place.id)
            if state and state["digest"] == digest and directory.exists():
                new[place.id] = state
                continue
            sums = self._make(place, directory, digests)
            new[place.id] = {"digest": digest, "directory": str(directory), "sha256": sums}
            print(f"{place.id:50} {len(digests):4} packages {time.monotonic() - began:6.1f} s", flush=True)
            path.write_text(json.dumps({**old, **new}), encoding="utf-8")
        self._remove_what_is_gone(old, new)
        path.write_text(json.dumps(new), encoding="utf-8")
        names = sorted({place.host for place in places} | {MIRROR})
        make_certificate(self._output / "ca", names)
        self._write_sources(places)
        self._describe(names, new)

    def _write_sources(self, places: list[Place]) -> None:
        """One deb822 file for each suite of hosts. Hosts mount it, so it is replaced only when it changes."""
        contents: dict[str, str] = {}
        for place in places:
            if place.installed_on:
                key = self._key(place.key).armored.decode().strip().splitlines()
                fields = (
                    f"Types: deb\nURIs: {place.url}\nSuites: {place.suite}\nComponents: {place.component}\nSigned-By:\n"
                )
                text = fields + "".join(f" {line or '.'}\n" for line in key)
                contents[place.installed_on] = "\n".join(filter(None, [contents.get(place.installed_on), text]))
        for suite, text in contents.items():
            path = self._output / "sources" / f"{suite}.sources"
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                _write(path, text.encode())

    def _describe(self, names: list[str], state: Mapping[str, Any]) -> None:
        self._key(ROTATED)
        document = {
            "sources": sorted(path.stem for path in (self._output / "sources").glob("*.sources")),
            "names": names,
            "fingerprints": {name: self._fingerprint(name) for name in sorted(self._keys)},
            "sha256": {url: value for place in state.values() for url, value in place["sha256"].items()},
        }
        path = self._output / "vendors.json"
        path.with_suffix(".new").write_text(json.dumps(document, indent=1), encoding="utf-8")
        path.with_suffix(".new").rename(path)

    def _remove_what_is_gone(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        kept = {state["directory"] for state in new.values()}
        for name, state in old.items():
            if name not in new and state["directory"] not in kept:
                gone = Path(state["directory"])
                if gone.is_dir():
                    shutil.rmtree(gone)
                gone.unlink(missing_ok=True)
        for path in (self._output / "packages").iterdir():
            if path.name not in self._used:
                path.unlink()

    def _directory(self, place: Place) -> Path:
        base = self._output / "www" / place.host / place.path
        if place.local_package:
            return base / _name_of(place)(_local_package(place))
        return base / "dists" / place.suite if place.layout == "apt-dists" else base

    def _key(self, name: str) -> Key:
        if name not in self._keys:
            self._keys[name] = Key(self._output / "keys", name)
        return self._keys[name]

    def _keyring(self, name: str, armored: bool) -> bytes:
        if (name, armored) not in self._keyrings:
            key = self._key(name)
            self._keyrings[name, armored] = key.armored if armored else key.binary
        return self._keyrings[name, armored]

    def _fingerprint(self, name: str) -> str:
        if name not in self._fingerprints:
            self._fingerprints[name] = self._key(name).fingerprint
        return self._fingerprints[name]

    def _package_digest(self, package: Package, place: Place) -> str:
        signer = self._fingerprint(place.key) if place.layout == "rpm" else ""
        files = {path: self._materializer.digest(file, package.architecture) for path, file in package.files.items()}
        code = _digest_of("content", "rpm" if place.layout == "rpm" else "deb")
        parts = [code, place.layout, signer, package.name, package.version, package.architecture, package.summary]
        text = f"{parts} {package.relations} {package.scripts} {files}"
        return hashlib.sha256(text.encode()).hexdigest()

    def _place_digest(self, place: Place, digests: Mapping[str, Package]) -> str:
        files = {path: self._materializer.digest(file, "amd64") for path, file in place.files.items()}
        parts = [
            place.url,
            place.local_package,
            place.layout,
            place.suite,
            place.component,
            place.architectures,
            place.key_file,
            place.streams,
        ]
        signers = [self._fingerprint(place.key), self._fingerprint(ROTATED)] if place.key else []
        return hashlib.sha256(f"{self._code} {parts} {signers} {list(digests)} {files}".encode()).hexdigest()

    def _make(self, place: Place, directory: Path, digests: Mapping[str, Package]) -> dict[str, str]:
        """Build in a scratch directory, then replace, as the server may be in use. Returns checksums by URL."""
        with tempfile.TemporaryDirectory(prefix="make-", dir=self._output) as scratch_name:
            scratch = Path(scratch_name)
            tree = scratch / "tree"
            tree.mkdir(mode=0o755)
            pool = tree / "pool" if place.layout == "apt-dists" else tree
            pool.mkdir(exist_ok=True)
            packages = self._packages(place, digests, pool, scratch)
            if place.layout in ("apt-flat", "apt-dists"):
                deb.write_index(place, tree)
            elif place.layout == "rpm":
                rpm.write_index(tree, packages.values(), place.streams, scratch)
            sums = self._write_files(place, tree)
            sums |= {
                f"{place.url}/{path.relative_to(tree)}": hashlib.sha256(path.read_bytes()).hexdigest()
                for path, package in packages.items()
                if "keyring" in package.name or "local-repo" in package.name
            }
            if place.key:
                self._sign(place, tree)
            if place.local_package:
                tree = self._wrap(place, tree, scratch)
                sums = {f"{place.url}/{directory.name}": hashlib.sha256(tree.read_bytes()).hexdigest()}
            replace(tree, directory, scratch / "old")
        return sums

    def _packages(self, place: Place, digests: Mapping[str, Package], pool: Path, scratch: Path) -> dict[Path, Package]:
        """Put each package into the pool, built unless it is cached; returns packages by path."""
        cache = self._output / "packages"
        missing = {digest: package for digest, package in digests.items() if not (cache / digest).exists()}
        contents = {
            digest: {
                path: self._materializer.content(file, package.architecture, path)
                for path, file in package.files.items()
            }
            for digest, package in missing.items()
            if place.layout == "rpm"
        }
        if contents:
            built = rpm.build(
                [(missing[d], files) for d, files in contents.items()], scratch / "build", self._key(place.key)
            )
            for digest, package in missing.items():
                shutil.move(built[rpm.file_name(package)], cache / digest)
        else:
            for digest, package in missing.items():
                files = {
                    path: self._materializer.content(file, package.architecture, path)
                    for path, file in package.files.items()
                }
                deb.build(package, files, scratch / "package")
                (scratch / "package").rename(cache / digest)
        name_of = _name_of(place)
        placed = {}
        for digest, package in digests.items():
            path = pool / name_of(package)
            if path.exists():
                raise SystemExit(f"{place.id}: {path.name} is described twice")
            os.link(cache / digest, path)
            placed[path] = package
        return placed

    def _wrap(self, place: Place, tree: Path, scratch: Path) -> Path:
        """Pack a repository into a package, with its key and its source, laid out as NVIDIA's local repositories."""
        package = _local_package(place)
        below = f"/var/{package.name}"
        source = package.name.replace("-repo-", "-")
        key, short = self._key(place.key), self._fingerprint(place.key)[-8:]
        files = {
            f"{below}/{path.relative_to(tree)}": Content(path.read_bytes())
            for path in tree.rglob("*")
            if path.is_file()
        }
        if place.layout == "rpm":
            files[f"{below}/{short}.pub"] = Content(key.armored)
            text = f"[{source}]\nname={source}\nbaseurl=file://{below}\nenabled=1\ngpgcheck=1\n"
            text += f"gpgkey=file://{below}/{short}.pub\n"
            files[f"/etc/yum.repos.d/{source}.repo"] = Content(text.encode())
            return rpm.build([(package, files)], scratch / "local", key)[rpm.file_name(package)]
        keyring = f"nvidia-driver-local-{short}-keyring.gpg"
        files[f"{below}/{keyring}"] = Content(key.binary)
        text = f"deb [signed-by=/usr/share/keyrings/{keyring}] file://{below} /\n"
        files[f"/etc/apt/sources.list.d/{source}.list"] = Content(text.encode())
        deb.build(package, files, scratch / "local.deb")
        return scratch / "local.deb"

    def _write_files(self, place: Place, tree: Path) -> dict[str, str]:
        sums = {}
        for name, file in place.files.items():
            content = self._materializer.content(file, "amd64", name)
            target = self._output / "www" / place.host / name[1:] if name.startswith("/") else tree / name
            _write(target, content.data)
            url = f"https://{place.host}{name}" if name.startswith("/") else f"{place.url}/{name}"
            sums[url] = hashlib.sha256(content.data).hexdigest()
        return sums

    def _sign(self, place: Place, tree: Path) -> None:
        """Sign with the repository's own key into its tree, and with the rotated one into the other."""
        rotated = self._output / "rotated" / place.host
        sign = rpm.sign if place.layout == "rpm" else deb.sign
        sign(tree, self._key(place.key), tree)
        if place.local_package:
            return
        below = self._directory(place).relative_to(self._output / "www" / place.host)
        sign(tree, self._key(ROTATED), rotated / below)
        if place.key_file.startswith("/"):
            own, other = self._output / "www" / place.host / place.key_file[1:], rotated / place.key_file[1:]
        elif place.key_file:
            own, other = tree / place.key_file, rotated / place.path / place.key_file
        else:
            return
        _write(own, self._key(place.key).armored)
        _write(other, self._key(ROTATED).armored)


def _name_of(place: Place) -> Callable[[Package], str]:
    return rpm.file_name if place.layout == "rpm" else deb.file_name


def _local_package(place: Place) -> Package:
    summary = "Mock repository on the host itself"
    return Package(place.local_package, "1.0-1", place.architectures[0], summary, {}, {}, {})


@cache
def _digest_of(*modules: str) -> str:
    """Digest of the code that builds, so that a change of it causes a rebuild."""
    return hashlib.sha256(b"".join(Path(__file__).with_name(f"{name}.py").read_bytes() for name in modules)).hexdigest()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o644)


def replace(new: Path, old: Path, aside: Path) -> None:
    """Replace a directory or file by another; the old one is moved aside."""
    old.parent.mkdir(parents=True, exist_ok=True)
    if old.exists():
        old.rename(aside)
    new.rename(old)


def make_certificate(directory: Path, names: list[str]) -> None:
    """Make a throw-away certificate authority, once, and a server certificate, again when the names change."""
    directory.mkdir(exist_ok=True)
    days = ("-days", "3650")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    if not (directory / "ca.crt").exists():
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        subject = ("-subj", "/CN=gpu.fleet test testbed")
        _openssl(directory, "req", "-x509", *new_key, *days, *subject, *usage, "-keyout", "ca.key", "-out", "ca.crt")
    extensions = f"subjectAltName={','.join(f'DNS:{name}' for name in names)}\nextendedKeyUsage=serverAuth\n"
    path = directory / "extensions"
    if path.exists() and path.read_text(encoding="utf-8") == extensions:
        return
    _openssl(directory, "req", *new_key, "-subj", f"/CN={MIRROR}", "-keyout", "server.key", "-out", "server.csr")
    path.with_suffix(".new").write_text(extensions, encoding="utf-8")
    authority = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial")
    signing = ("x509", "-req", "-in", "server.csr", *authority, *days, "-extfile", "extensions.new")
    _openssl(directory, *signing, "-out", "server.crt")
    path.with_suffix(".new").rename(path)


def _openssl(directory: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """Lock the output, so that two runs in one checkout wait for each other."""
    with (output / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Generate into the directory of the first argument; the second names the images of Debian's packages, as JSON."""
    os.umask(0o022)
    output = Path(sys.argv[1])
    (output / "packages").mkdir(parents=True, exist_ok=True)
    with _alone(output):
        Generator(output, json.loads(sys.argv[2])).run()


if __name__ == "__main__":
    main()
