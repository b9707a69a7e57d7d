"""Surveys of batches: the same in a worker process as here."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.records import Annotations, ImageRecord, ImageRef, JobError
from recordmill.transforms.shards.references import ListedRecord, items, key_digest, pack_reference
from recordmill.transforms.shards.survey_task import SurveySettings, SurveyTask, survey
from recordmill.transforms.shards.totals import total
from recordmill.transforms.workers.task import Worker
from tests.shards.test_references import records

SETTINGS = SurveySettings(seed=3, untyped=False, makes_several=False)


@given(st.lists(records, max_size=4))
def test_a_task_has_the_same_result(found: list[ImageRecord]) -> None:
    listed = [ListedRecord.of(record) for record in found]
    here = survey(listed, SETTINGS)
    task = pickle.loads(pickle.dumps(SurveyTask.of(listed, SETTINGS)))
    there = pickle.loads(pickle.dumps(task.run(Worker())))
    assert there == here
    assert here.totals == total(found)
    assert list(here.hashes) == [key_digest(record.key) for record in found]


def test_references_are_in_batches_of_their_splits() -> None:
    found = [
        ImageRecord(f"{number}.jpg", ImageRef(f"/d/{number}.jpg", version=1), ("a", "b")[number % 2])
        for number in range(3000)
    ]
    batch = survey(map(ListedRecord.of, found), SETTINGS)
    assert len(batch.references) > 2
    for split in ("a", "b"):
        expected = [pack_reference(record, SETTINGS.seed) for record in found if record.split == split]
        assert list(items(one for name, one in batch.references if name == split)) == expected


def test_keys_that_other_records_must_not_have() -> None:
    found = [ImageRecord(key, None, "train") for key in ("a", "b#1#x", "#c")]
    batch = survey(map(ListedRecord.of, found), SurveySettings(0, False, makes_several=True))
    assert list(batch.forbidden) == [key_digest("b"), key_digest("b#1")]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 1.5}, "record 'a' has a value of the wrong type: .*"),
        ({"annotations": Annotations(labels=(True,))}, "record 'a' has a value of the wrong type: .*"),
        ({"annotations": Annotations(features={"x": ((1,),)})}, "record 'a': a free feature is text, .*"),  # type: ignore[dict-item]
    ],
)
def test_values_of_other_types(fields: dict[str, Any], message: str) -> None:
    record = ImageRecord(**{"key": "a", "image": None, "split": "train", **fields})
    with pytest.raises(JobError, match=message):
        survey([ListedRecord.of(record)], SETTINGS)
