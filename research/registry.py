"""All studies: what each is, the table it makes, the page that shows it, and what makes it stale.

The name of a study is that of its table, results/NAME.csv. `sources` are the paths whose change
after the commit of a table makes the table stale.
"""

from __future__ import annotations

from dataclasses import dataclass

from evidence import find_stale

MEASURES = tuple(f"src/evenhand/{room}" for room in ("data", "kernels", "estimators", "measures"))
AUDITS = (*MEASURES, "src/evenhand/auditing")
TRAINING = (*MEASURES, "src/evenhand/training")
TABLES = (*AUDITS, "src/evenhand/tables")
DISTRIBUTIONS = ("research/distributions",)
RIVALS = ("research/rivals", "research/studies/methods.py")


@dataclass(frozen=True)
class Study:
    """One table of results.

    Attributes
    ----------
    name : str
        Of the study and of its table.
    run : str
        "module:function" in `studies`; the function takes a `Setting` and yields rows.
    page : str
        The page of docs/ that shows the table, and after a colon its section.
    what : str
        What is measured, in a few words.
    measured : tuple of str
        Paths of what is measured; with the study's own module they are `sources`.
    part : str
        The column that names the parts that `--only` takes; empty where there are none.
    packages : tuple of str
        Whose versions are noted beside the usual ones.
    threads : int or None
        1 where linear algebra must not use more threads than the study has processes; None where
        time is measured as a user would see it.
    routine : bool
        Whether `all` runs it.
    quick : bool
        Whether `all --quick` runs it; not where it needs what few machines have.
    """

    name: str
    run: str
    page: str
    what: str
    measured: tuple[str, ...]
    part: str = ""
    packages: tuple[str, ...] = ()
    threads: int | None = 1
    routine: bool = True
    quick: bool = True

    @property
    def sources(self) -> tuple[str, ...]:
        return (*self.measured, f"research/studies/{self.run.split(':')[0]}.py")


