"""FairnessLoss: equal to the regularizer, on CPU and GPU, and unmoved by bad batches."""

import copy
import importlib
import pickle
import sys

import numpy as np
import pytest
import torch
from grids import pairwise

import evenhand as eh
from evenhand.data.criteria import Criterion
from evenhand.torch import FairnessLoss, fused

CRITERIA = ("independence", "separation", "sufficiency")
KINDS = ("plain", "weights", "unknown")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def short_kernels(monkeypatch):
    """The interpreter takes a second for a hundred sums; Hessians of many are made otherwise."""
    if DEVICE == "cpu":
        monkeypatch.setattr(fused, "_MOST_SUMS", 48)


def tensors(data, dtype=torch.float64, device="cpu"):
    """Scores, groups and the rest of a case as tensors."""
    sensitive = data.fairness["sensitive_features"]
    weight = data.fairness.get("sample_weight")
    groups = torch.tensor(np.where(np.isnan(sensitive), -1, sensitive).astype(np.int64))
    s = torch.tensor(data.s, dtype=dtype, device=device, requires_grad=True)
    rest = {"y": torch.tensor(data.y, dtype=dtype, device=device)}
    if weight is not None:
        rest["sample_weight"] = torch.tensor(weight, dtype=dtype, device=device)
    return s, groups.to(device), rest


def expected(data, criterion, **options):
    options = {"basis": "quadratic", **options}
    bound = eh.FairnessRegularizer(criterion, **options).bind(data.y, **data.fairness)
    return bound.value_and_grad(data.s)


def call(loss, s, groups, rest):
    s.grad = None
    value = loss(s, groups, **rest)
    value.backward()
    return value.item(), s.grad.double().cpu().numpy()


def far(found, exact):
    return np.abs(found - exact).max() / np.abs(exact).max()


@pairwise(criterion=CRITERIA, kind=KINDS, n_groups=[2, 4])
def test_cpu_equals_the_regularizer(criterion, kind, n_groups, case):
    data = case(kind, n_groups, n=300)
    value, gradient = call(FairnessLoss(criterion, n_groups), *tensors(data))
    exact, slope = expected(data, criterion)
    assert value == pytest.approx(exact, abs=1e-12)
    assert far(gradient, slope) < 1e-10


@pairwise(
    criterion=CRITERIA,
    kind=KINDS,
    basis=["linear", "quadratic", "degree3"],
    score_map=["tanh", "raw"],
)
def test_options_equal_the_regularizer(criterion, kind, basis, score_map, case):
    data = case(kind, 3, n=240)
    exact, slope = expected(data, criterion, basis=basis, score_map=score_map)
    loss = FairnessLoss(criterion, 3, basis=basis, score_map=score_map)
    value, gradient = call(loss, *tensors(data))
    assert value == pytest.approx(exact, abs=1e-8)
    # The regularizer stops a Newton step earlier.
    assert far(gradient, slope) < 1e-5


# Triton's interpreter is slow, so that criteria and forms of rows meet in pairs.
@pytest.mark.parametrize(
    ("criterion", "kind", "n_groups", "options"),
    [
        ("independence", "plain", 2, {}),
        ("separation", "unknown", 2, {"basis": "linear", "score_map": "raw"}),
        ("sufficiency", "weights", 2, {}),
        ("separation", "weights", 4, {}),
        ("independence", "unknown", 4, {"basis": "degree3"}),
        ("sufficiency", "plain", 4, {}),
        ("separation", "unknown", 11, {}),
    ],
)
def test_triton_equals_the_regularizer(criterion, kind, n_groups, options, case):
    data = case(kind, n_groups, n=320)
    loss = FairnessLoss(criterion, n_groups, backend="triton", **options)
    value, gradient = call(loss, *tensors(data, torch.float32, DEVICE))
    exact, slope = expected(data, criterion, **options)
    assert value == pytest.approx(exact, abs=1e-5)
    # Eleven groups of thirty rows are told apart in places, where float32 has few digits left.
    assert far(gradient, slope) < (1e-4 if n_groups < 11 else 1e-3)
    again, _ = call(loss, *tensors(data, torch.float32, DEVICE))
    assert again == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("n_groups", [2, 3])
