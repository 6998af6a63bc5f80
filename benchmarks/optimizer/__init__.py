"""SNOpt beside other optimizers: how fast it learns, and what it costs.

``race`` is the main benchmark: ten tasks, a grid of learning rates, one budget of CPU seconds or
updates for all methods. ``cost`` times an iteration and its parts; ``releases`` compares SNOpt of
another source tree with this one's; ``sensitivity`` varies every setting alone; ``scaling``
measures several processes and predicts more; ``page`` writes the tables of docs/optimizer.md.
"""

COMMANDS = ("race", "cost", "releases", "sensitivity", "scaling", "page")
