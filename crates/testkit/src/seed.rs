//! Where random tests begin.

/// The seed of a random test: `usual`, or one far from it where `LARDER_SEED` says so. It is printed, which is
/// seen if the test fails; with the same `LARDER_SEED` it does the same again.
///
/// # Panics
/// If `LARDER_SEED` is no number.
pub fn seed(usual: u64) -> u64 {
    let elsewhere: u64 = std::env::var("LARDER_SEED")
        .map_or(0, |text| text.parse().expect("LARDER_SEED is a number"));
    println!("seed {usual} of LARDER_SEED={elsewhere}");
    elsewhere * 1_000_000 + usual
}
