"""Reading a record: its sessions, their requests, and whether every line follows from the one before it.

In: a file, which is read line by line. Out: ``RecordContent``, an index. What is no record raises; what was changed in
one is found and named.
"""

import os
from pathlib import Path
from typing import Any, Final

from cutaway.audit.record.lines import FORMAT, BrokenLineError, Line, follow, has_end, read_line
from cutaway.audit.record.recorded import LineFile, RecordContent, RequestIndex, Session
from cutaway.errors import InvalidRequestError, shown

BEHIND_A_REQUEST: Final = ("scores", "token", "end")


class _Reader:
    """Follows the chains."""

    def __init__(self, file: LineFile) -> None:
        self.content = RecordContent(file.path)
        self._file = file
        self._link, self._number = "", 0  # of headers and receipts
        self._skipped: tuple[int, BrokenLineError] | None = None  # a line that is torn, if a header follows

    def take(self, place: int, raw: bytes, number: int) -> None:
        """The next line, without its end."""
        try:
            line = read_line(raw, number, self.content.path)
        except BrokenLineError as error:
            if self._skipped is not None:
                raise self._skipped[1] from None
            if not self.content.sessions or has_end(raw):
                raise
            self._skipped = number, error
            return
        if self._skipped is not None:
            if line.kind != "header":  # only the end of a session can be torn
                raise self._skipped[1]
            self.content.torn.append(self._skipped[0])
            self._skipped = None
        self._sort(place, raw, line)

    def end(self) -> None:
        """No line is left."""
        if self._skipped is not None:
            self.content.torn.append(self._skipped[0])

    def _sort(self, place: int, raw: bytes, line: Line) -> None:
        if line.kind == "header":
            self._begin_session(line)
        elif not self.content.sessions:
            raise _refusal(self.content.path, line, "comes before any header")
        elif line.kind == "begin":
            self._begin_request(place, line)
        elif line.kind in BEHIND_A_REQUEST:
            self._add(place, line)
        elif line.kind == "receipt":
            self._add_receipt(raw, line)
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

    def _begin_request(self, place: int, line: Line) -> None:
        session, request_id = self.content.sessions[-1], str(line.content.get("request"))
        self._check(line, session.header.hash)
        if request_id in session.by_id:
            raise _refusal(self.content.path, line, f"begins request {request_id} once more")
        params = line.content.get("params")
        has_form = isinstance(params, dict) and params.get("structured_outputs") is not None
        request = RequestIndex(self._file, session.header.hash, request_id, has_form)
        request.add(place, line)
        session.by_id[request_id] = request

    def _add(self, place: int, line: Line) -> None:
        request_id = str(line.content.get("request"))
        request = self.content.sessions[-1].by_id.get(request_id)
        if request is None or request.has_end:
            raise _refusal(self.content.path, line, f"is of request {shown(request_id)}, which doesn't run there")
        if line.kind == "token":
            self._count(line, request)
        elif line.kind == "scores":
            if request.has_scores:
                raise _refusal(self.content.path, line, f"has scores of request {shown(request_id)} once more")
            request.has_scores = True
        else:
            time, reason = line.content.get("time"), line.content.get("reason")
            request.has_end = True
            request.time, request.reason = (each if isinstance(each, str) else None for each in (time, reason))
        self._check(line, request.last)
        request.add(place, line)

    def _count(self, line: Line, request: RequestIndex) -> None:
        """The tokens of a choice come one after the other."""
        choice, token = line.content.get("choice"), line.content.get("token")
        if type(choice) is not int or type(token) is not int or token != request.lengths.get(choice, 0):
            raise _refusal(self.content.path, line, f"is not the next token of request {request.id}")
        request.lengths[choice] = token + 1

    def _add_receipt(self, raw: bytes, line: Line) -> None:
        session, request_id = self.content.sessions[-1], str(line.content.get("request"))
        request = session.by_id.get(request_id)
        if request is None or request.has_receipt or not request.has_end:
            raise _refusal(self.content.path, line, "is a receipt of a request that has not ended there, or has one")
        wanted = {
            "root": request.last,
            "header": session.header.hash,
            "previous": self._link,
            "number": self._number + 1,
        }
        for name, value in wanted.items():
            if line.content.get(name) != value:
                self._blame(f"line {line.number}, a receipt: its {name} is not that of the lines before it")
        self._check(line, self._link)
        self._link, self._number = line.hash, self._number + 1
        request.has_receipt = True
        self.content.raw_receipts.append((line.number, raw))

    def _check(self, line: Line, previous: str) -> None:
        if follow(previous, line.body) != line.hash:
            self._blame(
                f"line {line.number}, {describe(line)}: its hash doesn't follow from it and the lines before it"
            )

    def _blame(self, what: str) -> None:
        self.content.changed = self.content.changed or what


def read_record(path: str | os.PathLike[str]) -> RecordContent:
    """The file's content. Raises InvalidRequestError where it is no record."""
    file = LineFile(path)
    reader = _Reader(file)
    content, torn = reader.content, 0
    for number, (place, raw) in enumerate(file.lines(), 1):
        if raw.endswith(b"\n"):
            reader.take(place, raw[:-1], number)
        else:
            torn = number
    reader.end()
    if torn:
        content.torn.append(torn)
    if not content.sessions:
        raise InvalidRequestError(f"{file.path} has no header; it is no record, or an empty one.", "record")
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
