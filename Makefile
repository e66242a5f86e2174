# Every target installs what it needs; `make demo` and `make test` suffice on a fresh machine.
#
# What is in which:
#   make test    lint, types, layers, generated files; all of tests/ but what is marked bench or judge, in three processes. Two minutes of chaos, and a
#                selection of what make judge asks, are among it. At most eight failed tests of tests/integration are run once more alone; what passes
#                then is named at the end and in results/flaky.txt (tests/support/alone.py). Everything else that fails has failed.
#   make judge   what kube-scheduler says of plans, whole: of the solver's, and of the real programs with all pods at once in three modes.
#   make chaos   ten minutes of faults for each cloud, judged from outside; all methods of disruption take nodes meanwhile.
#   make fuzz    the decoders get 100,000 mutated objects (make test: 5,000), the state 10,000 lives of claims, Nodes and pods (1,700).
#   make scenarios  what users of Karpenter expect of disruption, a row each, on a real control plane with the extender and without.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
# whole modules go to one of three processes, each with a control plane of its own; many of them wait half of their time
PARALLEL := -n 3 --dist loadscope --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help install demo test check unit integration judge scenarios bench bench-cluster chaos fuzz manifests docs docs-check verify coverage lock fmt lint types arch

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(STAMP) ## virtual environment with pinned dependencies; nothing happens when nothing changed

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pinned dependencies into $(VENV) (1-2 minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,planner]'
	@touch $@

demo: install ## 1,000 pending pods get their machines on a real control plane, then leave (CLOUD=aws: from an emulated EC2; MODE=all-off|nominations-only|everything-on)
	@$(BIN)/dovetail demo $(if $(CLOUD),--cloud $(CLOUD)) $(if $(MODE),--mode $(MODE))

test: install ## everything: lint, types, layers, unit, property, the real control plane (integration tests that failed beside others: once more, alone)
	@$(MAKE) --no-print-directory binaries & pid=$$!; \
	$(MAKE) --no-print-directory lint types arch verify-manifests; status=$$?; \
	wait $$pid || status=1; test $$status -eq 0
	$(BIN)/python -m tests.support.alone $(PARALLEL) tests

.PHONY: binaries verify-manifests
binaries: install
	@$(BIN)/dovetail dev build

check: lint types arch unit ## what to run before a commit (about a minute)

unit: install ## unit, property and golden tests
	$(PYTEST) $(PARALLEL) tests/unit tests/property tests/golden

coverage: install ## lines and branches that unit, property and golden tests run; a report by file
	$(PYTEST) $(PARALLEL) --cov --cov-report=term:skip-covered tests/unit tests/property tests/golden

integration: install ## tests on the real control plane
	$(PYTEST) $(PARALLEL) tests/integration

judge: install ## kube-scheduler judges every scenario between pods: of the solver's plans, and of the real programs with all pods at once
	$(PYTEST) -m "not bench" tests/integration/test_nomination.py tests/integration/test_scenarios_at_once.py tests/integration/test_scheduler_judge.py

bench: install ## benchmarks; figures also in results/*.json
	$(PYTEST) tests/bench tests/integration/test_aws_shortage.py -m bench -s -p no:randomly -o python_files='bench_*.py'

bench-cluster: install ## nodes bought and renewed on a real control plane, measured, with Karpenter's figures beside ours (CASE=basic|placement|spread|latency|consolidation|drift|drift-fast|drift-pdb|empty|deleted|all MODE=all-off|nominations-only|everything-on|all QUICK=1)
	@$(BIN)/dovetail bench-cluster $(or $(CASE),all) $(if $(MODE),--mode $(MODE)) $(if $(QUICK),--quick)

scenarios: install ## scenarios of disruption on a real control plane, with the extender and without (EXTENDER=yes|no, ROWS="words of a name")
	@$(BIN)/python -m tests.scenarios $(if $(EXTENDER),--extender $(EXTENDER)) $(ROWS)

chaos: install ## every fault of a launch at every write of it, then ten minutes of faults under a churn of pods, on kwok and on the emulated EC2 (SEED=N, SECONDS=600)
	@status=0; $(PYTEST) -m bench tests/integration/test_aws_launch_faults.py || status=1; for cloud in kwok aws; do \
	$(BIN)/python -m tests.chaos --cloud $$cloud --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) || status=1; \
	done; exit $$status

fuzz: install ## 100,000 mutated objects through the decoders, and 10,000 lives through the state (about eight minutes)
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -n 2 tests/property/test_decoding_laws.py tests/property/test_state_laws.py -k 'decoding or forgotten'

manifests: install ## write manifests/crds and the IAM policies in manifests/aws from their one source
	@$(BIN)/dovetail manifests

docs: install ## write docs/reference from the code
	@$(BIN)/dovetail reference

docs-check: install ## links, generated pages, texts, and files that documents name
	@$(BIN)/dovetail reference --check
	$(PYTEST) -q tests/unit/test_docs.py tests/unit/test_messages.py

verify-manifests: install
	@$(BIN)/dovetail manifests --check

lock: install ## write requirements.txt, what the image installs, with hashes
	@$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install -q 'pip-tools>=7.6,<8'
	@$(VENV)-lock/bin/pip-compile -q --generate-hashes --extra planner --strip-extras --no-annotate --no-header --no-emit-find-links --allow-unsafe \
	  -c constraints.txt -o requirements.lock pyproject.toml
	@{ echo '# What the image installs, with hashes. Written by `make lock` from pyproject.toml and constraints.txt; do not edit.'; \
	  cat requirements.lock; } > requirements.txt; rm -r requirements.lock $(VENV)-lock

verify: install ## regenerate and demand a clean diff
	@$(BIN)/dovetail manifests --check
	@$(BIN)/ruff format --check -q .

fmt: install ## format
	@$(BIN)/ruff format -q . && $(BIN)/ruff check -q --fix .

lint: install ## ruff
	@$(BIN)/ruff check -q . && $(BIN)/ruff format --check -q .

types: install ## mypy --strict
	@$(BIN)/mypy

arch: install ## the layers of design.md
	@found=$$($(BIN)/lint-imports --no-cache) || { echo "$$found"; exit 1; }
