"""A suite without a test."""
