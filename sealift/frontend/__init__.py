"""torch.export's programs as graphs."""

from sealift.frontend.exported import Imported, InputEntry, Weight, export_module, from_export
from sealift.frontend.recurrent_shapes import recurrent_shapes

__all__ = ["Imported", "InputEntry", "Weight", "export_module", "from_export", "recurrent_shapes"]
