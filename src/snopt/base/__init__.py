"""Types, errors, packing of nested states; imports nothing from the other packages."""
