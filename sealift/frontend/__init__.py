"""torch.export's programs as graphs."""

from sealift.frontend.exported import Imported, InputEntry, export_module, from_export
from sealift.frontend.recurrent_shapes import recurrent_shapes
from sealift.frontend.weights import Weight

__all__ = ["Imported", "InputEntry", "Weight", "export_module", "from_export", "recurrent_shapes"]
