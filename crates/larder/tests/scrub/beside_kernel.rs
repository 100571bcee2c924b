//! The same damage, found and repaired by the kernel's scrub and by larder's.

use std::collections::BTreeMap;
use std::path::PathBuf;

use larder::{Filesystem, Profile, ScrubEnd, ScrubFate, ScrubFinding, ScrubOptions};
use larder_testkit::KernelMount;
use larder_testkit::command::run;
use parking_lot::Mutex;

use crate::made::{Made, SECTOR, assert_sound, has_copies, options, sector, spoil};

/// Counters by device and by name.
type Counted = BTreeMap<(u64, String), u64>;

/// What the kernel counts, and what its devices count.
fn by_kernel(files: &[PathBuf], read_only: bool) -> (Counted, Counted) {
    let mount = KernelMount::open(files, "");
    let mut arguments = vec!["scrub", "start", "-B", "-d", "-R"];
    arguments.extend(read_only.then_some("-r"));
    let path = mount.path().to_str().unwrap().to_owned();
    arguments.push(&path);
    let text = match run("btrfs", &arguments) {
        Ok(text) => text,
        Err(error) => error.stdout,
    };
    let mut counted = Counted::new();
    let mut device = 0;
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("(id ") {
            device = rest.split(')').next().unwrap().parse().unwrap();
        } else if let Some((name, value)) = line.trim().split_once(": ")
            && line.starts_with('\t')
        {
            counted.insert((device, name.to_owned()), value.parse().unwrap());
        }
    }
    let stats = run("btrfs", ["device", "stats", &path]).unwrap();
    let mut errors = Counted::new();
    let mut devices: Vec<&str> = Vec::new();
    for line in stats.lines() {
        let (device, rest) = line[1..].split_once("].").unwrap();
        if !devices.contains(&device) {
            devices.push(device);
        }
        let (name, value) = rest.split_once(' ').unwrap();
        errors.insert((devices.len() as u64, name.to_owned()), value.trim().parse().unwrap());
    }
    (counted, errors)
}

fn scrubbed(fs: &Filesystem, read_only: bool) -> (Counted, Vec<ScrubFinding>) {
    let findings = Mutex::new(Vec::new());
    let found = |finding| findings.lock().push(finding);
    let options = ScrubOptions { read_only, found: Some(&found), ..ScrubOptions::default() };
    let scrubs = fs.scrub(&options).unwrap();
    assert!(fs.jobs().running().is_empty());
    let mut counted = Counted::new();
    for scrub in scrubs {
        assert!(matches!(scrub.end, ScrubEnd::Finished), "{:?}", scrub.end);
        let counters = scrub.counters;
        for (name, value) in [
            ("data_extents_scrubbed", counters.data_extents_scrubbed),
            ("tree_extents_scrubbed", counters.tree_extents_scrubbed),
            ("data_bytes_scrubbed", counters.data_bytes_scrubbed),
            ("tree_bytes_scrubbed", counters.tree_bytes_scrubbed),
            ("read_errors", counters.read_errors),
            ("csum_errors", counters.csum_errors),
            ("verify_errors", counters.verify_errors),
            ("no_csum", counters.no_csum),
            ("super_errors", counters.super_errors),
            ("uncorrectable_errors", counters.uncorrectable_errors),
            ("unverified_errors", counters.unverified_errors),
            ("corrected_errors", counters.corrected_errors),
        ] {
            counted.insert((scrub.device, name.to_owned()), value);
        }
    }
    (counted, findings.into_inner())
}

/// Leaves out what mounting changes: the number of tree blocks.
#[track_caller]
fn assert_alike(larder: &Counted, kernel: &Counted) {
    for (key @ (_, name), value) in larder {
        if !name.starts_with("tree_") {
            assert_eq!(kernel.get(key), Some(value), "{key:?}");
        }
    }
}

#[track_caller]
fn assert_device_errors(fs: &Filesystem, kernel: &Counted) {
    for errors in fs.device_errors().unwrap() {
        let of = |name: &str| kernel[&(errors.id, name.to_owned())];
        assert_eq!(errors.corruptions, of("corruption_errs"), "device {}", errors.id);
        assert_eq!(errors.generations, of("generation_errs"), "device {}", errors.id);
        assert_eq!(errors.reads, of("read_io_errs"), "device {}", errors.id);
    }
}

