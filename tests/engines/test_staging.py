"""Reading staged files past Iceberg's cache of deletes, in a session that is somebody else's."""

from __future__ import annotations

import pytest

from neve.spark.tasks.staging import DELETE_CACHE, fresh_deletes


class Conf(dict[str, str]):
    """A session's settings."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)


@pytest.mark.parametrize("before", [None, "true", "false"])
def test_groups_that_run_side_by_side_put_the_callers_setting_back_when_the_last_is_done(before: str | None) -> None:
    conf = Conf({} if before is None else {DELETE_CACHE: before})
    first, second = fresh_deletes(conf), fresh_deletes(conf)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert conf[DELETE_CACHE] == "false"
    second.__exit__(None, None, None)
    assert conf.get(DELETE_CACHE) == before
