"""The planning process: it alone loads numpy and the solver of linear programs (`python -m provisioner.planner`)."""
