//! Replacing a device by another.

use larder_format::item::{DevReplaceItem, replace_state};
use larder_format::objectid::DEV_TREE;
use larder_format::read_exact_item;
use larder_jobs::JobKind;
use larder_transaction::{DeviceProgress, Moved, Replacement, TransactionManager};

use crate::error::{Error, Result};
use crate::handle::filesystem::Filesystem;

/// What became of the last replace of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplaceStatus {
    /// How far it is.
    pub state: ReplaceState,
    /// The id of the device that is replaced.
    pub device: u64,
    /// How much of the device is done, in thousandths.
    pub permille: u64,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended or was interrupted, in seconds since 1970.
    pub stopped: u64,
    /// Writes of the target that failed.
    pub write_errors: u64,
    /// Sectors that no device has right.
    pub read_errors: u64,
}

/// How far a replace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceState {
    /// There was none.
    NeverStarted,
    /// It goes on.
    Started,
    /// The target has the place.
    Finished,
    /// It was cancelled.
    Cancelled,
    /// It was interrupted, and can go on.
    Suspended,
}

impl Filesystem {
    /// Copies everything on a device, which may be missing, to another, which then has its place,
    /// its id and its UUID. What the target has is lost. If it is smaller, the device becomes that
    /// small first. It is a [job](crate::Jobs), and other threads may use the file system
    /// meanwhile. Calls `tell` in this thread with the progress.
    ///
    /// The kernel can go on with a replace that is interrupted, and
    /// [`resume_replace`](Self::resume_replace) with one of the kernel.
    ///
    /// # Errors Those of [`resize_device`](Self::resize_device), if the target is smaller. With
    /// [`Io`](crate::ErrorKind::Io) if data without checksums cannot be read: then it can be
    /// resumed without the files of that data.
    pub fn replace_device(
        &self,
        wanted: &Replacement,
        tell: &dyn Fn(DeviceProgress),
    ) -> Result<Moved> {
        self.as_job(JobKind::ReplaceDevice { device: wanted.devid }, tell, |manager, tell| {
            manager.replace_device(wanted, tell)
        })
    }

    /// Goes on with a replace that was interrupted. The file system was opened with its target.
    ///
    /// # Errors
    /// If there is none, and those of [`replace_device`](Self::replace_device).
    pub fn resume_replace(&self, tell: &dyn Fn(DeviceProgress)) -> Result<Moved> {
        let device = self.replace_status()?.device;
        self.as_job(JobKind::ReplaceDevice { device }, tell, |manager, tell| {
            manager.resume_replace(tell)
        })
    }

    /// Cancels a replace that was interrupted, or waits until one that goes on has ended and
    /// cancels it. The target has no superblock afterwards. Returns whether there was one.
    ///
    /// # Errors
    /// If a device fails.
    pub fn cancel_replace(&self) -> Result<bool> {
        let writer = self.writer()?;
        self.jobs().end(JobKind::replaces);
        let is_unfinished = writer.manager().replace_item()?.is_some_and(|it| it.is_unfinished());
        if is_unfinished {
            writer.manager().cancel_replace()?;
        }
        Ok(is_unfinished)
    }

    /// Brings devices up to date that missed commits, and gives block groups that have [fewer copies](crate::Space::incomplete) than the safest of
    /// their purpose the profile of these. Opening does that when a device comes back, and so do
    /// removing and replacing one that is missing. It is a [job](crate::Jobs).
    ///
    /// # Errors With [`NoSpace`](crate::ErrorKind::NoSpace) if the devices have no room for a block
    /// group. Those that were completed before stay so.
    pub fn complete_redundancy(&self, tell: &dyn Fn(DeviceProgress)) -> Result<Moved> {
        self.as_job(JobKind::Complete, tell, TransactionManager::complete_redundancy)
    }

    /// What became of the last replace.
    ///
    /// # Errors
    /// If the device tree cannot be read.
    pub fn replace_status(&self) -> Result<ReplaceStatus> {
        let item = self.replace_item()?;
        let Some(item) = item else {
            return Ok(ReplaceStatus {
                state: ReplaceState::NeverStarted,
                device: 0,
                permille: 0,
                started: 0,
                stopped: 0,
                write_errors: 0,
                read_errors: 0,
            });
        };
        let is_running = self.jobs().running().iter().any(|job| job.kind().replaces());
        let state = match item.replace_state.get() {
            replace_state::STARTED if is_running => ReplaceState::Started,
            replace_state::STARTED | replace_state::SUSPENDED => ReplaceState::Suspended,
            replace_state::FINISHED => ReplaceState::Finished,
            replace_state::CANCELED => ReplaceState::Cancelled,
            _ => ReplaceState::NeverStarted,
        };
        let device = item.src_devid.get();
        let total_bytes =
            self.volume().device(device).map_or(0, |it| it.dev_item().total_bytes.get());
        let permille = item.cursor_left.get().saturating_mul(1000).checked_div(total_bytes);
        Ok(ReplaceStatus {
            state,
            device,
            permille: permille.unwrap_or(0).min(1000),
            started: item.time_started.get(),
            stopped: item.time_stopped.get(),
            write_errors: item.num_write_errors.get(),
            read_errors: item.num_uncorrectable_read_errors.get(),
        })
    }

    fn replace_item(&self) -> Result<Option<DevReplaceItem>> {
        let key = DevReplaceItem::KEY;
        let Some(item) = self.tree_items(DEV_TREE, key..=key)?.next().transpose()? else {
            return Ok(None);
        };
        let parsed = read_exact_item::<DevReplaceItem>(item.data());
        let parsed = parsed.map_err(|problem| Error::item(DEV_TREE, key, problem))?;
        Ok(Some(*parsed))
    }
}
