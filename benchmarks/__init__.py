"""Measurements of the engine: each module measures to JSON or draws from it."""
