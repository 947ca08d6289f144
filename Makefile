# Needs python3 >= 3.11 with venv and pip; everything else is installed into .venv.
# Another interpreter: make test PYTHON=python3.13

VENV := .venv
ifeq ($(OS),Windows_NT)
PYTHON ?= python
BIN    := $(VENV)/Scripts
EXE    := .exe
else
PYTHON ?= python3
BIN    := $(VENV)/bin
EXE    :=
endif
# What is never imported need not be compiled: Python compiles the rest when it is first imported, and must keep it.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile

# A stamp is newer than pyproject.toml as long as what it declares is installed.
BASE := $(VENV)/.installed-base
LINT := $(VENV)/.installed-lint
DEV  := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
# What checks the page's JavaScript, in the versions of package.json; nothing of it is part of the package.
PAGE_TOOLS   := node_modules/.installed
PAGE_SOURCES := "src/glassformer/web/page/*.js" "src/glassformer/web/page/*.d.ts"
NODE_FITS    := process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)
NODE_WANTED  := there is no node of version 20 or later, or no npm

# What tests need besides, and a stamp that is as new as it; the folder is there until it is installed.
FETCHED := $(VENV)/.fetched
TOOLS   := $(VENV)/tools

# The package itself need not be built once more for them.
define TEST_TOOLS
import pathlib, re, sys, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
tools = project["optional-dependencies"]["test"]
print(*(tool for tool in tools if re.split("[<>=!~;[ ]", tool)[0] not in sys.argv[1:]), sep="\n")
endef
export TEST_TOOLS

