"""Tables in, models out."""