def test_triton_hessian_and_start_from_some_of_the_rows(n_groups, case, monkeypatch):
    """As with very many rows."""
    monkeypatch.setattr(fused, "SAMPLE_ROWS", 600)
    data = case("weights", n_groups, n=3000)
    loss = FairnessLoss("independence", n_groups, backend="triton")
    value, gradient = call(loss, *tensors(data, torch.float32, DEVICE))
    exact, slope = expected(data, "independence")
    assert value == pytest.approx(exact, abs=1e-5)
    # A Hessian of 600 rows is a tenth off, and so is a last step.
    assert far(gradient, slope) < 1e-3


def test_rows_that_repeat_do_not_fall_in_step_with_those_taken(case, monkeypatch):
    """Each fifth row is of no group, and a fifth of the rows is looked at."""
    monkeypatch.setattr(fused, "SAMPLE_ROWS", 600)
    s, groups, _ = tensors(case("plain", 2, n=3000), torch.float32, DEVICE)
    groups[::5] = -1
    value, gradient = call(FairnessLoss("independence", 2, backend="triton"), s, groups, {})
    exact, slope = call(FairnessLoss("independence", 2, backend="kernels"), s, groups, {})
    assert value == pytest.approx(exact, abs=1e-5)
    assert far(gradient, slope) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["kernels", "triton"])
def test_short_floats(dtype, backend, case):
    data = case("plain", 2, n=300)
    device = "cpu" if backend == "kernels" else DEVICE
    s, groups, rest = tensors(data, dtype, device)
    rounded = data._replace(s=s.detach().double().cpu().numpy(), y=rest["y"].double().cpu().numpy())
    value, gradient = call(FairnessLoss("separation", 2, backend=backend), s, groups, rest)
    exact, slope = expected(rounded, "separation")
    assert value == pytest.approx(exact, abs=1e-5)
    # The gradient itself is rounded to the precision of the scores.
    assert far(gradient, slope) < (1e-4 if dtype == torch.float32 else 1e-2)


@pairwise(criterion=CRITERIA, weighted=[False, True])
def test_gradcheck(criterion, weighted, case):
    s, groups, rest = tensors(case("weights", 3, n=40))
    if not weighted:
        del rest["sample_weight"]
    loss = FairnessLoss(criterion, 3)
    assert torch.autograd.gradcheck(lambda x: loss(x, groups, **rest), (s,), rtol=1e-4)


@pytest.mark.parametrize("backend", ["kernels", "triton"])
def test_a_batch_with_one_group_counts_for_nothing(backend):
    device = "cpu" if backend == "kernels" else DEVICE
    s = torch.randn(50, device=device, requires_grad=True)
    y = torch.randn(50, device=device)
    loss = FairnessLoss("separation", 3, backend=backend)
    for groups in (torch.ones(50), torch.full((50,), -1)):
        value = loss(s, groups.long().to(device), y)
        value.backward()
        assert value.item() == 0.0
        assert not s.grad.any()
    # And the next batch is as any other.
    assert loss(s, torch.arange(50, device=device) % 3, y).item() > 0.0


def test_a_target_that_tells_the_groups_apart_counts_for_nothing():
    groups = torch.arange(4000) % 2
    s = torch.randn(4000, requires_grad=True)
    value = FairnessLoss("separation", 2)(s, groups, groups + 0.0)
    value.backward()
    assert value.item() == 0.0
    assert not s.grad.any()


@pytest.mark.parametrize("criterion", CRITERIA)
def test_absent_groups_are_left_out(criterion, case):
    data = case("weights", 3, n=150)
    s, groups, rest = tensors(data)
    groups = (groups * 2).to(torch.uint8)
    value, gradient = call(FairnessLoss(criterion, 5), s, groups, rest)
    exact, slope = expected(data, criterion)
    assert value == pytest.approx(exact, abs=1e-9)
    assert far(gradient, slope) < 1e-6