_ALL = [
    # Frontiers come first: the table of bounds and the supplement reuse their fits.
    Study("frontier_communities", "frontiers:communities", "reproduction: Frontier on Communities",
          "the paper's methods on Communities and Crime", (*TRAINING, *RIVALS)),
    Study("frontier_lsac", "frontiers:lsac", "reproduction: Frontier on LSAC",
          "the paper's methods on 5,000 law students", (*TRAINING, *RIVALS)),
    Study("supplement_communities", "frontiers:supplement_communities",
          "reproduction: A logistic classifier inside",
          "logistic inside, our fitters and other methods on Communities",
          (*TRAINING, *RIVALS), packages=("fairlearn", "equipy")),
    Study("supplement_lsac", "frontiers:supplement_lsac",
          "reproduction: A logistic classifier inside",
          "logistic inside, our fitters and other methods on LSAC",
          (*TRAINING, *RIVALS), packages=("fairlearn", "equipy")),
    Study("thresholds", "frontiers:thresholds", "reproduction: One table",
          "best R² of each method under a bound", (*TRAINING, *RIVALS),
          packages=("fairlearn", "equipy")),
    Study("estimator_accuracy", "paper:estimator_error",
          "reproduction: Estimated against true information",
          "estimated against true information, 100 scenarios", (*MEASURES, *DISTRIBUTIONS)),
    Study("rivals_published", "published:table", "reproduction: Other papers' tables",
          "rivals in their papers' measures on their splits, and our models there",
          (*TRAINING, "research/rivals", "research/loaders"), part="part"),
    Study("sufficiency", "frontiers:sufficiency", "reproduction: Sufficiency",
          "frontiers on data where sufficiency is violated", (*TRAINING, *RIVALS)),
    Study("penalty", "penalty:bounds", "reproduction: What we had wrong",
          "R² under bounds at several penalties of the classifier inside", TRAINING),
    Study("penalty_path", "penalty:paths", "reproduction: What we had wrong",
          "the points of these paths", TRAINING),
    Study("local_minima", "penalty:minima", "reproduction: Several minima",
          "fits from many starts", TRAINING),
    Study("fit_time", "paper:fit_time", "reproduction: Fit time",
          "fit time of all methods against rows", (*TRAINING, *RIVALS)),
    Study("estimator_time", "paper:estimator_time", "reproduction: Run time of the estimators",
          "time of the estimators against rows", MEASURES),
    Study("atlas", "atlas:table", "atlas", "all methods on a dozen data sets",
          (*TRAINING, *RIVALS, "research/studies/atlas_methods.py", "research/loaders"),
          packages=("fairlearn",)),
    Study("atlas_curves", "atlas:places", "atlas", "the places of all curves of the atlas",
          (*TRAINING, *RIVALS, "research/studies/atlas_methods.py", "research/loaders")),
    Study("atlas_choices", "atlas:choices", "atlas", "what methods of the atlas chose inside",
          (*TRAINING, *RIVALS, "research/studies/atlas_methods.py", "research/loaders")),
    Study("accuracy", "estimates:accuracy", "accuracy",
          "error of the estimators over the oracle's, seven families", (*MEASURES, *DISTRIBUTIONS)),
    Study("accuracy_fresh", "estimates:fresh", "accuracy: `auto` on fresh scenarios",
          "the same for auto on scenarios drawn later", (*MEASURES, *DISTRIBUTIONS)),
    Study("rough", "rough:sizes", "accuracy: Distributions without smoothness",
          "bias and coverage where nothing is smooth", (*MEASURES, *DISTRIBUTIONS)),
    Study("rough_doubling", "rough:doubling", "accuracy: Distributions without smoothness",
          "whether more rows lose what fewer saw", (*MEASURES, *DISTRIBUTIONS)),
    Study("adversary", "adversary:run", "accuracy: Random distributions",
          "random distributions, looking for trouble", (*MEASURES, *DISTRIBUTIONS)),
    Study("intervals", "estimates:intervals", "accuracy: Intervals",
          "coverage of 95 % intervals", (*MEASURES, *DISTRIBUTIONS)),
    Study("clusters", "estimates:clusters", "accuracy: Clusters",
          "coverage where rows come in clusters", (*MEASURES, *DISTRIBUTIONS)),
    Study("calibration", "calibration:run", "accuracy: Tests of exact fairness",
          "size and power of the tests", (*MEASURES, *DISTRIBUTIONS), part="study"),
    Study("cells", "cells:run", "cells", "audits from cells against audits from rows",
          (*AUDITS, *DISTRIBUTIONS)),
    Study("certify", "certify:run", "how-it-works",
          "how often a limit is exceeded on fresh data, certified and not", TRAINING,
          part="scenario"),
    Study("small_samples", "small_samples:run", "how-it-works",
          "FairRegressor on 300 to 1,500 rows, beside fair ridge at equal unfairness",
          (*TRAINING, "research/rivals", "research/loaders"), part="dataset"),
    Study("floors", "floors:run", "how-it-works",
          "how fair models get at any strength, against splines and against a quadratic",
          (*TRAINING, "research/loaders"), part="dataset"),
    Study("verdicts", "verdicts:run", "verdicts",
          "wrong verdicts at the edge, coverage of impact, planned rows", AUDITS, part="part"),
    Study("controls", "controls:simulated", "controls",
          "adjusted gaps and information given controls", AUDITS, part="design"),
    Study("hard_controls", "controls:hard", "controls",
          "adjusted gaps given many levels, products and heavy tails", AUDITS, part="design"),
    Study("dressing", "dressing:run", "verdicts",
          "verdicts on tables that tricks composed at random dress up", AUDITS),
    Study("metrics", "metrics:run", "verdicts",
          "coverage of metrics by group, in rows and in families", AUDITS),
    Study("gates", "gates:run", "verdicts",
          "every trick at every gate of the command line, before and after", (*TABLES,
          "src/evenhand/cli", "tests/cli/test_cli_dressing.py"), quick=False),
    Study("next_door", "next_door:run", "limits: Next door to what is tested",
          "intervals, tests and verdicts beside the cases that tests hold", TABLES,
          part="case"),
    Study("illinois", "controls:illinois", "controls",
          "premiums in minority ZIP codes of the same risk", (*AUDITS, "research/loaders"),
          packages=("statsmodels",)),
    Study("boosting", "boosters:objectives", "boosting",
          "cost of fair objectives, and how far training fairness holds",
          (*TRAINING, "src/evenhand/boosting.py"), part="what",
          packages=("xgboost-cpu", "lightgbm")),
    Study("stack", "boosters:stack", "stack", "R² of the stack at equal unfairness", TRAINING,
          packages=("xgboost-cpu",)),
    Study("glm", "models:glm", "glm", "iterations and time of fair GLMs", TRAINING,
          packages=("glum",)),
    Study("models", "models:picture", "measured", "frontiers of all model classes",
          (*TRAINING, "src/evenhand/torch", "src/evenhand/boosting.py"),
          packages=("xgboost-cpu", "torch")),
    Study("network_batches", "networks:batches", "torch", "what mini-batches do to the loss",
          (*MEASURES, "src/evenhand/torch"), packages=("torch",)),
    Study("continuous", "continuous:simulated", "continuous",
          "error, coverage and tests of a continuous attribute", MEASURES, part="law"),
    Study("continuous_training", "continuous:training", "continuous",
          "training against the age of Belgian policyholders", (*TRAINING, "research/loaders")),
    Study("continuous_peers", "continuous:peers", "continuous",
          "maximal correlation by another package beside ours", MEASURES, packages=("maxcorr",),
          quick=False),
    Study("drivers", "explaining:drivers", "explain", "whether drivers are ranked right", AUDITS),
    Study("driver_features", "explaining:driver_features", "explain",
          "the same by feature of a boosted model", AUDITS),
    Study("imputed", "explaining:imputed", "explain", "bounds and estimates of imputed groups",
          AUDITS),
    Study("monitor", "monitoring:run", "monitor", "false alarms, and how soon a change is seen",
          TABLES, part="what"),
    # What measures time comes last, on a machine that does nothing else.
    Study("performance", "speed_of_fits:performance", "performance: Fits and evaluations",
          "fits and evaluations against floors and peers", TRAINING, part="study",
          packages=("jax", "fairlearn"), threads=None),
    Study("fit_speed", "speed_of_fits:published", "performance: One fit",
          "one fit against the published algorithm in JAX", TRAINING, packages=("jax",),
          threads=None),
    Study("path_speed", "speed_of_fits:paths", "performance: Fits and evaluations",
          "a path of 20 weights, in single fits", TRAINING, threads=None),
    Study("berk_scaling", "speed_of_fits:convex", "performance: Convex penalties",
          "the penalties of Berk et al., all pairs and linear time", ("research/rivals",)),
    Study("audit_speed", "speed_of_audits:audits", "performance: Audits",
          "whole audits against one neighbor estimate", AUDITS, threads=None),
    Study("many_groups", "speed_of_audits:many_groups", "performance: Many groups",
          "two to forty groups", (*AUDITS, *TRAINING), threads=None),
    Study("cold_start", "speed_of_audits:cold_start", "performance: First calls",
          "CPU time and compiled kernels of first calls", (*AUDITS, *TRAINING), part="what",
          threads=None),
    Study("followers", "speed_of_audits:followers", "performance: Beyond an audit",
          "controls, drivers, measurements, monitors and impact against floors", TABLES,
          packages=("fairlearn",)),
    Study("neighbors", "speed_of_audits:neighbors", "performance: Neighbors",
          "KNN against scikit-learn and ennemi", MEASURES, packages=("ennemi",)),
    Study("packages", "speed_of_audits:packages", "performance: Measures of other packages",
          "whole audits against dalex and infomeasure", AUDITS,
          packages=("dalex", "infomeasure"), threads=None, routine=False, quick=False),
    Study("network_steps", "networks:steps", "torch",
          "what the loss adds to a training step, and its gradient where groups are rare",
          ("src/evenhand/torch", "research/network_steps.py"), part="kind",
          packages=("torch", "triton"), threads=None),
    Study("network_loss", "networks:loss", "performance: Networks on a GPU",
          "forward and backward of the loss for networks", (*MEASURES, "src/evenhand/torch"),
          part="kind", packages=("torch", "triton"), threads=None),
    Study("scale", "scale:run", "scale", "tables counted where they are", TABLES, part="part",
          packages=("duckdb", "polars", "pyspark", "pyarrow"), threads=None),
    Study("training", "training:files", "training-at-scale", "fits on files beyond memory",
          (*TRAINING, "src/evenhand/tables"), part="model", packages=("pyarrow",), threads=None),
    Study("cluster", "training:cluster", "cluster", "fits on a cluster",
          (*TRAINING, "src/evenhand/distributed"), part="engine",
          packages=("dask", "distributed", "pyspark", "xgboost-cpu"), threads=None, quick=False),
    Study("mutants", "mutants:run", "defects", "planted defects that the tests notice", (),
          part="module", routine=False),
    # Of two revisions; on no page.
    Study("same_numbers", "revisions:same_numbers", "", "whether a change moved a number", (),
          routine=False),
    Study("base_head", "revisions:base_head", "", "the same small jobs at two revisions", (),
          threads=None, routine=False),
    Study("wheels", "wheels:run", "", "the wheel on each Python, without the checkout",
          ("src/evenhand", "pyproject.toml"), part="case", threads=None, routine=False),
    Study("fuzz", "fuzz:run", "", "random misuse of everything public", ("src/evenhand",),
          part="target", routine=False),
]  # fmt: skip
STUDIES = {study.name: study for study in _ALL}


def list_ages(page: str) -> list[str]:
    """One line for each table of a page, and more where its rows were not measured at once."""
    out = []
    for study in STUDIES.values():
        if study.page.split(":")[0] == page:
            for commit, date, stale in find_stale(study.name, study.sources):
                out.append(f"{study.name}: {stale or f'measured at {commit} ({date})'}.")
    return out
