# `make demo`: install and compare topologies on real data.  `make test`: install and run the suite.
PYTHON ?= python3
DATA ?=
JOBS ?= 2
OUT ?= out/$(if $(DATA),mnist,demo)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check install clean

demo: install
	$(BIN)/python -m analysis.convergence_study --out "$(OUT)" $(if $(DATA),--data "$(DATA)")

test: install
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("topofl needs Python 3.11 or later; set PYTHON=python3.x") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) out build *.egg-info
