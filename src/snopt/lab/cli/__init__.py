"""The command line: ``main`` finds the verb, one module per verb does the work."""
