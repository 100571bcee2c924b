//! The edges: full items, many links, extents that the kernel made, orphans, a full file system,
//! refusals.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder::{ErrorKind, FileType, Filesystem, Inode, InodeFlags, OpenOptions, SnapshotKind};
use larder_testkit::name_hash::{colliding_names, name_hash};
use larder_testkit::{Content, ImageSpec, KernelImage, Manifest, Profile, assert_same};

use super::{check, open, support};

fn kind<T>(result: larder::Result<T>) -> ErrorKind {
    result.map(drop).expect_err("it is refused").kind()
}

/// Both checkers find nothing, and the kernel sees what this library saw.
fn finish(fs: Filesystem, image: &KernelImage) {
    fs.sync().unwrap();
    let manifest = support::manifest(&fs);
    drop(fs);
    check(image, "all");
    let mount = image.mount("ro,noatime");
    assert_same(&Manifest::of_tree(mount.path()), &manifest);
}

#[test]
fn names_of_one_hash_share_an_item_until_it_is_full() {
    let image = KernelImage::build(&ImageSpec::new("hash").node_size(4096), &Content::new(21));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    root.create_directory("full", 0o755).unwrap();
    let names = colliding_names(&[b'x'; 230], name_hash(b"one hash"), 20);
    let path = |name: &Vec<u8>| Path::new("full").join(OsStr::from_bytes(name));
    let names: Vec<PathBuf> = names.iter().map(path).collect();
    let made = names.iter().take_while(|name| root.create(name, 0o644).is_ok()).count();
    assert!(made > 5 && made < names.len(), "{made} of {}", names.len());
    assert_eq!(kind(root.create(&names[made], 0o644)), ErrorKind::Overflow);
    root.remove_file(&names[2]).unwrap();
    assert_eq!(kind(root.lookup(&names[2])), ErrorKind::NotFound);
    root.create(&names[made], 0o644).unwrap();
    root.rename(&names[0], "elsewhere").unwrap();
    finish(fs, &image);
}

#[test]
fn many_links_go_to_extended_references() {
    let image = KernelImage::build(&ImageSpec::new("links").node_size(4096), &Content::new(22));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    root.create_directory("numerous", 0o755).unwrap();
    root.create("numerous/original", 0o644).unwrap();
    let name = |number| format!("numerous/{number:0100}");
    for number in 0..150 {
        root.hard_link("numerous/original", name(number)).unwrap();
    }
    for number in (0..150).step_by(3) {
        root.remove_file(name(number)).unwrap();
    }
    root.rename(name(1), "moved").unwrap();
    let inode = root.lookup("moved").unwrap();
    assert_eq!(inode.metadata().nlink, 101);
    assert_eq!(inode.links().unwrap().len(), 101);
    drop((root, inode));
    finish(fs, &image);
}

/// Files of the kernel (compressed, preallocated, shared, with holes) are cut and overwritten.
#[test]
fn extents_of_the_kernel_are_cut_and_overwritten() {
    let spec = ImageSpec::new("overwritten").mount_option("compress-force=zstd");
    let image = KernelImage::build(&spec, &Content::new(23));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap().root().unwrap();
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below.max(1)
    };
    let mut changed = 0;
    for inode in regular_files(root.into_inode()) {
        let file = inode.into_file().unwrap();
        let len = file.len_bytes();
        let protected = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if len > 4 << 20 || file.metadata().flags.intersects(protected) {
            continue;
        }
        let mut expected = vec![0; len as usize];
        file.read_at(&mut expected, 0).unwrap();
        let data = vec![random(256) as u8; 1 + random(20_000) as usize];
        let at = random(len + 10_000);
        file.write_at(&data, at).unwrap();
        let end = at as usize + data.len();
        expected.resize(expected.len().max(end), 0);
        expected[at as usize..end].copy_from_slice(&data);
        if random(2) == 0 {
            let len = random(expected.len() as u64 + 5000);
            file.set_len(len).unwrap();
            expected.resize(len as usize, 0);
        }
        if random(3) == 0 {
            let (from, len) = (random(expected.len() as u64), 1 + random(30_000));
            file.punch_hole(from, len).unwrap();
            let to = expected.len().min((from + len) as usize);
            expected[(from as usize).min(to)..to].fill(0);
        }
        let mut seen = vec![1; expected.len()];
        assert_eq!(file.read_at(&mut seen, 0).unwrap(), expected.len());
        assert!(seen == expected, "inode {}", file.number());
        changed += 1;
    }
    assert!(changed > 50, "{changed}");
    finish(fs, &image);
}

