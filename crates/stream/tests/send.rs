//! Streams of Larder, received by the kernel's `btrfs receive`.
//!
//! Needs root, loop devices and btrfs in the kernel.

mod support;

use std::num::NonZeroUsize;
use std::path::Path;

use larder_stream::{SendOptions, Version};
use larder_testkit::{Content, ImageSpec, KernelImage, assert_same};
use support::{EmptyImage, kernel_receive, larder_send, open, sendable, snapshot, subvolume};

fn options(version: Version, compressed_data: bool) -> SendOptions {
    SendOptions { version, compressed_data, ..SendOptions::default() }
}

/// Sends a full snapshot of everything that the testkit makes and then an increment, in the given
/// ways, and has the kernel receive both.
#[track_caller]
fn assert_received(spec: &ImageSpec, ways: &[SendOptions]) {
    let image = KernelImage::build(spec, &Content::new(17));
    let (before, after) = {
        let mount = image.mount("noatime");
        let root = mount.path();
        snapshot(root, &root.join("before"));
        change(root);
        snapshot(root, &root.join("after"));
        mount.sync();
        (sendable(&root.join("before")), sendable(&root.join("after")))
    };
    let filesystem = open(image.devices());
    let first = subvolume(&filesystem, "before");
    let second = subvolume(&filesystem, "after");
    for way in ways {
        let target = EmptyImage::new();
        let mount = target.mount("noatime");
        let stream = larder_send(&first, way);
        let received = kernel_receive(&stream, mount.path(), "before", target.scratch());
        assert_same(&before, &sendable(&received));
        let way = SendOptions { parent: Some(first.clone()), ..way.clone() };
        let stream = larder_send(&second, &way);
        let received = kernel_receive(&stream, mount.path(), "after", target.scratch());
        assert_same(&after, &sendable(&received));
    }
}

/// Changes of every kind, in what the testkit made.
fn change(root: &Path) {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::FileExt;
    let data = root.join("data");
    fs::rename(data.join("text-4096"), data.join("text-4097")).expect("renamed over");
    fs::rename(&data, root.join("sparse/data")).expect("moved");
    fs::rename(root.join("links"), &data).expect("moved to what was another's name");
    fs::create_dir(root.join("links")).expect("made");
    fs::rename(root.join("xattrs"), root.join("links/xattrs")).expect("moved into a new one");
    let file = OpenOptions::new().write(true).open(root.join("sparse/data/text-300007"));
    let file = file.expect("opens");
    file.write_all_at(b"in the middle", 150_000).expect("written");
    file.set_len(200_000).expect("cut");
    fs::remove_dir_all(root.join("many")).expect("removed");
    fs::write(root.join("many"), b"a file now").expect("written");
}

#[test]
fn what_the_kernel_receives_is_what_was_sent() {
    let ways = [options(Version::V1, false), options(Version::V2, false)];
    assert_received(&ImageSpec::new("sent").devices(&[512 << 20]), &ways);
}

#[test]
fn compressed_data_goes_as_it_is_stored() {
    for algorithm in ["zlib", "lzo", "zstd"] {
        let spec = ImageSpec::new(format!("sent-{algorithm}")).devices(&[512 << 20]);
        let spec = spec.mount_option(format!("compress-force={algorithm}"));
        assert_received(&spec, &[options(Version::V2, true)]);
    }
}

#[test]
fn a_stream_does_not_depend_on_the_number_of_threads() {
    let image = KernelImage::build(&ImageSpec::new("threads"), &Content::new(18));
    snapshot_of_everything(&image);
    let filesystem = open(image.devices());
    let snapshot = subvolume(&filesystem, "snapshot");
    let with = |readers| {
        let readers = NonZeroUsize::new(readers).expect("more than none");
        larder_send(&snapshot, &SendOptions { readers, ..SendOptions::default() })
    };
    let alone = with(1);
    assert!(alone == with(2) && alone == with(7));
}

fn snapshot_of_everything(image: &KernelImage) {
    let mount = image.mount("noatime");
    snapshot(mount.path(), &mount.path().join("snapshot"));
    mount.sync();
}
