"""Other libraries and optimizers, measured where the packages of requirements-peers.txt are.

``measure`` compares engines, memory, optimizers and seconds to an accuracy, and profiles our own
engine; ``growth`` lets batch, width, steps and layers grow; ``page`` writes docs/peers.md.
"""

COMMANDS = ("measure", "growth", "page")
