"""Record the factors of one iteration of a model, for the tests of this folder."""

from snopt.adjoint.blocks import blocks_of
from snopt.kronecker import KroneckerOptions, KroneckerRecorder
from snopt.optim.coverage import cover


def recorder_of(model, options=None, fields=()):
    options = options or KroneckerOptions(conv="kfc")
    blocks = blocks_of(model)
    slots = cover(
        model,
        {id(p): 0 for p in model.parameters()},
        [*(block.field for block in blocks), *fields],
        "all",
        options,
    )
    return KroneckerRecorder(model, slots, list(blocks), options)


def collected(recorder):
    """The factors of what was recorded so far; the recording is closed."""
    sums = recorder.recording.sums
    recorder.disarm()
    return sums.factors(recorder.slots, recorder.options)


def factors_after(model, run, options=None, fields=()):
    """Factors recorded while ``run()`` returns a loss that is then differentiated."""
    recorder = recorder_of(model, options, fields)
    recorder.arm()
    run().backward()
    for p in model.parameters():
        p.grad = None
    return collected(recorder)
