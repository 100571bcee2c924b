//! Every image of the matrix: this library shows everything that the kernel shows.

use larder::OpenOptions;
use larder_testkit::{KernelImage, assert_same, matrix};

use crate::support;

#[test]
fn the_library_shows_the_same_as_the_kernel() {
    for case in matrix::matrix() {
        println!("{}", case.spec.name());
        let image = KernelImage::build(&case.spec, &case.content);
        let fs = OpenOptions::new().open(image.devices()).expect("it is sound");
        assert_same(image.manifest(), &support::manifest(&fs));
    }
}
