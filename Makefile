# Every target installs what it needs; `make demo` and `make test` suffice on a fresh machine.
#
# What is in which:
#   make test    lint, types, layers, generated files; all of tests/ but what is marked bench, judge or package. Two minutes of chaos, and a selection of what
#                make judge asks, are among it. What only computes runs beside the build of the control plane; then tests/integration has the machine to
#                itself, for its programs keep to times of day: five processes share it (PROCESSES=N), longest modules first (tests/support/spreading.py,
#                by what the last run took: tests/support/durations.py).
#                At most twenty failed tests of it are run once more alone; what passes then is named at the end and in results/flaky.txt, and has failed
#                unless tests/flaky.toml names it (tests/support/alone.py). It ends with minutes, CPU seconds and the speed of the machine
#                (tests/support/effort.py).
#   make judge   what kube-scheduler 1.37, 1.36 and 1.35 say of plans, whole: of the solver's, and of the real programs with all pods at once in three modes; the whole workload
#                of the demo with webhook and extender lost (make test: a third of it); an hour's worth of events for an old extender (a quarter of it);
#                a small rollout of twenty Deployments; objects of old versions while the converter is dead for ten minutes (make test: seconds).
#   make package what is installed, upgraded and removed as a whole: tests marked package, in tests/package and wherever else they stand; some minutes to an hour.
#   make chaos   ten minutes of faults for each cloud, judged from outside; all methods of disruption take nodes meanwhile.
#   make soak    an hour of pods that come and go, and four weeks in virtual time: nothing that a program keeps may grow.
#   make fuzz    the decoders get 100,000 mutated objects (make test: 5,000), and 100,000 each of what API server, kube-scheduler and registries send (500), the state 10,000 lives of claims, Nodes and pods (1,700),
#                and each law of prepared worlds and of verdicts about nodes 2,000 random worlds (100); disruption 3,000 lives of a cluster (120), and every mutant of it (12).
#   make interleavings  the controllers in one process, one thread at a time: 10,000 orders of what happens, and defects that they must find.
#   make scenarios  what users of Karpenter expect of disruption, admission and old manifests, a row each, on a real control plane with the extender and without
#                (make test: a selection, without).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
PROCESSES ?= 5
BY_MODULE := --dist loadscope --no-loadscope-reorder
MINORS ?= 1.37 1.36 1.35
JUDGED := $(addprefix tests/integration/test_,$(addsuffix .py,extender nomination scenarios_at_once scheduler_judge scheduling_wiring annotated_gangs))
KEEPING := -p tests.support.durations
# a container may forbid bytecode; then each of some hundred starts of a program would compile its modules anew, half a second of processor time each
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test chromium check unit integration judge package scenarios bench bench-scale bench-cluster chaos soak fuzz interleavings manifests docs docs-check verify coverage lock image fmt lint types arch

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}' | fold -s -w 110 | sed 's/^\([^ ]\)/                      \1/'

install: $(STAMP) ## virtual environment with pinned dependencies; nothing happens when nothing changed

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pinned dependencies into $(VENV) (1-2 minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,planner]'
	@touch $@

demo: install ## 1,000 pending pods get nodes on a real control plane, then both are removed (CLOUD=aws: instances of an emulated EC2; MODE=all-off|nominations-only|everything-on; HPA=1: instead, load rises and falls)
	@$(BIN)/dovetail demo $(if $(CLOUD),--cloud $(CLOUD)) $(if $(MODE),--mode $(MODE)) $(if $(HPA),--hpa)

test: ## all tests except benchmarks, `make judge` and `make package`, lint, types and layers; at the end, what it took (integration tests that failed beside others: once more, alone; tests/flaky.toml says which may)
	@$(PYTHON) -m tests.support.effort $(MAKE) --no-print-directory whole

.PHONY: whole
whole: install lint
	@mkdir -p results; \
	nice -n 5 $(MAKE) --no-print-directory -j2 -k --output-sync=target types arch quick > results/quick.txt 2>&1 & pid=$$!; \
	trap "kill $$pid 2> /dev/null" INT TERM; \
	status=0; $(MAKE) --no-print-directory binaries || status=1; \
	other=0; wait $$pid || other=1; cat results/quick.txt; \
	test $$status -ne 0 || $(BIN)/python -m tests.support.alone -rfEs -n $(PROCESSES) $(BY_MODULE) $(KEEPING) tests/integration || status=1; \
	test $$status -eq 0 || echo "tests/integration, or the build of its control plane, failed: see above"; \
	test $$other -eq 0 || echo "types, layers, generated files, or tests/unit, tests/property, tests/golden failed: see above"; \
	exit $$((status | other))

