"""Signatures of receipts: HMAC-SHA256 with a secret that both sides have, or Ed25519, which anybody can check.

In: a key's file. Out: signatures, or whether one is right. Ed25519 comes from the package ``cryptography``, which is
loaded when such a key is named.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Any, Final, Protocol

from cutaway.errors import InvalidRequestError

HMAC: Final = "hmac-sha256"
ED25519: Final = "ed25519"
LEAST: Final = 16  # bytes of an HMAC key
MOST: Final = 1 << 16  # bytes of any
PEM: Final = b"-----BEGIN "
SEQUENCE: Final = 0x30  # tags of DER
INTEGER: Final = 0x02


class Signer(Protocol):
    """Has the key by which receipts are signed, and checks what was signed by it."""

    def describe(self) -> dict[str, str]:
        """The kind of signature; for Ed25519, the public key."""

    def sign(self, message: bytes) -> str:
        """In hex."""

    def check(self, message: bytes, signature: str) -> bool:
        """Whether the signature is of this message."""


class HmacSigner:
    """HMAC-SHA256 (RFC 2104): who can check can also sign."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def describe(self) -> dict[str, str]:
        """The kind."""
        return {"kind": HMAC}

    def sign(self, message: bytes) -> str:
        """In hex."""
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def check(self, message: bytes, signature: str) -> bool:
        """Whether the signature is of this message."""
        return hmac.compare_digest(self.sign(message).encode(), signature.encode())


class Ed25519Signer:
    """Ed25519 (RFC 8032)."""

    def __init__(self, private: Any, public: Any) -> None:
        """private: None where signatures are checked only."""
        self._private, self._public = private, public

    def describe(self) -> dict[str, str]:
        """The kind, and the public key in hex."""
        return {"kind": ED25519, "public": self._public.public_bytes_raw().hex()}

    def sign(self, message: bytes) -> str:
        """In hex. Raises InvalidRequestError where there is only the public key."""
        if self._private is None:
            raise InvalidRequestError("a public key can't sign. Name the file of the private key.", "record_key")
        return str(self._private.sign(message).hex())

    def check(self, message: bytes, signature: str) -> bool:
        """Whether the signature is of this message."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._public.verify(bytes.fromhex(signature), message)
        except (InvalidSignature, ValueError):
            return False
        return True


def read_signer(path: Path, *, signs: bool = False) -> Signer:
    """The key in a file: in PEM a private or a public Ed25519 key, else bytes for HMAC. signs: a public one won't do.
    Raises InvalidRequestError.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidRequestError(f"the key {path} can't be read ({why}). Name another.", "record_key") from None
    if PEM in content:  # there may be words before it; as a key for HMAC anybody who has the public key could sign
        return _ed25519(path, content, signs)
    if _is_der(content):
        raise InvalidRequestError(
            f"the key {path} is in DER; as a key for HMAC, anybody who has it could sign. Turn it into PEM: "
            f"openssl pkey -inform DER -in {path.name} -out {path.stem}.pem (a public one: with -pubin). Or make one "
            "for HMAC: head -c 32 /dev/urandom > hmac.key",
            "record_key",
        )
    if not LEAST <= len(content) <= MOST:
        raise InvalidRequestError(
            f"the key {path} has {len(content)} bytes; a key for HMAC must have {LEAST} to {MOST}. "
            f"Make one: head -c 32 /dev/urandom > {path.name}",
            "record_key",
        )
    return HmacSigner(content)


def _is_der(content: bytes) -> bool:
    """Whether it is one sequence in DER (X.690) that begins with a number or a sequence, as PKCS #8, PKCS #1 and
    SubjectPublicKeyInfo do. Of random bytes one in ten millions is.
    """
    if len(content) < LEAST or content[0] != SEQUENCE:
        return False
    length, start = content[1], 2
    if length > 0x80:  # in as many bytes as this says
        start += length - 0x80
        length = int.from_bytes(content[2:start], "big")
    return length > 0 and start + length == len(content) and content[start] in (INTEGER, SEQUENCE)


def _ed25519(path: Path, content: bytes, signs: bool) -> Signer:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise InvalidRequestError(
            f"the key {path} is in PEM, which takes the package cryptography: pip install cryptography. "
            f"Or use any {LEAST} bytes or more as a key for HMAC.",
            "record_key",
        ) from None
    try:
        key: Any
        if b"PRIVATE KEY" in content:
            key = serialization.load_pem_private_key(content, password=None)
        else:
            key = serialization.load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidRequestError(
            f"the key {path} can't be read ({str(error)[:200]}). It must be in PEM, without a password.", "record_key"
        ) from None
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return Ed25519Signer(key, key.public_key())
    if isinstance(key, ed25519.Ed25519PublicKey) and signs:
        raise InvalidRequestError(
            f"the key {path} is a public one, by which nothing can be signed. Name the file of the private key.",
            "record_key",
        )
    if isinstance(key, ed25519.Ed25519PublicKey):
        return Ed25519Signer(None, key)
    raise InvalidRequestError(
        f"the key {path} is no Ed25519 key. Make one: openssl genpkey -algorithm ed25519 -out {path.name}", "record_key"
    )
