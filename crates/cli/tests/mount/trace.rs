//! The requests that the kernel sends to a FUSE server, as the kernel's own tracepoint counts them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_testkit::Scratch;

use crate::support::succeed;

/// The tracepoint, in an instance of tracing.
const EVENT: &str = "events/fuse/fuse_request_send";
/// The buffer of an instance for each processor: more than any test here has requests.
const BUFFER_KIB: &str = "16384";

/// A private instance of the kernel's tracing with the requests of one mount; removed when dropped.
pub(crate) struct Trace {
    tracefs: Tracefs,
    name: String,
}

/// The kernel's tracing, mounted at a place of this test's own.
struct Tracefs(Scratch);

/// How many requests there were of each kind, by the kernel's names of opcodes without `FUSE_`.
pub(crate) type Counts = BTreeMap<String, u64>;

impl Tracefs {
    fn mount() -> Self {
        let tracefs = Self(Scratch::new());
        succeed(Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(tracefs.path()));
        tracefs
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

impl Trace {
    /// Traces the requests to the server of the mount at `point`.
    pub(crate) fn of(point: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("larder-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let trace = Self { tracefs: Tracefs::mount(), name };
        fs::create_dir(trace.path("")).expect("an instance is made");
        trace.set("buffer_size_kb", BUFFER_KIB);
        trace.set("options/overwrite", "0");
        trace.set(&format!("{EVENT}/filter"), &format!("connection == {}", connection_of(point)));
        trace
    }

    /// The requests that `work` made the kernel send.
    pub(crate) fn count(&self, work: impl FnOnce()) -> Counts {
        self.set("trace", "");
        self.set(&format!("{EVENT}/enable"), "1");
        work();
        self.set(&format!("{EVENT}/enable"), "0");
        self.check_complete();
        let mut counts = Counts::new();
        for line in self.get("trace").lines().filter(|line| !line.starts_with('#')) {
            let opcode = line.split_once(" opcode ").and_then(|(_, rest)| rest.split_once(") "));
            let (opcode, _) = opcode.unwrap_or_else(|| panic!("an event of another form: {line}"));
            *counts.entry(name_of(opcode)).or_default() += 1;
        }
        counts
    }

    /// Panics if the kernel had no room for some events.
    fn check_complete(&self) {
        for processor in fs::read_dir(self.path("per_cpu")).expect("it is there") {
            let stats = processor.expect("it is there").path().join("stats");
            let stats = fs::read_to_string(stats).expect("it is read");
            for line in stats.lines() {
                if let Some((of, count)) = line.split_once(": ")
                    && ["overrun", "dropped events"].contains(&of)
                {
                    assert_eq!(count, "0", "{of}");
                }
            }
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.tracefs.path().join("instances").join(&self.name).join(file)
    }

    #[track_caller]
    fn set(&self, file: &str, value: &str) {
        fs::write(self.path(file), value).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    fn get(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).expect("it is read")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.path(""));
    }
}

/// The name of an opcode, which an event has as a number and, in parentheses, a name. Linux 6.18
/// left the name of its newest one out.
fn name_of(opcode: &str) -> String {
    match opcode.split_once(" (FUSE_") {
        Some((_, name)) => name.to_owned(),
        None if opcode.starts_with("53 ") => "COPY_FILE_RANGE_64".to_owned(),
        None => opcode.to_owned(),
    }
}

/// The number in the kernel's events for the connection of the mount at `point`: that of its
/// device, with 20 bits for the minor number.
fn connection_of(point: &Path) -> u32 {
    let device = fs::metadata(point).expect("it is mounted").dev();
    rustix::fs::major(device) << 20 | rustix::fs::minor(device)
}
