"""Other libraries, measured where the packages of requirements-peers.txt are.

``measure`` compares time, gradient error and memory; ``equal`` compares times at equal gradient
error; ``growth`` lets batch, width, steps and layers grow; ``page`` writes the tables and figures
of docs/peers.md.
"""

COMMANDS = ("measure", "equal", "growth", "page")
