"""The documents tell the truth: every module is in the tree, both languages agree, every link leads somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clearhead.inspection.page import FORMAT, VERSION

ROOT = Path(__file__).parents[1]
READMES = ("README.md", "README.zh-CN.md")


def code_blocks(name: str) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def tree_of(name: str) -> str:
    return next(block for block in code_blocks(name) if block.startswith("src/clearhead/"))


@pytest.mark.parametrize("readme", READMES)
def test_the_tree_names_every_module(readme: str) -> None:
    package = ROOT / "src" / "clearhead"
    obvious = {"__init__.py", "__main__.py", "version.py"}
    modules = [path for path in package.rglob("*.py") if path.name not in obvious]
    listed = set(re.findall(r"[\w/-]+\.(?:py|toml)", tree_of(readme)))
    assert [str(path.relative_to(package)) for path in modules if path.name not in listed] == []
    present = {path.name for path in package.rglob("*.*")}
    assert listed - present == set()


def test_both_readmes_show_the_same_commands() -> None:
    english, chinese = ([b for b in code_blocks(name) if "clearhead" in b and "src/" not in b] for name in READMES)
    assert [re.sub(r" *#.*", "", block) for block in english] == [re.sub(r" *#.*", "", block) for block in chinese]


def test_the_first_two_commands_are_demo_and_test() -> None:
    for readme in READMES:
        commands = [line.split("#")[0].strip() for block in code_blocks(readme) for line in block.splitlines() if line]
        assert commands[:2] == ["make demo", "make test"]


@pytest.mark.parametrize(
    "document", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/inspect.md", "docs/inspect.ipynb", *READMES]
)
def test_every_link_leads_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / document).parent.joinpath(link).exists()] == []


def test_the_example_page_is_whole_and_needs_no_network() -> None:
    page = (ROOT / "docs" / "example.html").read_text(encoding="utf-8")
    carried = re.search(r'<script type="application/json" id="view">(.*?)</script>', page, re.DOTALL)
    assert carried is not None and len(page) < 1_000_000
    view = json.loads(carried[1])
    assert (view["format"], view["version"]) == (FORMAT, VERSION) and view["generation"]["tree"]
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", page)) - {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/XML/1998/namespace",
    }
    assert addresses == set(), "names of XML are all that look like an address"


def test_every_table_named_in_contributing_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    tables = set(re.findall(r"`([A-Z_]{5,})`", text)) - {"CLEARHEAD_DATA"}
    assert [table for table in tables if not re.search(rf"^{table}\b.*[:=]", source, re.MULTILINE)] == []
