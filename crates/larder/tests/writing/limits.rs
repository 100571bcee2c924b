//! Quota groups: no subvolume exceeds a limit, the counters are the kernel's, and a user over a
//! limit can delete.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use larder::{
    AllocateMode, CompressionAlgorithm, ErrorKind, Filesystem, SnapshotKind, Subvolume,
    WriteCompression, XattrMode,
};
use larder_testkit::{ImageSpec, KernelImage, command};

use super::{check, open};

const MIB: u64 = 1 << 20;
const NODE: u64 = 16 << 10;
/// The group of the first subvolume.
const FIRST: u64 = 256;
/// The group `1/1`.
const ABOVE: u64 = 1 << 48 | 1;

/// A file system with quotas on, in whose root directory the kernel runs `script`.
fn limited(name: &str, script: &str) -> KernelImage {
    let image = KernelImage::empty(&ImageSpec::new(name));
    by_kernel(&image, &format!("btrfs quota enable .; {script}; btrfs quota rescan -w ."));
    image
}

fn by_kernel(image: &KernelImage, script: &str) -> String {
    let mount = image.mount("");
    let line = format!("cd {}; {script}", mount.path().display());
    command::run("bash", ["-euo", "pipefail", "-c", &line])
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Bytes that groups refer to, and those that nothing else refers to.
type Counts = BTreeMap<u64, (u64, u64)>;

/// The kernel's counters, from nothing.
fn counted_by_kernel(image: &KernelImage) -> Counts {
    let shown = by_kernel(image, "btrfs quota rescan -w . >/dev/null; btrfs qgroup show --raw .");
    let group = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (level, id) = words.first()?.split_once('/')?;
        let id = level.parse::<u64>().ok()? << 48 | id.parse::<u64>().ok()?;
        Some((id, (words.get(1)?.parse().ok()?, words.get(2)?.parse().ok()?)))
    };
    shown.lines().filter_map(group).collect()
}

fn counted(fs: &Filesystem, group: u64) -> (u64, u64) {
    let group = fs.quota_group(group).unwrap().expect("it is there");
    (group.referenced_bytes, group.exclusive_bytes)
}

fn kind<T>(result: larder::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Appends pieces until a limit is exceeded. Returns how many bytes there are.
fn fill(root: &Subvolume, name: &str, piece_bytes: usize) -> u64 {
    append(&root.create(name, 0o644).unwrap(), piece_bytes)
}

fn append(file: &larder::File, piece_bytes: usize) -> u64 {
    for piece in 0..1000 {
        match file.write_at(&vec![piece as u8 | 1; piece_bytes], file.len_bytes()) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
                return file.len_bytes();
            }
        }
    }
    panic!("there is no limit");
}

