//! Streams of the kernel and of Larder, received into an image.
//!
//! Needs root, loop devices and btrfs in the kernel.

use std::ops::ControlFlow;
use std::path::Path;

use larder_filesystem::{ExtentContent, FileType, Filesystem, SnapshotKind};
use larder_stream::{
    Event, ImageTarget, ReceiveOptions, ReceiveProblem, SendOptions, StreamProblem, Version,
    receive,
};
use larder_testkit::{Content, Feature, ImageSpec, KernelImage, Manifest, assert_same};

use rustix::fs::{FallocateFlags, IFlags};

use crate::support::{
    EmptyImage, assert_sound, btrfs, change, kernel_dump, kernel_receive, kernel_send,
    larder_receive, larder_send, mounted_receive, open, open_writable, sendable, snapshot,
    subvolume,
};

/// More compressed extents than files with the property have, whose data is compressed as it is
/// written.
const SOME_AS_STORED: usize = 100;

/// The program that makes the streams.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Kernel,
    Larder,
}

const WAYS: [(Sender, Version, bool); 5] = [
    (Sender::Kernel, Version::V1, false),
    (Sender::Kernel, Version::V2, true),
    (Sender::Larder, Version::V1, false),
    (Sender::Larder, Version::V2, false),
    (Sender::Larder, Version::V2, true),
];

/// An image with the snapshots `before` and `after` of everything that the testkit makes.
struct Origin {
    image: KernelImage,
    before: Manifest,
    after: Manifest,
}

impl Origin {
    fn new(spec: &ImageSpec) -> Self {
        let image = KernelImage::build(spec, &Content::new(17));
        let mount = image.mount("noatime");
        let root = mount.path();
        snapshot(root, &root.join("before"));
        change(root);
        snapshot(root, &root.join("after"));
        mount.sync();
        let (before, after) = (sendable(&root.join("before")), sendable(&root.join("after")));
        drop(mount);
        Self { image, before, after }
    }

    /// A full send of `before`, and an increment from there to `after`.
    #[track_caller]
    fn streams(&self, (sender, version, compressed): (Sender, Version, bool)) -> [Vec<u8>; 2] {
        match sender {
            Sender::Larder => {
                let filesystem = open(self.image.devices());
                let [before, after] = ["before", "after"].map(|name| subvolume(&filesystem, name));
                let options =
                    SendOptions { version, compressed_data: compressed, ..SendOptions::default() };
                let whole = larder_send(&before, &options);
                [whole, larder_send(&after, &SendOptions { parent: Some(before), ..options })]
            }
            Sender::Kernel => {
                let mount = self.image.mount("ro,noatime");
                let [before, after] = ["before", "after"].map(|name| mount.path().join(name));
                let number = version.number().to_string();
                let send = |parent: Option<&Path>, snapshot: &Path| {
                    let mut options: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"--proto", &number];
                    if compressed {
                        options.push(&"--compressed-data");
                    }
                    if let Some(parent) = &parent {
                        options.extend([&"-p" as &dyn AsRef<std::ffi::OsStr>, parent]);
                    }
                    kernel_send(&options, snapshot, self.image.folder())
                };
                [send(None, &before), send(Some(&before), &after)]
            }
        }
    }

    /// Both snapshots are received as they were, and the image stays sound.
    #[track_caller]
    fn assert_received(&self, way: (Sender, Version, bool)) {
        eprintln!("{way:?}");
        // With space for the longest extended attributes of any image.
        let target = EmptyImage::with_node_size(64 << 10);
        let filesystem = open_writable(target.device());
        let streams = self.streams(way);
        for stream in &streams {
            larder_receive(stream, &filesystem, "").unwrap_or_else(|error| panic!("{error}"));
        }
        let compressed = compressed_extents(&filesystem);
        assert!(!way.2 || compressed > SOME_AS_STORED, "{compressed} compressed extents");
        drop(filesystem);
        assert_sound(target.device());
        let mount = target.mount("noatime");
        self.assert_there(mount.path());
        // Once more through the mount: either of those parents may be chosen.
        let mounted = mount.path().join("mounted folder");
        std::fs::create_dir(&mounted).expect("made");
        for stream in &streams {
            mounted_receive(stream, &mounted).unwrap_or_else(|error| panic!("{error}"));
        }
        self.assert_there(&mounted);
        for field in ["Received UUID:", "Send transid:", "Flags:"] {
            let [image, mount] =
                [mount.path(), &mounted].map(|folder| shown(&folder.join("after"), field));
            assert_eq!(image, mount, "{field}");
        }
    }

    /// Both snapshots are as they were.
    #[track_caller]
    fn assert_there(&self, folder: &Path) {
        assert_same(&self.before, &sendable(&folder.join("before")));
        assert_same(&self.after, &sendable(&folder.join("after")));
    }
}

