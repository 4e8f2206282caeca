"""The web page in a real browser, against a real server. Needs Debian's chromium; `make test` installs it where it can."""
