"""Checks of input, progress, files, frames: what each room needs and none owns."""
