//! Numbers of immutable objects.

use std::fmt;

/// An immutable object: the epoch of the writer that created it, and a number that grows from one
/// of that writer's objects to the next. No two objects ever have the same, since no two writers
/// have the same epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId(u64);

impl ObjectId {
    pub(crate) fn new(epoch: u32, number: u32) -> Self {
        Self(u64::from(epoch) << 32 | u64::from(number))
    }

    /// The number of a writer's first object, at random. A store that an administrator sets back to an
    /// earlier state sees the same epochs again, but not the same names: neither its own newer objects
    /// nor a cache elsewhere pass for what a new writer creates.
    pub(crate) fn first_number() -> u32 {
        let random = uuid::Uuid::new_v4();
        u32::from_le_bytes(random.as_bytes()[..4].try_into().expect("4 bytes")) >> 2
    }

    /// The first flush of an epoch, at random, as the [first number](Self::first_number) of other
    /// objects.
    pub(crate) fn first_flush(epoch: u32) -> Self {
        Self::of_flush(epoch, Self::first_number())
    }

    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    pub(crate) fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The flush with the number `number` of an epoch.
    pub(crate) fn of_flush(epoch: u32, number: u32) -> Self {
        Self::new(epoch, number | FLUSH)
    }

    /// The id after this one.
    pub(crate) fn next(self) -> Self {
        assert!(self.0 as u32 != u32::MAX, "an epoch has fewer objects");
        Self(self.0 + 1)
    }

    /// The kind of object with content of the device that has this id.
    pub(crate) fn kind(self) -> Kind {
        if self.0 as u32 & FLUSH == 0 { Kind::Segment } else { Kind::Flush }
    }

    /// The name of the object with content that has this id.
    pub(crate) fn name(self) -> String {
        self.kind().name(self)
    }
}

/// Numbers of flushes have this bit, and those of other objects have not.
const FLUSH: u32 = 1 << 31;

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}", self.epoch(), self.0 as u32)
    }
}

/// What an immutable object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Content of the device.
    Segment,
    /// Where the content lies.
    Map,
    /// A state, and a little content of the device.
    Flush,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Segment, Self::Map, Self::Flush];

    /// The folder of these objects.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Segment => "segments",
            Self::Map => "maps",
            Self::Flush => "flushes",
        }
    }

    /// The name of an object of this kind.
    pub(crate) fn name(self, id: ObjectId) -> String {
        format!("{}/{id}", self.folder())
    }

    /// The object that has this name, if it is one of larder's.
    pub(crate) fn parse(name: &str) -> Option<(Self, ObjectId)> {
        let (folder, id) = name.split_once('/')?;
        let kind = Self::ALL.into_iter().find(|kind| kind.folder() == folder)?;
        let (epoch, number) = id.split_once('-')?;
        let part = |text: &str| u32::from_str_radix(text, 16).ok().filter(|_| text.len() == 8);
        Some((kind, ObjectId::new(part(epoch)?, part(number)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let id = ObjectId::new(7, 0xabc);
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(&kind.name(id)), Some((kind, id)));
        }
        for name in ["manifest", "segments/7-abc", "other/00000007-00000abc", "segments/"] {
            assert_eq!(Kind::parse(name), None, "{name}");
        }
    }
}
