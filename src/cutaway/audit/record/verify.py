"""Verifying a record: that no line was changed, that the model is the one, and that a replay finds the same bits.

In: a record's file, and a model. Out: a verdict. No network and no server is needed, and any machine will do.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cutaway.audit.record.digests import ModelDigests, Told, model_digests, text_digest
from cutaway.audit.record.levels import OPERATIONS, TENSORS, TOKENS, check_level
from cutaway.audit.record.operations import Operations
from cutaway.audit.record.read_record import read_record
from cutaway.audit.record.recorded import RecordContent, RecordedRequest, Session
from cutaway.audit.record.recorder import Recorder
from cutaway.audit.record.replay import CollectedLines, Difference, replay
from cutaway.audit.record.session import GRAMMARS, package_version
from cutaway.audit.record.tensor_compare import TensorCompare
from cutaway.engine.llm import LLM
from cutaway.errors import CutawayError, InvalidRequestError, ModelFileError, shown
from cutaway.hub.resolve import resolve
from cutaway.ops.numerics import NUMERICS_VERSION

DIGESTS: Final = ("tensors", "metadata", "tokenizer")
Heard = Callable[[RecordedRequest, Difference | None], object]
"""Is told of each request that was replayed."""


@dataclass
class Verdict:
    """What verifying has found. The same bits: no difference."""

    difference: str | None = None  # the first
    requests: int = 0  # that were replayed with the same bits
    tokens: int = 0  # of them
    notes: list[str] = field(default_factory=list)  # what was not proved, or is missing

    @property
    def same_bits(self) -> bool:
        """Whether all that can be found again was found."""
        return self.difference is None


def verify(
    record: Path | RecordContent,
    model: str | None = None,
    *,
    threads: int | None = None,
    chat_template: str | None = None,
    told: Told | None = None,
    heard: Heard | None = None,
) -> Verdict:
    """Verify a record, a file or what was read of it. model: default, the name that each of its sessions has, if that
    is on this machine: whoever wrote a record has nothing fetched here. chat_template: where the sessions were started
    with another than the model's own. told: of how much of a model was read. heard: of each request.

    Raises InvalidRequestError where the file is no record, or one that this version can't replay.
    """
    content = record if isinstance(record, RecordContent) else read_record(record)
    verdict = Verdict(notes=_notes(content))
    if content.changed is not None:
        verdict.difference = content.changed
        return verdict
    digests: dict[Path, ModelDigests] = {}  # of each model, read once
    loaded: _Loaded | None = None
    try:
        for session in content.sessions:
            setting = _Setting.of(session, model, content.path)
            if setting.path not in digests:
                digests[setting.path] = model_digests(setting.path, told, fresh=True)
            verdict.difference = _other_model(session, setting, digests[setting.path])
            if verdict.difference is not None:
                return verdict
            if loaded is None or loaded.setting != setting:
                if loaded is not None:
                    loaded.close()
                    loaded = None
                loaded = _Loaded(setting, content.path, threads, chat_template)
            template = session.header.content.get("template")
            if template != text_digest(loaded.llm.tokenizer.template):
                verdict.difference = f"line {session.header.number}, a header: template is not the digest of " + (
                    "the template that was named" if chat_template else "the model's own; name another that was used"
                )
                return verdict
            for request in (each.read() for each in session.requests):
                found = loaded.replay(request)
                if heard is not None:
                    heard(request, found)
                if found is not None:
                    verdict.difference = str(found)
                    return verdict
                verdict.requests += 1
                verdict.tokens += len(request.tokens)
    finally:
        if loaded is not None:
            loaded.close()
    return verdict


def _notes(content: RecordContent) -> list[str]:
    notes = [f"line {number} was not written to its end" for number in content.torn]
    own = package_version(GRAMMARS)
    for session in content.sessions:
        made = session.header.content.get("grammars")
        if made != own and any(each.has_form for each in session.requests):
            notes.append(
                f"masks of structured outputs were made by {GRAMMARS} {shown(made)}, and are made by {own!r} here: "
                "another version may allow other tokens"
            )
        for request in session.requests:
            if not request.has_end:
                notes.append(f"request {request.id} has no end: its engine or its record ended first")
            elif not request.has_receipt:
                notes.append(f"request {request.id} has no receipt: its engine or its record ended first")
    return notes


@dataclass(frozen=True)
class _Setting:
    """What an engine must be, so that it can replay a session."""

    model: str
    path: Path  # of the model
    level: str
    context: int
    kv_dtype: str

    @staticmethod
    def of(session: Session, model: str | None, path: Path) -> "_Setting":
        """Raises InvalidRequestError where the header is none that this version can follow."""
        header, where = session.header.content, f"{path}: line {session.header.number}, a header:"
        if type(header.get("numerics")) is not int or header.get("numerics") != NUMERICS_VERSION:
            raise InvalidRequestError(
                f"{where} numerics is {shown(header.get('numerics'))}; this version computes by {NUMERICS_VERSION}, "
                f"with other bits. Cutaway {header.get('engine')} wrote it: verify it with one of the same numerics.",
                "record",
            )
        if type(header.get("context")) is not int:
            raise InvalidRequestError(f"{where} context must be an integer. The record is damaged.", "record")
        name = model if model is not None else header.get("model")
        if not isinstance(name, str) or not isinstance(header.get("kv_dtype"), str):
            raise InvalidRequestError(f"{where} model and kv_dtype must be texts. The record is damaged.", "record")
        level = check_level(header.get("level"))
        place = _path_here(name, where) if model is None else resolve(name).path
        return _Setting(name, place, level, header["context"], header["kv_dtype"])


def _path_here(name: str, where: str) -> Path:
    """Of a model that a record names. Raises ModelFileError where it is not on this machine."""
    try:
        return resolve(name, fetches=False).path
    except CutawayError as error:
        raise ModelFileError(
            f"{where} there is no model {shown(name)} here, and a record has nothing fetched ({error}) Name the model "
            "behind the record: cutaway verify RECORD MODEL."
        ) from error


def _other_model(session: Session, setting: _Setting, digests: ModelDigests) -> str | None:
    """What says that the model is not the one of the session. digests: of the model that is there."""
    for name in DIGESTS:
        recorded, found = session.header.content.get(name), getattr(digests, name)
        if recorded != found:
            where = f"line {session.header.number}, a header"
            return f"{where}: {name} is {shown(recorded)}; of {setting.model} it is {found!r}: it is another model"
    return None


class _Loaded:
    """An engine that replays the requests of sessions with one setting."""

    def __init__(self, setting: _Setting, path: Path, threads: int | None, chat_template: str | None) -> None:
        self.setting = setting
        self._collected = CollectedLines()
        self._compare = TensorCompare(path) if setting.level == TENSORS else None
        self.llm = LLM(
            str(setting.path),
            threads=threads,
            max_model_len=setting.context,
            kv_dtype=setting.kv_dtype,
            enable_prefix_caching=False,
            chat_template=chat_template,
            record=Recorder(self._collected, setting.level, self._compare),
        )
        self._operations = None if setting.level == TOKENS else Operations(self.llm.runner.config)

    def replay(self, request: RecordedRequest) -> Difference | None:
        """The first difference."""
        if self._compare is not None:
            self._compare.begin(request)
        found = replay(self.llm, self._collected, request, self._explain)
        if found is None and self._compare is not None:
            self._compare.end()
            if self._compare.difference is not None:
                return Difference(f"request {request.id}: {self._compare.difference}")
        return found

    def _explain(self, recorded: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
        """The first operation that differs, and both values where they are known."""
        if self._operations is None:
            return None
        if self._compare is not None and self._compare.difference is not None:
            return self._compare.difference
        try:
            digests = base64.b64decode(str(recorded.get("operations")), validate=True)
        except binascii.Error:
            return f"{OPERATIONS} is no base64 in the record"
        operation = self._operations.difference(digests, base64.b64decode(found["operations"]))
        return None if operation is None else f"{operation} is the first operation whose output differs"

    def close(self) -> None:
        """Give the engine's memory back."""
        self.llm.close()
