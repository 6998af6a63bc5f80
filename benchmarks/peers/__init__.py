"""Other libraries, measured where the packages of requirements-peers.txt are.

``measure`` compares time, gradient error and memory; ``growth`` lets batch, width, steps and layers
grow; ``page`` writes the tables and figures of docs/peers.md.
"""

COMMANDS = ("measure", "growth", "page")