# The newest Python of this machine has an environment of its own, which gets the newest releases each time. What is
# gigabytes is left out there, and its tests are skipped (`tests/oracles.py`). Of every room, there are tests.
NEWEST       := .venv-newest
NEWEST_BIN   := $(NEWEST)$(BIN:$(VENV)%=%)
NEWEST_PIP   := $(NEWEST_BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --upgrade
LEFT_OUT     := accelerate peft torch transformers
NEWEST_TESTS := $(addprefix tests/,api benchmarks bugs cli/test_app.py cli/test_train.py cli/test_look.py \
	core data engines/cluster/test_collective.py engines/cluster/test_supervise.py cli/test_train_processes.py \
	engines/cpu/test_kernel_cache.py engines/cpu/test_contract.py engines/cpu/test_mkl.py engines/jax generation interpret labs/test_sandbox.py \
	layers engines/mesh models ops plots/test_figures.py progress soak/test_campaign.py proofs/test_gradient.py proofs/test_layer_contract.py \
	runs/test_run.py runs/test_session.py runs/test_provenance.py studies/test_running.py test_edits.py \
	test_no_autograd.py test_oracles.py text training web/routes weights/test_gguf_file.py \
	weights/test_tensors.py)

# Without windows and menus, where there is one.
HAS_BROWSER := for name in chromium-headless-shell chromium chromium-browser google-chrome; do \
	command -v $$name >/dev/null && break; done

BENCHMARKS := $(filter-out benchmarks/_% benchmarks/edits.py,$(wildcard benchmarks/*.py))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-newest browser fuzz check lint lint-page lint-page-now structure docs campaign edits campaign-beside changes-beside edits-beside digests bench clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(BASE) ## Train a small Transformer here and look inside it
	@$(BIN)/glassformer demo

test: $(DEV) $(BESIDE) ## Run every test
	@$(HAS_BROWSER) || echo "There is no chromium, which tests of the explorer's page need. To get it: apt-get install chromium"
	$(BIN)/python -m pytest -n 2 $(ARGS)

test-newest: ## Run tests of every room on the newest Python here, with the newest releases (ARGS: others)
	@python=$${NEWEST_PYTHON:-$$($(PYTHON) .ci/newest_python.py)} && version=$$("$$python" --version) && \
		if [ "$$($(NEWEST_BIN)/python --version 2>/dev/null)" != "$$version" ]; then \
			echo "Creating $(NEWEST) with $$version ..." && rm -rf $(NEWEST) && "$$python" -m venv $(NEWEST); fi
	@echo "Installing glassformer and its test tools, without $(LEFT_OUT), into $(NEWEST) ..."
	@$(NEWEST_PIP) pip
	@$(NEWEST_BIN)/python -c "$$TEST_TOOLS" $(LEFT_OUT) >$(NEWEST)/tools.txt
	@$(NEWEST_PIP) --upgrade-strategy eager --editable . --requirement $(NEWEST)/tools.txt
	GLASSFORMER_LEFT_OUT="$(LEFT_OUT)" $(NEWEST_BIN)/python -m pytest -n 2 $(or $(ARGS),$(NEWEST_TESTS))

browser: ## Install Debian's chromium, as root: the explorer's tests look at its page in a real browser
	@$(HAS_BROWSER) || { \
		echo "Installing Debian's chromium for the tests of the explorer ..."; \
		apt-get update -qq && for name in chromium-headless-shell chromium; do \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$name >/dev/null && break; done; \
		$(HAS_BROWSER); }

fuzz: $(DEV) ## Run the tests that draw examples on many new ones
	$(BIN)/python -m pytest -n 2 -m hypothesis --hypothesis-profile fuzz --timeout 3600 $(ARGS)

check: lint structure ## Lint, check the format, the types and the direction of imports

lint: $(LINT) lint-page ## Lint, check the format and the types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-page: ## The same for the JavaScript of the explorer's page, which needs node and npm
	@if command -v npm >/dev/null && node -e '$(NODE_FITS)' 2>/dev/null; then $(MAKE) --no-print-directory lint-page-now; \
	elif [ "$$GLASSFORMER_REQUIRE_ALL" = 1 ]; then \
		echo "error: the page's JavaScript cannot be checked: $(NODE_WANTED)" >&2; exit 1; \
	else echo "The page's JavaScript is not checked: $(NODE_WANTED)."; fi

lint-page-now: $(PAGE_TOOLS)
	node_modules/.bin/prettier --check --log-level warn $(PAGE_SOURCES)
	node_modules/.bin/eslint --max-warnings 0 src/glassformer/web/page
	node_modules/.bin/tsc

structure: $(DEV) ## Check the direction of imports and the lengths of files
	$(BIN)/python -m pytest -q tests/test_structure.py

docs: $(DOCS) ## Build the documentation as a site, and look at it; pages that have changed run, the others are kept
	@for name in smollm2 minilm; do $(BIN)/glassformer pull $$name >/dev/null; done
	$(BIN)/python -m sphinx -W --keep-going -q -c docs -d build/doctrees . build/docs
	@if $(HAS_BROWSER); then $(BIN)/python docs/check_site.py build/docs $(ARGS); \
		else echo "There is no chromium: the pages are not looked at"; fi
	@echo "Open build/docs/index.html"

campaign: $(DEV) ## Kill, damage, starve and confuse it for 70 minutes (ARGS=--quick: two), and count what is lost
	$(BIN)/python tests/soak/campaign.py $(ARGS)

edits: $(DEV) ## Edit the mathematics, one line at a time, for hours (ARGS=--quick: minutes): all engines must follow
	$(BIN)/python benchmarks/edits.py $(ARGS)

# These run in parallel with the tests, at a lower priority.
campaign-beside: $(DEV)
	$$(command -v nice >/dev/null && echo nice -n 8) $(BIN)/python tests/soak/campaign.py --quick --processes 1

changes-beside: campaign-beside
	$$(command -v nice >/dev/null && echo nice -n 8) $(BIN)/python benchmarks/changes.py --quick --processes 1

edits-beside: changes-beside
	$$(command -v nice >/dev/null && echo nice -n 8) $(BIN)/python benchmarks/edits.py --quick --processes 1

digests: $(BASE) ## Record digests of the sources that all kernels have been compared with
	$(BIN)/python -m glassformer.core.sources

bench: $(DEV) ## Run every script in benchmarks/
ifeq ($(BENCHMARKS),)
	@echo "There are no scripts in benchmarks/ yet."
else
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python "$$script"; done
endif

clean: ## Remove caches and build results; environments and runs stay
	rm -rf build dist htmlcov .coverage .pytest_cache .ruff_cache .mypy_cache .hypothesis src/*.egg-info
	find . \( -path ./$(VENV) -o -path ./$(NEWEST) \) -prune -o -type d -name __pycache__ -exec rm -rf {} +

$(BASE): pyproject.toml | $(BIN)/pip$(EXE)
	@echo "Installing glassformer into $(VENV) ..."
	@$(PIP) --editable .
	@touch $@

$(LINT): pyproject.toml | $(BIN)/pip$(EXE)
	@echo "Installing glassformer and what checks its source into $(VENV) ..."
	@$(PIP) --editable '.[dev]'
	@touch $(BASE) $@

$(PAGE_TOOLS): package.json
	@echo "Installing what checks the page's JavaScript into node_modules ..."
	@npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel error
	@touch $@

$(DOCS): pyproject.toml | $(BIN)/pip$(EXE)
	@echo "Installing glassformer and what builds its documentation into $(VENV) ..."
	@$(PIP) --editable '.[docs]'
	@touch $(BASE) $@

# They come while the package is installed, and are installed while the source is checked: `make --jobs 2 lint test`.
$(FETCHED): pyproject.toml | $(BIN)/pip$(EXE)
	@echo "Fetching its test tools (the first time takes minutes) ..."
	@$(BIN)/python -c "$$TEST_TOOLS" >$(VENV)/tools.txt
	@$(BIN)/python -m pip --disable-pip-version-check download --quiet --dest $(TOOLS) --requirement $(VENV)/tools.txt
	@touch $@

$(DEV): $(LINT) $(FETCHED)
	@echo "Installing its test tools into $(VENV) ..."
	@from=; if [ -d $(TOOLS) ]; then from="--no-index --find-links $(TOOLS)"; fi; \
		$(PIP) $$from --requirement $(VENV)/tools.txt
	@touch $@
	@rm -rf $(TOOLS)

# venv installs pip last, so this file exists only in a complete environment. A new pip takes half of an old one's time.
$(BIN)/pip$(EXE):
	@command -v $(PYTHON) >/dev/null || { \
		echo "error: '$(PYTHON)' was not found" >&2; \
		echo "hint: install Python 3.11 or later, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: Glassformer needs Python 3.11 or later, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1)" >&2; \
		echo "hint: name a later one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "error: '$(PYTHON)' cannot create virtual environments: venv or ensurepip is missing" >&2; \
		echo "hint: on Debian and Ubuntu: apt install python3-venv" >&2; \
		exit 1; }
	@echo "Creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip
