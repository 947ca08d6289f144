"""The models that a page may open, and no others."""

import pytest

from glassformer.core.errors import ConfigError
from glassformer.web.offers import chosen, find_offers, to_json


def test_what_was_asked_for_comes_first_and_folders_without_runs_are_none(tmp_path):
    found = find_offers(["somewhere/run"], tmp_path / "none")
    assert next(iter(found)) == "somewhere/run"
    assert to_json(found)[0] == {"key": "somewhere/run", "title": "somewhere/run", "kind": "given"}


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "", "somewhere/ru", "hf:org/name"])
def test_a_page_cannot_open_what_is_not_offered(tmp_path, key):
    with pytest.raises(ConfigError, match="no model"):
        chosen(find_offers(["somewhere/run"], tmp_path), key)
