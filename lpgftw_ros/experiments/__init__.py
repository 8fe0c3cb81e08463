"""Comparing runs: metrics, statistics, tables, figures, sweeps."""
