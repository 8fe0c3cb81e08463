"""Masses on springs, pushed to rest."""
