"""The program that builds, checks and tests the series of pull requests."""
