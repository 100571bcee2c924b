#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use larder_fuzz::Image;

/// Made by `crates/fuzz/libfuzzer/seeds`, which also makes the corpus.
static IMAGE: LazyLock<Image> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/image");
    Image::read(&path).expect("an image made by crates/fuzz/libfuzzer/seeds")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| larder_fuzz::stream_receive(&IMAGE, bytes));
