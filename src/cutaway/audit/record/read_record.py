"""Reading a record: its sessions, their requests, and whether every line follows from the one before it.

In: a file. Out: ``RecordContent``. What is no record raises; what was changed in one is found and named.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cutaway.audit.record.lines import FIRST_BYTES, FORMAT, BrokenLineError, Line, follow, has_end, read_line
from cutaway.errors import InvalidRequestError, shown

BEHIND_A_REQUEST: Final = ("scores", "token", "end")


@dataclass
class RecordedRequest:
    """One request's lines, in their order."""

    begin: Line
    lines: list[Line] = field(default_factory=list)  # its scores and tokens
    end: Line | None = None  # None where the engine ended before the request
    receipt: Line | None = None

    @property
    def id(self) -> str:
        """Unique within its session."""
        return str(self.begin.content.get("request"))

    @property
    def tokens(self) -> list[Line]:
        """One for each token of each choice."""
        return [each for each in self.lines if each.kind == "token"]


@dataclass
class Session:
    """What one engine has written."""

    header: Line
    by_id: dict[str, RecordedRequest] = field(default_factory=dict)  # in the order in which they began

    @property
    def requests(self) -> list[RecordedRequest]:
        """All of them."""
        return list(self.by_id.values())


@dataclass
class RecordContent:
    """A whole file."""

    path: Path
    sessions: list[Session]
    receipts: list[Line]
    torn: list[int]  # numbers of lines that were not written to their ends
    changed: str | None  # what doesn't follow from the lines before it, the first such thing; None where all does


class _Reader:
    """Follows the chains."""

    def __init__(self, path: Path) -> None:
        self.content = RecordContent(path, [], [], [], None)
        self._running: dict[str, RecordedRequest] = {}
        self._last: dict[str, str] = {}  # the hash of each request's last line
        self._counts: dict[str, dict[int, int]] = {}  # tokens of each choice of each request
        self._link, self._number = "", 0  # of headers and receipts
        self._skipped: int | None = None  # a line that is torn, if a header follows

    def take(self, raw: bytes, number: int) -> None:
        """The next line."""
        try:
            line = read_line(raw, number, self.content.path)
        except BrokenLineError:
            if self._skipped is not None or not self.content.sessions or has_end(raw):
                raise
            self._skipped = number
            return
        if self._skipped is not None:
            if line.kind != "header":  # only the end of a session can be torn
                read_line(raw[:0], self._skipped, self.content.path)
            self.content.torn.append(self._skipped)
            self._skipped = None
        self._sort(line)

    def end(self) -> None:
        """No line is left."""
        if self._skipped is not None:
            self.content.torn.append(self._skipped)

    def _sort(self, line: Line) -> None:
        if line.kind == "header":
            self._begin_session(line)
        elif not self.content.sessions:
            raise _refusal(self.content.path, line, "comes before any header")
        elif line.kind == "begin":
            self._begin_request(line)
        elif line.kind in BEHIND_A_REQUEST:
            self._add(line)
        elif line.kind == "receipt":
            self._add_receipt(line)
        else:
            raise _refusal(self.content.path, line, f"is of an unknown kind, {shown(line.kind)}")

    def _begin_session(self, line: Line) -> None:
        found = line.content.get("format")
        if type(found) is not int or found != FORMAT:
            raise InvalidRequestError(
                f"{self.content.path}: line {line.number} says that its format is {shown(found)}; this program reads "
                f"{FORMAT}. Use the version of Cutaway that wrote it.",
                "record",
            )
        for name, value in (("previous", self._link), ("receipts", self._number)):
            if line.content.get(name) != value:
                self._blame(f"line {line.number}, a header: its {name} is not that of the lines before it")
        self._check(line, self._link)
        self._link = line.hash
        self.content.sessions.append(Session(line))
        self._running, self._last, self._counts = {}, {}, {}

    def _begin_request(self, line: Line) -> None:
        session = self.content.sessions[-1]
        self._check(line, session.header.hash)
        request = RecordedRequest(line)
        if request.id in session.by_id:
            raise _refusal(self.content.path, line, f"begins request {request.id} once more")
        session.by_id[request.id] = self._running[request.id] = request
        self._last[request.id] = line.hash

    def _add(self, line: Line) -> None:
        request_id = str(line.content.get("request"))
        request = self._running.get(request_id)
        if request is None:
            raise _refusal(self.content.path, line, f"is of request {shown(request_id)}, which doesn't run there")
        if line.kind == "token":
            self._check_place(line, request)
        elif line.kind == "scores" and any(each.kind == "scores" for each in request.lines):
            raise _refusal(self.content.path, line, f"has scores of request {shown(request_id)} once more")
        self._check(line, self._last[request_id])
        self._last[request_id] = line.hash
        if line.kind == "end":
            request.end = line
            del self._running[request_id]
        else:
            request.lines.append(line)

    def _check_place(self, line: Line, request: RecordedRequest) -> None:
        """The tokens of a choice come one after the other."""
        choice, token = line.content.get("choice"), line.content.get("token")
        known = self._counts.setdefault(request.id, {})
        if type(choice) is not int or type(token) is not int or token != known.get(choice, 0):
            raise _refusal(self.content.path, line, f"is not the next token of request {request.id}")
        known[choice] = token + 1

    def _add_receipt(self, line: Line) -> None:
        session, request_id = self.content.sessions[-1], str(line.content.get("request"))
        request = session.by_id.get(request_id)
        if request is None or request.receipt is not None or request.end is None:
            raise _refusal(self.content.path, line, "is a receipt of a request that has not ended there, or has one")
        wanted = {
            "root": request.end.hash,
            "header": session.header.hash,
            "previous": self._link,
            "number": self._number + 1,
        }
        for name, value in wanted.items():
            if line.content.get(name) != value:
                self._blame(f"line {line.number}, a receipt: its {name} is not that of the lines before it")
        self._check(line, self._link)
        self._link, self._number = line.hash, self._number + 1
        request.receipt = line
        self.content.receipts.append(line)

    def _check(self, line: Line, previous: str) -> None:
        if follow(previous, line.body) != line.hash:
            self._blame(
                f"line {line.number}, {describe(line)}: its hash doesn't follow from it and the lines before it"
            )

    def _blame(self, what: str) -> None:
        self.content.changed = self.content.changed or what


