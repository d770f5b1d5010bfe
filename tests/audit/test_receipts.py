"""Receipts: each follows from its request and from the one before it, and may be signed."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM, Record, SamplingParams
from cutaway.audit.record.read_receipts import check_held, read_held, read_receipts
from cutaway.audit.record.signatures import read_signer
from cutaway.errors import InvalidRequestError
from support.records import contents, write_chained

PROMPT = [504, 3575, 282, 4649, 314]
KEY = bytes(range(32))
PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=2)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key"
    path.write_bytes(KEY)
    return path


@pytest.fixture(scope="module")
def made(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory, key: Path) -> tuple[Path, list[Any]]:
    """A record of three requests, signed; and the receipts as whoever asked got them."""
    path = tmp_path_factory.mktemp("record") / "answers.jsonl"
    with LLM(smollm2_path, threads=1, max_model_len=64, record=Record(path, key=key)) as llm:
        outputs = [llm.generate(PROMPT, PARAMS, use_tqdm=False)[0] for _ in range(3)]
    return path, [output.record for output in outputs]


def test_receipts_are_given_and_kept(made: tuple[Path, list[Any]], key: Path) -> None:
    path, given = made
    found = read_receipts(path, read_signer(key))
    assert (found.difference, found.notes) == (None, [])
    assert [each.number for each in found.receipts] == [1, 2, 3]
    assert [(each.tokens, each.reason, each.signature) for each in found.receipts] == [(2, "end", "good")] * 3
    assert [each.hash for each in found.receipts] == [each["receipt"]["hash"] for each in given]
    for each in given:
        assert check_held(path, each) is None
        assert check_held(path, each["receipt"]) is None


def test_the_root_is_the_hash_of_the_requests_last_line(made: tuple[Path, list[Any]]) -> None:
    """By hand, as docs/record.md says."""
    path, given = made
    lines = path.read_bytes().splitlines()
    header = json.loads(lines[0])["hash"]
    last = header
    for raw in lines:
        line = json.loads(raw)
        if line.get("request") == "1" and line["kind"] != "receipt":
            body = raw[: raw.rindex(b',"hash":"')]
            last = hashlib.sha256(last.encode() + body).hexdigest()
    receipt = given[1]["receipt"]
    assert receipt["root"] == last
    assert receipt["previous"] == given[0]["receipt"]["hash"]
    said = f"cutaway receipt 1\n2\n{receipt['previous']}\n{header}\n{last}\n"
    assert receipt["signature"] == hmac.new(KEY, said.encode(), hashlib.sha256).hexdigest()


def test_another_key_did_not_sign(made: tuple[Path, list[Any]], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(KEY[::-1])
    found = read_receipts(made[0], read_signer(other))
    assert found.difference == "receipt 1: its signature is not by this key"
    assert {each.signature for each in read_receipts(made[0]).receipts} == {"not checked"}


def test_whoever_lacks_the_key_can_change_nothing(made: tuple[Path, list[Any]], tmp_path: Path, key: Path) -> None:
    """A token that is another, the chain made anew: by itself it is whole, and the signature shows it."""
    path, given = made
    lines = contents(path)
    line = next(each for each in lines if each["kind"] == "token")
    line["id"] += 1
    forged = write_chained(tmp_path / "forged.jsonl", lines)
    assert read_receipts(forged).difference is None
    assert read_receipts(forged, read_signer(key)).difference == "receipt 1: its signature is not by this key"
    assert check_held(forged, given[0]) == "receipt 1: its hash is not the record's"


def test_a_request_can_not_be_taken_out(made: tuple[Path, list[Any]], tmp_path: Path) -> None:
    path, given = made
    raw = path.read_bytes().splitlines(keepends=True)
    gone = tmp_path / "gone.jsonl"
    gone.write_bytes(b"".join(each for each in raw if json.loads(each).get("request") != "1"))
    assert "a receipt: its" in str(read_receipts(gone).difference)
    rest = write_chained(gone, [each for each in contents(path) if each.get("request") != "1"])
    assert read_receipts(rest).difference is None  # without a signature; but whoever holds a receipt behind it sees it
    assert check_held(rest, given[2]) == "the record has no receipt 3"


def test_unsigned_is_not_good(made: tuple[Path, list[Any]], tmp_path: Path, key: Path) -> None:
    lines = [{k: v for k, v in each.items() if k != "signature"} for each in contents(made[0])]
    path = write_chained(tmp_path / "unsigned.jsonl", lines)
    assert {each.signature for each in read_receipts(path).receipts} == {"unsigned"}
    assert read_receipts(path, read_signer(key)).difference == "receipt 1: it is not signed"


@pytest.mark.parametrize("name", ["root", "header", "previous", "number", "signature"])
def test_a_receipt_that_lacks_a_field_is_not_signed(
    made: tuple[Path, list[Any]], tmp_path: Path, key: Path, name: str
) -> None:
    *lines, last = made[0].read_bytes().splitlines(keepends=True)
    receipt = {each: value for each, value in json.loads(last).items() if each != name}
    path = tmp_path / "lacks.jsonl"
    path.write_bytes(b"".join([*lines, json.dumps(receipt, separators=(",", ":")).encode() + b"\n"]))
    found = read_receipts(path, read_signer(key))
    assert found.difference is not None
    assert found.receipts[-1].signature == "bad"


@pytest.mark.parametrize("held", ["{}", "[]", "nowhere", '{"number":"1"}', "{"])
def test_what_is_no_receipt(made: tuple[Path, list[Any]], held: str) -> None:
    with pytest.raises(InvalidRequestError, match="receipt"):
        check_held(made[0], read_held(held))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"short", "has 5 bytes"),
        (b"x" * 70_000, "65537 bytes"),
        (b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n", "PEM|be read"),
    ],
)
def test_keys_that_are_none(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match=part):
        read_signer(path)
    with pytest.raises(InvalidRequestError, match="can't be read"):
        read_signer(tmp_path / "nowhere")


def test_ed25519(smollm2_path: Path, tmp_path: Path) -> None:
    """Who checks needs the public key alone; the implementation's own verification is the second source."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from cryptography.hazmat.primitives import serialization as form

    private = ed25519.Ed25519PrivateKey.from_private_bytes(KEY)
    pem = form.Encoding.PEM
    own, public = tmp_path / "private.pem", tmp_path / "public.pem"
    own.write_bytes(private.private_bytes(pem, form.PrivateFormat.PKCS8, form.NoEncryption()))
    public.write_bytes(private.public_key().public_bytes(pem, form.PublicFormat.SubjectPublicKeyInfo))
    path = tmp_path / "answers.jsonl"
    with LLM(smollm2_path, threads=1, max_model_len=64, record=Record(path, key=own)) as llm:
        record: Any = llm.generate(PROMPT, PARAMS, use_tqdm=False)[0].record
    receipt = record["receipt"]
    said = f"cutaway receipt 1\n1\n{receipt['previous']}\n{receipt['header']}\n{receipt['root']}\n"
    private.public_key().verify(bytes.fromhex(receipt["signature"]), said.encode())
    assert read_receipts(path, read_signer(public)).receipts[0].signature == "good"
    assert contents(path)[0]["signatures"] == {
        "kind": "ed25519",
        "public": private.public_key().public_bytes_raw().hex(),
    }
    with pytest.raises(InvalidRequestError, match="a public key can't sign"):
        read_signer(public).sign(b"")
    with pytest.raises(InvalidRequestError, match="a public one"):  # before there is any request
        Record(tmp_path / "other.jsonl", key=public)
    assert not (tmp_path / "other.jsonl").exists()
    for before in (b"\xef\xbb\xbf", b"Bag Attributes\n    localKeyID: 01\n", b"\n\n"):  # none of HMAC
        (tmp_path / "words.pem").write_bytes(before + own.read_bytes())
        assert read_signer(tmp_path / "words.pem").describe()["kind"] == "ed25519"
    stranger = ed25519.Ed25519PrivateKey.from_private_bytes(KEY[::-1]).public_key()
    public.write_bytes(stranger.public_bytes(pem, form.PublicFormat.SubjectPublicKeyInfo))
    assert read_receipts(path, read_signer(public)).receipts[0].signature == "bad"


