//! Streams of Larder, received by the kernel's `btrfs receive`.
//!
//! Needs root, loop devices and btrfs in the kernel.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use jiff::tz::TimeZone;
use larder_stream::{Reading, SendError, SendOptions, Version, dump, send, send_reading};
use larder_testkit::command::run;
use larder_testkit::{Content, Feature, ImageSpec, KernelImage, assert_same};

use crate::support::{
    EmptyImage, btrfs, change, kernel_receive, larder_send, open, sendable, snapshot, subvolume,
};

fn options(version: Version, compressed_data: bool) -> SendOptions {
    SendOptions { version, compressed_data, ..SendOptions::default() }
}

/// Sends a full snapshot of everything that the testkit makes and then an increment, with these
/// options, and makes the kernel receive both.
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
        // With space for the longest extended attributes of any image.
        let target = EmptyImage::with_node_size(64 << 10);
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

#[test]
fn the_kernel_receives_snapshots_as_they_were_sent() {
    let ways = [options(Version::V1, false), options(Version::V2, false)];
    assert_received(&ImageSpec::new("sent").devices(&[512 << 20]), &ways);
}

#[test]
fn images_of_other_shapes_are_received_as_well() {
    let specs = [
        ImageSpec::new("sent-holes-nodes-4k").without(Feature::NoHoles).node_size(4 << 10),
        ImageSpec::new("sent-nodes-64k-inline").node_size(64 << 10).mount_option("max_inline=4095"),
        ImageSpec::new("sent-nothing-inline").mount_option("max_inline=0"),
        ImageSpec::new("sent-nodatacow").mount_option("nodatacow"),
        ImageSpec::new("sent-no-extref").without(Feature::ExtendedReferences),
    ];
    for spec in specs {
        assert_received(&spec.devices(&[512 << 20]), &[options(Version::V1, false)]);
    }
}

#[test]
fn one_stream_carries_several_snapshots() {
    let image = EmptyImage::new();
    let manifests = {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        btrfs(&[&"-q", &"subvolume", &"create", &work]);
        ["first", "second", "third"].map(|name| {
            std::fs::write(work.join(name), name).expect("written");
            snapshot(&work, &mount.path().join(name));
            mount.sync();
            (name, sendable(&mount.path().join(name)))
        })
    };
    let filesystem = open(image.device());
    let mut stream = Vec::new();
    let mut parent = None;
    for (name, _) in &manifests {
        let sent = subvolume(&filesystem, name);
        let (begins_stream, ends_stream) = (*name == "first", *name == "third");
        let options = SendOptions { parent, begins_stream, ends_stream, ..SendOptions::default() };
        stream.extend(larder_send(&sent, &options));
        parent = Some(sent);
    }
    let target = EmptyImage::new();
    let mount = target.mount("noatime");
    kernel_receive(&stream, mount.path(), "third", target.scratch());
    for (name, manifest) in &manifests {
        assert_same(manifest, &sendable(&mount.path().join(name)));
    }
}

#[test]
fn compressed_data_goes_as_it_is_stored() {
    for algorithm in ["zlib", "lzo", "zstd"] {
        let spec = ImageSpec::new(format!("sent-{algorithm}")).devices(&[512 << 20]);
        let spec = spec.mount_option(format!("compress-force={algorithm}"));
        assert_received(&spec, &[options(Version::V2, true)]);
    }
}

/// The lines of a dump that begin with `command`.
fn dumped(stream: &[u8], command: &str) -> Vec<String> {
    let mut text = Vec::new();
    dump(stream, &mut text, &TimeZone::UTC).expect("the stream is right");
    let text = String::from_utf8(text).expect("the names are text");
    text.lines().filter(|line| line.starts_with(command)).map(Into::into).collect()
}

