"""Write what catalogs of software read, from pyproject.toml and ``topofl/_version.py``.

``python -m analysis.metadata`` writes CITATION.cff, codemeta.json and .zenodo.json at the top of
the source tree, the conda recipe in .ci/conda, and the references of docs/paper/paper.md, a paper
about the software: works of ``topofl/references.bib`` that it cites, and docs/paper/software.bib. A
test compares them with what it would write, so change name, version, description, authors, license,
dependencies and keywords in pyproject.toml and ``topofl/_version.py`` only.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files as files_of
from pathlib import Path
from typing import Any

import topofl

from .program import parser_of

HERE = Path(__file__).resolve().parents[1]

PAPER = HERE / "docs" / "paper"

REPORT = {
    "type": "report",
    "title": "Heterogeneity over several hops: a number known before training that ranks graphs "
    "for decentralized SGD",
    "authors": [{"name": "The topofl developers"}],
    "year": 2026,
    "notes": "analysis/report/report.pdf in the source tree",
}
"""The report that CITATION.cff refers to."""


def project() -> Mapping[str, Any]:
    """Return the table ``[project]`` of pyproject.toml, with the version and a title."""
    found = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]
    subject = found["description"].partition(":")[0]
    title = f"{found['name']}: {subject[0].lower()}{subject[1:]}"
    return {**found, "version": topofl.__version__, "title": title}


def files() -> dict[str, str]:
    """Return the texts of the files, by name."""
    about = project()
    return {
        "CITATION.cff": _citation(about),
        "codemeta.json": _as_json(_codemeta(about)),
        ".zenodo.json": _as_json(_zenodo(about)),
        ".ci/conda/recipe.yaml": _as_json(_recipe(about)),
        "docs/paper/paper.bib": _bibliography(),
    }


def cited() -> set[str]:
    """Return the keys of the works that the paper cites."""
    return set(re.findall(r"@(\w+)", (PAPER / "paper.md").read_text("utf-8")))


def _bibliography() -> str:
    """Return the references of the paper: those of methods and graphs, then those of software."""
    keys = cited()
    text = files_of("topofl").joinpath("references.bib").read_text("utf-8")
    every = re.findall(r"^@.*?^}$", text, re.DOTALL | re.MULTILINE)
    works = [work for work in every if re.findall(r"\{(\w+),", work)[0] in keys]
    return "\n\n".join([*works, (PAPER / "software.bib").read_text("utf-8")])


def _as_json(values: Mapping[str, Any]) -> str:
    return f"{json.dumps(values, indent=2, ensure_ascii=False)}\n"


def _citation(about: Mapping[str, Any]) -> str:
    """Return CITATION.cff: values in JSON, which is YAML, too."""
    values = {
        "cff-version": "1.2.0",
        "message": "If you use topofl, please cite it as below, and the papers of the methods and "
        "graphs that you use; topofl.citations(history) returns their BibTeX entries.",
        "title": about["title"],
        "type": "software",
        "authors": [{"name": author["name"]} for author in about["authors"]],
        "version": about["version"],
        "license": about["license"],
        "abstract": f"{about['description']}.",
        "keywords": about["keywords"],
        "references": [REPORT],
    }
    return "".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items()
    )


def _codemeta(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return codemeta.json; see codemeta.github.io/terms."""
    python = about["requires-python"]
    return {
        "@context": "https://w3id.org/codemeta/3.0",
        "@type": "SoftwareSourceCode",
        "name": about["name"],
        "version": about["version"],
        "description": f"{about['description']}.",
        "author": [{"@type": "Organization", "name": one["name"]} for one in about["authors"]],
        "license": f"https://spdx.org/licenses/{about['license']}",
        "keywords": about["keywords"],
        "programmingLanguage": {"@type": "ComputerLanguage", "name": "Python"},
        "runtimePlatform": f"Python {python}",
        "softwareRequirements": about["dependencies"],
        "readme": "README.md",
        "developmentStatus": "active",
    }


def _zenodo(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return .zenodo.json; see developers.zenodo.org."""
    return {
        "title": about["title"],
        "description": f"{about['description']}.",
        "upload_type": "software",
        "version": about["version"],
        "license": about["license"],
        "creators": [{"name": author["name"]} for author in about["authors"]],
        "keywords": about["keywords"],
    }


CONDA = {
    "torch": "pytorch",
    "torch-geometric": "pytorch_geometric",
    "matplotlib": "matplotlib-base",
}
"""Names of dependencies on conda-forge, where they differ."""


def _recipe(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe of rattler-build, in JSON, which is YAML, too: rattler-build.org."""
    python = f"python {about['requires-python']}"
    needs = [re.fullmatch(r"([\w-]+)(.*)", one) for one in about["dependencies"]]
    run = [f"{CONDA.get(one[1], one[1])} {one[2]}" for one in needs if one]
    install = "${{ PYTHON }} -m pip install . --no-deps --no-build-isolation -vv"
    return {
        "schema_version": 1,
        "package": {"name": about["name"], "version": about["version"]},
        "source": {"path": "../.."},
        "build": {
            "noarch": "python",
            "script": install,
            "python": {"entry_points": [f"{name} = {f}" for name, f in about["scripts"].items()]},
        },
        "requirements": {"host": [python, "pip", "setuptools >=77"], "run": [python, *run]},
        "tests": [
            {"python": {"imports": [about["name"]], "pip_check": False}},
            {"script": [f"{about['name']} doctor"]},
        ],
        "about": {
            "summary": about["description"],
            "license": about["license"],
            "license_file": about["license-files"][0],
        },
    }


def main() -> None:
    """Write the files."""
    parser = parser_of("metadata", __doc__)
    parser.parse_args()
    if not (HERE / "pyproject.toml").is_file():
        parser.error(f"there is no pyproject.toml in {HERE}; run it in a checkout")
    for name, text in files().items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_text(text, "utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
