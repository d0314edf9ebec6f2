# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the SBOM of an archive of the collection, in CycloneDX 1.6: `python sbom.py ARCHIVE SBOM`.

Runs in .cache/venv-release. Has neither time nor random number: the same archive gives the same file.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import uuid
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL


def bill_of_materials(archive: Path) -> str:
    """The SBOM: the collection, its files with their checksums, and the collections that it depends on."""
    with tarfile.open(archive) as members:
        manifest, files = (json.load(members.extractfile(name)) for name in ("MANIFEST.json", "FILES.json"))  # type: ignore[arg-type]
    about = manifest["collection_info"]
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    name = f"{about['namespace']}.{about['name']}"
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, digest))
    bom.metadata.timestamp = None
    bom.metadata.component = root = Component(
        name=name,
        version=about["version"],
        type=ComponentType.LIBRARY,
        bom_ref=name,
        purl=PackageURL("generic", about["namespace"], about["name"], about["version"]),
        licenses=[DisjunctiveLicense(id="GPL-3.0-or-later")],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        description=about["description"],
    )
    needed = [_collection(other, version) for other, version in sorted(about["dependencies"].items())]
    bom.components.update(needed, (_file(file) for file in files["files"] if file["ftype"] == "file"))
    bom.register_dependency(root, needed)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error:
        raise SystemExit(f"the SBOM is not valid CycloneDX: {error}")
    return f"{text}\n"


def _collection(name: str, version: str) -> Component:
    namespace, _dot, short = name.partition(".")
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=name,
        purl=PackageURL("generic", namespace, short),
    )


def _file(file: dict[str, Any]) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=file["chksum_sha256"])]
    return Component(name=file["name"], type=ComponentType.FILE, bom_ref=f"file:{file['name']}", hashes=hashes)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(bill_of_materials(Path(sys.argv[1])), encoding="utf-8")