#[test]
fn a_limit_is_hit_by_the_call_that_would_pass_it() {
    let image = limited("limit", "btrfs subvolume create s; btrfs qgroup limit 10M s");
    let fs = open(&image);
    let root = fs.subvolume("/s").unwrap();
    root.create("before", 0o600).unwrap();
    fill(&root, "large", 64 << 10);
    let len_bytes = append(&root.open_file("large").unwrap(), 4 << 10);
    assert!((9 * MIB..10 * MIB).contains(&len_bytes), "{len_bytes}");
    let error = root.create("more", 0o644).expect_err("nothing is left");
    let text = error.to_string();
    assert_eq!(error.errno(), rustix::io::Errno::DQUOT.raw_os_error());
    assert!(text.contains("subvolume 256") && text.contains("10485760 bytes of quota group 0/256"));
    // The kernel refuses the same calls, except those that only remove.
    let (before, large) = (root.open_file("before").unwrap(), root.open_file("large").unwrap());
    let refused = [
        kind(root.create_directory("directory", 0o755)),
        kind(root.symlink("target", "symlink")),
        kind(root.hard_link("before", "link")),
        kind(root.rename("before", "after")),
        kind(root.create_unnamed("/", 0o600)),
        kind(before.set_xattr("user.x", b"y", XattrMode::Any)),
        kind(before.allocate(0, MIB, AllocateMode::Grow)),
        kind(before.clone_range(&large, 0, 4096, 0)),
        kind(large.write_at(&vec![9; 1 << 20], 0)),
        kind(root.create_subvolume("nested")),
        kind(root.snapshot("snapshot", SnapshotKind::ReadOnly)),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused, Some(ErrorKind::QuotaExceeded), "{number}");
    }
    before.set_attributes(&larder::SetAttributes::default()).unwrap();
    before.set_len(20 * MIB).unwrap();
    fs.sync().unwrap();
    let (referenced_bytes, _) = counted(&fs, FIRST);
    assert!(referenced_bytes <= 10 * MIB, "{referenced_bytes}");
    assert_eq!(large.len_bytes(), len_bytes, "nothing that was taken is lost");
    // Removing is not refused, and frees space once no part of an extent is left.
    large.punch_hole(0, 1 << 20).unwrap();
    large.set_len(5 * MIB + 1).unwrap();
    root.remove_file("large").unwrap();
    drop((before, large));
    fs.delete_unlinked();
    assert!(counted(&fs, FIRST).0 < MIB);
    root.create("more", 0o644).unwrap().write_at(&vec![1; 2 << 20], 0).unwrap();
    fill(&root, "again", 1 << 20);
    drop((root, fs));
    // The limit applies after the next opening, too: data that was not synced is lost.
    let fs = open(&image);
    let root = fs.subvolume("/s").unwrap();
    assert_eq!(counted(&fs, FIRST).0, referenced_bytes);
    assert_eq!(kind(root.create("next", 0o600)), Some(ErrorKind::QuotaExceeded));
    root.remove_file("large").unwrap();
    fs.sync().unwrap();
    let ours = counted(&fs, FIRST);
    drop((root, fs));
    check(&image, "a limit");
    assert_eq!(counted_by_kernel(&image)[&FIRST], ours);
}

/// Writing, cutting, punching, allocating, compressing and cloning, in files large and small: the
/// kernel counts the same.
#[test]
fn counts_are_those_of_the_kernel() {
    let image = limited(
        "counts",
        "btrfs subvolume create s; btrfs subvolume create t; btrfs qgroup create 1/1 .;
         btrfs qgroup assign 0/256 1/1 . ; btrfs qgroup assign 0/257 1/1 .",
    );
    let fs = open(&image);
    let (s, t) = (fs.subvolume("/s").unwrap(), fs.subvolume("/t").unwrap());
    let make = |root: &Subvolume, name: &str, len: usize| {
        let file = root.create(name, 0o644).unwrap();
        file.write_at(&vec![name.len() as u8; len], 0).unwrap();
        file
    };
    for number in 0..600 {
        make(&s, &format!("file-{number}"), 100 + number % 3 * 900);
    }
    let large = make(&s, "large", 3 << 20);
    fs.sync().unwrap();
    large.write_at(&vec![2; 50_000], 700_000).unwrap();
    large.punch_hole(1 << 20, 300_000).unwrap();
    make(&s, "cut", 2 << 20).set_len(900_001).unwrap();
    make(&s, "room", 1).allocate(0, MIB, AllocateMode::KeepSize).unwrap();
    s.create("copy", 0o600).unwrap().clone_range(&large, 0, MIB, 0).unwrap();
    for number in 0..300 {
        s.remove_file(format!("file-{}", number * 2)).unwrap();
    }
    fs.sync().unwrap();
    s.remove_file("copy").unwrap();
    s.remove_file("cut").unwrap();
    let zlib = CompressionAlgorithm::Zlib.into();
    fs.set_compression(Some(WriteCompression { compression: zlib, force: true })).unwrap();
    make(&t, "compressed", 3 << 20);
    t.create("shared", 0o600).unwrap().clone_range(&large, 0, MIB, 0).unwrap();
    fs.sync().unwrap();
    let ours = [5, 256, 257].map(|group| counted(&fs, group));
    let above = counted(&fs, ABOVE);
    drop((s, t, large, fs));
    check(&image, "many changes");
    let kernel = counted_by_kernel(&image);
    for (group, ours) in [5, 256, 257].into_iter().zip(ours) {
        assert_eq!(kernel[&group].0, ours.0, "{group}");
    }
    // Data that members share counts more than once above them, and as exclusive for its first
    // owner.
    assert_eq!(above.0, ours[1].0 + ours[2].0);
    assert!(
        kernel[&ABOVE].0 < above.0 && kernel[&256].1 < ours[1].1 && kernel[&257].1 == ours[2].1
    );
}