chromium: ## Debian's chromium, for the tests of the page; only root installs it
	@command -v chromium > /dev/null || test "$$(id -u)" -ne 0 || { echo "installing chromium (120 MB)"; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null; } || test -z "$$CI"

.PHONY: pictures
pictures: install chromium ## write docs/guides/pictures, the live page of made-up clusters in eight sizes and colours, for README and docs
	@$(BIN)/python -m tests.pictures

.PHONY: quick
quick: install chromium # keeps no list of failures: tests/support/alone.py reads the one of tests/integration
	@$(PYTEST) -q -rfEs -n 2 $(BY_MODULE) $(KEEPING) -p no:cacheprovider tests/unit tests/property tests/golden

.PHONY: binaries
binaries: install
	@$(BIN)/dovetail dev build --metrics
	@$(BIN)/dovetail dev build --tools || test -z "$$CI" # without a network: tests that need them are skipped, and named (tests/support/skips.py)

check: lint types arch unit ## what to run before a commit (about a minute)

unit: install ## unit, property and golden tests
	$(PYTEST) -n 3 $(BY_MODULE) tests/unit tests/property tests/golden

coverage: install ## lines and branches that unit, property and golden tests run; a report by file
	$(PYTEST) -n 3 $(BY_MODULE) --cov --cov-report=term:skip-covered tests/unit tests/property tests/golden

integration: install ## tests on the real control plane
	$(PYTEST) -n $(PROCESSES) $(BY_MODULE) tests/integration

judge: install ## kube-scheduler (1.37, 1.36, 1.35; MINORS=1.37 for one) judges every scenario between pods: of the solver's plans, and of the real programs with all pods at once
	@for minor in $(MINORS); do echo "kube-scheduler $$minor"; DOVETAIL_KUBERNETES=$$minor $(PYTEST) -m "not bench" $(JUDGED) || exit 1; done
	$(PYTEST) -m judge tests/integration/test_demo.py tests/integration/test_upgrade.py tests/integration/test_bench_cluster.py tests/integration/test_converter_dead.py tests/integration/test_groups_judged.py

package: install ## what is installed, upgraded and removed as a whole: the image of both architectures, upgrades and removals
	$(PYTEST) -m package tests

bench: install ## benchmarks; figures also in results/*.json
	$(PYTEST) tests/bench tests/integration/test_aws_shortage.py tests/integration/test_aws_catalogue_cost.py -m bench -s -p no:randomly -o python_files='bench_*.py'

bench-scale: install ## 1,000, 2,000 and 5,000 nodes in real time: seconds until pods have a NodeClaim while consolidation runs, CPU of its passes, start of a leader, memory (SCALE_NODES=5000 SCALE_SECONDS=180); half an hour, and 2 GB
	SCALE_NODES=$(or $(SCALE_NODES),1000,2000,5000) SCALE_WARM=$(or $(SCALE_WARM),180) SCALE_SECONDS=$(or $(SCALE_SECONDS),180) $(PYTEST) tests/bench/bench_scale.py -m bench -s -p no:randomly -o python_files='bench_*.py'

bench-cluster: install ## nodes bought and renewed on a real control plane, measured, with Karpenter's figures beside ours (CASE=basic|placement|packing|spread|latency|rollout|throughput|gangs|consolidation|drift|drift-fast|drift-pdb|empty|deleted|all MODE=all-off|nominations-only|everything-on|all QUICK=1)
	@$(BIN)/dovetail bench-cluster $(or $(CASE),all) $(if $(MODE),--mode $(MODE)) $(if $(QUICK),--quick)

scenarios: install ## scenarios of disruption, admission and old manifests on a real control plane, with the extender and without, what `dovetail plan` and the provisioner buy for the same manifests, and what runs in the end (EXTENDER=yes|no, ROWS="words of a name")
	@$(BIN)/python -m tests.scenarios $(if $(EXTENDER),--extender $(EXTENDER)) $(ROWS)
	@$(if $(ROWS),,$(PYTEST) -m "bench or not bench" tests/integration/test_plan_agrees.py tests/integration/test_plans_kept.py)

chaos: install ## every fault of a launch at every write of it, kill -9 at every write of launch, drift and consolidation, then ten minutes of faults under a churn of pods and beside a tenant who posts the worst pods there are, on kwok and on the emulated EC2 (SEED=N, SECONDS=600)
	@status=0; $(PYTEST) -m bench tests/integration/test_aws_launch_faults.py tests/integration/test_killed_at_every_write.py || status=1; for cloud in kwok aws; do \
	$(BIN)/python -m tests.chaos --cloud $$cloud --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) || status=1; \
	done; exit $$status