# Triton's interpreter is NumPy, which warns of what the test is about.
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("backend", ["kernels", "triton"])
def test_scores_that_are_not_finite_give_nan(backend):
    device = "cpu" if backend == "kernels" else DEVICE
    s = torch.randn(60, device=device)
    s[7] = float("inf")
    s.requires_grad_()
    value = FairnessLoss("independence", 2, backend=backend)(s, torch.arange(60, device=device) % 2)
    value.backward()
    assert value.isnan()
    assert s.grad.isnan().all()


@pytest.mark.parametrize("backend", ["kernels", "triton"])
def test_constant_scores_are_fair_and_have_no_slope(backend):
    device = "cpu" if backend == "kernels" else DEVICE
    s = torch.full((60,), 3.0, device=device, requires_grad=True)
    groups = torch.arange(60, device=device) % 2
    value = FairnessLoss("independence", 2, backend=backend)(s, groups)
    value.backward()
    assert value.item() == pytest.approx(0.0, abs=1e-6)
    assert not s.grad.any()


def test_what_does_not_depend_on_scores_is_made_once(case):
    s, groups, rest = tensors(case("plain", 2))
    loss = FairnessLoss("separation", 2)
    before = loss(s, groups, **rest).item()
    kept = loss._memory._made["fixed"]
    loss(s + 1.0, groups, **rest)
    assert loss._memory._made["fixed"] is kept
    rest["y"].mul_(-1.0).add_(groups)  # in place: the same tensor, but another target
    after = loss(s, groups, **rest).item()
    assert loss._memory._made["fixed"] is not kept
    assert after == pytest.approx(FairnessLoss("separation", 2)(s, groups, **rest).item())
    assert after != pytest.approx(before)


def test_given_takes_the_place_of_the_target(case):
    data = case("plain", 2)
    s, groups, rest = tensors(data)
    torch.manual_seed(0)
    risk = rest["y"] + torch.randn(len(s), dtype=torch.float64)
    loss = FairnessLoss("separation", 2)
    exact = loss(s, groups, risk).item()
    assert loss(s, groups, rest["y"], given=risk).item() == pytest.approx(exact, abs=1e-10)
    assert loss(s, groups, rest["y"]).item() != pytest.approx(exact, abs=1e-4)
    with pytest.raises(ValueError, match="`given` must be None for independence"):
        FairnessLoss("independence", 2)(s, groups, given=risk)


def test_columns_and_upstream_gradients(case):
    s, groups, rest = tensors(case("plain", 2))
    _, gradient = call(FairnessLoss("separation", 2), s, groups, rest)
    column = s.detach()[:, None].requires_grad_()
    value = FairnessLoss("separation", 2)(column, groups[:, None], rest["y"][:, None])
    (3.0 * value).backward()
    np.testing.assert_allclose(column.grad[:, 0].numpy(), 3.0 * gradient, rtol=1e-12)


@pytest.mark.parametrize(
    ("backend", "criterion"), [*(("kernels", c) for c in CRITERIA), ("triton", "separation")]
)
def test_running_follows_the_batches(backend, criterion):
    """Over batches of one law it comes to the value of many rows, which small batches overstate."""
    torch.manual_seed(0)
    device = DEVICE if backend == "triton" else "cpu"
    size, batches = (256, 40) if backend == "kernels" else (128, 6)
    groups = torch.randint(0, 2, (size * batches,), device=device)
    y = torch.randn(len(groups), device=device) + 0.5 * groups
    s = y + torch.randn(len(groups), device=device) + 0.5 * groups
    all_rows = FairnessLoss(criterion, 2, backend="kernels")(s.double(), groups, y.double()).item()
    loss = FairnessLoss(criterion, 2, "running", backend=backend)
    refitted = FairnessLoss(criterion, 2, backend="kernels")
    values, refits = [], []
    for rows in torch.arange(len(groups), device=device).split(size):
        values.append(loss(s[rows], groups[rows], y[rows]).item())
        refits.append(refitted(s[rows].double(), groups[rows], y[rows].double()).item())
    assert np.isfinite(values).all()
    if backend == "kernels":
        late = slice(10, None)
        assert abs(np.mean(values[late]) - all_rows) < 0.01
        assert np.mean(values[late]) < np.mean(refits[late])


