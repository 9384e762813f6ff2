"""The test of exact fairness of one criterion."""

from evenhand.data.criteria import get_criterion
from evenhand.measures.exact_tests import exact_fairness_p_values


def exact_fairness_p_value(criterion, variables, groups, **options):
    """That of :func:`exact_fairness_p_values`, by itself."""
    found = exact_fairness_p_values([criterion], variables, groups, **options)
    return found[get_criterion(criterion).name]
