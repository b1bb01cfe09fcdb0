"""Frames between the members of one cluster: authenticated, bounded, non-blocking; see DESIGN.md."""
