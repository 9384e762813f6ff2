"""Fit a plain and a fair model of college grades, and compare them on students held out."""

from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import evenhand as eh


def main() -> None:
    data = eh.datasets.load_gpa2()
    X, X_new, y, y_new, a, a_new = train_test_split(
        data.X, data.y, data.sensitive, test_size=0.5, stratify=data.sensitive, random_state=0
    )
    scaler = StandardScaler().fit(X)
    scores = {}
    for weight in (0, 1, 10):
        model = eh.FairRidge("independence", fairness_weight=weight)
        model.fit(scaler.transform(X), y, sensitive_features=a)
        name = "plain (fairness_weight=0)" if weight == 0 else f"fair (fairness_weight={weight})"
        scores[name] = model.predict(scaler.transform(X_new))
    audits = eh.audit(y_new, scores, sensitive_features=a_new)
    print(f"{data.target_name} of {len(X_new):,} students not used for training\n")
    print(audits)
    plain, *_, fair = audits.values()
    cost = plain.r2 - fair.r2
    print(
        f"\nThe fairest model tells {max(fair.independence.value, 0):.2%} of the group instead of "
        f"{plain.independence.value:.2%}, at a cost of {cost:.3f} in R²."
    )
    print("\nThe plain model in detail:\n")
    print(plain)


if __name__ == "__main__":
    main()
