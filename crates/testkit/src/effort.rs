//! The duration and the seeds of random tests.

/// The factor by which a random test searches longer: the number in `LARDER_EFFORT`, or 1.
///
/// # Panics
/// If `LARDER_EFFORT` is not a number of at least 1.
pub fn effort() -> u64 {
    let effort = std::env::var("LARDER_EFFORT")
        .map_or(1, |text| text.parse().expect("LARDER_EFFORT is a number"));
    assert!(effort > 0, "LARDER_EFFORT is at least 1");
    effort
}

/// The seed of a random test: `usual`, or another one if `LARDER_SEED` is set. The seed is printed
/// and shown when the test fails; the same `LARDER_SEED` repeats the run.
///
/// # Panics
/// If `LARDER_SEED` is not a number.
pub fn seed(usual: u64) -> u64 {
    let elsewhere: u64 = std::env::var("LARDER_SEED")
        .map_or(0, |text| text.parse().expect("LARDER_SEED is a number"));
    println!("seed {usual} of LARDER_SEED={elsewhere}");
    elsewhere * 1_000_000 + usual
}
