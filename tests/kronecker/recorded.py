"""Record the factors of one iteration of a model, for the tests of this folder."""

from snopt.kronecker import KroneckerOptions, KroneckerRecorder
from snopt.optim.coverage import blocks_of, cover


def recorder_of(model, options=None, fields=()):
    options = options or KroneckerOptions(conv="kfc")
    blocks = blocks_of(model)
    slots = cover(
        model,
        {id(p): 0 for p in model.parameters()},
        [*(block.field for block in blocks), *fields],
        scope="all",
        conv_form=options.conv,
    )
    return KroneckerRecorder(model, slots, list(blocks), options)


def factors_after(model, run, options=None):
    """Factors recorded while ``run()`` returns a loss that is then differentiated."""
    recorder = recorder_of(model, options)
    recorder.arm()
    run().backward()
    recorder.disarm()
    for p in model.parameters():
        p.grad = None
    return recorder.collect()