def test_running_is_saved_with_the_module(case):
    s, groups, rest = tensors(case("plain", 3, n=300))
    loss = FairnessLoss("separation", 3, "running")
    for rows in torch.arange(300).split(100):
        loss(s[rows], groups[rows], rest["y"][rows])
    other, again = copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))
    for module in (loss, other, again):
        module.eval()
    first = loss(s, groups, **rest).item()
    assert other(s, groups, **rest).item() == again(s, groups, **rest).item() == first
    # Nothing is learned in evaluation.
    assert loss(s, groups, **rest).item() == first


@pytest.mark.parametrize("criterion", CRITERIA)
def test_running_shares_are_the_mean_of_the_first_batches(criterion):
    rng = np.random.default_rng(0)
    loss = FairnessLoss(criterion, 2, "running")
    for share in (0.5, 0.25, 0.75):
        groups = torch.tensor(np.arange(400) < 400 * share, dtype=torch.int64)
        scores = torch.tensor(rng.normal(size=400)) + groups
        loss(
            scores,
            groups,
            None if criterion == "independence" else torch.tensor(rng.normal(size=400)),
        )
    assert loss._shares[1] == pytest.approx(0.5, abs=0.01)


def test_running_with_a_group_that_comes_late():
    torch.manual_seed(1)
    loss = FairnessLoss("independence", 3, "running")
    for step in range(20):
        groups = torch.randint(0, 2 if step < 8 else 3, (100,))
        s = (torch.randn(100) + groups).requires_grad_()
        value = loss(s, groups)
        value.backward()
        assert value.isfinite()
        assert s.grad.isfinite().all()


def test_reset_forgets(case):
    s, groups, rest = tensors(case("plain", 2))
    loss = FairnessLoss("separation", 2, "running")
    first = loss(s, groups, **rest).item()
    loss(s * s, groups, **rest)
    loss.reset()
    assert loss(s, groups, **rest).item() == pytest.approx(first, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "kindness"}, "`criterion` must be one of"),
        ({"n_groups": 1}, "`n_groups` must be an integer of at least 2, got 1"),
        ({"classifier": "adversary"}, "`classifier` must be one of batch, running, got 'adv"),
        ({"basis": "spline"}, "`basis` must be one of"),
        ({"kappa": 0}, "`kappa` must be a positive number or 'auto', got 0"),
        ({"score_map": "rank"}, "`score_map` must be one of"),
        ({"momentum": 0.0}, r"`momentum` must lie in \(0, 1\], got 0"),
        ({"backend": "jax"}, "`backend` must be one of"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        FairnessLoss(**{"criterion": "independence", "n_groups": 2, **options})


def test_criteria_of_other_columns_are_refused():
    other = Criterion("redlining", ("r",), ("s", "r"))
    with pytest.raises(
        ValueError, match=r"`criterion` must speak of score and target.*'redlining'"
    ):
        FairnessLoss(other, 2)


S, A, Y = torch.zeros(4), torch.tensor([0, 1, 0, 1]), torch.zeros(4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((S.long(), A), "`scores` must be a tensor of floats, got a tensor of torch.int64"),
        (([0.0], A), "`scores` must be a tensor of floats, got list"),
        ((torch.zeros(4, 2), A), r"`scores` must have shape \(n,\) or \(n, 1\), got \(4, 2\)"),
        ((S, A[:3], Y), r"`groups` must have shape \(4,\), got \(3,\)"),
        ((S, A + 0.5, Y), "`groups` must be integers, got a tensor of torch.float32. Hint"),
        ((S, A.numpy(), Y), "`groups` must be a tensor, got ndarray"),
        ((S, A + 1, Y), "`groups` must lie below n_groups=2, got 2"),
        ((S, A), "`y` must be given for separation, got None"),
        ((S, A, Y[:2]), r"`y` must have shape \(4,\), got \(2,\)"),
        ((S, A, Y, None, -Y - 1), "`sample_weight` must be finite and nonnegative"),
        ((S, A, [0.0] * 4), "`y` must be a tensor, got list"),
        ((S, A, Y.to("meta")), "`y` must be on cpu as the scores are, got meta"),
        ((S, A.to("meta"), Y), "`groups` must be on cpu as the scores are, got meta"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        FairnessLoss("separation", 2)(*arguments)


def test_triton_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="`backend` must be 'auto' or 'kernels' for float64"):
        FairnessLoss("independence", 2, backend="triton")(S.double(), A)


def test_the_backend_follows_the_tensors(monkeypatch):
    loss = FairnessLoss("independence", 2)
    assert loss._choose(S.dtype, S.device) == "kernels"
    gpu = torch.device("cuda")
    assert loss._choose(S.dtype, gpu) == "triton"
    assert loss._choose(torch.float64, gpu) == "kernels"
    monkeypatch.setitem(sys.modules, "evenhand.torch.fused", None)
    monkeypatch.delattr("evenhand.torch.fused", raising=False)
    with pytest.warns(RuntimeWarning, match=r"triton is not installed.*Hint: pip install triton"):
        assert loss._choose(S.dtype, gpu) == "kernels"


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("evenhand.torch", "torch", "needs PyTorch, which is not installed. Hint: pip install 'ev"),
        ("evenhand.torch.fused", "triton", "needs the package triton, which is not installed"),
    ],
)
def test_what_is_not_installed_is_said(module, name, message, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ImportError, match=message):
        importlib.import_module(module)