#[test]
fn snapshots_are_received_as_they_were_sent() {
    let spec = ImageSpec::new("received").devices(&[512 << 20]);
    let origin = Origin::new(&spec.mount_option("compress-force=zstd"));
    for way in WAYS {
        origin.assert_received(way);
    }
}

/// The kernel sends the flags of an inode as its item has them, for files that space was allocated
/// for as well.
#[test]
fn flags_of_inodes_are_left_alone() {
    let image = KernelImage::empty(&ImageSpec::new("flags"));
    let mount = image.mount("noatime");
    let [source, before, after] = ["source", "before", "after"].map(|name| mount.path().join(name));
    btrfs(&[&"-q", &"subvolume", &"create", &source]);
    let [allocated, kept] = ["allocated", "kept"].map(|name| source.join(name));
    for file in [&allocated, &kept] {
        std::fs::write(file, "bread").expect("written");
    }
    snapshot(&source, &before);
    let open = std::fs::File::options().write(true).open(&allocated).expect("it is there");
    rustix::fs::fallocate(open, FallocateFlags::empty(), 0, 100_000).expect("allocated");
    let open = std::fs::File::open(&kept).expect("it is there");
    let flags = |flags| rustix::fs::ioctl_setflags(&open, flags).expect("set");
    flags(IFlags::IMMUTABLE);
    snapshot(&source, &after);
    flags(IFlags::empty());
    let send = |options: &[&dyn AsRef<std::ffi::OsStr>], snapshot: &Path| {
        kernel_send(
            &[&[&"--proto" as &dyn AsRef<_>, &"2"], options].concat(),
            snapshot,
            image.folder(),
        )
    };
    let streams = [send(&[], &before), send(&[&"-p", &before], &after)];
    let dumped = String::from_utf8_lossy(&kernel_dump(&streams[1], image.folder())).into_owned();
    assert!(dumped.contains("fileattr"), "{dumped}");
    let target = EmptyImage::new();
    let filesystem = open_writable(target.device());
    for stream in &streams {
        larder_receive(stream, &filesystem, "").unwrap_or_else(|error| panic!("{error}"));
    }
    drop(filesystem);
    assert_sound(target.device());
    let mount = target.mount("noatime");
    let mounted = mount.path().join("mounted");
    std::fs::create_dir(&mounted).expect("made");
    for stream in &streams {
        mounted_receive(stream, &mounted).unwrap_or_else(|error| panic!("{error}"));
    }
    let expected = sendable(&after);
    for folder in [mount.path(), &mounted] {
        assert_same(&expected, &sendable(&folder.join("after")));
        for name in ["allocated", "kept"] {
            let file = std::fs::File::open(folder.join("after").join(name)).expect("it is there");
            assert_eq!(rustix::fs::ioctl_getflags(file).expect("read"), IFlags::empty(), "{name}");
        }
    }
}

#[test]
fn images_of_other_shapes_are_received_as_well() {
    let specs = [
        ImageSpec::new("received-holes-nodes-4k")
            .without(Feature::NoHoles)
            .node_size(4 << 10)
            .mount_option("compress-force=zstd"),
        ImageSpec::new("received-zlib").mount_option("compress-force=zlib"),
        ImageSpec::new("received-lzo").mount_option("compress-force=lzo"),
    ];
    for spec in specs {
        let origin = Origin::new(&spec.devices(&[512 << 20]));
        origin.assert_received((Sender::Kernel, Version::V2, true));
        origin.assert_received((Sender::Larder, Version::V2, true));
    }
}

