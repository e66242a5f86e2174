"""Thin shells: gather from the state, ask a pure decision, carry it out."""
