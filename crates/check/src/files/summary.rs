//! Summary of a part of a tree of files: inodes that lie completely within it are closed, the first
//! and the last may continue outside of it.
//!
//! Summaries of neighbouring parts combine into one of both. Since a subtree's summary depends on
//! nothing outside of it, snapshots that share the subtree share its summary.

use super::fragment::Fragment;
use super::sums::Sums;
use crate::context::Context;

/// The summary of a part of a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) sums: Sums,
    /// Whether some of it could not be read or parsed: then the sums prove nothing.
    pub(crate) is_incomplete: bool,
    /// Whether the unreadable part is at its start or end: then the neighbours' inodes are torn.
    starts_torn: bool,
    ends_torn: bool,
    /// The first inode; `None` for an empty part.
    head: Option<Fragment>,
    /// The last inode, if it is another one.
    tail: Option<Fragment>,
}

impl Summary {
    /// The summary of an unreadable part.
    pub(crate) fn incomplete() -> Self {
        Self { is_incomplete: true, starts_torn: true, ends_torn: true, ..Self::default() }
    }

    /// The fragment of `ino`, which is the last inode so far or follows it.
    pub(crate) fn fragment(
        &mut self,
        context: &Context<'_>,
        tree: u64,
        ino: u64,
    ) -> (&mut Fragment, &mut Sums) {
        if self.last().is_none_or(|last| last.ino != ino) {
            self.push(context, tree, Fragment::new(ino));
        }
        let last = self.tail.as_mut().or(self.head.as_mut()).expect("pushed if there was none");
        (last, &mut self.sums)
    }

    fn last(&self) -> Option<&Fragment> {
        self.tail.as_ref().or(self.head.as_ref())
    }

    /// Appends the fragment of another inode than the last.
    fn push(&mut self, context: &Context<'_>, tree: u64, fragment: Fragment) {
        if self.head.is_none() {
            self.head = Some(fragment);
        } else if let Some(whole) = self.tail.replace(fragment) {
            whole.close(context, tree, &mut self.sums);
        }
    }

    /// Appends the next part of the tree.
    pub(crate) fn append(&mut self, context: &Context<'_>, tree: u64, next: &Self) {
        self.sums.add(&next.sums);
        self.is_incomplete |= next.is_incomplete;
        self.starts_torn |= self.head.is_none() && next.starts_torn;
        if let Some(last) = self.tail.as_mut().or(self.head.as_mut()) {
            last.is_torn |= next.starts_torn;
        }
        if let Some(mut head) = next.head {
            head.is_torn |= self.ends_torn;
            let last = self.tail.as_mut().or(self.head.as_mut());
            match last.filter(|last| last.ino == head.ino) {
                Some(last) => last.merge(context, tree, &head),
                None => self.push(context, tree, head),
            }
            self.ends_torn = next.ends_torn;
        } else {
            self.ends_torn |= next.ends_torn;
        }
        if let Some(tail) = next.tail {
            self.push(context, tree, tail);
        }
    }

    /// Closes the first and the last inode, when the summary is that of a whole tree.
    pub(crate) fn close(mut self, context: &Context<'_>, tree: u64) -> Sums {
        for fragment in [self.head.take(), self.tail.take()].into_iter().flatten() {
            fragment.close(context, tree, &mut self.sums);
        }
        self.sums
    }
}
