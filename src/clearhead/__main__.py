"""`python -m clearhead` is `clearhead`."""

from clearhead.cli import main

if __name__ == "__main__":
    main()
