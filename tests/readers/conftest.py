"""Datasets that other readers read: one of classes, one of boxes, one of sequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.conversion import convert
from tests.readers.drawn import draw_boxes, draw_classes, draw_words


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images of three classes in two splits, three shards of each."""
    folder = tmp_path_factory.mktemp("classes")
    draw_classes(folder / "in")
    assert convert("--input", folder / "in", "--output", folder / "out", "--num_shards=3") == 0
    return folder / "out"


@pytest.fixture(scope="session")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 images of boxes, some without any."""
    folder = tmp_path_factory.mktemp("boxes")
    draw_boxes(folder / "in")
    assert convert("--input", folder / "in", "--output", folder / "out", "--num_shards=2") == 0
    return folder / "out"


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 sequences of words of different lengths."""
    folder = tmp_path_factory.mktemp("words")
    draw_words(folder / "words.jsonl")
    args = ("--schema=sequence", "--source=sequence", "--num_shards=1")
    assert convert("--input", folder / "words.jsonl", "--output", folder / "out", *args) == 0
    return folder / "out"
