"""Brings what another broker stored into a data directory of ours."""
