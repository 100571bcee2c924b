//! A panic in the middle of a change: the file system is read-only from then on, and no thread
//! waits for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use larder_transaction::space::Priority;
use larder_transaction::{
    BackgroundCommits, Error, Exclusive, Result, TransactionHook, TransactionManager,
};

use crate::support::{Blank, Files, names, open};

const MIB: u64 = 1 << 20;

/// The result of a panic in `change`: the last commit, and the reason why there will be no other.
fn panics(change: impl FnOnce(&Arc<TransactionManager>)) {
    let image = Blank::new("", &[256 * MIB]);
    let manager = Arc::new(open(&image.devices));
    let mut files = Files::new("larder", 1);
    files.churn(&manager, 20).unwrap();
    manager.commit().unwrap();
    let durable = files.sorted();
    files.churn(&manager, 20).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| change(&manager)));
    assert!(panicked.is_err());
    assert!(is_panicked(&manager));
    assert!(manager.aborted().is_some_and(|aborted| aborted.since <= SystemTime::now()));
    assert!(matches!(manager.start(1, Priority::Normal).map(drop), Err(Error::Aborted(_))));
    assert!(matches!(manager.commit(), Err(Error::Aborted(_))));
    drop(manager);
    let manager = open(&image.devices);
    assert_eq!(names(&manager, "larder").unwrap(), durable);
    drop(manager);
    image.check("after a panic");
}

fn is_panicked(manager: &TransactionManager) -> bool {
    manager.aborted().is_some_and(|aborted| matches!(*aborted.reason, Error::Panicked))
}

#[test]
fn a_panic_in_a_change_makes_the_file_system_read_only() {
    panics(|manager| {
        let _handle = manager.start(1, Priority::Normal).unwrap();
        panic!("the test wants it");
    });
}

#[test]
fn a_panic_while_the_gate_is_quiesced_makes_it_read_only_and_lets_threads_join() {
    panics(|manager| {
        let _exclusive = manager.quiesce();
        panic!("the test wants it");
    });
}

/// Panics in every commit.
struct Panics;

impl TransactionHook for Panics {
    fn before_commit(&self) -> Result<()> {
        panic!("the test wants it");
    }

    fn in_commit(&self, _: &Exclusive<'_>) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_panic_in_a_commit_makes_it_read_only() {
    panics(|manager| {
        manager.set_hook(Arc::new(Panics));
        let _ = manager.commit();
    });
}

#[test]
fn a_panic_in_the_background_makes_it_read_only() {
    let image = Blank::new("", &[256 * MIB]);
    let manager = Arc::new(open(&image.devices));
    let interval = Duration::from_millis(1);
    let prepare = || panic!("the test wants it");
    let commits = BackgroundCommits::start(manager.clone(), interval, usize::MAX, prepare);
    Files::new("larder", 1).churn(&manager, 5).ok();
    let start = Instant::now();
    while manager.aborted().is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "it goes on as if nothing were wrong");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(is_panicked(&manager));
    // The thread exists and ends when it should.
    drop(commits);
}
