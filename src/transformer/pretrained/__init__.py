"""Trained weights: those that come with the book, and others'."""

from transformer.pretrained.shipped import load, training_log

__all__ = ["load", "training_log"]
