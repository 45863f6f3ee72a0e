"""Uniform draws turned into outcomes: sampling, and accept-or-replace."""
