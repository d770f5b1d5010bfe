"""The server's settings: where it listens, who may use it, what it takes.

In: what the user asks. Out: a checked record.
"""

from dataclasses import dataclass
from typing import Final

from cutaway.errors import InvalidRequestError
from cutaway.server.log_format import FORMATS

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8000
DEFAULT_BODY: Final = 4 << 20  # some times what the longest context takes, as text or as ids
DEFAULT_GRACE: Final = 10.0
MOST_GRACE: Final = 86400.0


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Raises InvalidRequestError for a value outside its limits."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT  # 0: a free one
    api_keys: tuple[str, ...] = ()  # none: anybody may use the server
    served_names: tuple[str, ...] = ()  # the names of the model for clients; none: the one that it was loaded by
    cors_origins: tuple[str, ...] = ()  # whose pages may use the server from a browser; "*": all
    allowed_hosts: tuple[str, ...] = ()  # further names by which the server is called; "*": any
    max_body_size: int = DEFAULT_BODY  # bytes
    max_tap_bytes: int | None = None  # that tapped tensors may have, of all requests together; None: there are no taps
    grace: float = DEFAULT_GRACE  # seconds that running requests have at the end
    log_format: str = "text"  # one of FORMATS
    timings: bool = False  # requests may ask for their ledger, which the machine's limits are measured for at the start

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidRequestError(f"port is {self.port}; it must be 0 to 65535. 0 takes a free one.", "port")
        for key in self.api_keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise InvalidRequestError(
                    "an API key is empty, or has spaces or characters that no header can have. Use ASCII letters and "
                    "digits; give --api-key once for each key, or in CUTAWAY_API_KEY all with spaces between.",
                    "api_key",
                )
        if any(not name.strip() for name in self.served_names):
            raise InvalidRequestError("a served model name is empty. Leave it out for the model's own.", "served_name")
        for name in self.allowed_hosts:
            if not name or set(name) & set("/@ ") or not name.isascii() or not name.isprintable():
                raise InvalidRequestError(
                    f"an allowed host is {name[:200]!r}; it must be a name such as models.example.org, or * for any. "
                    "Leave out http:// and what comes behind the name.",
                    "allowed_host",
                )
        if self.max_body_size < 1:
            raise InvalidRequestError(f"max_body_size is {self.max_body_size}; it must be 1 at least.", "max_body_size")
        if self.max_tap_bytes is not None and self.max_tap_bytes < 1:
            raise InvalidRequestError(
                f"max_tap_bytes is {self.max_tap_bytes}; it must be 1 at least. Leave it out to refuse taps.",
                "max_tap_bytes",
            )
        if not 0 <= self.grace <= MOST_GRACE:
            raise InvalidRequestError(
                f"grace is {self.grace:g} s; it must be 0 to {MOST_GRACE:g}. Use 0 to end at once.", "grace"
            )
        if self.log_format not in FORMATS:
            raise InvalidRequestError(
                f"log_format is {self.log_format!r}; it must be one of {', '.join(FORMATS)}.", "log_format"
            )
