"""Sections 5.1 and 6: what the models are trained on."""
