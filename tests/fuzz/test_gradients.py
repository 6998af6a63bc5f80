"""Random problems, the same ones in every run: adjoints against each other and other ways.

``make fuzz`` draws many more, and new ones. A problem that fails is made simpler and printed as a
case that can be typed into ``judge``; it belongs among ``FOUND`` when it is repaired.
"""

import pytest
from hypothesis import given, reject

from tests.fuzz import draw
from tests.fuzz.cases import ALL, Case
from tests.fuzz.check import judge
from tests.fuzz.compiled import FAMILIES, compiled_block

#: Simplest cases of what was wrong once.
FOUND = [
    # The way back began with the step that was proposed for the time beyond the end.
    Case(
        check="backsolve",
        seed=818829323,
        hidden=1,
        drive=8.0,
        rtol=1e-6,
        atol=1e-7,
        times=(0.3, 0.285669, 0.271338, -0.81),
        outputs=(3,),
    ),
    # The tape of a rejected attempt was taken for that of the step.
    Case(drive=8.0, keep=ALL),
    Case(drive=3.0, first_step=1.0, keep=3),
    # A step that was run again drew other random numbers, and updated statistics again.
    Case(noise="dropout"),
    Case(noise="dropout", drive=8.0, rtol=1e-2, first_step=2.0, keep=1),
    Case(noise="norm", batch=5),
    Case(noise="norm", batch=5, keep=None),
    # Nothing was told when the gradient of the parameters alone was asked for.
    Case(check="observed", adjoint="direct", through="parameters"),
    # A step that ended next to a jump was followed by one of length zero.
    Case(
        check="observed",
        jump="told",
        jump_at=0.93,
        dtype="float32",
        method="midpoint",
        step_size=0.07,
        times=(-1.25, -1.080493),
        adjoint="direct",
        t_grad=True,
    ),
]


def verify(case):
    verdict = judge(case)
    assert not verdict.wrong, f"{verdict} of {case!r}"
    assert verdict.solved, f"{verdict.what}: nothing is compared in {case!r}"


def explore(case):
    verdict = judge(case)
    if not verdict.solved:
        reject()
    assert not verdict.wrong, f"{verdict} of {case!r}"


@pytest.mark.parametrize("case", FOUND, ids=repr)
def test_what_was_wrong_once_is_right(case):
    verify(case)


@draw.examples(90)
@given(draw.strategy(draw.exact))
def test_checkpointed_gradients_are_those_of_backpropagation(case):
    explore(case)


@draw.examples(30)
@given(draw.strategy(draw.noisy, "dropout"))
def test_random_numbers_of_the_forward_pass_are_those_of_the_backward_pass(case):
    explore(case)


@draw.examples(25)
@given(draw.strategy(draw.noisy, "norm"))
def test_running_statistics_are_updated_by_the_forward_pass_alone(case):
    explore(case)


@draw.examples(40)
@given(draw.strategy(draw.observed))
def test_an_observer_changes_no_bit_and_is_told_of_the_whole_path(case):
    explore(case)


@draw.examples(25)
@given(draw.strategy(draw.solution))
def test_solutions_are_within_their_tolerance_of_scipys(case):
    explore(case)


@draw.examples(40)
@given(draw.strategy(draw.differences))
def test_gradients_are_slopes_of_the_loss(case):
    explore(case)


@draw.examples(25)
@given(draw.strategy(draw.backsolve))
def test_the_continuous_adjoint_is_within_its_tolerance(case):
    explore(case)


@draw.examples(40)
@given(draw.strategy(draw.reversible))
def test_the_reversible_gradient_is_that_of_its_own_leapfrog(case):
    explore(case)


@pytest.fixture
def fresh_blocks(traced):
    compiled_block.cache_clear()
    yield
    compiled_block.cache_clear()


@pytest.mark.usefixtures("fresh_blocks")
@pytest.mark.parametrize("family", range(len(FAMILIES)))
def test_compiled_gradients_are_those_of_backpropagation(family):
    @draw.examples(12)
    @given(draw.strategy(draw.compiled, family))
    def compare(case):
        # One block to compile, which keeps some steps and runs the others again.
        explore(case.but(keep=2, batch=3))

    compare()