/// All regular files below a directory that can be changed.
fn regular_files(directory: Inode) -> Vec<Inode> {
    let mut found = Vec::new();
    let mut pending = vec![directory];
    while let Some(inode) = pending.pop() {
        match inode.file_type() {
            FileType::Regular => found.push(inode),
            FileType::Directory if !inode.subvolume().info().unwrap().is_read_only => {
                let entries = inode.into_directory().unwrap().entries().unwrap();
                pending.extend(entries.map(|entry| entry.unwrap().open().unwrap()));
            }
            _ => {}
        }
    }
    found
}

/// A file that is open without a name is in no snapshot, neither the first nor the second of the
/// same leaf, and stays readable while it is open.
#[test]
fn snapshots_leave_out_open_unlinked_files() {
    let image = KernelImage::build(&ImageSpec::new("shared-orphans"), &Content::new(25));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let file = root.create("doomed", 0o644).unwrap();
    file.write_at(&vec![5; 1_000_000], 0).unwrap();
    for number in 0..50 {
        root.create_directory(format!("neighbour-{number}"), 0o755).unwrap();
    }
    root.remove_file("doomed").unwrap();
    let kinds = [SnapshotKind::ReadOnly, SnapshotKind::ReadOnly, SnapshotKind::Writable];
    for (number, kind) in kinds.into_iter().enumerate() {
        root.snapshot(format!("snapshot-{number}"), kind).unwrap();
    }
    fs.sync().unwrap();
    check(&image, "the snapshots");
    let mut data = vec![0; 1_000_000];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
    assert!(data == vec![5; 1_000_000]);
    drop((root, file));
    finish(fs, &image);
}

#[test]
fn an_unlinked_file_lives_while_it_is_open_and_is_gone_after_a_crash() {
    let image = KernelImage::build(&ImageSpec::new("orphans"), &Content::new(24));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let file = root.create("doomed", 0o644).unwrap();
    file.write_at(&vec![5; 100_000], 0).unwrap();
    fs.sync().unwrap();
    root.remove_file("doomed").unwrap();
    file.write_at(&[6; 1000], 50_000).unwrap();
    fs.sync().unwrap();
    let mut seen = [0; 2000];
    file.read_at(&mut seen, 49_500).unwrap();
    assert_eq!((seen[0], seen[500], seen[1999]), (5, 6, 5));
    assert_eq!(kind(root.inode(file.number())), ErrorKind::NotFound);
    // As if the power went: the commit lists the file as an orphan.
    let number = file.number();
    drop((root, file, fs));
    check(&image, "the crash");
    let fs = open(&image);
    assert_eq!(kind(fs.subvolume("/").unwrap().inode(number)), ErrorKind::NotFound);
    finish(fs, &image);
}

#[test]
fn unsynced_files_are_as_in_the_last_commit() {
    let image = KernelImage::build(&ImageSpec::new("dropped"), &Content::new(25));
    let fs = open(&image);
    let before = support::manifest(&fs);
    let root = fs.subvolume("/").unwrap();
    root.create("lost", 0o644).unwrap().write_at(&vec![1; 1 << 20], 0).unwrap();
    drop((root, fs));
    check(&image, "dropping");
    let fs = OpenOptions::new().open(image.devices()).unwrap();
    assert_same(&support::manifest(&fs), &before);
    let root = fs.subvolume("/").unwrap();
    assert_eq!(kind(root.create("no", 0o644)), ErrorKind::ReadOnly);
}

