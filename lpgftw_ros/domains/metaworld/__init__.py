"""Meta-World's Sawyer tasks: upstream's rewards, faster helpers."""
