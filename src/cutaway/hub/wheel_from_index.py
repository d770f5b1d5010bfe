"""A wheel straight from a package index, for environments without pip (such as those that uv makes).

A project and version go in, the path of the downloaded wheel comes out. The index speaks the simple
repository API: HTML (PEP 503) or JSON (PEP 691). Proxies come from the usual ``*_proxy`` variables,
certificates from OpenSSL's defaults and ``SSL_CERT_FILE``.
"""

import base64
import hashlib
import http.client
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from http.client import HTTPResponse
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from cutaway import __version__
from cutaway.errors import DownloadError
from cutaway.hub.catalogue import WheelSource
from cutaway.hub.progress import Progress

DEFAULT_INDEX = "https://pypi.org/simple"
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")

_ACCEPT_PAGE = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_PAGE_LIMIT = 32 << 20
_CHUNK = 256 << 10
_SILENCE_SECONDS = 60.0


@dataclass(frozen=True)
class IndexFile:
    """A file that an index page offers; ``sha256`` is None where the page names none."""

    file_name: str
    url: str
    sha256: str | None


def download_wheel_from_index(source: WheelSource, folder: Path, progress: Progress) -> Path:
    """Downloads into ``folder``, the caller's to delete; accepts at most ``source.wheel_bytes`` bytes."""
    page_url = f"{index_url().rstrip('/')}/{_normalised(source.project)}/"
    offered = [file for file in _read_page(page_url) if _is_wheel_of(file.file_name, source)]
    if not offered:
        raise DownloadError(f"{_without_password(page_url)} offers no wheel of {source.requirement}.")
    wheel = folder / "download.whl"
    _download(_signed_in(offered[0], page_url), source.wheel_bytes, wheel, progress)
    return wheel


def index_url() -> str:
    """The index of the first of ``INDEX_VARIABLES`` that is set, else the public one."""
    for variable in INDEX_VARIABLES:
        if chosen := os.environ.get(variable):
            # uv accepts NAME=URL here
            return chosen.partition("=")[2] if re.match(r"[\w.-]+=\w+://", chosen) else chosen
    return DEFAULT_INDEX


def files_in_html(page: str, page_url: str) -> list[IndexFile]:
    """The anchors of a PEP 503 page; addresses may be relative to the page or to its ``<base href>``."""
    parser = _Anchors(page_url)
    try:
        parser.feed(page)
    except AssertionError as error:  # how html.parser rejects a malformed declaration
        raise DownloadError(f"{_without_password(page_url)} is no HTML page ({error}).") from error
    files = []
    for address in parser.addresses:
        url, fragment = urldefrag(address)
        digest = re.search(r"(?:^|&)sha256=([0-9a-fA-F]{64})", fragment)
        file_name = unquote(urlsplit(url).path.rpartition("/")[2])
        files.append(IndexFile(file_name, url, digest.group(1).lower() if digest else None))
    return files


def files_in_json(page: str, page_url: str) -> list[IndexFile]:
    """The files of a PEP 691 page. Their addresses may be relative to the page."""
    try:
        files = []
        for file in json.loads(page)["files"]:
            digest = file.get("hashes", {}).get("sha256")
            url = urldefrag(urljoin(page_url, file["url"])).url
            files.append(IndexFile(str(file["filename"]), url, str(digest).lower() if digest else None))
        return files
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DownloadError(
            f"{_without_password(page_url)} is no index page by PEP 691 ({type(error).__name__}: {error})."
        ) from error


class _Anchors(HTMLParser):
    """Collects the absolute address of every anchor, in the order of the page."""

    def __init__(self, page_url: str) -> None:
        super().__init__()
        self._base = page_url
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href")
        if not address:
            return
        try:
            if tag == "base":
                self._base = urljoin(self._base, address)
            elif tag == "a":
                self.addresses.append(urljoin(self._base, address))
        except ValueError:
            return  # an address that is no URL cannot be the wheel's


