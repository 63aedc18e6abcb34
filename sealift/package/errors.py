"""What can be wrong with a package file."""

from __future__ import annotations

from sealift.diag.errors import SealiftError


class FileError(SealiftError, OSError):
    """The file cannot be opened, read or mapped."""

    code = "E-FILE-001"


class DiskFullError(FileError):
    """No room for the package; nothing was left behind."""

    code = "E-FILE-002"


class PackageError(SealiftError, ValueError):
    """Not a sealift package, or a damaged or hostile archive."""

    code = "E-PACKAGE-001"


class IntegrityError(PackageError):
    """A member differs from the digest that seals it."""

    code = "E-PACKAGE-002"


class VersionError(PackageError):
    """Made for a newer sealift."""

    code = "E-PACKAGE-003"


class ModelNameError(PackageError, LookupError):
    """No model of that name; the message lists the names."""

    code = "E-PACKAGE-004"
