# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""scontrol, squeue, sinfo and scancel of a cluster with the node gpu1, whose state is in a file, and others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# `scontrol reboot` is done at once, with the host: its boot has another id. A node that was drained is then DOWN.
# As Slurm does, an update succeeds also where it has no effect, and a resumed node keeps its reason.
_PROGRAM = """#!{python}
import json, sys, time
from pathlib import Path
program, words = Path(sys.argv[0]).name, sys.argv[1:]
path = Path({state!r})
state = json.loads(path.read_text())
with Path({state!r}).with_name("log").open("a") as log:
    log.write(" ".join([program, *words]) + "\\n")
if program == "squeue":
    time.sleep(state["seconds"])
    print(state["jobs"], end="")
    state["squeues"] -= 1
    if not state["squeues"]:
        state["jobs"] = ""
    state["resumed_after"] -= 1
    if not state["resumed_after"]:
        state["state"] = "MIXED"
elif program == "sinfo":
    print(state["reason"] or "none")
elif program == "scancel":
    state["jobs"] = ""
elif words == ["--all", "show", "node"]:
    if state["counts"] == 0:
        sys.exit("slurm_load_node error: Unable to contact slurm controller (connect failure)")
    state["counts"] -= 1
    for name, of_node, reason, since in [["gpu1", state["state"], state["reason"], state["since"]], *state["others"]]:
        reason = "\\n   Reason=%s [root@%s]" % (reason, since) if reason else ""
        print("NodeName=%s Arch=x86_64\\n   Gres=gpu:h200:2\\n   State=%s Weight=1%s\\n" % (name, of_node, reason))
elif words[:2] == ["show", "node"] and words[2] != "gpu1":
    print("Node %s not found" % words[2])
    sys.exit(1)
elif words[0] == "reboot":
    given = {{"reason": state["reason"], **dict(word.split("=", 1) for word in words if "=" in word)}}
    reason = given["reason"] + " : reboot issued : reboot complete"
    state.update(state=given["nextstate"], reason=reason, boot_id=state["boot_id"] + 1)
elif words[0] == "show":
    reason = "\\n   Reason=%s [root@2026-05-04T09:00:00]" % state["reason"] if state["reason"] else ""
    print("NodeName=gpu1 Arch=x86_64\\n   State=%s ThreadsPerCore=1%s" % (state["state"], reason))
elif not state["stuck"]:
    given = dict(word.split("=", 1) for word in words[1:])
    if given["State"] == "DRAIN":
        state["others"] += state["meanwhile"]
        state["meanwhile"] = []
    state["state"] = "IDLE+DRAIN" if given["State"] == "DRAIN" else "IDLE"
    state["reason"] = given.get("Reason", state["reason"])
path.write_text(json.dumps(state))
"""


def mock_slurm(directory: Path, commands: str = "") -> Path:
    """Write the commands and the state, `state`, `reason` and `jobs` of the node; return the file of the state.

    The jobs end after so many calls of squeue, or not by themselves; another user resumes the node after so many. A
    call takes so many seconds. `others` are nodes with state, reason and its time, as `since` is that of gpu1, and
    `meanwhile` those that come to them with a drain. After so many `counts` slurmctld does not show all nodes.
    `commands` is a directory below the other one.
    """
    state = directory / "state.json"
    state.write_text(
        json.dumps(
            {
                "state": "IDLE",
                "reason": "",
                "jobs": "",
                "stuck": False,
                "squeues": 0,
                "resumed_after": 0,
                "boot_id": 1,
                "seconds": 0,
                "since": "2026-05-04T09:00:00",
                "others": [],
                "meanwhile": [],
                "counts": -1,
            }
        )
    )
    (directory / commands).mkdir(parents=True, exist_ok=True)
    for name in ("scontrol", "squeue", "scancel", "sinfo"):
        program = directory / commands / name
        program.write_text(_PROGRAM.format(python=sys.executable, state=str(state)))
        program.chmod(0o755)
    return state


def edit(path: Path, **values: Any) -> None:
    """Change the mock's state."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
