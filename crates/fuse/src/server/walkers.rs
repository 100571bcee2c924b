//! Which threads want attributes with the names that they list.
//!
//! A program that lists names only, such as `find -name`, has no use for attributes, and each costs
//! the server and the kernel more than its name. A program that asks for the attributes of every
//! name costs far more if they do not come with the listing. The kernel does not say which it is:
//! it asks for both, and answers from the listing without a request.
//!
//! So the server finds out. Now and then it holds the attributes of one entry back. A thread that
//! wants attributes looks that entry up. A thread that has left several such entries alone gets
//! names, until it looks one up.
//!
//! # Invariants
//! - Whatever the table says, each entry is listed, and the kernel looks missing attributes up when
//!   a program asks for them.
//! - The table is bounded. A thread that lost its place to another starts anew.

use parking_lot::Mutex;

/// Threads that are remembered.
const WALKERS: usize = 256;
/// After so many entries that were held back and not looked up, a thread gets names. A program that
/// walks depth first may come to the files of a directory after it has listed several directories
/// below.
const PATIENCE: u8 = 4;
/// The most listings between two entries that are held back.
const LONGEST_TRUST: u8 = 64;

/// Which entries of a directory come with attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Everything,
    /// All but the first that is no directory.
    AllButOne,
    /// Directories, which every program that walks opens.
    Directories,
}

/// The table.
#[derive(Debug)]
pub(super) struct Walkers(Box<[Mutex<Walker>; WALKERS]>);

/// A thread that lists directories.
#[derive(Debug, Default)]
struct Walker {
    /// Its number; 0 for none.
    thread: u32,
    /// Listings to come before an entry is held back.
    until_asked: u8,
    /// The next value of `until_asked`.
    trust: u8,
    /// Entries held back that the thread has not looked up.
    left_alone: u8,
}

impl Default for Walkers {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Mutex::default())))
    }
}

impl Walkers {
    /// Decides what to show a thread that lists a directory, and begins with it if `begins`.
    pub(super) fn list(&self, thread: u32, begins: bool) -> Shown {
        let mut walker = self.walker(thread).lock();
        if walker.thread != thread {
            *walker = Walker { thread, until_asked: 1, trust: 1, ..Walker::default() };
        }
        walker.list(begins)
    }

    /// An entry was held back from a thread.
    pub(super) fn held_back(&self, thread: u32) {
        let mut walker = self.walker(thread).lock();
        if walker.thread == thread {
            walker.left_alone += 1;
        }
    }

    /// A thread looks up an entry that is no directory.
    pub(super) fn ask(&self, thread: u32) {
        let mut walker = self.walker(thread).lock();
        if walker.thread == thread {
            walker.ask();
        }
    }

    fn walker(&self, thread: u32) -> &Mutex<Walker> {
        &self.0[thread as usize % WALKERS]
    }
}

impl Walker {
    fn list(&mut self, begins: bool) -> Shown {
        if self.left_alone >= PATIENCE {
            Shown::Directories
        } else if !begins {
            Shown::Everything
        } else if self.until_asked == 0 {
            Shown::AllButOne
        } else {
            self.until_asked -= 1;
            Shown::Everything
        }
    }

    fn ask(&mut self) {
        if self.left_alone > 0 {
            self.left_alone = 0;
            self.trust = (2 * self.trust).min(LONGEST_TRUST);
            self.until_asked = self.trust;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: u32 = 7;

    /// What a thread is shown in `listings` listings, if it looks up the entries that are held
    /// back, or does not.
    fn shown(walkers: &Walkers, listings: usize, asks: bool) -> Vec<Shown> {
        let list = |_| {
            let shown = walkers.list(THREAD, true);
            if shown == Shown::AllButOne {
                walkers.held_back(THREAD);
            }
            if asks && shown != Shown::Everything {
                walkers.ask(THREAD);
            }
            shown
        };
        (0..listings).map(list).collect()
    }

    #[test]
    fn a_thread_that_asks_is_tried_ever_more_rarely() {
        let shown = shown(&Walkers::default(), 10_000, true);
        assert_eq!(shown[0], Shown::Everything);
        assert!(!shown.contains(&Shown::Directories));
        let tries = shown.iter().filter(|shown| **shown == Shown::AllButOne).count();
        assert!((1..10_000 / 32).contains(&tries), "{tries}");
    }

    #[test]
    fn a_thread_that_never_asks_gets_names_until_it_does() {
        let walkers = Walkers::default();
        let before = shown(&walkers, 2 * usize::from(PATIENCE), false);
        assert_eq!(before[0], Shown::Everything);
        assert_eq!(before.last(), Some(&Shown::Directories));
        assert_eq!(walkers.list(THREAD, false), Shown::Directories, "a listing goes on");
        walkers.ask(THREAD);
        assert_eq!(walkers.list(THREAD, true), Shown::Everything);
    }

    #[test]
    fn a_thread_that_finds_directories_only_goes_on_getting_attributes() {
        let walkers = Walkers::default();
        let shown: Vec<_> = (0..100).map(|_| walkers.list(THREAD, true)).collect();
        assert!(!shown.contains(&Shown::Directories));
    }

    #[test]
    fn threads_are_told_apart() {
        let walkers = Walkers::default();
        shown(&walkers, 100, false);
        let other = THREAD + WALKERS as u32;
        assert_eq!(walkers.list(other, true), Shown::Everything, "it is new");
        walkers.ask(THREAD);
        assert_eq!(walkers.list(other, true), Shown::AllButOne, "what others do says nothing");
    }
}
