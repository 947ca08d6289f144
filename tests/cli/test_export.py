"""`glassformer export` of a run whose newest state was written by many processes, each its own part."""

import pytest

from glassformer.api.loading import read_model
from glassformer.core.execution import Execution
from glassformer.engines.jax.sharded_checkpoint import from_safetensors
from glassformer.runs.start import new_session
from runs import TINY, assert_same_bits, command, write_data

pytestmark = pytest.mark.usefixtures("jax")

GPT2 = {"positions": "learned", "activation": "gelu_tanh", "norm": "layer", "layers": 2}


@pytest.mark.parametrize("scan", [False, True], ids=["list", "stacked"])
def test_a_run_in_many_files_is_exported_like_one_in_a_single_file(tmp_path, scan):
    folder = tmp_path / "run"
    settings = {**TINY["lines"], **GPT2}
    data = write_data("lines", tmp_path)
    session = new_session("lines", folder, data=data, settings=settings, execution=Execution(scan=scan))
    session.save()
    from_safetensors(folder, scan=scan)
    (folder / "latest.safetensors").unlink()
    result = command("export", folder, tmp_path / "out")
    assert result.code == 0, result.err
    found = read_model(tmp_path / "out").params
    expected = session.trained.params
    assert_same_bits(found["blocks"][1]["feed_forward"]["up"]["w"], expected["blocks"][1]["feed_forward"]["up"]["w"])
    assert_same_bits(found["embedding"], expected["embedding"])
    assert (folder / "latest.safetensors").is_file()  # as every other command reads it
