# Everything happens in testbed/ (python3 -m testbed --help); this file only gives the commands their names.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
export PYTHONDONTWRITEBYTECODE = 1
comma := ,

.PHONY: help demo demo-clean test test-unit test-ci test-long test-full night bench fuzz prepare mock-repositories docs tables release facts-check real-gpu redact
help:
	@echo "make demo        three simulated GPU hosts, from bare Debian to running GPU containers"
	@echo "make demo-clean  remove every trace of the demo and the tests"
	@echo "make test        on each change: all unit tests and checks, and all roles on a real systemd host"
	@echo "make test-unit   of them, unit tests and contracts: neither root nor hosts, no linters"
	@echo "make test-ci     what CI runs: make test, plays, the package, the scenarios, some of them on fewer hosts"
	@echo "make test-long   everything else but downloads of gigabytes: all scenarios, faults, torture"
	@echo "make night       the parts of test-long that have waited longest since they passed (ARGS='--hours 2')"
	@echo "make test-full   real driver and CUDA packages of Debian, gigabytes of them"
	@echo "make bench       measured figures: how fast the core is (ARGS=--help)"
	@echo "make fuzz        a million damaged documents to the parser, hostile options to every module, the largest torture"
	@echo "make docs        the documentation site, in .cache/docs/html"
	@echo "make tables      the tables of variables and plugins in the guides, after a change of argument_specs or DOCUMENTATION"
	@echo "make release     archive, checksums and SBOM of the version in galaxy.yml, in .cache/release"
	@echo "make facts-check compares the tables of what is known with the feeds of NVIDIA and others; ARGS=--write writes the bulletins"
	@echo "make real-gpu HOST=name, or ARGS=\"-i INVENTORY\": the scenario on hosts with real GPUs that may be changed"
	@echo "make redact FILE=output.txt prints a file for an issue, without what identifies your site"
	@echo "make mock-repositories the mock repositories, after a change in testbed/mock_repositories"

demo demo-clean prepare test test-unit test-ci test-long test-full night bench fuzz mock-repositories docs tables release facts-check: | python
	@$(PYTHON) -m testbed $@ $(ARGS)

real-gpu: | python
	@$(PYTHON) -m testbed $@ $(if $(HOST),-i $(HOST)$(comma)) $(ARGS)

redact: | python
	@$(PYTHON) -m testbed $@ $(FILE)

.PHONY: python
python:
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed; set PYTHON=/path/to/python3"; exit 1; }
