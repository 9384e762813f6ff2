"""The passes over one shard of rows, with their sums added up over all workers."""

from __future__ import annotations

from .._core.shards import add
from . import get_kernels


def gram(rows, basis):
    return add(*get_kernels().gram(rows, basis))


def lspc_pass(rows, basis, weights, beta, want_gradient):
    loss, residual, gradient = get_kernels().lspc_pass(rows, basis, weights, beta, want_gradient)
    return *add(loss, residual), gradient


def lspc_backprop(rows, basis, by_label, common, scale, gradient):
    get_kernels().lspc_backprop(rows, basis, by_label, common, scale, gradient)


def logistic_pass(rows, basis, weights, want_hessian, finish=None, losses=None):
    loss, score, hessian, gradient = get_kernels().logistic_pass(
        rows, basis, weights, want_hessian, finish, losses
    )
    if hessian is None:
        return *add(loss, score), None, gradient
    return *add(loss, score, hessian), gradient
