"""What errors say, and what they must not."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidStoreUrl
from perdure.store.opening import store_at


class TestInvalidStoreUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql+psycopg://ann:secret@host/db",
            "postgresql+psycopg://ann:sec/ret:@host:5432/db?note=a@b",
            "redis://:secret@host/0",
        ],
    )
    def test_hides_the_password(self, url: str) -> None:
        with pytest.raises(InvalidStoreUrl) as caught:
            store_at(url)

        assert "sec" not in str(caught.value)
        assert url.partition(":")[0] in str(caught.value)