/// Compressed extents of all files.
fn compressed_extents(filesystem: &Filesystem) -> usize {
    let mut count = 0;
    for info in filesystem.subvolumes() {
        let subvolume = filesystem.subvolume_by_id(info.unwrap().id).unwrap();
        for scanned in subvolume.scan() {
            let inode = subvolume.inode(scanned.unwrap().metadata.inode).unwrap();
            if inode.file_type() != FileType::Regular {
                continue;
            }
            for extent in inode.into_file().unwrap().mapped_from(0).unwrap() {
                count += usize::from(match extent.unwrap().content {
                    ExtentContent::Data(extent) => extent.compression.is_some(),
                    ExtentContent::Inline(extent) => extent.compression.is_some(),
                    _ => false,
                });
            }
        }
    }
    count
}

/// The kernel's description of a received subvolume, by line.
fn shown(path: &Path, field: &str) -> String {
    let text = btrfs(&[&"subvolume", &"show", &path]);
    let line = text.lines().find_map(|line| line.trim().strip_prefix(field));
    line.unwrap_or_else(|| panic!("{field} is not in {text}")).trim().to_owned()
}

#[test]
fn a_received_subvolume_knows_where_it_comes_from() {
    let image = EmptyImage::new();
    let stream = {
        let mount = image.mount("noatime");
        let work = mount.path().join("work");
        btrfs(&[&"-q", &"subvolume", &"create", &work]);
        std::fs::write(work.join("file"), b"bread").expect("written");
        snapshot(&work, &mount.path().join("snapshot"));
        kernel_send(&[], &mount.path().join("snapshot"), image.scratch())
    };
    let by_kernel = EmptyImage::new();
    let by_larder = EmptyImage::new();
    let filesystem = open_writable(by_larder.device());
    larder_receive(&stream, &filesystem, "").expect("received");
    // A snapshot of a received subvolume has its identity too.
    let received = subvolume(&filesystem, "snapshot");
    let top = filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("the top level");
    top.snapshot_child("again".as_ref(), &received, SnapshotKind::ReadOnly).expect("taken");
    let uuid = received.root_item().received_uuid();
    assert_eq!(filesystem.subvolumes_of(uuid).expect("found").len(), 2);
    drop((received, top, filesystem));
    assert_sound(by_larder.device());
    let mounts = [by_kernel.mount("noatime"), by_larder.mount("noatime")];
    kernel_receive(&stream, mounts[0].path(), "snapshot", by_kernel.scratch());
    for field in ["Received UUID:", "Send transid:", "Flags:"] {
        let [theirs, ours] = mounts.each_ref().map(|m| shown(&m.path().join("snapshot"), field));
        assert_eq!(ours, theirs, "{field}");
    }
    // The kernel can send and receive increments to it.
    let next = mounts[1].path().join("next");
    snapshot(&mounts[1].path().join("again"), &next);
    let again = mounts[1].path().join("again");
    let stream = kernel_send(&[&"-p", &again], &next, by_larder.scratch());
    kernel_receive(&stream, mounts[0].path(), "next", by_kernel.scratch());
    drop(mounts);
    let sent = |image: &EmptyImage| {
        let stime = subvolume(&open(image.device()), "snapshot").root_item().stime;
        (stime.seconds(), stime.nsec.get())
    };
    assert_eq!(sent(&by_larder), sent(&by_kernel));
}

