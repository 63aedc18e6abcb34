"""The version of sealift, in one place."""

VERSION = "0.1.0"
