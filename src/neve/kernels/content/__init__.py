"""Proof by content: an order-independent fingerprint of rows, whatever their Arrow encoding."""

from neve.kernels.content.files import fingerprint_files as fingerprint_files
from neve.kernels.content.rows import fingerprint as fingerprint
from neve.kernels.content.values import UnhashableError as UnhashableError
