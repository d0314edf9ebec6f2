# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands behind the Makefile: see `make help`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import get_args

from testbed import documentation, fleet_picture, hosts, images, night, parts, prerequisites, release, settings, suite
from testbed.mock_repositories import container
from testbed.progress import CommandError, phase, report, run_playbook
from testbed.real_gpu import scenario
from testbed.redact import redact

_ON_HOSTS = "hosts"  # the part of the benchmark that needs them
_WITHOUT_ROOT = ("test-unit", "bench", "docs", "tables", "release", "facts-check", "real-gpu", "redact")
_DEMO = settings.ROOT / "inventories" / "demo"
# What a person may want to see next. tests/system/test_demo.py runs each of them.
TRY = {
    "seven MIG instances on each H200": (
        "ansible-playbook -i inventories/demo playbooks/site.yml -l dgx-h200 "
        """-e '{"gpu_state_mig": {"1g.18gb": 7}}'"""
    ),
    "a GPU that falls off the bus, and the verdict": f"{fleet_picture.FAULT} && {fleet_picture.HEALTH}",
    "the fleet on one page": (
        "ansible-playbook -i inventories/demo playbooks/report.yml -e gpu_fleet_report_dir=$PWD/.cache/report"
    ),
}


def prepare(desired: Sequence[images.Image] = images.DEMO_IMAGES, *, vendors: bool = False) -> None:
    """Prepare everything except the hosts: packages, tools, collections, images, configuration."""
    _packages()
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(_images, desired, vendors=vendors)
        _environment()
    made.result()


def _images(desired: Sequence[images.Image], *, vendors: bool) -> None:
    """Make what hosts need, at the same time as the Python environment: none of it is made with that."""
    with phase("Images"), ThreadPoolExecutor() as pool:
        made = {image: pool.submit(images.build, image) for image in desired}
        # From here on nothing waits for an image that it does not need.
        if vendors:
            for image in (images.VENDORS_IMAGE, *images.PAYLOAD_IMAGES):
                made[image].result()
            with phase("Vendors' repositories"):
                container.generate()
        made[images.CONTAINER_IMAGE].result()
        images.export_container_image()
        for future in made.values():
            future.result()
    hosts.write_configuration()
    hosts.allow_many()


def _playbook(name: str | Path, inventory: Path, *extra: str, log: str) -> str:
    ansible_playbook = settings.VENV / "bin" / "ansible-playbook"
    return run_playbook([ansible_playbook, "-i", inventory, name, *extra], log=log)


def demo() -> None:
    """Converge the three hosts of inventories/demo until they run GPU containers, and show the fleet."""
    report("gpu.fleet demo: three simulated GPU hosts, from bare Debian to running GPU containers")
    prepare()
    os.environ["GPU_FLEET_TESTBED_INVENTORY"] = "demo"
    with phase("Hosts started"):
        _playbook(settings.ROOT / "testbed/playbooks/create.yml", _DEMO, log="demo-create")
    with phase("GPUs simulated"):
        _playbook(settings.ROOT / "testbed/playbooks/simulate.yml", _DEMO, log="demo-simulate")
    with phase("playbooks/site.yml"):
        output = _playbook(settings.ROOT / "playbooks/site.yml", _DEMO, log="demo-site")
    directory = settings.CACHE / "report"
    with phase("playbooks/report.yml"):
        variables = f"--extra-vars=gpu_fleet_report_dir={directory}"
        _playbook(settings.ROOT / "playbooks/report.yml", _DEMO, variables, log="demo-report")
    # From the recap on: Ansible's own counts, then the table of the fleet.
    report(output[output.index("PLAY RECAP") :].rstrip())
    report(f"\nThe fleet on one page: {directory / 'report.html'}")
    report(f"\nTry next, in {settings.ROOT}:\n\n    {shell_for_a_person()}")
    for title, command in TRY.items():
        report(f"\n  {title}:\n    {command}")


def shell_for_a_person() -> str:
    """The command by which a shell in the checkout finds Ansible, and Ansible the hosts."""
    configuration = hosts.write_configuration_for_a_person().relative_to(settings.ROOT)
    return f"export ANSIBLE_CONFIG=$PWD/{configuration} PATH=$PWD/{settings.VENV.relative_to(settings.ROOT)}/bin:$PATH"


