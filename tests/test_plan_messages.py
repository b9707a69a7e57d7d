"""What a job without a record says."""

from __future__ import annotations

from recordmill.transforms.plan import nothing_to_write
from recordmill.transforms.records import Failure


def test_failures_are_summed_up_by_reason_and_not_by_detail() -> None:
    gone = [
        Failure(f"labels.csv:{line}", "manifest", "not found", f"'{line}.jpg', looked for in /in")
        for line in range(400, 100, -1)
    ]
    broken = [Failure("x.jpg", "decode", "truncated")] * 2
    failures = [*gone, *broken, Failure("n.txt", "list", "hidden", skipped=True)]
    assert nothing_to_write(failures, "/f.jsonl") == (
        "there is no record to write: 302 inputs failed, 1 were skipped; "
        "most often manifest: not found, 300; decode: truncated, 2; "
        "such as 'labels.csv:101' ('101.jpg', looked for in /in); /f.jsonl names each"
    )


def test_where_all_is_skipped_the_reason_is_named() -> None:
    skipped = [Failure(f"{at}.jpg", "list", "excluded by --include/--exclude", "", True) for at in (2, 1)]
    assert nothing_to_write(skipped, "") == (
        "there is no record to write: 0 inputs failed, 2 were skipped; "
        "most often list: excluded by --include/--exclude, 2; such as '1.jpg'"
    )
    assert nothing_to_write([], "") == "there is no record to write: 0 inputs failed, 0 were skipped"
