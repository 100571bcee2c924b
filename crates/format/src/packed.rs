//! Entries that are adjacent in an item, each with its own length.

use std::marker::PhantomData;

use crate::error::FormatError;

/// An entry type of which an item holds several.
pub trait Packed<'a>: Sized {
    /// Reads the first entry of `bytes` and returns it with the rest.
    fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FormatError>;
}

/// Iterates over the entries of an item. Ends after an error.
#[derive(Clone, Debug)]
pub struct PackedItems<'a, T> {
    bytes: &'a [u8],
    items: PhantomData<T>,
}

impl<'a, T> PackedItems<'a, T> {
    /// The entries in `bytes`, an item's data.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, items: PhantomData }
    }
}

impl<'a, T: Packed<'a>> Iterator for PackedItems<'a, T> {
    type Item = Result<T, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        // After an error the start of the next entry is unknown.
        let first = T::parse_first(self.bytes).map(|(first, rest)| {
            self.bytes = rest;
            first
        });
        if first.is_err() {
            self.bytes = &[];
        }
        Some(first)
    }
}