#[test]
fn one_stream_carries_several_snapshots() {
    let origin = Origin::new(&ImageSpec::new("several").devices(&[512 << 20]));
    let filesystem = open(origin.image.devices());
    let [before, after] = ["before", "after"].map(|name| subvolume(&filesystem, name));
    let options = SendOptions { ends_stream: false, ..SendOptions::default() };
    let mut stream = larder_send(&before, &options);
    let parent = Some(before);
    let options = SendOptions { parent, begins_stream: false, ..SendOptions::default() };
    stream.extend(larder_send(&after, &options));
    let end = stream.len();
    stream.extend(larder_send(&after, &SendOptions::default()));

    let target = EmptyImage::with_node_size(64 << 10);
    let filesystem = open_writable(target.device());
    let directory =
        filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("the top level");
    let mut input = &stream[..];
    let options = ReceiveOptions { stop_at_end: true, ..ReceiveOptions::default() };
    let mut begun = Vec::new();
    let received = receive(&mut input, &mut ImageTarget::new(directory), &options, &mut |event| {
        if let Event::Begins { name, is_snapshot } = event {
            begun.push((String::from_utf8_lossy(name).into_owned(), is_snapshot));
        }
        ControlFlow::Continue(())
    })
    .expect("received");
    assert_eq!((received.subvolumes, received.stream_bytes), (2, end as u64));
    assert_eq!(begun, [("before".to_owned(), false), ("after".to_owned(), true)]);
    assert_eq!(input.len(), stream.len() - end, "the rest of the input is unread");
    // Both streams, one after the other.
    let received = larder_receive(&stream, &filesystem, "all").map_err(|error| error.to_string());
    assert_eq!(received.err().as_deref(), Some("subvol after: File exists"));
    drop(filesystem);
    let mount = target.mount("ro,noatime");
    for folder in ["", "all"] {
        let folder = mount.path().join(folder);
        assert_same(&origin.before, &sendable(&folder.join("before")));
        assert_same(&origin.after, &sendable(&folder.join("after")));
    }
}

/// Cut at any point, a stream leaves only a subvolume that is recognizably unfinished; then it can
/// be received.
#[test]
fn a_stream_cut_short_leaves_an_unfinished_subvolume() {
    let origin = Origin::new(&ImageSpec::new("cut").devices(&[512 << 20]));
    let [whole, increment] = origin.streams((Sender::Kernel, Version::V1, false));
    let target = EmptyImage::with_node_size(64 << 10);
    let filesystem = open_writable(target.device());
    larder_receive(&whole, &filesystem, "").expect("received");
    let top = filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("the top level");
    let cuts = (1..12).map(|n| 17 + (increment.len() - 18) * n / 12);
    for cut in cuts.chain([16, 17, 30, increment.len() - 1]) {
        let error = larder_receive(&increment[..cut], &filesystem, "").expect_err("it is cut");
        let ReceiveProblem::Stream(problem) = &error.problem else { panic!("{error}") };
        let is_start = cut < 17;
        assert!(is_start || matches!(problem.problem, StreamProblem::CutShort), "{error}");
        assert_eq!(error.unfinished.is_some(), cut > 200, "{cut}");
        if error.unfinished.is_some() {
            let item = subvolume(&filesystem, "after").root_item();
            assert!(!item.is_read_only() && item.received_uuid().is_nil());
            top.delete_child_subvolume("after".as_ref()).expect("deleted");
        }
    }
    larder_receive(&increment, &filesystem, "").expect("received");
    drop((top, filesystem));
    assert_sound(target.device());
    let mount = target.mount("ro,noatime");
    assert_same(&origin.before, &sendable(&mount.path().join("before")));
    assert_same(&origin.after, &sendable(&mount.path().join("after")));
}

#[test]
fn the_observer_can_stop_receiving() {
    let origin = Origin::new(&ImageSpec::new("stopped").devices(&[512 << 20]));
    let [whole, _] = origin.streams((Sender::Larder, Version::V1, false));
    let target = EmptyImage::with_node_size(64 << 10);
    let filesystem = open_writable(target.device());
    let directory =
        filesystem.subvolume_by_id(5).and_then(|top| top.root()).expect("the top level");
    let mut last = 0;
    let stopped = receive(
        &whole[..],
        &mut ImageTarget::new(directory),
        &ReceiveOptions::default(),
        &mut |event| {
            if let Event::Read(bytes) = event {
                assert!(bytes > last, "progress only grows");
                last = bytes;
            }
            if last > 100_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    )
    .expect_err("it was stopped");
    assert!(matches!(stopped.problem, ReceiveProblem::Stopped(offset) if offset == last));
    assert_eq!(stopped.unfinished.as_deref(), Some(&b"before"[..]));
}
