//! Many threads read everything at once through a tiny cache.

use larder::OpenOptions;
use larder_testkit::{Content, ImageSpec, KernelImage, Profile, assert_same};

use crate::support;

#[test]
fn threads_share_a_small_cache() {
    let spec = ImageSpec::new("raid1-nodes-4k-zstd")
        .devices(&[256 << 20; 2])
        .profiles(Profile::Raid1, Profile::Raid1)
        .node_size(4 << 10)
        .mount_option("compress=zstd");
    let image = KernelImage::build(&spec, &Content::new(21));
    let expected = image.manifest();
    let fs = OpenOptions::new().cache_bytes(0).open(image.devices()).expect("it is sound");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_same(expected, &support::manifest(&fs)));
        }
    });
    let stats = fs.stats().trees;
    assert!(stats.evictions > 0, "the cache held everything");
    assert!(stats.cached_bytes <= 64 * (4 << 10), "the cache holds {}", stats.cached_bytes);
}
