//! A directory of 100,000 entries, some with the same hash, and a file of 20,000 extents.

use larder::OpenOptions;
use larder_testkit::{KernelImage, assert_same, matrix};

use crate::support;

#[test]
fn shows_large_things_as_the_kernel_does() {
    for case in matrix::large() {
        let image = KernelImage::build(&case.spec, &case.content);
        let fs = OpenOptions::new().open(image.devices()).expect("it is sound");
        assert_same(image.manifest(), &support::manifest(&fs));
    }
}
