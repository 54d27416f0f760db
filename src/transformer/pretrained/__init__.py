"""Trained weights: those that come with the book, and others'."""

from transformer.pretrained.shipped import load

__all__ = ["load"]
