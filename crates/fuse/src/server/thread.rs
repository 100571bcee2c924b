//! The thread that makes a request: what the request does not say of it, and `/proc` does.
//!
//! # Invariants
//! - The thread waits for the reply while this is read. The kernel lets it neither end nor run
//!   another program before, so that what `/proc` says is true of the caller. If the thread was
//!   killed and got an early reply, what was read is denied.
//! - A capability counts if it is in effect, and only in the user namespace of the server: in any
//!   other it says nothing about this file system.
//! - What cannot be read is denied.

use std::fmt;
use std::fs;
use std::sync::OnceLock;

use rustix::thread::CapabilitySet;

use crate::protocol::abi::ShownId;
use crate::transport::Tell;

/// The mode bits that a new inode does not get, if they cannot be read.
const CAREFUL_UMASK: u32 = 0o077;

/// A thread.
pub(super) struct Thread<'k> {
    /// Its number, 0 if the server cannot see it.
    pub(super) pid: u32,
    /// Knows whether it waits; nothing does once all is read.
    kernel: Option<&'k dyn Tell>,
    status: OnceLock<Status>,
}

/// What `/proc` says of a thread.
#[derive(Clone, Debug)]
struct Status {
    /// The user and the group that count for files.
    ids: Option<(ShownId, ShownId)>,
    groups: Vec<ShownId>,
    umask: u32,
    /// Those in effect, if it is in the user namespace of the server.
    capabilities: CapabilitySet,
    is_in_namespace: bool,
}

impl<'k> Thread<'k> {
    /// Its number, as this process sees it.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The thread that makes the request which this thread serves.
    pub(super) fn new(pid: u32, kernel: &'k dyn Tell) -> Self {
        Self { pid, kernel: Some(kernel), status: OnceLock::new() }
    }

    /// The same, for use after the reply: nothing more is read.
    pub(super) fn as_it_is(&self) -> Thread<'static> {
        Thread { pid: 0, kernel: None, status: self.status().clone().into() }
    }

    /// The user and the group that count for its use of files.
    pub(super) fn ids(&self) -> Option<(ShownId, ShownId)> {
        self.status().ids
    }

    /// Its supplementary groups.
    pub(super) fn groups(&self) -> &[ShownId] {
        &self.status().groups
    }

    pub(super) fn umask(&self) -> u32 {
        self.status().umask
    }

    pub(super) fn capabilities(&self) -> CapabilitySet {
        self.status().capabilities
    }

    /// Whether it still waits for the reply: what was read is true of it.
    pub(super) fn waits(&self) -> bool {
        self.kernel.is_some_and(Tell::caller_waits)
    }

    /// Whether it is in the user namespace of the server.
    pub(super) fn is_in_namespace(&self) -> bool {
        self.status().is_in_namespace
    }

    fn status(&self) -> &Status {
        self.status.get_or_init(|| {
            let status = Status::of(self.pid);
            if self.waits() { status } else { Status::read("", false) }
        })
    }
}

impl fmt::Debug for Thread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl Status {
    fn of(pid: u32) -> Self {
        let text = match pid {
            0 => String::new(),
            pid => fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(),
        };
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/user")).ok();
        let theirs = namespace(&pid.to_string());
        let is_in_namespace = theirs.is_some() && theirs == namespace("self");
        Self::read(&text, is_in_namespace)
    }

    fn read(text: &str, is_in_namespace: bool) -> Self {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        // Real, effective, saved, for files.
        let fourth = |name| field(name)?.split_whitespace().nth(3)?.parse().ok().map(ShownId::new);
        let ids = fourth("Uid:").zip(fourth("Gid:"));
        let groups = field("Groups:").unwrap_or_default().split_whitespace();
        let groups = groups.filter_map(|number| number.parse().ok().map(ShownId::new)).collect();
        let number = |name, radix| u64::from_str_radix(field(name)?.trim(), radix).ok();
        let umask = number("Umask:", 8).map_or(CAREFUL_UMASK, |umask| umask as u32 & 0o777);
        let in_effect = number("CapEff:", 16).filter(|_| is_in_namespace).unwrap_or_default();
        let capabilities = CapabilitySet::from_bits_truncate(in_effect);
        Self { ids, groups, umask, capabilities, is_in_namespace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Notice;
    use crate::transport::MustNotWait;

    const TEXT: &str = "Name:\tsh\nUmask:\t0027\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t7 9 \nCapEff:\t0000000000200002\n";

    #[test]
    fn capabilities_count_only_in_the_namespace_of_the_server() {
        let status = Status::read(TEXT, true);
        let expected = CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_OVERRIDE;
        assert_eq!((status.capabilities, status.umask), (expected, 0o027));
        assert_eq!(status.groups, [7, 9].map(ShownId::new));
        assert_eq!(status.ids, Some((ShownId::new(4), ShownId::new(8))));
        let elsewhere = Status::read(TEXT, false);
        assert_eq!((elsewhere.capabilities, elsewhere.umask), (CapabilitySet::empty(), 0o027));
    }

    /// A kernel whose caller waits, or not.
    struct Caller(bool);

    impl Tell for Caller {
        fn now(&self, _: &Notice) -> Result<(), MustNotWait> {
            Ok(())
        }

        fn soon(&self, _: Notice) {}

        fn caller_waits(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn a_thread_that_cannot_be_seen_or_waits_no_more_may_nothing() {
        let this = std::process::id();
        for (pid, waits) in [(0, true), (u32::MAX, true), (this, false)] {
            let caller = Caller(waits);
            let thread = Thread::new(pid, &caller);
            assert!(thread.capabilities().is_empty() && thread.groups().is_empty());
            assert_eq!(thread.ids(), None);
            assert!(!thread.is_in_namespace());
            assert_eq!(thread.umask(), CAREFUL_UMASK);
        }
        assert!(Thread::new(this, &Caller(true)).is_in_namespace());
    }
}
