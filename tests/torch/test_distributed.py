"""Two processes with half of the rows each are one process with all of them."""

import socket

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from torch import nn

from evenhand.torch import FairnessLoss

CRITERIA = ("independence", "separation", "sufficiency")
CASES = [(criterion, kind) for criterion in CRITERIA for kind in ("batch", "running")]


def rows():
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(0, 3, (400,), generator=generator)
    groups[:20] = -1
    X = torch.randn(400, 3, generator=generator, dtype=torch.float64) + groups[:, None]
    y = X.sum(dim=1) + torch.randn(400, generator=generator, dtype=torch.float64)
    weight = torch.rand(400, generator=generator, dtype=torch.float64) + 0.5
    # One half has rows of a group that the other has none of.
    order = torch.argsort((groups == 2).long(), stable=True)
    return X[order], y[order], groups[order], weight[order]


def make_network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def gradients(network):
    return torch.cat([p.grad.reshape(-1) for p in network.parameters()])


def work(rank, port, folder):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    X, y, groups, weight = (column[200 * rank : 200 * (rank + 1)] for column in rows())
    found = []
    for criterion, classifier in CASES:
        network = nn.parallel.DistributedDataParallel(make_network())
        fairness = FairnessLoss(criterion, 3, classifier, process_group="world")
        for _ in range(2):  # the second from the classifier of the first
            network.zero_grad()
            score = network(X)
            value = fairness(score, groups, y, sample_weight=weight)
            loss = ((score[:, 0] - y) ** 2).mean() + 3.0 * value
            loss.backward()
            found.append(np.r_[value.item(), gradients(network).numpy()])
    np.save(f"{folder}/{rank}.npy", np.array(found))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, (port, str(tmp_path)), nprocs=2)
    X, y, groups, weight = rows()
    expected = []
    for criterion, classifier in CASES:
        network = make_network()
        fairness = FairnessLoss(criterion, 3, classifier, backend="kernels")
        for _ in range(2):
            network.zero_grad()
            score = network(X)
            value = fairness(score, groups, y, sample_weight=weight)
            (((score[:, 0] - y) ** 2).mean() + 3.0 * value).backward()
            expected.append(np.r_[value.item(), gradients(network).numpy()])
    for rank in range(2):
        found = np.load(tmp_path / f"{rank}.npy")
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
