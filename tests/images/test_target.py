"""The smallest JPEG that is similar enough: against a search of all qualities, and TensorFlow's decoder."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recordmill.transforms.images import compare, jpeg, target
from recordmill.transforms.images.jpeg_header import read_header
from recordmill.transforms.images.target import QUALITIES, encode_to_target
from recordmill.transforms.records import BadInput
from tests.images.drawn import Array, gradient
from tests.lazy import skimage_metrics, tf

TARGETS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


def textured(height: int, width: int, channels: int, spread: int, seed: int = 1) -> Array:
    """A gradient under noise of at most `spread` levels."""
    shape = (height, width, channels)
    smooth = gradient(height, width, channels).astype(np.int32)
    grain = np.random.default_rng(seed).integers(-spread, spread + 1, shape)
    return np.clip(smooth + grain, 0, 255).astype(np.uint8)


def seen_luma(data: bytes) -> Array:
    """The luma of the picture that TensorFlow decodes."""
    return compare.luma(tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE").numpy())


def similarity(source: Array, data: bytes) -> float:
    """TensorFlow decodes, scikit-image compares."""
    decoded = seen_luma(data)
    return float(
        skimage_metrics.structural_similarity(
            compare.luma(source),
            decoded,
            data_range=255,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
    )


@pytest.fixture
def encodes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The qualities that were encoded at, in turn."""
    found: list[int] = []
    encode = jpeg.encode

    def counted(pixels: Array, quality: int, subsampling: str = "420") -> bytes:
        found.append(quality)
        return encode(pixels, quality, subsampling)

    monkeypatch.setattr(target.jpeg, "encode", counted)
    return found


def test_there_are_as_many_qualities_as_six_probes_tell_apart() -> None:
    assert len(QUALITIES) == 2**6 - 1
    assert (QUALITIES[0], QUALITIES[-1]) == (20, 100)
    assert list(QUALITIES) == sorted(set(QUALITIES))
    assert set(range(57, 101)) < set(QUALITIES)


