//! Full file systems in which something is deleted: its space can be written at once, also while
//! the deletion goes on, and whatever it was used for before.
//!
//! `LARDER_EFFORT` multiplies the number of rounds.

use std::sync::Barrier;

use larder::{AllocateMode, ErrorKind, File, SnapshotKind, Subvolume};
use larder_testkit::{ImageSpec, KernelImage, Profile};

use super::{check, open};

const SECTOR: u64 = 4096;
const PIECE: usize = 1 << 20;
const THREADS: usize = 4;

/// Writes pieces until the space runs out. Returns how many bytes were written.
fn fill(file: &File) -> u64 {
    let piece = vec![3; PIECE];
    let mut len_bytes = 0;
    loop {
        match file.write_at(&piece, len_bytes) {
            Ok(()) => len_bytes += PIECE as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                return len_bytes;
            }
        }
    }
}

/// Writes as much again, except for what a little more metadata takes.
#[track_caller]
fn fill_again(file: &File, len_bytes: u64, what: &str) {
    let again = fill(file);
    assert!(again + 4 * PIECE as u64 >= len_bytes, "{what}: {again} bytes, and {len_bytes} before");
}

/// A file without a name frees its space when it is closed.
#[test]
fn files_without_a_name() {
    let image = KernelImage::empty(&ImageSpec::new("enospc-files").devices(&[128 << 20]));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let filler = root.create("filler", 0o644).unwrap();
    let len_bytes = fill(&filler);
    root.remove_file("filler").unwrap();
    let next = root.create("next", 0o644).unwrap();
    let refused = next.write_at(&vec![1; PIECE * 4], 0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "the file is open, and has its data");
    drop(filler);
    fill_again(&next, len_bytes, "a file that was closed");
    // Most of this one was never written back.
    drop(next);
    root.remove_file("next").unwrap();
    let unnamed = root.create_unnamed("", 0o600).unwrap();
    unnamed.write_at(&vec![1; PIECE * 4], 0).unwrap();
    drop(unnamed);
    let last = root.create("last", 0o644).unwrap();
    fill_again(&last, len_bytes, "one that never had a name");
    fs.sync().unwrap();
    drop((last, root, fs));
    check(&image, "files without a name");
}

/// Makes each thread do its part at once. Returns what they have done together.
fn together(act: impl Fn(usize) -> u64 + Sync) -> u64 {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || act(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// Writes every other sector of a file until the space runs out, so that each is an extent. Returns
/// how many there are.
fn fill_by_sectors(root: &Subvolume, path: &str) -> u64 {
    let file = root.create(path, 0o644).unwrap();
    for number in 0.. {
        if let Err(error) = file.write_at(&[9; SECTOR as usize], 2 * number * SECTOR) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            return number;
        }
    }
    unreachable!("a device is full some day")
}

/// A subvolume is full of pieces so small that deleting it takes a while. Once its name is gone,
/// and while its deletion goes on, four threads take nearly all of its space.
#[test]
fn subvolumes_that_are_being_deleted() {
    let spec = ImageSpec::new("enospc-subvolumes").devices(&[160 << 20]).node_size(4096);
    let image = KernelImage::empty(&spec.profiles(Profile::Single, Profile::Single));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    for round in 0..3 * larder_testkit::effort() {
        root.create_subvolume("filled").unwrap();
        let sectors = together(|thread| fill_by_sectors(&root, &format!("filled/{thread}")));
        assert!(sectors > 15_000, "round {round}: {sectors} sectors");
        let filled = fs.subvolume("filled").unwrap();
        filled.snapshot_to(&root, "copy", SnapshotKind::ReadOnly).unwrap();
        drop(filled);
        // The copy still has all of it.
        root.delete_subvolume("filled").unwrap();
        let share_bytes = sectors * SECTOR * 9 / 10 / THREADS as u64;
        std::thread::scope(|scope| {
            scope.spawn(|| root.delete_subvolume("copy").unwrap());
            while root.lookup("copy").is_ok() {
                std::thread::yield_now();
            }
            together(|thread| {
                let file = root.create(format!("next-{thread}"), 0o644).unwrap();
                let taken = file.allocate(0, share_bytes, AllocateMode::Grow);
                taken.unwrap_or_else(|error| panic!("round {round}: {error}"));
                share_bytes
            });
        });
        // A missing name is refused.
        let file = root.create("too-much", 0o644).unwrap();
        let refused = file.allocate(0, 160 << 20, AllocateMode::Grow).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        root.remove_file("too-much").unwrap();
        together(|thread| {
            root.remove_file(format!("next-{thread}")).unwrap();
            1
        });
    }
    fs.sync().unwrap();
    drop((root, fs));
    check(&image, "subvolumes that were deleted");
}

/// Creates small files, which are in metadata, until the space runs out or there are `most`.
/// Returns how many.
fn fill_metadata(root: &Subvolume, folder: &str, most: u64) -> u64 {
    let small = [5; 2000];
    root.create_directory(folder, 0o755).unwrap();
    for number in 0..most {
        let made = root.create(format!("{folder}/{number}"), 0o644);
        if let Err(error) = made.and_then(|file| file.write_at(&small, 0)) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            return number;
        }
    }
    most
}

/// Space for data can become space for metadata, though a block group is removed only by the commit
/// after the one that leaves it empty.
#[test]
fn space_of_the_other_kind() {
    let spec = ImageSpec::new("enospc-kinds").devices(&[300 << 20]);
    let image = KernelImage::empty(&spec.profiles(Profile::Single, Profile::Single));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let filler = root.create("filler", 0o644).unwrap();
    let len_bytes = fill(&filler);
    drop(filler);
    root.remove_file("filler").unwrap();
    let wanted = len_bytes / 2 / 4096;
    assert_eq!(fill_metadata(&root, "small", wanted), wanted, "files of 4 KiB of metadata at most");
    fs.sync().unwrap();
    drop((root, fs));
    check(&image, "space of the other kind");
}

/// If metadata is full, many threads can delete at once.
#[test]
fn metadata_from_many_threads() {
    const DELETERS: usize = 16;
    let spec = ImageSpec::new("enospc-metadata").devices(&[128 << 20]);
    let image = KernelImage::empty(&spec.profiles(Profile::Single, Profile::Dup));
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let files = fill_metadata(&root, "small", u64::MAX);
    assert!(files > 1000, "{files}");
    let start = Barrier::new(DELETERS);
    std::thread::scope(|scope| {
        for thread in 0..DELETERS {
            let (root, start) = (&root, &start);
            scope.spawn(move || {
                start.wait();
                for number in (thread as u64..files).step_by(DELETERS) {
                    let path = format!("small/{number}");
                    root.remove_file(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
                }
            });
        }
    });
    let again = fill_metadata(&root, "again", u64::MAX);
    println!("{files} files, {again} again");
    assert!(again >= files * 9 / 10, "{again} files, and {files} before");
    fs.sync().unwrap();
    drop((root, fs));
    check(&image, "metadata that many threads deleted");
}
