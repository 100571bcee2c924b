//! Two sorted sequences as one.

use std::iter::Peekable;

/// Merges two iterators that ascend by the first part of their items.
pub(super) fn merge<K: Ord + Copy, V>(
    one: impl Iterator<Item = (K, V)>,
    other: impl Iterator<Item = (K, V)>,
) -> impl Iterator<Item = (K, V)> {
    let (mut one, mut other): (Peekable<_>, Peekable<_>) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some((first, _)), Some((second, _))) if second < first => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_sequences_ascend() {
        let one = [(1, 'a'), (4, 'd'), (5, 'e')];
        let other = [(2, 'b'), (3, 'c'), (6, 'f')];
        let merged: String = merge(one.into_iter(), other.into_iter()).map(|(_, c)| c).collect();
        assert_eq!(merged, "abcdef");
        assert_eq!(merge(one.into_iter(), std::iter::empty()).count(), 3);
    }
}
