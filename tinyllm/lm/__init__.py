"""Language models made of counts."""
