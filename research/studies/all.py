"""Every experiment, then the page made from their results.

    python research/run.py all [--quick] [--fresh] [--jobs N]

The frontiers come first: the table and the supplement reuse their fits. The two that measure time
come last, one fit at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from studies import (
    estimator_accuracy,
    estimator_time,
    fit_time,
    frontier_communities,
    frontier_lsac,
    frontier_supplement,
    local_minima,
    penalty,
    report,
    sufficiency,
    thresholds,
)

SCRIPTS = (
    frontier_communities,
    frontier_lsac,
    frontier_supplement,
    thresholds,
    estimator_accuracy,
    sufficiency,
    penalty,
    local_minima,
    fit_time,
    estimator_time,
)


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for script in SCRIPTS:
        script.main(arguments)
        # Forgetting once is enough: later scripts reuse what earlier ones computed.
        arguments = [word for word in arguments if word != "--fresh"]
    if "--quick" not in arguments:
        report.main()


if __name__ == "__main__":
    main()
