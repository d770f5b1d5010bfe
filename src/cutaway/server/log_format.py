"""How the server's log looks: lines for people, or JSON objects for programs.

In: log records; those of requests have ``fields``. Out: text, one line each but for tracebacks in lines for people.
"""

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Final

FORMATS: Final = ("text", "json")


class TextLines(logging.Formatter):
    """``2026-01-31 12:00:00 127.0.0.1:50000 POST /v1/completions 200 0.412 s prompt_tokens=34 …``"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = getattr(record, "fields", None)
        if fields is not None:
            head = "{client} {method} {path} {status} {seconds:.3f} s".format(**fields)
            shown = ("client", "method", "path", "status", "seconds")
            rest = "".join(f" {name}={value}" for name, value in fields.items() if name not in shown)
            record = logging.makeLogRecord({**record.__dict__, "msg": head + rest, "args": None})
        return super().format(record)


class JsonLines(logging.Formatter):
    """``{"time": …, "level": …, "message": …, …}``"""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=True, default=str)


def log_to_stderr(form: str) -> None:
    """Let the server's loggers, and those of its HTTP library, write to standard error. form: one of FORMATS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name, level in (
        ("cutaway.server", logging.INFO),
        ("cutaway.record", logging.WARNING),
        ("uvicorn", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
