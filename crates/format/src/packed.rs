//! Things that lie in an item one after the other, each saying how long it is.

use std::marker::PhantomData;

use crate::error::FormatError;

/// Something of which an item holds several.
pub trait Packed<'a>: Sized {
    /// Reads the one at the start of `bytes` and returns it with what follows.
    fn parse_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FormatError>;
}

/// Iterates over what an item holds. Ends after an error.
#[derive(Clone, Debug)]
pub struct PackedItems<'a, T> {
    bytes: &'a [u8],
    items: PhantomData<T>,
}

impl<'a, T> PackedItems<'a, T> {
    /// What is in `bytes`, an item's data.
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
        // Behind an error nobody knows where the next one starts.
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