#[test]
fn subvolumes_are_made_marked_chosen_and_deleted() {
    let image = KernelImage::build(&ImageSpec::new("subvolumes"), &Content::new(26));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let made = root.create_subvolume("made").unwrap();
    assert_eq!(kind(root.create_subvolume("made")), ErrorKind::AlreadyExists);
    let file = made.create("file", 0o600).unwrap();
    file.write_at(b"content", 0).unwrap();
    made.create_subvolume("nested").unwrap();
    let snapshot = made.snapshot_to(&root, "copy", SnapshotKind::ReadOnly).unwrap();
    assert!(snapshot.info().unwrap().is_read_only);
    assert_eq!(snapshot.info().unwrap().parent_uuid, made.info().unwrap().uuid);
    assert_eq!(kind(snapshot.create("no", 0o600)), ErrorKind::ReadOnly);
    assert_eq!(kind(snapshot.open_file("file").unwrap().write_at(b"no", 0)), ErrorKind::ReadOnly);
    assert_eq!(kind(root.delete_subvolume("made")), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(root.remove_directory("made")), ErrorKind::DirectoryNotEmpty);
    // In place of the nested subvolume the snapshot has an empty directory, which can be removed
    // once the snapshot is writable.
    snapshot.set_read_only(false).unwrap();
    snapshot.remove_directory("nested").unwrap();
    snapshot.create("yes", 0o600).unwrap();
    fs.set_default_subvolume(snapshot.id()).unwrap();
    assert_eq!(kind(root.delete_subvolume("copy")), ErrorKind::NotPermitted);
    fs.set_default_subvolume(5).unwrap();
    made.delete_subvolume("nested").unwrap();
    root.delete_subvolume("made").unwrap();
    assert_eq!(kind(made.create("late", 0o600)), ErrorKind::NotFound);
    file.write_at(b"late", 0).unwrap();
    drop((root, made, snapshot, file));
    finish(fs, &image);
}

#[test]
fn a_full_file_system_refuses_and_can_be_emptied() {
    let spec = ImageSpec::new("full").devices(&[256 << 20]);
    let spec = spec.profiles(Profile::Single, Profile::Single);
    let image = KernelImage::build(&spec, &Content::new(27));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    for _ in 0..2 {
        let mut made = Vec::new();
        let error = loop {
            let path = format!("file-{}", made.len());
            let written = root
                .create(&path, 0o644)
                .and_then(|file| file.write_at(&vec![made.len() as u8; 3 << 20], 0));
            made.push(path);
            if let Err(error) = written {
                break error;
            }
            assert!(made.len() < 100, "it holds more than its devices");
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(made.len() > 10, "{}", made.len());
        fs.sync().unwrap();
        let last = made.last().unwrap();
        for path in &made {
            match root.remove_file(path) {
                Err(error) if path == last && error.kind() == ErrorKind::NotFound => {}
                removed => removed.unwrap(),
            }
        }
        fs.sync().unwrap();
    }
    drop(root);
    finish(fs, &image);
}

/// Small files fill the space for metadata, from four threads; deleting them always works.
#[test]
fn threads_fill_a_file_system_with_small_files_and_empty_it() {
    let image = KernelImage::build(&ImageSpec::new("small"), &Content::new(28));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    for _ in 0..2 {
        // Before any of them has filled it.
        for thread in 0..4 {
            root.create_directory(format!("small-{thread}"), 0o755).unwrap();
        }
        let made: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let root = &root;
                    scope.spawn(move || fill_with_small_files(root, thread))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().sum::<usize>() > 1000, "{made:?}");
        fs.sync().unwrap();
        for (thread, count) in made.into_iter().enumerate() {
            for number in 0..count {
                root.remove_file(format!("small-{thread}/file-{number}")).unwrap();
            }
            root.remove_directory(format!("small-{thread}")).unwrap();
        }
        fs.sync().unwrap();
    }
    drop(root);
    finish(fs, &image);
}

/// Returns how many were created before the space ran out.
fn fill_with_small_files(root: &larder::Subvolume, thread: usize) -> usize {
    for number in 0..200_000 {
        let path = format!("small-{thread}/file-{number}");
        let file = match root.create(path, 0o644) {
            Ok(file) => file,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                return number;
            }
        };
        if let Err(error) = file.write_at(&[number as u8; 1900], 0) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            return number + 1;
        }
    }
    panic!("it holds more than its devices");
}
