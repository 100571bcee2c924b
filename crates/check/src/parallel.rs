//! Work spread over threads, for as long as a phase takes.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` with every piece, on `threads` threads that each have a state of their own. Returns
/// the results in the order of the pieces.
pub(crate) fn map<P: Sync, S, R: Send>(
    threads: usize,
    pieces: &[P],
    new_state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &P) -> R + Sync,
) -> Vec<R> {
    if threads <= 1 || pieces.len() <= 1 {
        let mut state = new_state();
        return pieces.iter().map(|piece| work(&mut state, piece)).collect();
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = new_state();
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = pieces.get(index) else { return results };
            results.push((index, work(&mut state, piece)));
        }
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(pieces.len())).map(|_| scope.spawn(run)).collect();
        workers
            .into_iter()
            .flat_map(|worker| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_come_in_the_order_of_the_pieces() {
        let pieces: Vec<u64> = (0..1000).collect();
        let results = super::map(3, &pieces, || (), |(), piece| piece * 2);
        assert!(results.iter().zip(&pieces).all(|(result, piece)| *result == piece * 2));
        assert_eq!(results.len(), 1000);
    }
}
