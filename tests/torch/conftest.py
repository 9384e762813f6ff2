"""Triton's interpreter stands in for a GPU, and must be asked for before Triton is loaded."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