def test_rare_groups_have_their_gradient(monkeypatch):
    """They count little in the loss, and much in the gradient of their own rows."""
    monkeypatch.setattr(fused, "SAMPLE_ROWS", 256)
    rng = np.random.default_rng(0)
    share = np.exp(-0.4 * np.arange(12))
    a = rng.choice(12, 900, p=share / share.sum())
    s = rng.normal(size=900) * (1 + 0.05 * (a % 3)) + 0.3 * (a % 4)
    s = torch.tensor(s, dtype=torch.float32, device=DEVICE)
    groups = torch.tensor(a, device=DEVICE)
    assert 0 < torch.bincount(groups).min() < 10
    _, slope = call(FairnessLoss("independence", 12), s.double().requires_grad_(), groups, {})
    for backend in ("kernels", "triton"):
        loss = FairnessLoss("independence", 12, backend=backend)
        assert far(call(loss, s.requires_grad_(), groups, {})[1], slope) < 1e-3


@pytest.mark.parametrize("unit", [1e-30, 1e30])
@pytest.mark.parametrize("backend", ["kernels", "triton"])
def test_units_do_not_matter(backend, unit, case):
    s, groups, rest = tensors(case("weights", 2, n=120), torch.float32, DEVICE)
    loss = FairnessLoss("separation", 2, backend=backend)
    value, gradient = call(loss, s, groups, rest)
    # From one unit to the other, as of a network whose scores explode.
    scaled = (s.detach() * unit).requires_grad_()
    again, slope = call(loss, scaled, groups, {**rest, "y": rest["y"] * unit})
    assert value > 0.01
    assert again == pytest.approx(value, rel=1e-4)
    assert far(slope * unit, gradient) < 1e-3


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_units_beyond_the_range_of_squares(unit, case):
    s, groups, _ = tensors(case("plain", 2, n=120))
    value, gradient = call(FairnessLoss("independence", 2), s, groups, {})
    again, slope = call(
        FairnessLoss("independence", 2), (s.detach() * unit).requires_grad_(), groups, {}
    )
    assert again == pytest.approx(value, rel=1e-9)
    assert far(slope * unit, gradient) < 1e-9
