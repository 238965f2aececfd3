"""The routes in, their documentation out: OpenAPI for programs, and a plain page for people that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

Tree = dict[str, Any]


def takes(kind: type[BaseModel], *, form: bool = False) -> Tree:
    """What a route says of its body, for OpenAPI: JSON, and perhaps a form with the same fields."""
    tree = kind.model_json_schema()
    schema = _written_out(tree, tree.get("$defs", {}))
    content = {"application/json": {"schema": schema}}
    if form:
        fields = {name: _plain(field) for name, field in schema["properties"].items()}
        content["application/x-www-form-urlencoded"] = {"schema": {**schema, "properties": fields}}
    return {"requestBody": {"required": True, "content": content}}


def _written_out(tree: Any, known: Mapping[str, Any]) -> Any:
    """The same schema with every reference replaced by what it refers to."""
    if isinstance(tree, dict):
        if "$ref" in tree:
            return _written_out(known[tree["$ref"].rpartition("/")[2]], known)
        return {name: _written_out(value, known) for name, value in tree.items() if name != "$defs"}
    return [_written_out(value, known) for value in tree] if isinstance(tree, list) else tree


def _plain(field: Tree) -> Tree:
    """A field as a form can send it: one value, never null, never several."""
    several = [one for one in field.get("anyOf", []) if one.get("type") not in ("null", "array")]
    rest = {name: value for name, value in field.items() if name not in ("anyOf", "default")}
    return {**rest, **several[0]} if several else rest


def documentation(tree: Tree, style: str) -> str:
    """OpenAPI as a page: every route with its fields, its answers, and a line to try it with."""
    operations = [(path, method, one) for path, methods in tree["paths"].items() for method, one in methods.items()]
    tags = dict.fromkeys(tag for _, _, one in operations for tag in one.get("tags", ["Pages"]))
    sections = []
    for tag in tags:
        ours = [entry for entry in operations if tag in entry[2].get("tags", ["Pages"])]
        sections.append(f"<h2>{_safe(tag)}</h2>" + "".join(_operation(*entry, tree) for entry in ours))
    info = tree["info"]
    return _PAGE.format(
        title=_safe(info["title"]), version=_safe(info["version"]), about=_safe(info.get("description", "")),
        style=style, sections="\n".join(sections),
    )  # fmt: skip


def _operation(path: str, method: str, one: Tree, tree: Tree) -> str:
    content = one.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema")
    body = _fields(schema) if schema else ""
    kinds = f"<p class=kinds>{_safe(' or '.join(content))}</p>" if len(content) > 1 else ""
    answers = "".join(
        f"<li><b>{_safe(status)}</b> {_safe(answer.get('description', ''))}{_named(answer)}</li>"
        for status, answer in sorted(one.get("responses", {}).items())
    )
    return (
        f"<section><h3><span class={_safe(method)}>{_safe(method.upper())}</span> {_safe(path)}</h3>"
        f"<p>{_safe(one.get('description', ''))}</p>{kinds}{body}"
        f"<pre>{_safe(_example(path, method, schema))}</pre>"
        f"<details><summary>Answers</summary><ul>{answers}</ul>{_answer_fields(one, tree)}</details></section>"
    )


def _answer_fields(one: Tree, tree: Tree) -> str:
    content = one.get("responses", {}).get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = (content.get("$ref") or content.get("items", {}).get("$ref") or "").rpartition("/")[2]
    schema = tree.get("components", {}).get("schemas", {}).get(name)
    return _fields(schema) if schema else ""


def _named(answer: Tree) -> str:
    kinds = [kind for kind in answer.get("content", {}) if kind != "application/json"]
    return f" ({_safe(', '.join(kinds))})" if kinds else ""


def _fields(schema: Tree) -> str:
    needed = schema.get("required", [])
    rows = "".join(
        f"<tr><td><code>{_safe(name)}</code>{' *' if name in needed else ''}</td><td>{_safe(_type(field))}</td>"
        f"<td>{_safe(field.get('description', ''))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    return f"<table><tbody>{rows}</tbody></table>" if rows else ""


def _type(field: Tree) -> str:
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(one) for one in field["anyOf"] if one.get("type") != "null"))
    if "enum" in field:
        return " or ".join(json.dumps(value) for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    ends = (("minimum", "≥"), ("maximum", "≤"))
    bounds = [f"{sign} {field[name]:g}" for name, sign in ends if abs(field.get(name, 1e9)) < 1e9]
    return " ".join([str(field.get("type", field.get("const", "anything"))), *bounds])


EXAMPLES: dict[str, Tree] = {
    "/translate": {"q": "dreiundzwanzig", "source": "auto", "target": "en"},
    "/detect": {"q": "Wo ist der Bahnhof, bitte?"},
    "/v1/completions": {"model": "MODEL", "prompt": "To be, or not to be", "max_tokens": 32},
    "/classify": {"text": "What a wonderful film."},
    "/attention": {"text": "dreiundzwanzig"},
}
"""A body to try each route with."""


def _example(path: str, method: str, schema: Tree | None) -> str:
    address = f"http://localhost:8000{path}".replace("{model}", "MODEL")
    if method == "get":
        return f"curl {address}"
    if schema is None:
        return f"curl -X {method.upper()} {address}"
    body = json.dumps(EXAMPLES.get(path, {}), ensure_ascii=False)
    return f"curl {address} -H 'Content-Type: application/json' -d '{body}'"


def _safe(text: Any) -> str:
    return html.escape(str(text))


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{style}">
</head>
<body>
<main>
<h1>{title} <small>{version}</small></h1>
<p>{about} For programs: <a href="openapi.json">openapi.json</a>. The page: <a href="./">/</a>.</p>
{sections}
</main>
</body>
</html>
"""
