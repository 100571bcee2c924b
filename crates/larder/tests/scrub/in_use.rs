//! Scrubs of a file system that others change meanwhile, and jobs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use larder::{ErrorKind, Profile, ScrubEnd, ScrubFinding, ScrubOptions, WritePolicy};
use parking_lot::Mutex;

use crate::made::{Made, SECTOR, assert_sound, options, spoil};

#[test]
fn writers_go_on_and_nothing_newer_is_overwritten() {
    let made = Made::new(Profile::Raid1, Profile::Raid1, 2);
    for sector in [0, 7, 31, 200] {
        spoil(&made.files, made.places(made.data + sector * SECTOR)[sector as usize % 2]);
    }
    let fs = options().write(true).open(&made.files).unwrap();
    let top = fs.subvolume("/").unwrap();
    let findings = Mutex::new(Vec::new());
    let found = |finding: ScrubFinding| findings.lock().push(finding);
    let scrub_options = ScrubOptions { found: Some(&found), ..ScrubOptions::default() };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // In place, without checksums; and copied on write, with deletions and commits.
        scope.spawn(|| {
            let plain = top.open_file("plain").unwrap();
            let room = top.open_file("preallocated").unwrap();
            for turn in 0_u64.. {
                let (at, value) = (turn % 200 * SECTOR, vec![turn as u8; 3 * SECTOR as usize]);
                plain.write_at(&value, at).unwrap();
                room.write_at(&value, at).unwrap();
                top.write(format!("new-{}", turn % 5), &value).unwrap();
                if turn % 16 == 0 {
                    fs.sync().unwrap();
                }
                if is_over.load(Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..10 {
            for scrub in fs.scrub(&scrub_options).unwrap() {
                assert!(matches!(scrub.end, ScrubEnd::Finished), "{scrub:?}");
                assert_eq!(scrub.counters.uncorrectable_errors, 0);
                assert_eq!(scrub.counters.differing_sectors, 0);
            }
        }
        is_over.store(true, Relaxed);
    });
    let repaired = findings.into_inner();
    let logical: Vec<_> = repaired.iter().filter_map(|finding| finding.logical).collect();
    let damaged = made.data..made.data + 201 * SECTOR;
    assert!(logical.iter().all(|at| damaged.contains(at)), "{repaired:#?}");
    assert_eq!(logical.len(), 4);
    drop(top);
    fs.close().unwrap();
    assert_sound(&made.files);
}

#[test]
fn blocks_that_are_freed_meanwhile_are_no_loss() {
    let made = Made::new(Profile::Single, Profile::Single, 1);
    let fs = options().write(true).open(&made.files).unwrap();
    let top = fs.subvolume("/").unwrap();
    fs.set_write_policy(WritePolicy::default()).unwrap();
    top.write("doomed", vec![5; 4 << 20]).unwrap();
    fs.sync().unwrap();
    let file = top.open_file("doomed").unwrap();
    let logical = file.extents_from(0).unwrap().next().unwrap().unwrap().logical.unwrap();
    drop(file);
    // Two places that are not read at once: while the first is told, the file goes.
    spoil(&made.files, made.places(logical)[0]);
    spoil(&made.files, made.places(logical + (3 << 20))[0]);
    let told = AtomicBool::new(false);
    let found = |_: ScrubFinding| {
        if !told.swap(true, Relaxed) {
            top.remove_file("doomed").unwrap();
            fs.delete_unlinked();
            fs.sync().unwrap();
        }
    };
    let scrubs = fs.scrub(&ScrubOptions { found: Some(&found), ..ScrubOptions::default() });
    let counters = scrubs.unwrap()[0].counters;
    assert_eq!(counters.csum_errors, 2);
    assert_eq!((counters.uncorrectable_errors, counters.unverified_errors), (1, 1));
}

#[test]
fn a_cancelled_scrub_goes_on_where_it_was_and_excludes_another() {
    let made = Made::new(Profile::Single, Profile::Dup, 1);
    let fs = options().write(true).open(&made.files).unwrap();
    let whole = fs.scrub_device(1, &ScrubOptions::default()).unwrap();
    fs.set_scrub_limit(1, Some(256 << 10));
    let cancelled = thread::scope(|scope| {
        let scrub = scope.spawn(|| fs.scrub_device(1, &ScrubOptions::default()).unwrap());
        while fs.scrub_progress(1).is_none_or(|now| now.bytes_scrubbed() == 0) {
            thread::yield_now();
        }
        let refused = fs.scrub_device(1, &ScrubOptions::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InUse);
        let text = refused.to_string();
        assert_eq!(text, "scrub of device 1 cannot begin: scrub of device 1 is running");
        let jobs = fs.jobs().running();
        let [job] = &jobs[..] else { panic!("{jobs:?}") };
        assert!(job.status().total_bytes >= whole.counters.bytes_scrubbed());
        assert_eq!(job.status().limit, Some(256 << 10));
        job.pause();
        job.cancel();
        scrub.join().unwrap()
    });
    assert!(matches!(cancelled.end, ScrubEnd::Cancelled), "{cancelled:?}");
    fs.set_scrub_limit(1, None);
    let start = cancelled.counters.last_physical;
    let rest = fs.scrub_device(1, &ScrubOptions { start, ..ScrubOptions::default() }).unwrap();
    let (first, second) = (cancelled.counters, rest.counters);
    assert!(first.bytes_scrubbed() > 0 && second.bytes_scrubbed() > 0);
    assert_eq!(first.bytes_scrubbed() + second.bytes_scrubbed(), whole.counters.bytes_scrubbed());
    assert_eq!(second.last_physical, whole.counters.last_physical);
}
