"""A request in, its fields out, from JSON or a form; whatever is wrong with it is a refusal, never an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect

from clearhead.errors import did_you_mean
from clearhead.serve.refusals import Refusal, invalid

Body = TypeVar("Body", bound=BaseModel)
Fields = dict[str, Any]

FORM = "application/x-www-form-urlencoded"
FORM_IN_PARTS = "multipart/form-data"
MOST_FIELDS = 100


class ClientGone(Exception):
    """There is nobody to answer any more."""


def media_type(request: Request) -> str:
    """What the body is said to be, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Whether a media type is one of JSON's."""
    return media == "application/json" or (media.startswith("application/") and media.endswith("+json"))


def parse_json(body: bytes) -> Fields:
    """An object, or a refusal in LibreTranslate's words."""
    try:
        tree = from_json(body, allow_inf_nan=False)
    except (ValueError, RecursionError):
        raise invalid("Invalid JSON format") from None
    if not isinstance(tree, dict):
        raise invalid("Invalid JSON format")
    return tree


async def read_json(request: Request) -> Fields:
    """The fields of a request that must be JSON."""
    if not is_json(media_type(request)):
        raise Refusal(415, "send JSON: Content-Type must be application/json")
    return parse_json(await body_of(request))


async def read_fields(request: Request) -> Fields:
    """The fields of a request that may be JSON or a form, or stand in its address, as LibreTranslate takes them."""
    media = media_type(request)
    if is_json(media):
        return parse_json(await body_of(request))
    fields: Fields = dict(_pairs(request.scope["query_string"], "address"))
    if media == FORM:
        fields.update(reversed(_pairs(await body_of(request), "form")))
    elif media == FORM_IN_PARTS:
        fields.update(reversed(await _parts(request)))
    return fields


def _pairs(content: bytes, where: str) -> list[tuple[str, str]]:
    """Names and values as they stand in an address, or in a form that is written like one."""
    with _readable(where):
        return parse_qsl(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)


async def _parts(request: Request) -> list[tuple[str, Any]]:
    """Names and values of a form whose fields are parts by themselves."""
    with _readable("form"):
        # Starlette would take any other encoding for Latin-1.
        (await body_of(request)).decode()
        form = await request.form(max_files=0, max_fields=MOST_FIELDS, max_part_size=2**31)
    return form.multi_items()


@contextmanager
def _readable(where: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise invalid(f"Invalid request: the {where} is not UTF-8") from None
    except (HTTPException, MultiPartException, ValueError, AssertionError):
        raise invalid(f"Invalid request: the {where} cannot be read") from None


async def body_of(request: Request) -> bytes:
    """The body, or ClientGone if its sender hung up."""
    try:
        return await request.body()
    except ClientDisconnect:
        raise ClientGone from None


def checked(kind: type[Body], fields: Fields) -> Body:
    """Fields as what they should be, or a refusal that names the first that is not; values are never repeated."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise _complaint(kind, dict(problem)) from None


def _complaint(kind: type[BaseModel], problem: dict[str, Any]) -> Refusal:
    where = [str(part) for part in problem["loc"]]
    name = where[0][:100] if where else None
    if problem["type"] == "extra_forbidden" and name is not None:
        shown = name.encode("utf-8", "replace").decode()
        return invalid(
            f"Unrecognized request argument supplied: {shown} ({did_you_mean(shown, kind.model_fields)})", shown
        )
    if problem["type"] == "missing":
        return invalid(f"you must provide a {name} parameter", name, "missing_required_parameter")
    reason = str(problem["msg"]).removeprefix("Value error, ")
    code = "invalid_type" if problem["type"].endswith("_type") else "invalid_value"
    return invalid(f"Invalid '{name}': {reason}" if name else reason, name, code)
