"""Pages of a listing, and the fields of a resource that a request asks for."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gcp_storage_emulator.gcs_glob import gcs_glob_match

Resource = dict[str, Any]
# Name and rank: an object comes before the prefix of the same name.
Key = tuple[str, int]


def page(objects: Mapping[str, Resource], query: Mapping[str, str], page_size: int) -> Resource:
    """The answer of objects.list: items and prefixes in one order, together at most a page.

    Raises:
        ValueError: the page token is none.
    """
    size = min(int(query.get("maxResults", page_size)), page_size)
    after = _untoken(query.get("pageToken", ""))
    answer: Resource = {"kind": "storage#objects"}
    taken, last = 0, after
    for key, item in _entries(objects, query):
        if after is not None and key <= after:
            continue
        if taken == size:
            assert last is not None
            answer["nextPageToken"] = base64.urlsafe_b64encode(json.dumps(last).encode()).decode()
            break
        if item is None:
            answer.setdefault("prefixes", []).append(key[0])
        else:
            answer.setdefault("items", []).append(shown(item))
        taken, last = taken + 1, key
    return answer


def _entries(
    objects: Mapping[str, Resource], query: Mapping[str, str]
) -> Iterator[tuple[Key, Resource | None]]:
    """Objects, and prefixes with no resource, in order of their UTF-8 bytes, which Python's is."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    start, end, glob = query.get("startOffset", ""), query.get("endOffset", ""), query.get("matchGlob")
    seen = None
    for name in sorted(name for name in objects if name.startswith(prefix)):
        if name < start or (end and name >= end) or (glob is not None and not gcs_glob_match(glob, name)):
            continue
        at = name.find(delimiter, len(prefix)) if delimiter else -1
        group = name[: at + len(delimiter)] if at >= 0 else None
        if group is None or (group == name and query.get("includeTrailingDelimiter") == "true"):
            yield (name, 0), objects[name]
        if group is not None and group != seen:
            seen = group
            yield (group, 1), None


def _untoken(token: str) -> Key | None:
    if not token:
        return None
    name, rank = json.loads(base64.urlsafe_b64decode(token))
    return str(name), int(rank)


def shown(resource: Resource) -> Resource:
    """A resource as projection=noAcl, the default, shows it."""
    return {key: value for key, value in resource.items() if key != "acl"}


def partial(resource: Any, fields: str) -> Any:
    """What `fields` names, as in `items(name,size),nextPageToken` or `items/name`; all where it is empty."""
    wanted = _mask(re.findall(r"[^,()/]+|[,()/]", fields))
    return _masked(resource, wanted) if wanted else resource


def _mask(tokens: list[str]) -> dict[str, Any]:
    """Names, each with the mask of what is below it; consumes tokens up to a closing bracket."""
    mask: dict[str, Any] = {}
    here, name = mask, ""
    while tokens and (token := tokens.pop(0)) != ")":
        if token == ",":
            here = mask
        elif token == "/":
            here = here[name]
        elif token == "(":
            here[name] = _mask(tokens)
        else:
            name = token.strip()
            here.setdefault(name, {})
    return mask


def _masked(value: Any, mask: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_masked(item, mask) for item in value]
    if not isinstance(value, dict) or not mask or "*" in mask:
        return value
    return {key: _masked(value[key], below) for key, below in mask.items() if key in value}
