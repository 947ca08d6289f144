"""The cases of all proofs, made once for the tests of a process: nobody writes to them."""

from glassformer.proofs import layer_cases, model_cases, op_cases

OP_CASES, LAYER_CASES, MODEL_CASES = op_cases(), layer_cases(), model_cases()


def first_of_each_op():
    """One case per op; it is enough where only the library is in question."""
    return list({case.op: case for case in reversed(OP_CASES)}.values())