@pytest.mark.parametrize("name", ["number", "root", "header", "previous", "signature", "request"])
@pytest.mark.parametrize("value", [None, "\ud800", 2**70, [], "x"], ids=ascii)
def test_a_receipt_of_strange_values_is_a_difference(
    made: tuple[Path, list[Any]], tmp_path: Path, key: Path, name: str, value: object
) -> None:
    """None: it is missing. By a key and without; by hashes that somebody has made anew."""
    lines = made[0].read_bytes().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if json.loads(line)["kind"] == "receipt")
    line = json.loads(lines[number])
    previous = line["previous"]
    del line["hash"]
    if value is None:
        del line[name]
    else:
        line[name] = value
    body = json.dumps(line, separators=(",", ":"))[:-1].encode()
    hashed = hashlib.sha256(previous.encode() + body).hexdigest().encode()
    path = tmp_path / "changed.jsonl"
    path.write_bytes(b"".join([*lines[:number], body, b',"hash":"', hashed, b'"}\n', *lines[number + 1 :]]))
    for signer in (read_signer(key), None):
        try:
            found = read_receipts(path, signer).difference
        except InvalidRequestError as error:
            found = str(error)
        assert found is not None


@pytest.mark.parametrize("public", [False, True])
def test_a_key_in_der_is_no_key_for_hmac(tmp_path: Path, public: bool) -> None:
    """Ed25519 and RSA, whose length takes more than a byte; bytes that only begin so are a key."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    form = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    der, path = form.Encoding.DER, tmp_path / "key.der"
    for private in (ed25519.Ed25519PrivateKey.from_private_bytes(KEY), rsa.generate_private_key(65537, 2048)):
        if public:
            content = private.public_key().public_bytes(der, form.PublicFormat.SubjectPublicKeyInfo)
        else:
            content = private.private_bytes(der, form.PrivateFormat.PKCS8, form.NoEncryption())
        path.write_bytes(content)
        with pytest.raises(
            InvalidRequestError, match=r"is in DER.* openssl pkey -inform DER -in key\.der -out key\.pem"
        ):
            read_signer(path)
        for other in (content[:-1], b"\x30\x8e" + bytes(14)):
            path.write_bytes(other)
            assert read_signer(path).describe() == {"kind": "hmac-sha256"}


@pytest.mark.parametrize("around", [["receipt"], ["cutaway", "receipt"]])
def test_a_receipt_is_found_within_a_reply(made: tuple[Path, list[Any]], around: list[str]) -> None:
    held: Any = dict(made[1][0]["receipt"])
    for name in reversed(around):
        held = {name: held, "id": "cmpl-1"}
    assert check_held(made[0], held) is None
    held.get("cutaway", held)["receipt"]["root"] = "0" * 64
    assert check_held(made[0], held) == "receipt 1: its root is not the record's"
