"""torch.export's programs as graphs."""

from sealift.frontend.exported import Imported, InputEntry, Weight, export_module, from_export

__all__ = ["Imported", "InputEntry", "Weight", "export_module", "from_export"]