@pytest.mark.parametrize("limit", [*QUALITIES, 101])
def test_every_quality_is_found_with_six_encodes(
    limit: int, encodes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a similarity that reaches the target from `limit` on; 101 is never."""
    monkeypatch.setattr(target.compare, "ssim", lambda one, other: float(encodes[-1] >= limit))
    found = encode_to_target(gradient(8, 8), 0.5, "420")
    assert len(encodes) <= 6
    if limit == 101:
        assert found is None
        assert encodes[-1] == 100
    else:
        assert found is not None
        assert found.quality == limit


@pytest.mark.parametrize("channels", [1, 3])
def test_it_is_the_smallest_of_all(channels: int, encodes: list[int]) -> None:
    pixels = textured(96, 80, channels, 12)
    all_data = {quality: jpeg.encode(pixels, quality, "420") for quality in QUALITIES}
    scores = {quality: similarity(pixels, data) for quality, data in all_data.items()}
    checked = 0
    for wanted in TARGETS:
        enough = [quality for quality in QUALITIES if scores[quality] >= wanted]
        if not enough or enough != [quality for quality in QUALITIES if quality >= enough[0]]:
            continue  # Not monotone around this target: other tests promise what holds then.
        encodes.clear()
        found = encode_to_target(pixels, wanted, "420")
        assert found is not None
        assert found.quality == enough[0]
        assert found.data == all_data[enough[0]]
        assert len(found.data) == min(len(all_data[quality]) for quality in enough)
        assert len(encodes) <= 6
        checked += 1
    assert checked >= 4


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    channels=st.sampled_from([1, 3]),
    spread=st.sampled_from([0, 3, 30, 255]),
    seed=st.integers(0, 100),
    wanted=st.floats(0.3, 1.0),
    subsampling=st.sampled_from(["420", "422", "444"]),
)
@settings(max_examples=60, deadline=None)
def test_what_comes_out_always_reaches_the_target(
    height: int, width: int, channels: int, spread: int, seed: int, wanted: float, subsampling: str
) -> None:
    pixels = textured(height, width, channels, spread, seed)
    found = encode_to_target(pixels, wanted, subsampling)
    if found is None:
        found_best = jpeg.encode(pixels, 100, subsampling)
        assert compare.ssim(compare.luma(pixels), seen_luma(found_best)) < wanted
        return
    assert found.ssim >= wanted
    assert found.quality in QUALITIES
    assert found.data == jpeg.encode(pixels, found.quality, subsampling)
    assume(min(height, width) >= 11)
    assert similarity(pixels, found.data) == pytest.approx(found.ssim, abs=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("wanted", [0.9, 0.97])
def test_tensorflow_decodes_what_was_measured(channels: int, wanted: float) -> None:
    pixels = textured(120, 90, channels, 10)
    found = encode_to_target(pixels, wanted, "420")
    assert found is not None
    assert similarity(pixels, found.data) == pytest.approx(found.ssim, abs=1e-6)
    assert found.ssim >= wanted
    assert tf.io.decode_jpeg(found.data).shape == pixels.shape


def test_a_higher_target_is_a_higher_quality() -> None:
    pixels = textured(120, 90, 3, 10)
    found = [encode_to_target(pixels, wanted, "420") for wanted in (0.8, 0.9, 0.95, 0.98)]
    qualities = [encoded.quality for encoded in found if encoded is not None]
    sizes = [len(encoded.data) for encoded in found if encoded is not None]
    assert len(qualities) == 4
    assert qualities == sorted(set(qualities))
    assert sizes == sorted(set(sizes))


def test_no_quality_reaches_what_rounding_forbids() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    best = similarity(pixels, jpeg.encode(pixels, 100, "420"))
    assert best < math.nextafter(1, 0)
    assert encode_to_target(pixels, 1.0, "420") is None


def test_a_flat_image_takes_the_lowest_quality_that_holds_its_value() -> None:
    pixels = np.full((32, 32, 1), 128, np.uint8)
    found = encode_to_target(pixels, 1.0, "420")
    assert found is not None
    assert (found.quality, found.ssim) == (20, 1.0)


@pytest.mark.parametrize(("subsampling", "factors"), [("420", (2, 2)), ("422", (2, 1)), ("444", (1, 1))])
def test_the_subsampling_is_the_one_asked_for(subsampling: str, factors: tuple[int, int]) -> None:
    found = encode_to_target(textured(48, 48, 3, 10), 0.9, subsampling)
    assert found is not None
    frame = found.data.index(b"\xff\xc0")
    components = found.data[frame + 10 : frame + 19]
    assert [divmod(components[i], 16) for i in (1, 4, 7)] == [factors, (1, 1), (1, 1)]
    assert found.data == jpeg.encode(textured(48, 48, 3, 10), found.quality, subsampling)


def test_subsampling_is_420_unless_asked_otherwise() -> None:
    pixels = textured(48, 48, 3, 10)
    assert jpeg.encode(pixels, 80) == jpeg.encode(pixels, 80, "420")
    assert len({jpeg.encode(pixels, 80, name) for name in ("420", "422", "444")}) == 3


def test_the_header_says_one_component_for_grey() -> None:
    found = encode_to_target(textured(48, 48, 1, 10), 0.9, "444")
    assert found is not None
    assert len(read_header(found.data).components) == 1


def test_what_is_too_large_for_a_jpeg_is_refused() -> None:
    with pytest.raises(BadInput, match="too large for a JPEG"):
        encode_to_target(np.zeros((1, 65501, 1), np.uint8), 0.9, "420")


def test_saturated_colours_are_measured_as_they_are_seen() -> None:
    random = np.random.default_rng(0)
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:, :, 0] = np.kron(random.integers(0, 2, (16, 16)), np.ones((4, 4))) * 255
    found = encode_to_target(pixels, 0.95, "420")
    assert found is None or similarity(pixels, found.data) >= 0.95 - 1e-6
