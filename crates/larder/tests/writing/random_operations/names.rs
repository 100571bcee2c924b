//! The existing names, as far as the generator must know them to choose sensibly.

use std::collections::BTreeMap;

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    /// A pipe or a device.
    Special,
    Subvolume,
    /// A read-only snapshot; its content is not listed.
    ReadOnly,
}

impl Kind {
    /// Whether names can be created in it.
    pub(super) fn takes_names(self) -> bool {
        matches!(self, Self::Directory | Self::Subvolume)
    }

    pub(super) fn is_subvolume(self) -> bool {
        matches!(self, Self::Subvolume | Self::ReadOnly)
    }

    /// Whether `rmdir` removes it and only directories replace it.
    fn is_directory(self) -> bool {
        !matches!(self, Self::File | Self::Symlink | Self::Special)
    }

    /// Whether one may replace the other.
    pub(super) fn replaces(self, other: Self) -> bool {
        self.is_directory() == other.is_directory()
    }
}

/// Names by path, without the top level itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    kinds: BTreeMap<String, Kind>,
}

impl Names {
    pub(super) fn add(&mut self, path: &str, kind: Kind) {
        self.kinds.insert(path.to_owned(), kind);
    }

    pub(super) fn kind(&self, path: &str) -> Option<Kind> {
        self.kinds.get(path).copied()
    }

    /// All paths for which `is_wanted` holds, in order.
    pub(super) fn select(&self, is_wanted: impl Fn(&str, Kind) -> bool) -> Vec<String> {
        let wanted = self.kinds.iter().filter(|(path, kind)| is_wanted(path, **kind));
        wanted.map(|(path, _)| path.clone()).collect()
    }

    /// Whether nothing is below a path.
    pub(super) fn is_empty(&self, path: &str) -> bool {
        self.below(path).next().is_none()
    }

    /// Removes a path and what is below it.
    pub(super) fn remove(&mut self, path: &str) {
        self.take(path);
    }

    /// Moves a path, and what is below it, in place of what is there.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        if from != to {
            let moved = self.take(from);
            self.take(to);
            self.put(to, moved);
        }
    }

    pub(super) fn exchange(&mut self, one: &str, other: &str) {
        let (first, second) = (self.take(one), self.take(other));
        self.put(other, first);
        self.put(one, second);
    }

    /// Notes a snapshot of the subvolume `source` at `path`, without the directories that stand for
    /// nested subvolumes.
    pub(super) fn snapshot(&mut self, source: &str, path: &str) {
        let parts: Vec<(String, Kind)> = self
            .below(source)
            .filter(|(below, kind)| !kind.is_subvolume() && self.subvolume_of(below) == source)
            .map(|(below, kind)| (below[source.len()..].to_owned(), kind))
            .collect();
        self.add(path, Kind::Subvolume);
        self.put(path, parts);
    }

    /// The path of the subvolume that the inode at `path` belongs to: for a subvolume the one above
    /// it.
    pub(super) fn subvolume_of<'p>(&self, path: &'p str) -> &'p str {
        let mut above = parent(path);
        while !above.is_empty() && !self.kind(above).is_some_and(Kind::is_subvolume) {
            above = parent(above);
        }
        above
    }

    fn below(&self, path: &str) -> impl Iterator<Item = (&String, Kind)> {
        let within = move |below: &str| {
            below.strip_prefix(path).is_some_and(|rest| rest.starts_with('/') || path.is_empty())
        };
        self.kinds.iter().filter(move |(below, _)| within(below)).map(|(path, kind)| (path, *kind))
    }

    /// Takes a path and everything below it away: the rests of the paths and their kinds.
    fn take(&mut self, path: &str) -> Vec<(String, Kind)> {
        let below: Vec<String> = self.below(path).map(|(below, _)| below.clone()).collect();
        let all = below.into_iter().chain([path.to_owned()]);
        all.filter_map(|full| {
            let kind = self.kinds.remove(&full)?;
            Some((full[path.len()..].to_owned(), kind))
        })
        .collect()
    }

    fn put(&mut self, path: &str, parts: Vec<(String, Kind)>) {
        self.kinds.extend(parts.into_iter().map(|(rest, kind)| (format!("{path}{rest}"), kind)));
    }
}

pub(super) fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..at])
}

pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
