"""The studies behind the pages of evidence: each makes tables in research/results/."""
