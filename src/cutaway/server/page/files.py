"""The pages for a browser: the chat at ``/``, the map of blocks at ``/map``, and the few files that they are made of.

In: a path. Out: the file, with headers that let the page load and run nothing but these files. A page has no data of
its own: what it shows it asks for by the other routes, with the key of whoever looks.
"""

from collections.abc import Mapping
from hashlib import blake2b
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.route import Route

PAGES: Final[Mapping[str, str]] = MappingProxyType({"/": "chat.html", "/map": "map.html"})
FOLDER: Final = "/page/"
"""Under which the other files are."""

TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".html": "text/html; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # a text can't become HTML, not even by mistake
        "trusted-types 'none'",
    )
)
HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",  # keep it, and ask whether it has changed
    }
)


class StaticFile(NamedTuple):
    """What is sent for a path."""

    content: bytes
    media_type: str
    tag: str  # another one as soon as the content is


def read_files() -> dict[str, StaticFile]:
    """Path → file, of all that the pages need."""
    found = {}
    names = {name: path for path, name in PAGES.items()}
    for entry in files("cutaway.server.page").joinpath("static").iterdir():
        _, dot, ending = entry.name.rpartition(".")
        content = entry.read_bytes()
        tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
        found[names.get(entry.name, FOLDER + entry.name)] = StaticFile(content, TYPES[dot + ending], tag)
    return found


FILES: Final[Mapping[str, StaticFile]] = MappingProxyType(read_files())

router = APIRouter(include_in_schema=False, route_class=Route)


async def answer_file(request: Request) -> Response:
    """The file; or 304, where the browser has it already."""
    found = FILES[request.scope["path"]]
    headers = {**HEADERS, "ETag": found.tag}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if found.tag in known or "*" in known:
        return Response(None, 304, headers)
    return Response(found.content, 200, {**headers, "Content-Type": found.media_type})


for each in FILES:
    router.add_api_route(each, answer_file, methods=["GET", "HEAD"])
