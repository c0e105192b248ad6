# `make demo` is the main job, `make test` is every test; both set up what they need in .venv.
# PYTHON names the interpreter that the environment is made with (3.11 or newer).

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
BENCH := .venv-bench/.made
PIPELINE := .venv-pipeline/.made
AZURITE := tests/support/servers/azurite
PURE := tests/house/test_tree.py tests/artifacts/test_*.py $(addprefix tests/artifacts/,bundles net) \
	$(addprefix tests/registry/,text versions requests resolution lock manifests) \
	$(addprefix tests/evaluator/harness/,steps quality inference)

.PHONY: help install demo test fast check base bit-flips bench simulate simulate-statistics claims format schemas configuration docs recording screenshot notebook lock engine engine-stop clean

help: ## these lines
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(RUNTIME) ## benchlock in .venv
	@echo "activate it with: . $(VENV)/bin/activate"

demo: $(RUNTIME) ## publish, lock, run and rerun the digits models; ALL=1 for PyTorch and TensorFlow too
	@$(BIN)/python examples/digits/demo.py $(if $(ALL),--all)

test: $(DEV) $(AZURITE)/node_modules/.made ## every test, with an engine of its own on a private socket (Debian as root: installs it)
	@sh tests/support/system/system.sh
	@$(BIN)/python -m pytest -n 2 $(ARGS)

base: $(DEV) $(AZURITE)/node_modules/.made ## what the tests need of the system, and the base of their images: all that waits for the network
	@sh tests/support/system/system.sh
	@! command -v mmdebstrap >/dev/null || $(BIN)/python -m tests.support.system.base .pytest_cache/d/benchlock-base

fast: $(DEV) ## lint, types, and the tests that need no engine, no server and no simulation: under a minute
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy tests examples benchmarks
	@$(BIN)/python -m pytest -q -n 2 -m "not databases and not engine and not image" $(PURE) $(ARGS)

check: $(DEV) ## format, lint, types, import direction, schema drift, migrations, size
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy tests examples benchmarks
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.house.json_schemas .cache/schemas && diff -r .cache/schemas docs/reference/schemas
	@$(BIN)/python -m benchlock.migrations.schema_check
	@$(BIN)/python -m tests.house.size

bit-flips: $(DEV) ## flip 100 random bits of a database of each kind, and say what became of each; FLIPS=N for others
	@$(BIN)/python -m pytest -q tests/acceptance/test_bit_flips.py --flips $(or $(FLIPS),100)

bench: $(DEV) $(BENCH) $(PIPELINE) ## measured claims, side by side in one run
	@sh tests/support/system/system.sh wrk
	@for script in benchmarks/[a-z]*.py; do PYTHONPATH=. $(BIN)/python $$script; done

simulate: $(DEV) ## machines in virtual time and with faults on the real queue: JOBS=12000 MACHINES=50 takes 5 minutes, and a million jobs, the default, hours
	@PYTHONPATH=. $(BIN)/python -m benchmarks.fleet --jobs $(or $(JOBS),1000000) --machines $(or $(MACHINES),1000) --seed $(or $(SEED),1)

simulate-statistics: $(DEV) ## how often intervals hold the truth and decisions are wrong: the tables of docs/explanation/comparing.md
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.simulation

claims: $(DEV) ## claims of papers, measured again: docs/explanation/claims.md; the first time fetches frameworks
	@PYTHONPATH=. $(BIN)/python -m benchmarks.claims $(if $(ONLY),--only $(ONLY))

format: $(DEV) ## write the code in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

schemas: $(DEV) ## write docs/reference/schemas anew from the types
	@$(BIN)/python -m tests.house.json_schemas docs/reference/schemas

docs: $(DEV) ## the documentation as a site in build/docs
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs build --strict
	@echo "read it with: python3 -m http.server --directory build/docs"

recording: $(RUNTIME) ## write docs/assets/terminal.svg anew: a terminal with the first number
	@$(BIN)/python examples/digits/recording.py

screenshot: $(DEV) ## write docs/assets/run-page.png anew: the page of a run of `make demo`
	@sh tests/support/system/system.sh
	@$(BIN)/python examples/digits/screenshot.py

configuration: $(DEV) ## write docs/reference/configuration.md anew from the table of settings
	@$(BIN)/python -m tests.house.configuration_page docs/reference/configuration.md

notebook: $(DEV) ## execute the notebook of the digits example, and write its outputs anew
	@$(BIN)/python -m tests.examples.notebook_execution examples/digits/digits.ipynb

lock: ## write requirements/*.txt and Azurite's package-lock.json anew (needs uv and npm on the path)
	uv pip compile -q --no-emit-index-url --generate-hashes --python-version 3.11 pyproject.toml requirements/build.in -o requirements/runtime.txt
	uv pip compile -q --no-emit-index-url --generate-hashes --python-version 3.11 pyproject.toml requirements/build.in --group dev -c requirements/runtime.txt -o requirements/dev.txt
	npm --prefix $(AZURITE) install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund --silent
	uv pip compile -q --no-emit-index-url --generate-hashes --python-version 3.11 requirements/example.in -o requirements/example.txt
	uv pip compile -q --no-emit-index-url --generate-hashes --python-version 3.11 requirements/bench.in -o requirements/bench.txt
	uv pip compile -q --no-emit-index-url --generate-hashes --python-version 3.11 requirements/pipeline.in -o requirements/pipeline.txt

engine: ## a private Docker engine in .engine (Debian as root: installs it); `make demo` finds it
	@sh tests/support/system/system.sh
	@sh tests/support/system/engine.sh start

engine-stop: ## end that engine
	@sh tests/support/system/engine.sh stop

clean: engine-stop ## remove what the targets above made
	rm -rf .engine $(VENV) .venv-bench .venv-pipeline $(AZURITE)/node_modules .demo .cache .mypy_cache .ruff_cache .pytest_cache build dist *.egg-info

$(RUNTIME): requirements/runtime.txt pyproject.toml
	@sh tests/support/system/environment.sh "$(PYTHON)" $(VENV) requirements/runtime.txt
	@touch $@

$(DEV): requirements/dev.txt pyproject.toml
	@sh tests/support/system/environment.sh "$(PYTHON)" $(VENV) requirements/dev.txt
	@touch $(RUNTIME) $@

$(AZURITE)/node_modules/.made: $(AZURITE)/package-lock.json | $(DEV)
	@$(BIN)/npm --prefix $(AZURITE) ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1 --fetch-timeout=30000 && touch $@ || \
		echo "npm cannot install Azurite; tests that need it are skipped" >&2

$(BENCH): requirements/bench.txt
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install -qq --disable-pip-version-check --no-compile --require-hashes -r $<
	@.venv-bench/bin/python -m compileall -q -j 0 .venv-bench/lib >/dev/null || true
	@touch $@

$(PIPELINE): requirements/pipeline.txt
	@$(PYTHON) -m venv .venv-pipeline
	@.venv-pipeline/bin/python -m pip install -qq --disable-pip-version-check --no-compile --require-hashes -r $<
	@.venv-pipeline/bin/python -m compileall -q -j 0 .venv-pipeline/lib >/dev/null || true
	@touch $@
