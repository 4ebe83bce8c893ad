# Everything a fresh machine needs is set up on first use, inside .venv.
#   PYTHON=python3.12   which Python makes .venv (default: the newest from 3.11 on)
#   LOG=/path/to.log    which file `make demo` ships (default: the largest text log below /var/log)
#   ARGS='-k wire -x'   passed on to pytest by `make test`, to the scripts by `make perf`
#   WORKERS=2           how many processes `make test` runs tests in (0: in its own)

BIN := .venv/bin
SUPPLY := build/supply/bin
WORKERS ?= 2
LINTED := . qbus/broker/ qbus/clients/ qbus/agent/
PACKAGING := setup.cfg pyproject.toml setup.py $(wildcard qbus/_*.pxd qbus/records/_*.p[xy]* qbus/wire/_*.p[xy]* broker/group/_*.p[xy]*)

.DEFAULT_GOAL := help
.PHONY: help demo test check perf compile docs lock sbom audit clean

help:  ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s%s\n", $$1, $$2 }' Makefile
	@awk '/^#   / { sub(/^# /, ""); print }' Makefile

demo: .venv/.demo-ready  ## start a broker, ship a real log file through it, compare, report
	@$(BIN)/qbus demo $(if $(LOG),--log '$(LOG)')

test: .venv/.dev-ready  ## run every test this machine has the tools for
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: .venv/.dev-ready  ## lint, formatting, types, import contracts
	@$(BIN)/ruff check $(LINTED)
	@$(BIN)/ruff format --check $(LINTED)
	@$(BIN)/mypy
	@$(BIN)/lint-imports

perf: .venv/.dev-ready  ## measure every claim about speed, beside its peers
	@$(BIN)/python -m perf $(ARGS)

compile:  ## compile all hot modules: until then, and once changed, they run as Python
	@if $(MAKE) --silent --question .venv/.run-ready; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .; \
	else $(MAKE) --silent .venv/.run-ready; fi  # which compiles, too

docs: .venv/.dev-ready  ## write those parts of the documentation anew that are made from the code
	@$(BIN)/python -m tests.unit.docs.generated

lock: build/supply/.ready  ## pin every package with hashes in requirements/; ARGS=--upgrade takes newer ones
	@$(SUPPLY)/python .ci/lock $(ARGS)

sbom: build/supply/.ready  ## write dist/qbus-sbom.json, the bill of what Qbus runs with (CycloneDX)
	@$(SUPPLY)/python .ci/sbom

audit: build/supply/.ready  ## look for known weaknesses of the pinned packages; ADVISORIES=DIR asks files of OSV
ifdef ADVISORIES
	@$(SUPPLY)/python .ci/audit $(ADVISORIES) $(ARGS)
else
	@$(SUPPLY)/pip-audit --strict --require-hashes --disable-pip $(addprefix --requirement ,$(wildcard requirements/*.txt)) $(ARGS)
endif

clean:  ## remove .venv, caches and build results
	rm -rf qbus/_compiled qbus/records/*.c qbus/wire/*.c qbus/*/*.so broker/group/*.c broker/group/*.so .venv build dist *.egg-info .*_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A demo runs without what takes minutes to compile; the record codec makes its throughput ninefold.
.venv/.demo-ready: $(PACKAGING)
	@QBUS_BUILD=codec PIP_COMPILE=0 .ci/venv
	@touch $@

.venv/.run-ready: $(PACKAGING)
	@.ci/venv
	@touch $@ .venv/.demo-ready

.venv/.dev-ready: $(PACKAGING)
	@.ci/venv test,check
	@touch $@ .venv/.run-ready .venv/.demo-ready

# The tools about packages, locked like the packages.
build/supply/.ready: requirements/supply.txt
	@python3 -m venv --clear build/supply
	@$(SUPPLY)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@
