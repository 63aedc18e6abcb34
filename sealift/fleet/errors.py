"""What can go wrong with a fleet, one type per code; `sealift explain CODE` prints a code's page."""

from __future__ import annotations

from sealift.diag.errors import SealiftError


class FleetError(SealiftError):
    """Base of what the fleet raises."""

    code = "E-FLEET-001"


class StoreBusyError(FleetError, RuntimeError):
    """Another process owns the store."""

    code = "E-FLEET-001"


class StoreDamagedError(FleetError, RuntimeError):
    """The store's control file cannot be read, or is of another version."""

    code = "E-FLEET-002"


class QuestionError(FleetError, ValueError):
    """A question that cannot be answered as it is put."""

    code = "E-FLEET-003"


class UnreachableError(FleetError, ConnectionError):
    """No collector answers there, or it refuses."""

    code = "E-FLEET-004"


class WireError(FleetError, ValueError):
    """Bytes that are no OTLP request, or too many of them."""

    code = "E-FLEET-005"


class StoreFullError(FleetError, OSError):
    """The store's disk took no more; nothing of the batch was kept, so nothing was acknowledged."""

    code = "E-FLEET-006"


class RuleError(FleetError, ValueError):
    """A rule file that says something unknown."""

    code = "E-FLEET-007"


class MissingExtraError(FleetError, ImportError):
    """The extra `fleet` is not installed."""

    code = "E-FLEET-008"


class ForeignError(FleetError, PermissionError):
    """A request under a name that the collector does not answer to, or from another site's page."""

    code = "E-FLEET-009"
