"""The primer is a book: every form is listed, names the next, builds only on earlier ones, and shows worked numbers."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
from itertools import pairwise
from pathlib import Path

import pytest

from clearhead import primer
from clearhead.primer import READING_ORDER

FOLDER = Path(primer.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"
GUIDES = ("primer.md", "primer.zh-CN.md")

every_form = pytest.mark.parametrize("name", READING_ORDER)


def imported(name: str) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
    return modules


def test_every_form_is_in_the_reading_order() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert sorted(READING_ORDER) == sorted(files)


def test_the_package_lists_the_forms_in_order() -> None:
    assert tuple(re.findall(r"^\d\. `(\w+)`", primer.__doc__ or "", re.MULTILINE)) == READING_ORDER


@pytest.mark.parametrize(("name", "following"), list(pairwise(READING_ORDER)))
def test_each_form_names_the_next(name: str, following: str) -> None:
    assert f"Next: `{following}`" in (importlib.import_module(f"clearhead.primer.{name}").__doc__ or "")


@every_form
def test_a_form_needs_only_torch_and_earlier_forms(name: str) -> None:
    earlier = {f"clearhead.primer.{form}" for form in READING_ORDER[: READING_ORDER.index(name)]}
    assert imported(name) <= {"__future__", "math", "torch", "jaxtyping"} | earlier


@every_form
def test_a_form_shows_worked_numbers(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert any(example.want for example in doctest.DocTestParser().get_examples(text))


@every_form
def test_a_form_fits_on_a_page(name: str) -> None:
    assert len((FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 85


@pytest.mark.parametrize("guide", GUIDES)
def test_the_guide_has_one_row_per_form_in_order(guide: str) -> None:
    text = (DOCS / guide).read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| \d .*?primer/(\w+)\.py\)", text, re.MULTILINE)) == READING_ORDER


@pytest.mark.parametrize("guide", GUIDES)
def test_every_name_in_the_guide_exists(guide: str) -> None:
    text = (DOCS / guide).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:clearhead|torch)\.[\w.]+)`", text))
    assert len(named) > 5
    for name in named:
        assert pkgutil.resolve_name(name) is not None


@pytest.mark.parametrize("guide", GUIDES)
def test_every_link_in_the_guide_leads_somewhere(guide: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (DOCS / guide).read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (DOCS / link).exists()] == []
