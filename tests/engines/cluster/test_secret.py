"""Where the secret of a run comes from."""

import os
import stat
import threading

import pytest

from glassformer.core.errors import ConfigError
from glassformer.engines.cluster.rendezvous import find_secret, own_file


def test_a_given_secret_comes_first_then_a_file_then_the_users_own(tmp_path):
    file = tmp_path / "secret.txt"
    file.write_text("sixteen letters in a file\n")
    known = {"GLASSFORMER_SECRET_FILE": str(file), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert find_secret({**known, "GLASSFORMER_SECRET": "sixteen letters given"}) == b"sixteen letters given"
    assert find_secret(known) == b"sixteen letters in a file"
    assert not (tmp_path / "config").exists()


def test_the_users_own_secret_is_made_once_and_for_nobody_else(tmp_path):
    environ, found = {"XDG_CONFIG_HOME": str(tmp_path)}, []
    threads = [threading.Thread(target=lambda: found.append(find_secret(environ))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert len(found[0]) == 64
    path = own_file(environ)
    assert os.listdir(path.parent) == ["secret"]
    assert os.name != "posix" or stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"GLASSFORMER_SECRET": "short"}, "the secret in GLASSFORMER_SECRET has 5 characters, and 16 are the least"),
        ({"GLASSFORMER_SECRET_FILE": "nowhere/at/all"}, "cannot be read from nowhere"),
        ({"GLASSFORMER_SECRET_FILE": "{folder}/bytes"}, "cannot be read from"),
        ({"XDG_CONFIG_HOME": "{folder}/bytes"}, "cannot be kept in"),
    ],
)
def test_a_secret_that_is_none_is_refused_with_a_way_to_make_one(tmp_path, environ, message):
    (tmp_path / "bytes").write_bytes(b"\xff" * 40)
    with pytest.raises(ConfigError, match=message) as caught:
        find_secret({name: value.format(folder=tmp_path) for name, value in environ.items()})
    assert "secrets.token_hex(32)" in caught.value.hint
