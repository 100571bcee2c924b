//! The end of a file system: closing it makes everything durable, and dropping it with changes says
//! that they are lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use larder_filesystem::Filesystem;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::{Disk, lookup, make_file, open_file, read, top, write};

/// The errors that are told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Visit for Told {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{value:?}"));
    }
}

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// What is told while `act` runs.
fn told(act: impl FnOnce()) -> Vec<String> {
    let told = Told::default();
    tracing::subscriber::with_default(told.clone(), act);
    let told = told.0.lock().unwrap();
    told.clone()
}

fn change(fs: &Filesystem) {
    write(&make_file(&top(fs), "file"), b"bread", 0);
}

#[track_caller]
fn assert_lost(told: &[String]) {
    assert!(told.len() == 1 && told[0].contains("are lost"), "{told:?}");
}

#[test]
fn closing_makes_all_changes_durable() {
    let disk = Disk::new();
    let fs = disk.open();
    let silent = told(|| {
        change(&fs);
        fs.close().unwrap();
    });
    assert_eq!(silent, [""; 0]);
    assert_eq!(read(&open_file(&top(&disk.open()), "file")), b"bread");
    disk.check();
}

#[test]
fn nothing_is_told_without_changes() {
    let disk = Disk::new();
    let fs = disk.open();
    change(&fs);
    fs.sync().unwrap();
    let silent = told(|| {
        read(&open_file(&top(&fs), "file"));
        drop(fs);
        drop(disk.open());
    });
    assert_eq!(silent, [""; 0]);
}

#[test]
fn dropping_the_last_handle_tells_that_changes_are_lost() {
    let disk = Disk::new();
    let fs = disk.open();
    change(&fs);
    let file = open_file(&top(&fs), "file");
    assert_eq!(told(|| drop(fs)), [""; 0], "the file is a handle too");
    assert_lost(&told(|| drop(file)));
    assert!(lookup(&top(&disk.open()), "file").is_err());
    // Also changes after a commit, and names without data.
    let fs = disk.open();
    change(&fs);
    let kept = fs.clone();
    fs.close().unwrap();
    make_file(&top(&kept), "later");
    assert_lost(&told(|| drop(kept)));
    assert_eq!(read(&open_file(&top(&disk.open()), "file")), b"bread");
    disk.check();
}

/// A thread that panics commits nothing: its changes may be half of what it wanted.
#[test]
fn a_panic_tells_it_too() {
    let disk = Disk::new();
    let fs = disk.open();
    let lost = told(|| {
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            change(&fs);
            panic!("in the middle of a caller's work");
        }));
        assert!(panicked.is_err());
    });
    assert_lost(&lost);
    assert!(lookup(&top(&disk.open()), "file").is_err());
    disk.check();
}
