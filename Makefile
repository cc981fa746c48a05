# Everything runs in .venv, made from a bare checkout with nothing but python3 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
JOBS   ?= auto
export OMP_NUM_THREADS ?= 1

# Rooms below training and serving, and what all stand on.
QUICK := files hardware workloads catalog economics confidence cost simulation calibration estimation \
  test_arguments.py test_frozen.py test_result.py test_units.py

.PHONY: demo test quick mutants laws fuzz check bench validate examples wheel wheel-check docs format clean help

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

# torch is pinned and comes first: an unpinned requirement would bring its CUDA build with several gigabytes.
$(VENV)/.dev: $(VENV)/.core
	$(PIP) 'torch==2.13.0'
	$(PIP) --editable '.[dev]'
	@touch $@

## make demo         compare three models on devices of all four classes
demo: $(VENV)/.core
	$(BIN)/accelsim demo

## make test         run the tests (installs torch for CPU and the test tools first)
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

## make quick        tests of the rooms below training, without torch, processes and walks through the catalogue (three minutes of one core)
quick: $(VENV)/.dev
	QUICK=1 $(BIN)/python -m pytest -n 0 -q -m 'not torch and not long' $(addprefix tests/,$(QUICK))

## make mutants      put 15 small faults each into three modules; their own tests must notice four in five
mutants: $(VENV)/.dev
	$(BIN)/python -m tools.mutants

## make laws         the properties that hold for any input, on 10,000 cases each
laws: $(VENV)/.dev
	HYPOTHESIS_PROFILE=laws $(BIN)/python -m pytest -n $(JOBS) -m law

## make fuzz         damaged inputs of every kind for an hour (SECONDS per kind): used or refused, never another error
fuzz: $(VENV)/.dev
	FUZZ_SECONDS=$(or $(SECONDS),75) FUZZ_SEED=$(or $(SEED),1) $(BIN)/python -m pytest -n 0 -q tests/fuzz

## make check        lint, types, layer contracts, docs
check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory docs

## make bench        benchmarks: simulator, cost models, command line
bench: $(VENV)/.dev
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

## make validate     score predictions on the tables that ship, and on those of DATA=folder; fails if worse than reported
validate: $(VENV)/.dev
	$(BIN)/python -m tools.scoreboard --check
	$(if $(DATA),$(BIN)/python -m tools.scoreboard --check --data $(DATA))

## make docs         build the documentation into site/
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file docs/mkdocs/mkdocs.yml

## make examples     store what examples, quick start and tutorials print now where it differs (look at it before you commit)
examples: $(VENV)/.dev
	$(BIN)/python -m tools.documented examples/*.py docs/*.md docs/tutorials/*.md

## make wheel        build the wheel into dist/
wheel: $(VENV)/.dev
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

## make wheel-check  install the wheel with the lowest dependencies, and under a newer Python; run the README's jobs from another folder
wheel-check: wheel
	PYTHON=$(PYTHON) VENV=$(VENV) .ci/supported

## make format       format the code
format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .make build dist site