def demo_clean() -> None:
    """Remove every trace of the demo and the tests: hosts, volumes, network, images, .cache."""
    with phase("Hosts, volumes, network and images"):
        hosts.remove_everything()
    installed = prerequisites.packages_installed()
    shutil.rmtree(settings.CACHE, ignore_errors=True)
    if installed:
        report(f"  Packages that were installed for this are left in place: {' '.join(installed)}")


def mock_repositories() -> None:
    """Build what the tests need besides the demo: derivative images and mock vendor repositories."""
    prepare(_images_of(parts.parts_of("test-ci")), vendors=True)


def _images_of(chosen: Sequence[parts.Part]) -> tuple[images.Image, ...]:
    """The images that parts need; none where none of them has hosts."""
    suites = dict.fromkeys(suite for part in chosen for suite in part.suites)
    # The largest first.
    return (*images.SHARED_IMAGES, *(images.Image("host", suite) for suite in suites)) if suites else ()


def test(target: parts.Target, arguments: list[str]) -> None:
    """Run the parts of a target, or those that the arguments name; anything else in the arguments is for one pytest."""
    named = [parts.for_target(part, target) for part in parts.PARTS if part.name in arguments]
    by_name = len(named) == len(arguments)
    if target in ("test", "test-ci"):
        os.environ[settings.PRELOADED_VARIABLE] = "1"
    if by_name:
        _run(named or parts.parts_of(target), needs_packages=target != "test-unit")
        return
    if target == "test-unit":
        prerequisites.require_tools()
    else:
        _packages()
    _environment()
    if desired := _images_of(suite.parts_with(arguments)):
        _images(desired, vendors=True)
        # Once, before two workers need it at the same time.
        with phase("Network"):
            _playbook(settings.ROOT / "testbed/playbooks/create.yml", _DEMO, "--tags=network", log="network")
    pytest = settings.VENV / "bin" / "pytest"
    _show([pytest, "-n", "3", "--dist", "loadscope", "--no-loadscope-reorder", "--durations=5", *arguments])


def _run(
    chosen: Sequence[parts.Part],
    *,
    needs_packages: bool = True,
    ended: Callable[[suite.Outcome], None] = lambda _outcome: None,
) -> None:
    """Run parts of the tests, while the images of their hosts are still being made."""
    if needs_packages:
        _packages(sorted({part.optional for part in chosen} - {""}))
    else:
        prerequisites.require_tools()
    with ThreadPoolExecutor(1) as pool:
        prepared = pool.submit(_images, desired, vendors=True) if (desired := _images_of(chosen)) else None
        _environment()
        suite.run_parts(chosen, prepared, ended)


def run_night(arguments: list[str]) -> None:
    """Run the parts of test-long that have waited longest since they passed; see testbed/night.py."""
    parser = argparse.ArgumentParser(prog="python3 -m testbed night", description=run_night.__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="what the parts may take together (default: 2)")
    parser.add_argument("--record", type=Path, default=settings.CACHE / "night.json", help="file of what passed when")
    options = parser.parse_args(arguments)
    every = parts.parts_of("test-long")
    record = night.read(options.record)
    begin = night.chosen(every, record, options.hours, os.cpu_count() or 2)
    git = ["git", "-C", str(settings.ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()

    def note(outcome: suite.Outcome) -> None:
        nonlocal record
        record = night.with_outcome(record, outcome, datetime.now(UTC), commit)
        night.write(options.record, record)

    try:
        _run(begin, ended=note)
    finally:
        report("\n" + "\n".join(night.table(every, record)))


def bench(arguments: list[str]) -> None:
    """Run the parts of the benchmark that the arguments name, or all that need no hosts; see tests/benchmark."""
    if _ON_HOSTS in arguments:
        prerequisites.require_root()
        prepare()
    else:
        _tools()
    _show([settings.VENV / "bin" / "python", "-m", "tests.benchmark", *arguments])


def fuzz() -> None:
    """Fuzz: a million damaged documents to the parser (`make test`: 4 000), hostile options, the largest torture."""
    _tools()
    os.environ["GPU_FLEET_MUTATIONS"] = "1000000"
    os.environ["GPU_FLEET_EFFORT"] = "fuzz"
    tests = ["tests/unit/nvidia_smi/test_facts_damage.py", "tests/unit/option_fuzz", "tests/torture"]
    _show([settings.VENV / "bin" / "pytest", *tests, "-k", "mutations or option or torture"])


def docs() -> None:
    """Build the documentation site."""
    _tools()
    with phase("Documentation site"):
        index = documentation.build(settings.CACHE / "docs")
    report(f"  {index}")


def real_gpu(arguments: list[str]) -> None:
    """Run the scenario on hosts with real GPUs; see testbed/real_gpu."""
    if "--ansible-playbook" not in arguments and not {"-h", "--help"} & {*arguments}:
        _tools()
    if not scenario.run(arguments):
        raise SystemExit(1)


def make_tables() -> None:
    """Write the tables of variables and plugins in the guides, and the picture of README; see testbed/tables.py."""
    _tools()
    _show([settings.VENV / "bin" / "python", "-m", "testbed.tables"])


def make_release() -> None:
    """Make the files of a release of the version in galaxy.yml."""
    facts_check(["--outdated"])
    with phase("Release"):
        files = release.build(settings.CACHE / "release")
    report("\n".join(f"  {file}" for file in files))
    report(f"  to sign them, in {settings.CACHE / 'release'}: {release.SIGN}")


def facts_check(arguments: list[str]) -> None:
    """Compare the tables of plugins/module_utils/_knowledge with the feeds; see testbed/facts_check.py."""
    _tools()
    # The tables import each other as parts of the collection.
    collections = f"PYTHONPATH={settings.COLLECTIONS}"
    _show(["env", collections, settings.VENV / "bin" / "python", "-m", "testbed.facts_check", *arguments])


def redact_file(arguments: list[str]) -> None:
    """Print a file without what identifies a site."""
    if len(arguments) != 1:
        raise CommandError("name one file: make redact FILE=output.txt")
    try:
        text = Path(arguments[0]).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CommandError(f"cannot read {arguments[0]}: {error.strerror}") from None
    sys.stdout.write(redact(text))


def _tools() -> None:
    """Prepare what needs neither hosts nor root: no package of the machine is installed."""
    prerequisites.require_tools()
    _environment()


def _packages(optional: Sequence[str] = ()) -> None:
    settings.CACHE.mkdir(exist_ok=True)
    with phase("Packages of this machine"):
        prerequisites.install_packages()
        for name in optional:
            prerequisites.install_optional(name)


def _environment() -> None:
    settings.CACHE.mkdir(exist_ok=True)
    with phase("Python environment"):
        prerequisites.make_environment()
    with phase("Collections"):
        prerequisites.fetch_collections()


def _show(argv: list[str | Path]) -> None:
    """Run a command with its output shown; exit with its status when it fails."""
    status = subprocess.run(
        [str(word) for word in argv], cwd=settings.ROOT, env=settings.environment(), check=False
    ).returncode
    if status:
        raise SystemExit(status)


def _return_cache_to_caller() -> None:
    """Under sudo, give files written as root to the caller, who must be able to remove the checkout."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if user and group and settings.CACHE.exists():
        subprocess.run(["chown", "-R", "--no-dereference", f"{user}:{group}", str(settings.CACHE)], check=False)


def main() -> int:
    """Run one command; a failed phase ends with status 1 and an error message."""
    parser = argparse.ArgumentParser(prog="python3 -m testbed", description=__doc__)
    rest: list[str] = []
    commands: dict[str, Callable[[], None]] = {
        "demo": demo,
        "demo-clean": demo_clean,
        "prepare": prepare,
        "mock-repositories": mock_repositories,
        "bench": partial(bench, rest),
        "fuzz": fuzz,
        "night": partial(run_night, rest),
        "docs": docs,
        "tables": make_tables,
        "release": make_release,
        "facts-check": partial(facts_check, rest),
        "real-gpu": partial(real_gpu, rest),
        "redact": partial(redact_file, rest),
        **{target: partial(test, target, rest) for target in get_args(parts.Target)},
    }
    parser.add_argument("command", choices=commands)
    arguments, unknown = parser.parse_known_args()
    rest.extend(unknown)
    if arguments.command not in _WITHOUT_ROOT:
        prerequisites.require_root()
    try:
        commands[arguments.command]()
    except CommandError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    finally:
        _return_cache_to_caller()
    return 0


if __name__ == "__main__":
    sys.exit(main())