#[test]
fn data_that_the_receiver_has_is_cloned() {
    let image = EmptyImage::new();
    let clone = |from: &Path, to: &Path| {
        let copied = run("cp", ["--reflink=always".as_ref(), from.as_os_str(), to.as_os_str()]);
        copied.unwrap_or_else(|error| panic!("{error}"));
    };
    let noise: Vec<u8> =
        (0..300_000_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
    let manifests = {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        btrfs(&[&"-q", &"subvolume", &"create", &work]);
        std::fs::write(work.join("original"), &noise).expect("written");
        clone(&work.join("original"), &work.join("copy"));
        snapshot(&work, &mount.path().join("before"));
        std::fs::create_dir(work.join("folder")).expect("made");
        clone(&work.join("copy"), &work.join("folder/later copy"));
        std::fs::remove_file(work.join("copy")).expect("removed");
        std::fs::remove_file(work.join("original")).expect("removed");
        snapshot(&work, &mount.path().join("after"));
        mount.sync();
        ["before", "after"].map(|name| sendable(&mount.path().join(name)))
    };
    let filesystem = open(image.device());
    let [before, after] = ["before", "after"].map(|name| subvolume(&filesystem, name));
    let target = EmptyImage::new();
    let mount = target.mount("noatime");

    let stream = larder_send(&before, &SendOptions::default());
    let clones = dumped(&stream, "clone");
    let expected = "clone           ./before/copy                   \
                    offset=0 len=1200000 from=./before/original clone_offset=0";
    assert_eq!(clones, [expected]);
    let received = kernel_receive(&stream, mount.path(), "before", target.scratch());
    assert_same(&manifests[0], &sendable(&received));

    let options = SendOptions { parent: Some(before.clone()), ..SendOptions::default() };
    let stream = larder_send(&after, &options);
    assert!(stream.len() < 2000, "the data is not in the stream");
    let received = kernel_receive(&stream, mount.path(), "after", target.scratch());
    assert_same(&manifests[1], &sendable(&received));

    let clone_sources = vec![before];
    let stream = larder_send(&after, &SendOptions { clone_sources, ..SendOptions::default() });
    assert!(stream.len() < 2000, "the data is not in the stream");
    let folder = mount.path().join("again");
    std::fs::create_dir(&folder).expect("made");
    let received = kernel_receive(&stream, &folder, "after", target.scratch());
    assert_same(&manifests[1], &sendable(&received));
}

/// After a new mount, the numbers of the last inodes are used again. A file can then have the same
/// names, item for item, in a directory that is another one.
#[test]
fn a_directory_with_a_reused_number_is_another() {
    let image = EmptyImage::new();
    let number_and_name = |work: &Path, folder: &str| {
        let folder = work.join(folder);
        std::fs::create_dir(&folder).expect("made");
        std::fs::hard_link(work.join("file"), folder.join("name")).expect("linked");
        std::fs::metadata(folder).expect("it is there").ino()
    };
    let (number_before, before) = {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        btrfs(&[&"-q", &"subvolume", &"create", &work]);
        std::fs::write(work.join("file"), b"bread").expect("written");
        let number = number_and_name(&work, "folder");
        snapshot(&work, &mount.path().join("before"));
        std::fs::remove_dir_all(work.join("folder")).expect("removed");
        mount.sync();
        (number, sendable(&mount.path().join("before")))
    };
    let (number_after, after) = {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        let number = number_and_name(&work, "other folder");
        snapshot(&work, &mount.path().join("after"));
        mount.sync();
        (number, sendable(&mount.path().join("after")))
    };
    assert_eq!(number_before, number_after, "this is what the test is about");
    let filesystem = open(image.device());
    let [first, second] = ["before", "after"].map(|name| subvolume(&filesystem, name));
    let target = EmptyImage::new();
    let mount = target.mount("noatime");
    let stream = larder_send(&first, &SendOptions::default());
    let received = kernel_receive(&stream, mount.path(), "before", target.scratch());
    assert_same(&before, &sendable(&received));
    let options = SendOptions { parent: Some(first), ..SendOptions::default() };
    let stream = larder_send(&second, &options);
    let received = kernel_receive(&stream, mount.path(), "after", target.scratch());
    assert_same(&after, &sendable(&received));
}

#[test]
fn reused_numbers_may_have_another_type() {
    let image = EmptyImage::new();
    let make = |path: &Path, kind: usize| match kind % 4 {
        0 => std::fs::write(path, b"bread").expect("written"),
        1 => std::fs::create_dir(path).expect("made"),
        2 => std::os::unix::fs::symlink("bread", path).expect("linked"),
        _ => drop(UnixListener::bind(path).expect("bound")),
    };
    let mut numbers = Vec::new();
    let mut manifests = Vec::new();
    for round in 0..3 {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        if round == 0 {
            btrfs(&[&"-q", &"subvolume", &"create", &work]);
        }
        let paths: Vec<_> = (0..4).map(|n| work.join(format!("{}", n + round / 2))).collect();
        for (n, path) in paths.iter().enumerate() {
            make(path, n + round);
            numbers.push(std::fs::symlink_metadata(path).expect("it is there").ino());
        }
        let name = round.to_string();
        snapshot(&work, &mount.path().join(&name));
        manifests.push(sendable(&mount.path().join(&name)));
        run("rm", ["-r".as_ref()].into_iter().chain(paths.iter().map(|path| path.as_os_str())))
            .unwrap_or_else(|error| panic!("{error}"));
        mount.sync();
    }
    assert!(numbers[..4] == numbers[4..8] && numbers[..4] == numbers[8..], "{numbers:?}");
    let filesystem = open(image.device());
    let target = EmptyImage::new();
    let mount = target.mount("noatime");
    let mut parent = None;
    for (round, manifest) in manifests.iter().enumerate() {
        let name = round.to_string();
        let sent = subvolume(&filesystem, &name);
        let stream = larder_send(&sent, &SendOptions { parent, ..SendOptions::default() });
        let received = kernel_receive(&stream, mount.path(), &name, target.scratch());
        assert_same(manifest, &sendable(&received));
        parent = Some(sent);
    }
}

#[test]
fn files_unlinked_while_open_are_not_sent() {
    let image = EmptyImage::new();
    let manifests = {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        btrfs(&[&"-q", &"subvolume", &"create", &work]);
        let open = ["always", "later"].map(|name| {
            let path = work.join(name);
            let mut file = std::fs::File::create_new(&path).expect("made");
            file.write_all(b"bread").expect("written");
            (path, file)
        });
        std::fs::remove_file(&open[0].0).expect("removed");
        snapshot(&work, &mount.path().join("before"));
        std::fs::remove_file(&open[1].0).expect("removed");
        snapshot(&work, &mount.path().join("after"));
        mount.sync();
        ["before", "after"].map(|name| sendable(&mount.path().join(name)))
    };
    let filesystem = open(image.device());
    let [before, after] = ["before", "after"].map(|name| subvolume(&filesystem, name));
    let target = EmptyImage::new();
    let mount = target.mount("noatime");
    let stream = larder_send(&before, &SendOptions::default());
    assert_eq!(dumped(&stream, "mkfile").len(), 1);
    let received = kernel_receive(&stream, mount.path(), "before", target.scratch());
    assert_same(&manifests[0], &sendable(&received));
    let options = SendOptions { parent: Some(before), ..SendOptions::default() };
    let stream = larder_send(&after, &options);
    assert_eq!(dumped(&stream, "unlink").len(), 1);
    let received = kernel_receive(&stream, mount.path(), "after", target.scratch());
    assert_same(&manifests[1], &sendable(&received));
}

/// The cost of an increment is counted in tree blocks read.
#[test]
fn the_cost_of_an_increment_is_that_of_its_changes() {
    const FILES: u32 = 8000;
    let image = EmptyImage::new();
    {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        btrfs(&[&"-q", &"subvolume", &"create", &work]);
        for number in 0..FILES {
            std::fs::write(work.join(number.to_string()), [7; 1000]).expect("written");
        }
        snapshot(&work, &mount.path().join("before"));
        std::fs::write(work.join("4000"), b"bread").expect("written");
        snapshot(&work, &mount.path().join("after"));
        mount.sync();
    }
    let blocks_read = |parent: Option<&str>| {
        let filesystem = open(image.device());
        let parent = parent.map(|parent| subvolume(&filesystem, parent));
        let after = subvolume(&filesystem, "after");
        let before = filesystem.stats().trees.misses;
        larder_send(&after, &SendOptions { parent, ..SendOptions::default() });
        filesystem.stats().trees.misses - before
    };
    let (whole, increment) = (blocks_read(None), blocks_read(Some("before")));
    assert!(whole > 500, "{whole} blocks");
    assert!(increment < 20, "{increment} of {whole} blocks");
}

/// Changing the owner removes setuid and capabilities on the receiver, though the snapshots have
/// the same.
#[test]
fn attributes_lost_with_a_new_owner_are_sent_again() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let image = EmptyImage::new();
    let make = |work: &Path, owner: u32| {
        let [setuid, capable] = ["setuid", "capable"].map(|name| work.join(name));
        for file in [&setuid, &capable] {
            std::fs::write(file, owner.to_string().repeat(9000)).expect("written");
            chown(file, Some(owner), Some(owner)).expect("given");
        }
        std::fs::set_permissions(&setuid, PermissionsExt::from_mode(0o6755)).expect("changed");
        let capability = [&[1, 0, 0, 2, 4][..], &[0; 15]].concat();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&capable, "security.capability", &capability, flags).expect("set");
    };
    let manifests = {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        btrfs(&[&"-q", &"subvolume", &"create", &work]);
        [("before", 1), ("after", 2)].map(|(name, owner)| {
            make(&work, owner);
            snapshot(&work, &mount.path().join(name));
            mount.sync();
            sendable(&mount.path().join(name))
        })
    };
    let filesystem = open(image.device());
    let [before, after] = ["before", "after"].map(|name| subvolume(&filesystem, name));
    let target = EmptyImage::new();
    let mount = target.mount("noatime");
    let stream = larder_send(&before, &SendOptions::default());
    let received = kernel_receive(&stream, mount.path(), "before", target.scratch());
    assert_same(&manifests[0], &sendable(&received));
    let options = SendOptions { parent: Some(before), ..SendOptions::default() };
    let stream = larder_send(&after, &options);
    let received = kernel_receive(&stream, mount.path(), "after", target.scratch());
    assert_same(&manifests[1], &sendable(&received));
}

