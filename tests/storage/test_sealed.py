"""Texts that carry their own SHA-256."""

import hashlib
import json

import pytest

from recordmill.transforms.storage.sealed import PLACEHOLDER, is_sealed, is_sealed_page, seal

# A label may look like a seal: JSON escapes its quotes.
MANIFEST = json.dumps({"labels": {"0": f'"seal": "{PLACEHOLDER}"', "1": "Ω"}, "seal": PLACEHOLDER}) + "\n"
PAGE = f"<!DOCTYPE html>\n<p>é &lt;!-- seal: {PLACEHOLDER} --&gt;</p>\n<!-- seal: {PLACEHOLDER} -->\n"
TEXTS = pytest.mark.parametrize("text", [MANIFEST, PAGE], ids=["manifest", "page"])


@TEXTS
def test_the_seal_is_the_sha256_of_the_text_with_zeros_in_its_place(text: str) -> None:
    sealed = seal(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    head, _, tail = text.rpartition(PLACEHOLDER)
    assert sealed == f"{head}{digest}{tail}"
    assert is_sealed(sealed.encode())


def test_a_sealed_manifest_has_its_seal_as_a_value() -> None:
    found = json.loads(seal(MANIFEST))
    assert found == {**json.loads(MANIFEST), "seal": hashlib.sha256(MANIFEST.encode()).hexdigest()}


@TEXTS
def test_every_flipped_bit_breaks_the_seal(text: str) -> None:
    data = seal(text).encode()
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            assert not is_sealed(bytes(damaged)), (at, bit)


@TEXTS
def test_a_text_that_is_cut_off_longer_or_not_sealed_is_not_sealed(text: str) -> None:
    data = seal(text).encode()
    for damaged in (data[:-1], data[1:], data + b" ", data + data, text.encode(), b""):
        assert not is_sealed(damaged)


def test_what_has_no_room_for_a_seal_is_not_sealed() -> None:
    for text in ("", "{}", '{"seal": ""}', seal(MANIFEST), f"seal: {PLACEHOLDER}"):
        with pytest.raises(ValueError, match="no placeholder of a seal"):
            seal(text)


def test_a_sealed_page_is_told_from_a_sealed_manifest() -> None:
    assert is_sealed_page(seal(PAGE).encode())
    assert not is_sealed_page(seal(MANIFEST).encode())
    assert not is_sealed_page(seal(PAGE).replace("é", "e").encode())
