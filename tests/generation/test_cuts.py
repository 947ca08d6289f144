"""What each setting of sampling leaves out: the last stage is what is drawn from, and every token is cut once."""

import numpy as np
import pytest

from glassformer.generation.sampling import Sampling, distribution, stages

EVERY = Sampling(temperature=0.7, top_k=6, top_p=0.9, min_p=0.2)


@pytest.fixture
def logits(rng):
    return rng.normal(size=12) * 2


def test_the_stages_lead_to_the_distribution_that_is_drawn_from_and_cut_every_token_once(logits):
    found = stages(logits, EVERY)
    assert [stage.name for stage in found] == ["own", "temperature", "top_k", "top_p", "min_p"]
    assert found[0].probabilities.tolist() == distribution(logits, None, Sampling()).tolist()
    assert found[-1].probabilities.tolist() == distribution(logits, None, EVERY).tolist()
    assert all(abs(stage.probabilities.sum() - 1) < 1e-12 for stage in found)

    found = stages(logits, EVERY)
    cuts = np.sum([stage.cut for stage in found], axis=0)
    assert cuts.tolist() == (found[-1].probabilities == 0).astype(int).tolist()
    assert found[2].cut.sum() == 6
    assert not any(stage.cut.any() for stage in stages(logits, Sampling()))

    found = stages(logits, Sampling(temperature=0))
    assert found[1].cut.sum() == 11
    assert not found[1].cut[logits.argmax()]
    logits[3] = -np.inf
    found = stages(logits, EVERY)
    assert found[0].probabilities[3] == 0
    assert not any(stage.cut[3] for stage in found)
