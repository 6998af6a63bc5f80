"""Ground floor: types, errors and the packing of nested states. Imports nothing above it."""
