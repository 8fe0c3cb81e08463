"""LPG-FTW that adapts: residuals that stay, a measured start, draws, a budget, a guard."""
