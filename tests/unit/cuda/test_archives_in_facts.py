# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cuda_facts finds the archives that the role cudnn unpacks."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._cuda import toolkits as cuda_toolkits
from ansible_collections.gpu.fleet.plugins.module_utils._files import archive

from tests.unit.cuda import archives


def test_unpacked_archives_are_among_the_libraries(tmp_path: Path) -> None:
    root = tmp_path / "host"
    (root / "usr/local").mkdir(parents=True)
    nine, seven = tmp_path / "nine.tar.xz", tmp_path / "seven.tgz"
    archive.unpack(str(nine), f"{root}/usr/local/cudnn-9.14.0.64-cuda13", archives.cudnn_9(nine))
    archive.unpack(str(seven), f"{root}/usr/local/cudnn-7.6.5.32-cuda10.2", archives.cudnn_7(seven))
    (root / "usr/local/cudnn").symlink_to("/usr/local/cudnn-9.14.0.64-cuda13")
    found = cuda_toolkits.libraries(HostFiles(str(root)), ())
    assert {(library.name, library.version, library.path) for library in found} == {
        ("cudnn", "9.14.0", "/usr/local/cudnn-9.14.0.64-cuda13/lib/libcudnn.so.9.14.0"),
        ("cudnn", "7.6.5", "/usr/local/cudnn-7.6.5.32-cuda10.2/lib64/libcudnn.so.7.6.5"),
    }