#[test]
fn without_data_it_says_which_ranges_changed() {
    let image = EmptyImage::new();
    {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        btrfs(&[&"-q", &"subvolume", &"create", &work]);
        std::fs::write(work.join("small"), b"bread").expect("written");
        std::fs::write(work.join("large"), vec![7; 3 << 20]).expect("written");
        snapshot(&work, &mount.path().join("snapshot"));
        mount.sync();
    }
    let filesystem = open(image.device());
    let options = SendOptions { no_data: true, ..SendOptions::default() };
    let stream = larder_send(&subvolume(&filesystem, "snapshot"), &options);
    assert!(dumped(&stream, "write").is_empty());
    let ranges = dumped(&stream, "update_extent").join("\n");
    for range in [
        "small                offset=0 len=5",
        "offset=0 len=1048576",
        "offset=2097152 len=1048576",
    ] {
        assert!(ranges.contains(range), "{ranges}");
    }
}

#[test]
fn writable_subvolumes_are_not_sent() {
    let image = EmptyImage::new();
    {
        let mount = image.mount("noatime");
        btrfs(&[&"-q", &"subvolume", &"create", &mount.path().join("work")]);
        snapshot(&mount.path().join("work"), &mount.path().join("snapshot"));
        mount.sync();
    }
    let filesystem = open(image.device());
    let [work, sent] = ["work", "snapshot"].map(|name| subvolume(&filesystem, name));
    let mut nothing = Vec::new();
    let refused = send(&work, &SendOptions::default(), &mut nothing);
    assert!(matches!(refused, Err(SendError::NotReadOnly(_))));
    let options = SendOptions { parent: Some(work), ..SendOptions::default() };
    assert!(matches!(send(&sent, &options, &mut nothing), Err(SendError::NotReadOnly(_))));
    let elsewhere = subvolume(&open(image.device()), "snapshot");
    let options = SendOptions { parent: Some(elsewhere), ..SendOptions::default() };
    assert!(matches!(send(&sent, &options, &mut nothing), Err(SendError::NotTogether { .. })));
    assert!(nothing.is_empty());
}

/// Takes this number of bytes and then fails.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_output_stops_everything() {
    let image = KernelImage::build(&ImageSpec::new("full"), &Content::new(19));
    snapshot_of_everything(&image);
    let filesystem = open(image.devices());
    let snapshot = subvolume(&filesystem, "snapshot");
    for room in [0, 1, 300_000, 3_000_000] {
        let sent = send(&snapshot, &SendOptions::default(), &mut Full(room));
        assert!(matches!(sent, Err(SendError::Output(_))), "{sent:?}");
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
        let reading = Reading { readers, ..Reading::default() };
        let mut stream = Vec::new();
        send_reading(&snapshot, &SendOptions::default(), reading, &mut stream).expect("sent");
        stream
    };
    let alone = with(1);
    assert!(alone == with(2) && alone == with(7));
}

fn snapshot_of_everything(image: &KernelImage) {
    let mount = image.mount("noatime");
    snapshot(mount.path(), &mount.path().join("snapshot"));
    mount.sync();
}
