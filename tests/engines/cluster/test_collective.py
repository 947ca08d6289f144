"""One process alone agrees with itself and waits for no one; test_processes.py has several."""

from glassformer.engines.cluster.collective import agreed, any_of, first_before_others, meet, process, processes


def test_one_process_is_the_first_and_only_one_agrees_with_itself_and_waits_for_no_one():
    assert (process(), processes()) == (0, 1)
    value = {"text": "é", "number": 1.5, "nothing": None}
    assert agreed(value) == value
    assert [any_of(value) for value in (True, False)] == [True, False]
    meet("anywhere")
    with first_before_others("anything") as first:
        assert first
