//! Contiguous data of a file in several pieces of memory, so that no thread has to copy it.
//!
//! # Invariants
//! - No piece is empty.

use std::borrow::Cow;

/// Pieces of memory whose data is contiguous in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices<'a> {
    pieces: Vec<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for Slices<'a> {
    fn from(data: &'a [u8]) -> Self {
        let mut slices = Self::default();
        slices.push(data);
        slices
    }
}

impl<'a> Slices<'a> {
    /// Adds a piece at the end.
    pub(crate) fn push(&mut self, piece: &'a [u8]) {
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }

    /// The pieces, in order.
    pub(crate) fn pieces(&self) -> &[&'a [u8]] {
        &self.pieces
    }

    /// Length of all pieces in bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// The part of `len_bytes` from `from` on, or as much of it as there is.
    pub(crate) fn part(&self, from: u64, len_bytes: u64) -> Self {
        let (mut skip, mut left) = (from, len_bytes);
        let mut part = Self::default();
        for piece in &self.pieces {
            let start = skip.min(piece.len() as u64) as usize;
            skip -= start as u64;
            let len = left.min((piece.len() - start) as u64) as usize;
            left -= len as u64;
            part.push(&piece[start..start + len]);
        }
        part
    }

    /// All of it in one piece, copied only if it is in several.
    pub(crate) fn joined(&self) -> Cow<'a, [u8]> {
        match self.pieces[..] {
            [piece] => Cow::Borrowed(piece),
            _ => Cow::Owned(self.pieces.concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_all_pieces_together() {
        let data: Vec<u8> = (0..20).collect();
        let mut slices = Slices::default();
        for piece in [&data[..1], &data[1..1], &data[1..8], &data[8..20]] {
            slices.push(piece);
        }
        assert_eq!((slices.len_bytes(), slices.pieces().len()), (20, 3));
        for from in 0..=20_usize {
            for len in 0..=20 {
                let part = slices.part(from as u64, len as u64);
                assert_eq!(*part.joined(), data[from..(from + len).min(20)]);
                assert!(part.pieces().iter().all(|piece| !piece.is_empty()));
            }
        }
    }
}
