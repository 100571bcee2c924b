use std::fs::{self, File};
use std::sync::Mutex;

use rustix::fs::{FlockOperation, flock};

/// Whether the kernel offers FUSE over io_uring to new mounts.
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Makes the kernel offer io_uring to FUSE servers as long as a guard of this kind exists. The last
/// guard restores the old setting.
///
/// One process may have many guards; another process waits until those are gone.
#[derive(Debug)]
pub struct RingsOffered(());

/// The guards of this process.
struct Guards {
    count: usize,
    before: String,
    /// Locked against other processes.
    parameter: Option<File>,
}

static GUARDS: Mutex<Guards> =
    Mutex::new(Guards { count: 0, before: String::new(), parameter: None });

impl RingsOffered {
    /// Makes the kernel offer io_uring.
    ///
    /// # Panics
    /// If this kernel does not support it, or this process is not root.
    #[track_caller]
    pub fn new() -> Self {
        let mut guards = GUARDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if guards.count == 0 {
            let parameter = File::open(ENABLE_URING).unwrap_or_else(|error| {
                panic!("needs FUSE over io_uring: {ENABLE_URING}: {error}")
            });
            flock(&parameter, FlockOperation::LockExclusive).expect("the parameter is locked");
            guards.before = fs::read_to_string(ENABLE_URING).expect("the parameter is read");
            guards.parameter = Some(parameter);
            fs::write(ENABLE_URING, "Y")
                .unwrap_or_else(|error| panic!("needs root: {ENABLE_URING}: {error}"));
        }
        guards.count += 1;
        Self(())
    }
}

impl Default for RingsOffered {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for RingsOffered {
    fn drop(&mut self) {
        let mut guards = GUARDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        guards.count -= 1;
        if guards.count == 0 {
            if let Err(error) = fs::write(ENABLE_URING, guards.before.trim()) {
                eprintln!("cannot restore {ENABLE_URING}: {error}");
            }
            guards.parameter = None;
        }
    }
}
