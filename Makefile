# `make demo`: install and compare topologies on real data.  `make check`: formatting, lint, types,
# spelling and links.  `make test`: install and run the tests that are not marked slow.
# `make test-all`: the slow ones, too.  `make docs`: the site, in out/docs.
# `make site BASE=URL`: the site of this version beside those of others, in out/site, with a switcher.
# `make package`: build the wheel, and test it in a new environment, of PYTHON=python3.x.
# `make oldest`: the same with the oldest versions of the dependencies (downloads gigabytes: torch of
# PyPI).
# `make report`: the technical report, in analysis/report; it needs LaTeX with latexmk.
PYTHON ?= python3
DATA ?=
JOBS ?= 2
OUT ?= out/$(if $(DATA),mnist,demo)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
STAMP := $(VENV)/.installed
CORE := $(VENV)/.core-installed
PAGES := README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md CODE_OF_CONDUCT.md $(wildcard docs/*.md docs/*/*.md)

PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

SPHINX := $(BIN)/python -m sphinx --fail-on-warning --keep-going -q -j auto -b html -c docs -d out/docs-doctrees
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' topofl/_version.py)
BASE ?=

.PHONY: demo test test-slow test-all check docs site report package oldest install clean

demo: $(CORE)
	$(BIN)/python -m analysis.convergence_study --out "$(OUT)" $(if $(DATA),--data "$(DATA)")

# Tests start many processes that import topofl: without compiled files each compiles it anew.
test: install
	$(PYTEST) -m "not slow"

test-slow: install
	$(PYTEST) -m slow

test-all: test test-slow

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff format --check --preview $(PAGES)
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/codespell $(PAGES) topofl analysis/*.py analysis/*/*.py paper_figures --skip "*.html,*.js,*.css"
	$(BIN)/md-dead-link-check

package: install
	PYTHON="$(PYTHON)" BIN="$(BIN)" .ci/package

oldest: install
	PYTHON="$(PYTHON)" BIN="$(BIN)" .ci/package constraints-oldest.txt

docs: install
	rm -rf out/docs out/docs-doctrees
	$(SPHINX) . out/docs
	@echo "wrote out/docs/index.html"

# Other versions are folders of out/site that a checkout of them made, or copies of what was published.
site: install
	rm -rf out/docs-doctrees "out/site/$(VERSION)"
	TOPOFL_SITE="$(BASE)" $(SPHINX) . "out/site/$(VERSION)"
	$(BIN)/python docs/_ext/versions.py out/site "$(BASE)"

# The same sources give the same bytes with the same LaTeX.
report: install
	$(BIN)/python -m analysis.report
	mkdir -p out/report
	cd analysis/report && SOURCE_DATE_EPOCH=0 FORCE_SOURCE_DATE=1 latexmk -pdf -interaction=nonstopmode -halt-on-error -outdir=../../out/report report.tex
	cp out/report/report.pdf analysis/report/report.pdf

install: $(STAMP)

# What the library needs, without the packages of its developers.
$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("topofl needs Python 3.11 or later; set PYTHON=python3.x") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $(CORE)

$(STAMP): $(CORE)
	$(PIP) -e ".[dev,docs]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) out build *.egg-info
