"""`python -m ol` is `ol`."""

from ol.cli import main

if __name__ == "__main__":
    main()
