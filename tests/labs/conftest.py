import pytest


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    """Work in a folder of the test's own: a check remembers there that it was tried."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