/// One bad copy of everything that has another, on each device in turn.
#[test]
fn finds_and_repairs_what_the_kernel_does() {
    let profiles = [
        (Profile::Single, Profile::Dup, 1),
        (Profile::Raid0, Profile::Raid1, 2),
        (Profile::Raid1, Profile::Raid1, 2),
        (Profile::Raid10, Profile::Raid1c3, 4),
    ];
    for (data, metadata, devices) in profiles {
        let made = Made::new(data, metadata, devices);
        let (ours, theirs) = (made.copied("ours"), made.copied("theirs"));
        let mut spoilt = Vec::new();
        let mut damage = |at: (u64, u64)| {
            spoil(&ours, at);
            spoil(&theirs, at);
            spoilt.push(at);
        };
        damage(*made.places(made.block).last().unwrap());
        damage((1, 64 << 20));
        if has_copies(data) {
            damage(made.places(made.data + 2 * SECTOR)[0]);
            damage(made.places(made.data + 3 * SECTOR)[0]);
            damage(made.places(made.data + 40 * SECTOR)[1]);
            damage(made.places(made.compressed)[1]);
        }
        let fs = options().write(true).open(&ours).unwrap();
        let (counted, findings) = scrubbed(&fs, false);
        let (kernel, errors) = by_kernel(&theirs, false);
        assert_alike(&counted, &kernel);
        assert_device_errors(&fs, &errors);
        assert!(findings.iter().all(|it| it.fate == ScrubFate::Repaired), "{findings:#?}");
        fs.close().unwrap();
        for at in spoilt.iter().filter(|(_, physical)| *physical != 64 << 20) {
            assert_eq!(sector(&ours, *at), sector(&made.files, *at), "{at:?}");
            assert_eq!(sector(&ours, *at), sector(&theirs, *at), "{at:?}");
        }
        assert_sound(&ours);
        let (again, findings) = scrubbed(&options().open(&ours).unwrap(), false);
        assert!(findings.is_empty(), "{findings:#?}");
        assert!(again.iter().all(|((_, name), value)| !name.contains("error") || *value == 0));
    }
}

/// Both copies bad, data that is stored once, and data without checksums.
#[test]
fn says_what_is_beyond_repair_and_which_files_have_it() {
    let made = Made::new(Profile::Raid1, Profile::Raid1, 2);
    let (ours, theirs) = (made.copied("ours"), made.copied("theirs"));
    for files in [&ours, &theirs] {
        for at in [made.places(made.data), made.places(made.block)].concat() {
            spoil(files, at);
        }
        spoil(files, made.places(made.plain)[1]);
        spoil(files, made.places(made.preallocated)[0]);
    }
    let fs = options().write(true).open(&ours).unwrap();
    let (counted, findings) = scrubbed(&fs, false);
    let (kernel, errors) = by_kernel(&theirs, false);
    assert_alike(&counted, &kernel);
    assert_device_errors(&fs, &errors);
    let of = |fate: ScrubFate| findings.iter().filter(move |it| it.fate == fate);
    assert_eq!(of(ScrubFate::BeyondRepair).count(), 4, "{findings:#?}");
    let data = of(ScrubFate::BeyondRepair).find(|it| it.logical == Some(made.data)).unwrap();
    let mut files: Vec<_> = data.files.iter().map(|it| it.path.to_str().unwrap()).collect();
    files.sort_unstable();
    assert_eq!(files, ["data", "reflink", "snapshot/data", "snapshot/reflink"]);
    assert!(data.files.iter().all(|file| file.offset == 0));
    assert!(data.to_string().contains("beyond repair: there is no good copy; in "), "{data}");
    let mut differing: Vec<_> = of(ScrubFate::Undecided).filter_map(|it| it.logical).collect();
    differing.sort_unstable();
    let mut expected = [made.plain, made.preallocated];
    expected.sort_unstable();
    assert_eq!(differing, expected);
}

#[test]
fn a_scrub_that_changes_nothing_counts_the_same() {
    let made = Made::new(Profile::Raid1, Profile::Raid1, 2);
    let (ours, theirs) = (made.copied("ours"), made.copied("theirs"));
    let bad = [made.places(made.data)[0], made.places(made.block)[1], (2, 64 << 20)];
    for at in bad {
        spoil(&ours, at);
        spoil(&theirs, at);
    }
    let fs = options().write(true).open(&ours).unwrap();
    let before = bad.map(|at| sector(&ours, at));
    let (counted, findings) = scrubbed(&fs, true);
    let (kernel, errors) = by_kernel(&theirs, true);
    assert_alike(&counted, &kernel);
    assert_device_errors(&fs, &errors);
    assert_eq!(bad.map(|at| sector(&ours, at)), before);
    assert!(findings.iter().all(|it| it.fate == ScrubFate::Repairable), "{findings:#?}");
    assert_eq!(findings.len(), 3);
}
