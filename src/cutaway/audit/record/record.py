"""``Record``: what an ``LLM`` is given so that it writes down every request.

In: a file's name and a level. Out: the file (docs/record.md), and a receipt for each request.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cutaway.audit.record.digests import Told, model_digests
from cutaway.audit.record.levels import TENSORS, TOKENS, check_level
from cutaway.audit.record.lines import bind
from cutaway.audit.record.receipts import receipt_content, summary_of
from cutaway.audit.record.record_file import RecordFile
from cutaway.audit.record.recorder import Recorder
from cutaway.audit.record.session import header
from cutaway.audit.record.signatures import Signer, read_signer
from cutaway.audit.record.tensor_files import TensorFiles
from cutaway.engine.llm import LLM
from cutaway.errors import InvalidRequestError


class RecordSink:
    """Takes the lines of requests into a file; each request's are a chain of their own, from the header on."""

    def __init__(
        self, file: RecordFile, signer: Signer | None, told: Told | None, opened: Callable[[str], object]
    ) -> None:
        """told: is told how much of the model was read for its digest. opened: is given the header's hash."""
        self._file, self._signer, self._told, self._opened = file, signer, told, opened
        self._header = ""
        self._last: dict[str, str] = {}  # the hash of each request's last line
        self._added: list[bytes] = []  # lines that are to be written

    @property
    def error(self) -> str | None:
        """Why nothing is written any more."""
        return self._file.error

    def attach(self, llm: LLM, level: str) -> None:
        """Write the header."""
        if self._header:
            raise InvalidRequestError("this record belongs to another LLM. Make one for each.", "record")
        digests = model_digests(llm.model.path, self._told)
        content = header(llm, digests, level, self._file.link.number)
        if self._signer is not None:
            content["signatures"] = self._signer.describe()
        self._header = self._file.begin(content)
        self._opened(self._header)

    def begin(self, request_id: str, content: Mapping[str, Any]) -> None:
        """The first line of a request."""
        self._last[request_id] = self._file.add(content, self._header, f"request {request_id}")

    def add(self, request_id: str, body: str) -> None:
        """A further one, bound to the request's last."""
        line, self._last[request_id] = bind(body, self._last[request_id])
        self._added.append(line)

    def flush(self) -> bool:
        """Write what was added, by one call."""
        if self._added:
            lines, self._added = self._added, []
            self._file.write(lines, lambda number: _name(lines[number]))
        return self._file.error is None

    def end(self, request_id: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The last one, and the receipt."""
        what = f"the end of request {request_id}"
        root = self._file.add(content, self._last.pop(request_id), what)
        receipt = receipt_content(self._file.link, request_id, root, self._header, self._signer)
        found = self._file.add_receipt(receipt, f"the receipt of request {request_id}")
        return {"error": self.error} if self.error is not None else summary_of(receipt, found)

    def fail(self, error: BaseException) -> None:
        """Nothing is written any more."""
        self._added.clear()
        self._file.stop(f"ended by an error ({type(error).__name__}: {error})")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _name(line: bytes) -> str:
    """What a line is called in errors."""
    content = json.loads(line)
    return f"request {content['request']}, {content['kind']} {content.get('token', '')}".rstrip()


class Record(Recorder):
    """``LLM("smollm2", record=Record("answers.jsonl"))``: one record for one ``LLM``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        level: str = TOKENS,
        *,
        key: str | os.PathLike[str] | None = None,
        told: Told | None = None,
    ) -> None:
        """path: a file, added to if it is a record. level: "tokens", "operations" or "tensors". key: a file with a key
        by which receipts are signed: an Ed25519 key in PEM, or any other bytes for HMAC. told: is told how much of the
        model was read for its digest.

        Raises InvalidRequestError where the file can't be written, or is no record, and for a key that can't sign.
        """
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise InvalidRequestError(f"the record is {path!r}; it must be a file's name.", "record")
        check_level(level)
        signer = None if key is None else read_signer(Path(key), signs=True)
        self.path = Path(path)
        rows = TensorFiles(self.path) if level == TENSORS else None
        file = RecordFile(self.path)
        super().__init__(RecordSink(file, signer, told, (lambda _: None) if rows is None else rows.open), level, rows)
