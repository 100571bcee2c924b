//! Compression framing of file extents.
