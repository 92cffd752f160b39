"""Differential tests of the engine: random schedules, compared with a naive model.

Start with `harness` (plays seeds, shortens failures). `schedules` draws steps and keeps the simulated clients, `draws`
draws values and patches, `player` plays the steps on both sides, `agreement` compares verdicts, `approximations` lists
the reasons for which the engine may reject more than the model, `observation_model` is the naive model of stored
observations, `describe` writes a failing schedule as text.

Imported by tests. Imports `testing.simulation.oracle` and the product.
"""