def read_record(path: str | os.PathLike[str]) -> RecordContent:
    """The file's content. Raises InvalidRequestError where it is no record."""
    place = Path(path)
    try:
        with place.open("rb") as file:
            first = file.read(len(FIRST_BYTES))
            if first and first != FIRST_BYTES:  # told before all of it is read, however long it is
                raise InvalidRequestError(f"{place}: line 1 is no header; the file is no record.", "record")
            raw = first + file.read()
    except InvalidRequestError:
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidRequestError(f"{place} can't be read ({why}). Name a record's file.", "record") from None
    *lines, last = raw.split(b"\n")
    reader = _Reader(place)
    for number, line in enumerate(lines, 1):
        reader.take(line, number)
    reader.end()
    content = reader.content
    if last:
        content.torn.append(len(lines) + 1)
    if not content.sessions:
        raise InvalidRequestError(f"{place} has no header; it is no record, or an empty one.", "record")
    return content


def describe(line: Line) -> str:
    """What a line is of, for a sentence."""
    content: dict[str, Any] = line.content
    if line.kind == "header":
        return "a header"
    where = f"request {content.get('request')}"
    if line.kind != "token":
        return f"{line.kind} of {where}"
    return f"{where}, {token_name(content)}"


def token_name(content: dict[str, Any]) -> str:
    """``choice 0, token 4, step 12``."""
    steps = content.get("steps")
    step = steps[-1][0] if isinstance(steps, list) and steps and isinstance(steps[-1], list) and steps[-1] else "?"
    return f"choice {content.get('choice')}, token {content.get('token')}, step {step}"


def _refusal(path: Path, line: Line, what: str) -> BrokenLineError:
    return BrokenLineError(f"{path}: line {line.number} {what}. The record is damaged.", "record")