#[test]
fn a_snapshot_counts_the_same_as_its_source() {
    let image = limited(
        "snapshots",
        "btrfs subvolume create s; dd if=/dev/zero of=s/f bs=1M count=4; btrfs qgroup limit 10M s",
    );
    let fs = open(&image);
    let root = fs.subvolume("/s").unwrap();
    let size_bytes = counted(&fs, FIRST).0;
    let top = fs.subvolume("/").unwrap();
    let snapshot = root.snapshot_to(&top, "snapshot", SnapshotKind::Writable);
    let snapshot = snapshot.unwrap();
    let id = snapshot.id();
    assert_eq!(counted(&fs, FIRST), (size_bytes, NODE));
    assert_eq!(counted(&fs, id), (size_bytes, NODE));
    // It has the limit of its source, and counts for itself.
    fill(&root, "more", 1 << 20);
    let file = snapshot.create("much", 0o600).unwrap();
    file.write_at(&vec![1; 4 << 20], 0).unwrap();
    let error = file.write_at(&vec![1; 8 << 20], 4 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    root.remove_file("f").unwrap();
    fs.sync().unwrap();
    let ours = [FIRST, id].map(|group| counted(&fs, group));
    drop((file, snapshot, root, top, fs));
    check(&image, "a snapshot");
    let kernel = counted_by_kernel(&image);
    assert_eq!(ours[0], kernel[&FIRST]);
    assert_eq!(ours[1].0, kernel[&id].0);
    // Once it is gone, it counts nothing.
    let fs = open(&image);
    fs.subvolume("/").unwrap().delete_subvolume("snapshot").unwrap();
    assert_eq!(counted(&fs, id), (0, 0));
    drop(fs);
    check(&image, "a snapshot that is gone");
}

#[test]
fn limits_of_exclusive_bytes_and_of_groups_above_are_kept() {
    let image = limited(
        "above",
        "for s in s t u; do btrfs subvolume create $s; done; btrfs qgroup create 1/1 .;
         btrfs qgroup create 2/1 .; btrfs qgroup assign 1/1 2/1 .; btrfs qgroup limit 20M 2/1 .;
         btrfs qgroup assign 0/256 1/1 . ; btrfs qgroup assign 0/257 1/1 .;
         btrfs qgroup limit -e 5M u",
    );
    let fs = open(&image);
    let [s, t, u] = ["/s", "/t", "/u"].map(|path| fs.subvolume(path).unwrap());
    s.create("f", 0o600).unwrap().write_at(&vec![1; 12 << 20], 0).unwrap();
    let len_bytes = fill(&t, "f", 1 << 20);
    assert_eq!(len_bytes, 7 * MIB);
    let text =
        t.create("g", 0o600).unwrap().write_at(&vec![1; 1 << 20], 0).unwrap_err().to_string();
    assert!(text.contains("20971520 bytes of quota group 2/1"), "{text}");
    assert_eq!(fill(&u, "f", 1 << 20), 4 * MIB);
    fs.sync().unwrap();
    let groups = [256, 257, 258, ABOVE, 2 << 48 | 1];
    let ours = groups.map(|group| counted(&fs, group));
    drop((s, t, u, fs));
    check(&image, "groups above");
    let kernel = counted_by_kernel(&image);
    assert_eq!(ours, groups.map(|group| kernel[&group]));
}

/// Eight threads that write, allocate and create files at once do not exceed a limit together.
#[test]
fn many_threads_do_not_pass_a_limit() {
    let image = limited("crowded", "btrfs subvolume create s; btrfs qgroup limit 24M s");
    let fs = open(&image);
    let root = fs.subvolume("/s").unwrap();
    let refusals = AtomicUsize::new(0);
    let work = |thread: usize| -> larder::Result<()> {
        for number in 0..400 {
            let file = root.create(format!("{thread}-{number}"), 0o600)?;
            match number % 4 {
                0 => file.write_at(&vec![1; 200_000], 0)?,
                1 => file.write_at(&[1; 1500], 0)?,
                2 => file.allocate(0, 100_000, AllocateMode::Grow)?,
                _ => file.write_at(&vec![1; 30_000], 5_000)?,
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (work, refusals) = (&work, &refusals);
            scope.spawn(move || {
                assert_eq!(kind(work(thread)), Some(ErrorKind::QuotaExceeded));
                refusals.fetch_add(1, Relaxed);
            });
        }
    });
    assert_eq!(refusals.into_inner(), 8);
    fs.sync().unwrap();
    let ours = counted(&fs, FIRST);
    assert!((20 * MIB..=24 * MIB).contains(&ours.0), "{ours:?}");
    drop((root, fs));
    check(&image, "a crowd");
    assert_eq!(counted_by_kernel(&image)[&FIRST], ours);
}

/// New subvolumes have groups, as in the kernel, and changes that a log has are counted after a
/// crash.
#[test]
fn new_subvolumes_are_counted() {
    let image = limited("new", "true");
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap().create_subvolume("s").unwrap();
    assert_eq!(counted(&fs, root.id()), (NODE, NODE));
    let file = root.create("f", 0o600).unwrap();
    file.write_at(&vec![1; 3 << 20], 0).unwrap();
    file.sync().unwrap();
    let id = root.id();
    drop((file, root, fs));
    let fs = open(&image);
    let replayed = counted(&fs, id);
    assert_eq!(replayed, (3 * MIB + NODE, 3 * MIB + NODE));
    drop(fs);
    check(&image, "a replay");
    assert_eq!(counted_by_kernel(&image)[&id], replayed);
}

/// As in the kernel, shared data may exceed a limit. Then nothing grows, and everything can shrink.
#[test]
fn shared_data_may_exceed_a_limit_and_can_be_deleted() {
    let image = limited("passed", "btrfs subvolume create s; btrfs qgroup limit 2M s");
    let fs = open(&image);
    let (top, root) = (fs.subvolume("/").unwrap(), fs.subvolume("/s").unwrap());
    let large = top.create("large", 0o600).unwrap();
    large.write_at(&vec![1; 8 << 20], 0).unwrap();
    let copy = root.create("copy", 0o600).unwrap();
    copy.set_xattr("user.x", b"y", XattrMode::Any).unwrap();
    copy.clone_range(&large, 0, 0, 0).unwrap();
    assert_eq!(counted(&fs, FIRST), (8 * MIB + NODE, NODE));
    assert_eq!(kind(root.create("more", 0o600)), Some(ErrorKind::QuotaExceeded));
    assert_eq!(kind(copy.write_at(b"x", 0)), Some(ErrorKind::QuotaExceeded));
    assert_eq!(kind(copy.clone_range(&large, 0, 0, 0)), Some(ErrorKind::QuotaExceeded));
    copy.remove_xattr("user.x").unwrap();
    copy.punch_hole(MIB, MIB).unwrap();
    copy.set_len(7 * MIB + 1).unwrap();
    fs.sync().unwrap();
    let ours = counted(&fs, FIRST);
    drop((top, root, large, copy, fs));
    check(&image, "a limit that was passed");
    assert_eq!(counted_by_kernel(&image)[&FIRST], ours);
    let fs = open(&image);
    fs.subvolume("/s").unwrap().remove_file("copy").unwrap();
    fs.sync().unwrap();
    assert_eq!(counted(&fs, FIRST), (NODE, NODE));
    drop(fs);
    check(&image, "a limit that is kept again");
}
