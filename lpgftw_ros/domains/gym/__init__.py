"""Any Gymnasium task."""
