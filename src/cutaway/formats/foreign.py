"""Foreign files: what a file that was given as a GGUF seems to be, told from its first bytes.

In: the first bytes of a file and its size. Out: a phrase that names the kind of file, and a remedy.
Nothing is unpacked, unpickled or executed.
"""

_CONVERT = "Convert the model to GGUF, or name a .gguf file."
_AGAIN = "Download it again."

# (first bytes, what the file seems to be, remedy); more specific signatures first.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (
        b"FUGG",
        "a big-endian GGUF file",
        "Only little-endian files are supported: convert it to little-endian.",
    ),
    (
        b"version https://git-lfs",
        "a Git LFS pointer, not the file that it points to",
        "Fetch the file itself with 'git lfs pull'.",
    ),
    (b"lmgg", "a GGML file from before GGUF", _CONVERT),
    (b"fmgg", "a GGMF file from before GGUF", _CONVERT),
    (b"tjgg", "a GGJT file from before GGUF", _CONVERT),
    (b"PK\x03\x04", "a zip archive (PyTorch checkpoints and Python wheels are zip archives)", _CONVERT),
    (b"\x80\x02", "a Python pickle (older PyTorch checkpoints are pickles)", _CONVERT),
    (b"\x80\x03", "a Python pickle", _CONVERT),
    (b"\x80\x04", "a Python pickle", _CONVERT),
    (b"\x80\x05", "a Python pickle", _CONVERT),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", _CONVERT),
    (b"\x93NUMPY", "a NumPy array", _CONVERT),
    (b"\x1f\x8b", "gzip-compressed", "Decompress it first."),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "Decompress it first."),
    (b"\xfd7zXZ\x00", "xz-compressed", "Decompress it first."),
    (b"BZh", "bzip2-compressed", "Decompress it first."),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "Unpack it first."),
)


def describe_foreign(head: bytes, size: int) -> tuple[str, str]:
    """What a file of ``size`` bytes that begins with ``head``  seems to be, and a remedy."""
    if size == 0:
        return "empty", _AGAIN
    for signature, kind, remedy in _SIGNATURES:
        if head.startswith(signature):
            if signature.startswith(b"PK") and b"data.pkl" in head:
                kind = "a PyTorch checkpoint (a zip archive with a pickle)"
            return kind, remedy
    if head[257:262] == b"ustar":
        return "a tar archive", "Unpack it first."
    # safetensors: the length of a JSON header in 8 bytes, then the header.
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8:
        return "a safetensors file", _CONVERT
    if not head.strip(b"\x00"):
        return "filled with zeros (an interrupted download leaves such files)", _AGAIN
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<!--")):
        return "an HTML page (a server answered with a page instead of the file)", _AGAIN
    if text.startswith(b"<?xml"):
        return "an XML document (a server answered with a message instead of the file)", _AGAIN
    if text.startswith((b"{", b"[")):
        return "a JSON document", "Name the .gguf file itself."
    if b"GGUF".startswith(head):
        return f"a GGUF file cut off after {size} bytes", _AGAIN
    return (
        f"of an unknown kind (first bytes {head[:8].hex(' ')}; a GGUF file begins with 47 47 55 46)",
        _CONVERT,
    )