soak: install ## whether the programs keep more and more: an hour of pods that come and go under mild faults, all methods of disruption on, then four weeks in virtual time; results/soak.json (SECONDS=3600, WEEKS=4, CLOUD=kwok|aws, SEED=N)
	@$(BIN)/python -m tests.soak --cloud $(or $(CLOUD),kwok) --seconds $(or $(SECONDS),3600) --weeks $(or $(WEEKS),4) $(if $(SEED),--seed $(SEED))

fuzz: export HYPOTHESIS_PROFILE = thorough
fuzz: export PYTEST_ADDOPTS = --timeout 14400 # minutes alone, and as long as it takes beside others
fuzz: install ## 100,000 mutated objects through the decoders, as many reviews, questions, conversions and answers of registries each, 10,000 lives through the state, 2,000 pods that say too much, 2,000 random worlds through each law of prepared worlds and of verdicts, and 3,000 lives of a cluster under disruption (about half an hour)
	$(PYTEST) -n 2 tests/property/test_decoding_laws.py tests/property/test_state_laws.py -k 'decoding or forgotten'
	$(PYTEST) tests/property/test_decoding_work.py -k whatever_a_pod_says
	$(PYTEST) tests/property/scheduling/test_prepared_laws.py tests/property/scheduling/test_partition_laws.py tests/property/scheduling/test_balancing_laws.py tests/property/test_fixed_point_laws.py tests/property/test_verdict_laws.py tests/property/test_promises_laws.py tests/property/test_steering_laws.py tests/property/scheduling/test_work_laws.py
	$(PYTEST) -m "bench or not bench" tests/property/test_disruption_machine.py

interleavings: install ## 10,000 interleavings of provision, disrupt, terminate, fail and lose the lease, and every mutant (SEEDS=FIRST:END; some forty minutes)
	$(BIN)/python -m tests.interleaving --seeds $(or $(SEEDS),0:10000) --jobs 2
	$(PYTEST) -q -m bench tests/property/test_interleavings.py

.PHONY: walks
walks: install ## files that a reader passes from five entries of ARCHITECTURE.md to the write, and how often the way leads back to one of them
	@$(BIN)/python -m tests.walks

manifests: install ## write definitions (manifests/crds, crds-conversion), the admission policy, alerts and dashboards (manifests/monitoring), the IAM policies in manifests/aws, and the Helm charts in manifests/charts from code and manifests
	@$(BIN)/dovetail manifests

docs: install ## write docs/reference, and the table of controllers in ARCHITECTURE.md, from the code
	@$(BIN)/dovetail reference

docs-check: install ## links, generated pages, texts, and files that documents name
	@$(BIN)/dovetail reference --check
	$(PYTEST) -q tests/unit/test_docs.py tests/unit/test_english.py tests/unit/test_messages.py

.PHONY: site
site: install ## the documentation as a site, in dist/site (installs the extra `docs`, which nothing else needs)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "dist/site/index.html"

LOCKED := $(VENV)-lock/bin/pip-compile -q --generate-hashes --strip-extras --no-annotate --no-header --no-emit-find-links --allow-unsafe -c constraints.txt
IMAGE := provisioner/lab/image

lock: install ## write what the image is built of, with hashes: requirements.txt, and base.json (on Debian), building.txt and sbom.txt in provisioner/lab/image
	@$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install -q 'pip-tools>=7.6,<8'
	@$(LOCKED) --extra planner -o requirements.lock pyproject.toml
	@{ echo '# What the image installs, with hashes. Written by `make lock` from pyproject.toml and constraints.txt; do not edit.'; \
	  cat requirements.lock; } > requirements.txt; rm requirements.lock
	@printf 'pip\nsetuptools>=77,<81\n' | $(LOCKED) -o $(IMAGE)/building.txt - && printf 'cyclonedx-bom\n' | $(LOCKED) -o $(IMAGE)/sbom.txt -
	@rm -r $(VENV)-lock
	@$(BIN)/python -m provisioner.lab.image lock

image: install ## write dist/image, an OCI image layout for amd64 and arm64, and bills of materials beside it; prints the digest (needs Python 3.11, no container engine)
	@$(BIN)/python -m provisioner.lab.image image dist

verify: install ## whether the manifests, docs/reference and the format are what `make manifests docs fmt` writes; changes nothing
	@$(BIN)/dovetail manifests --check
	@$(BIN)/dovetail reference --check
	@$(BIN)/ruff format --check -q .

fmt: install ## format
	@$(BIN)/ruff format -q . && $(BIN)/ruff check -q --fix .

lint: install ## ruff
	@$(BIN)/ruff check -q . && $(BIN)/ruff format --check -q .

types: install ## mypy --strict
	@$(BIN)/mypy

arch: install ## the layers of ARCHITECTURE.md, and which modules are pure
	@found=$$($(BIN)/lint-imports --no-cache) || { echo "$$found"; exit 1; }
