"""Plans of records that are features alone, and the files in a folder."""

from recordmill.transforms.config import DatasetConfig
from recordmill.transforms.records import Annotations, ImageRecord
from recordmill.transforms.shards.dataset_plan import DatasetPlan, plan_dataset
from recordmill.transforms.shards.totals import total
from recordmill.transforms.storage.file_system import file_system


def records(count: int, splits: tuple[str, ...] = ("train",)) -> list[ImageRecord]:
    """Records whose splits take turns."""
    return [
        ImageRecord(f"{number:05d}", None, splits[number % len(splits)], Annotations((), {"x": number}))
        for number in range(count)
    ]


def plan(config: DatasetConfig, count: int = 1000, splits: tuple[str, ...] = ("train",)) -> DatasetPlan:
    """The plan for such records."""
    return plan_dataset(total(records(count, splits)), config)


def sizes(folder: str) -> dict[str, int]:
    """Bytes of each file in a folder, by name."""
    return file_system(folder).sizes(folder)
