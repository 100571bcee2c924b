//! Snapshots to send.

use std::io::Write;

use larder::{
    MountedSnapshot, SendError, SendOptions, SendSnapshot, StreamOrigin, StreamVersion, Subvolume,
    SubvolumeInfo,
};

/// A snapshot to send, wherever it is.
pub trait Snapshot: Clone {
    fn newest_version(&self) -> StreamVersion;

    fn closest_relative<'a>(&self, others: &'a [Self]) -> anyhow::Result<Option<&'a Self>>;

    fn send(&self, options: &SendOptions<Self>, out: &mut dyn Write) -> Result<(), SendError>;

    /// How streams name it.
    fn origin(&self) -> anyhow::Result<StreamOrigin>;

    /// Its name. The top level has none.
    fn name(&self) -> anyhow::Result<Vec<u8>>;

    /// The other read-only subvolumes of the file system that are wanted.
    fn others(
        &self,
        is_wanted: &mut dyn FnMut(&SubvolumeInfo) -> bool,
    ) -> anyhow::Result<Vec<Self>>;
}

impl Snapshot for Subvolume {
    fn newest_version(&self) -> StreamVersion {
        StreamVersion::NEWEST
    }

    fn closest_relative<'a>(&self, others: &'a [Self]) -> anyhow::Result<Option<&'a Self>> {
        Ok(self.closest_relative(others)?)
    }

    fn send(&self, options: &SendOptions<Self>, out: &mut dyn Write) -> Result<(), SendError> {
        SendSnapshot::send(self, options, out).map(drop)
    }

    fn origin(&self) -> anyhow::Result<StreamOrigin> {
        Ok(SendSnapshot::origin(self))
    }

    fn name(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.info()?.name.map(|name| name.name).unwrap_or_default())
    }

    fn others(
        &self,
        is_wanted: &mut dyn FnMut(&SubvolumeInfo) -> bool,
    ) -> anyhow::Result<Vec<Self>> {
        let mut others = Vec::new();
        for info in self.filesystem().subvolumes() {
            let info = info?;
            let is_other = info.id != self.id() && info.is_read_only && !info.is_being_deleted;
            if is_other && is_wanted(&info) {
                others.push(self.filesystem().subvolume_by_id(info.id)?);
            }
        }
        Ok(others)
    }
}

impl Snapshot for MountedSnapshot {
    fn newest_version(&self) -> StreamVersion {
        self.newest_version()
    }

    fn closest_relative<'a>(&self, others: &'a [Self]) -> anyhow::Result<Option<&'a Self>> {
        Ok(self.closest_relative(others)?)
    }

    fn send(&self, options: &SendOptions<Self>, out: &mut dyn Write) -> Result<(), SendError> {
        self.send(options, out).map(drop)
    }

    fn origin(&self) -> anyhow::Result<StreamOrigin> {
        Ok(self.origin()?)
    }

    fn name(&self) -> anyhow::Result<Vec<u8>> {
        Ok(self.name()?)
    }

    fn others(
        &self,
        is_wanted: &mut dyn FnMut(&SubvolumeInfo) -> bool,
    ) -> anyhow::Result<Vec<Self>> {
        Ok(self.others(is_wanted)?)
    }
}