def _normalised(project: str) -> str:
    """The project's name as PEP 503 writes it in addresses."""
    return re.sub(r"[-_.]+", "-", project).lower()


def _is_wheel_of(file_name: str, source: WheelSource) -> bool:
    """Whether it is ``{project}-{version}(-{build})-{python}-{abi}-{platform}.whl`` of the source's."""
    parts = file_name.removesuffix(".whl").split("-")
    return (
        file_name.endswith(".whl")
        and len(parts) in (5, 6)
        and _normalised(parts[0]) == _normalised(source.project)
        and parts[1] == source.version
    )


def _read_page(url: str) -> list[IndexFile]:
    with _opened(url, _ACCEPT_PAGE) as response:
        body = response.read(_PAGE_LIMIT + 1)
        page_url, kind = response.geturl(), response.headers.get_content_type()
    if len(body) > _PAGE_LIMIT:
        raise DownloadError(f"{_without_password(url)} exceeds {_PAGE_LIMIT} bytes, too many for a page.")
    text = body.decode("utf-8", errors="replace")
    return files_in_json(text, page_url) if kind.endswith("json") else files_in_html(text, page_url)


def _download(file: IndexFile, size: int, target: Path, progress: Progress) -> None:
    """Writes the file to ``target``; checks its size and, where the index names it, its SHA-256."""
    digest, done = hashlib.sha256(), 0
    with target.open("xb") as output:
        for chunk in _chunks(file.url):
            done += len(chunk)
            if done > size:
                break
            output.write(chunk)
            digest.update(chunk)
            progress("download", done, size)
    where = _without_password(file.url)
    if done > size:
        raise DownloadError(f"{where} is larger than the {size} bytes expected.")
    if done < size:
        raise DownloadError(f"{where} ended after {done} of the {size} bytes expected.")
    if file.sha256 and digest.hexdigest() != file.sha256:
        raise DownloadError(f"{where}: the index promises SHA-256 {file.sha256}, got {digest.hexdigest()}.")


def _chunks(url: str) -> Iterator[bytes]:
    with _opened(url, "*/*") as response:
        while chunk := response.read(_CHUNK):
            yield chunk


@contextmanager
def _opened(url: str, accept: str) -> Iterator[HTTPResponse]:
    """The response to a GET; a failure of the network, here or in the body, becomes a DownloadError."""
    where = _without_password(url)
    try:
        if urlsplit(url).scheme not in ("http", "https"):
            raise DownloadError(f"{where}: without pip, only http and https addresses can be read.")
        with urllib.request.urlopen(_request(url, accept), timeout=_SILENCE_SECONDS) as response:
            yield cast(HTTPResponse, response)
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"{where} answered {error.code} {error.reason}.") from error
    except urllib.error.URLError as error:
        raise DownloadError(
            f"{where} could not be reached: {error.reason}. This machine is offline, or it needs a proxy "
            f"(https_proxy), certificates (SSL_CERT_FILE) or a mirror ({', '.join(INDEX_VARIABLES)})."
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError(f"{where} broke off ({type(error).__name__}: {error}).") from error


def _request(url: str, accept: str) -> urllib.request.Request:
    """A GET request; user and password of the address become Basic authentication, not sent to redirects."""
    parts = urlsplit(url)
    request = urllib.request.Request(_without_password(url))
    request.add_header("Accept", accept)
    request.add_header("User-Agent", f"cutaway/{__version__}")
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(credentials).decode())
    return request


def _signed_in(file: IndexFile, page_url: str) -> IndexFile:
    """The file with the user and password of the index page, if it lies on the same host and port."""
    user, _, host = urlsplit(page_url).netloc.rpartition("@")
    parts = urlsplit(file.url)
    if not user or parts.netloc != host:
        return file
    return replace(file, url=urlunsplit(parts._replace(netloc=f"{user}@{host}")))


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "An address that is no URL"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
