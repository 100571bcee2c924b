//! Scrubs: every copy on every device is verified, and bad ones are repaired.

use std::fmt;
use std::path::PathBuf;
use std::thread;

use larder_format::{Logical, objectid};
use larder_jobs::{JobKind, Jobs, Running};
use larder_scrub::{Counters, Fate, Finding, Scrub, Stopped, Subject, Target};
use larder_transaction::extent::Backrefs;

use crate::error::{Error, Result};
use crate::filesystem::resolve::{FilePlace, SoughtExtent, data_extent, places_in};
use crate::handle::filesystem::Filesystem;

/// The most files that a finding names.
const MOST_FILES: usize = 16;

/// How to scrub.
#[derive(Clone, Copy, Default)]
pub struct ScrubOptions<'s> {
    /// Whether nothing is repaired: neither is anything in a file system that is open for reading.
    pub read_only: bool,
    /// The address of the device to begin at: the
    /// [`last_physical`](Counters::last_physical) of a scrub that was cancelled.
    pub start: u64,
    /// Is called with all that is bad, while the scrub goes on.
    pub found: Option<&'s (dyn Fn(ScrubFinding) + Sync)>,
}

/// How the scrub of a device ended, and what it has met.
#[derive(Debug)]
pub struct DeviceScrub {
    /// Id of the device.
    pub device: u64,
    /// What it has met.
    pub counters: Counters,
    /// How it ended.
    pub end: ScrubEnd,
}

/// How a scrub ended.
#[derive(Debug)]
pub enum ScrubEnd {
    /// It has met everything.
    Finished,
    /// Its [job](crate::Job) was cancelled.
    Cancelled,
    /// The device is missing.
    NoDevice,
    /// It could not go on.
    Failed(Error),
}

/// A bad part of a device, and the files that have it.
#[derive(Clone, Debug)]
pub struct ScrubFinding {
    /// The device.
    pub device: u64,
    /// Its name; `None` if it is missing.
    pub device_name: Option<String>,
    /// Where it begins on the device, in bytes.
    pub physical: u64,
    /// Its logical address; of a superblock none.
    pub logical: Option<u64>,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// What should be there.
    pub subject: Subject,
    /// What is wrong with it, for people.
    pub problem: String,
    /// What became of it.
    pub fate: Fate,
    /// The files that have it, in any subvolume and snapshot: the first few.
    pub files: Vec<ScrubbedFile>,
}

/// A file with a bad part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubbedFile {
    /// Its path from the top level of the file system, through subvolumes and snapshots.
    pub path: PathBuf,
    /// The offset of the bad part in it, in bytes.
    pub offset: u64,
}

impl Filesystem {
    /// The long work that goes on in this file system.
    pub fn jobs(&self) -> &Jobs {
        self.core().jobs()
    }

    /// Scrubs all devices, each in a thread of its own: verifies every copy of everything, and
    /// repairs bad ones from good ones. Others may use the file system meanwhile, and cancel the
    /// [jobs](Self::jobs).
    ///
    /// # Errors
    /// [`ErrorKind::InUse`](crate::ErrorKind::InUse) if a device is being scrubbed. What fails later
    /// is in the results.
    pub fn scrub(&self, options: &ScrubOptions<'_>) -> Result<Vec<DeviceScrub>> {
        let devices = self.volume().devices();
        let jobs = devices.iter().map(|device| self.begin_scrub(device.devid()));
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        thread::scope(|scope| {
            let scrub = |job| scope.spawn(move || self.run_scrub(&job, options));
            let scrubs: Vec<_> = jobs.into_iter().map(scrub).collect();
            let joined = scrubs.into_iter().map(|scrub| match scrub.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect()
        })
    }

    /// Scrubs the device of this id.
    pub fn scrub_device(&self, id: u64, options: &ScrubOptions<'_>) -> Result<DeviceScrub> {
        let job = self.begin_scrub(id)?;
        self.run_scrub(&job, options)
    }

    fn begin_scrub(&self, id: u64) -> Result<Running<'_>> {
        let kind = JobKind::Scrub { device: id };
        let job = self.jobs().begin(kind, self.used_on_device(id)?)?;
        job.set_limit(self.scrub_limit(id));
        Ok(job)
    }

    fn run_scrub(&self, job: &Running<'_>, options: &ScrubOptions<'_>) -> Result<DeviceScrub> {
        let JobKind::Scrub { device: id } = job.kind() else {
            return Err(Error::Invalid("the job is no scrub"));
        };
        let shown = self.core().scrubs().begin(id);
        let target = match self.try_writer() {
            Some(writer) => Target::Live(writer.manager()),
            None => {
                Target::Committed { volume: self.volume(), root_tree: self.committed_root_tree()? }
            }
        };
        let found = |finding: Finding| {
            if let Some(found) = options.found {
                found(self.with_files(finding));
            }
        };
        let scrub = Scrub {
            target,
            device: id,
            start: options.start,
            end: u64::MAX,
            is_read_only: options.read_only,
            job,
            progress: &shown.progress,
            found: &found,
        };
        let end = match scrub.run() {
            Ok(()) => ScrubEnd::Finished,
            Err(Stopped::Cancelled) => ScrubEnd::Cancelled,
            Err(Stopped::NoDevice) => ScrubEnd::NoDevice,
            Err(Stopped::NoThread(error)) => ScrubEnd::Failed(Error::Temporary(error)),
            Err(Stopped::Failed(error)) => ScrubEnd::Failed(error.into()),
        };
        Ok(DeviceScrub { device: id, counters: shown.progress.get(), end })
    }

    /// The counters of the scrub of a device, if one goes on.
    pub fn scrub_progress(&self, id: u64) -> Option<Counters> {
        self.core().scrubs().of(id).map(|progress| progress.get())
    }

    /// The most bytes that a scrub reads from a device in a second, if there is a limit.
    pub fn scrub_limit(&self, id: u64) -> Option<u64> {
        self.core().scrubs().limit_of(id)
    }

    /// Sets the limit of a device: of the scrub that goes on, and those after it.
    pub fn set_scrub_limit(&self, id: u64, limit: Option<u64>) {
        self.core().scrubs().set_limit(id, limit);
        let running = self.jobs().running();
        let own = running.iter().filter(|job| job.kind() == JobKind::Scrub { device: id });
        own.for_each(|job| job.set_limit(limit));
    }

    /// Bytes of extents on a device.
    fn used_on_device(&self, id: u64) -> Result<u64> {
        let chunks = self.volume().chunks();
        let used = |group: &super::space::BlockGroup| {
            let Some(chunk) = chunks.get(group.logical) else { return 0 };
            let own = chunk.stripes().iter().filter(|stripe| stripe.devid == id).count() as u64;
            group.used_bytes / chunk.data_stripes() as u64 * own
        };
        Ok(self.block_groups()?.iter().map(used).sum())
    }

    fn with_files(&self, finding: Finding) -> ScrubFinding {
        let Finding { device, physical, logical, len_bytes, subject, problem, fate } = finding;
        let files = match logical.filter(|_| subject == Subject::Data) {
            // Damage may hide the files.
            Some(logical) => self.files_of(logical, len_bytes).unwrap_or_default(),
            None => Vec::new(),
        };
        let member = self.volume().device(device);
        let device_name = member.and_then(|member| Some(member.device()?.name().to_owned()));
        ScrubFinding {
            device,
            device_name,
            physical,
            logical,
            len_bytes,
            subject,
            problem,
            fate,
            files,
        }
    }

    /// The files that have data of a range in the last commit.
    fn files_of(&self, logical: u64, len_bytes: u64) -> Result<Vec<ScrubbedFile>> {
        let kept = self.try_writer().map(|writer| writer.manager().keep_trees());
        let root_tree = match &kept {
            Some(kept) => kept.root_tree().clone(),
            None => self.committed_root_tree()?,
        };
        let backrefs = Backrefs::committed(root_tree)?;
        let (mut at, mut files) = (logical, Vec::new());
        while at < logical + len_bytes && files.len() < MOST_FILES {
            let extent = data_extent(&backrefs, Logical(at))?;
            let start = extent.range.start;
            let sought = SoughtExtent { start, at: Some(at - start) };
            for place in places_in(&backrefs, &extent, &sought)? {
                files.extend(self.named(place)?);
            }
            at = extent.range.end;
        }
        files.truncate(MOST_FILES);
        Ok(files)
    }

    fn named(&self, place: FilePlace) -> Result<Vec<ScrubbedFile>> {
        let FilePlace { subvolume, inode, offset } = place;
        let above = match subvolume {
            objectid::FS_TREE => PathBuf::new(),
            id => self.subvolume_path(id)?,
        };
        let paths = self.subvolume_by_id(subvolume)?.inode(inode)?.paths()?;
        let paths = paths.into_iter().map(|path| above.join(path));
        Ok(paths.map(|path| ScrubbedFile { path, offset }).collect())
    }
}

impl ScrubFinding {
    /// Whether it needs somebody: it was not repaired, and is still in use.
    pub fn is_left(&self) -> bool {
        !matches!(self.fate, Fate::Repaired | Fate::Freed)
    }
}

impl fmt::Display for ScrubFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.subject {
            Subject::Superblock => "a superblock".to_owned(),
            Subject::TreeBlock { tree: None } => "a tree block".to_owned(),
            Subject::TreeBlock { tree: Some(tree) } => {
                format!("a tree block of tree {}", tree.cast_signed())
            }
            Subject::Data => format!("{} bytes of data", self.len_bytes),
            Subject::Parity => "parity".to_owned(),
        };
        write!(f, "{what} at {} of device {}", self.physical, self.device)?;
        if let Some(name) = &self.device_name {
            write!(f, " ({name})")?;
        }
        if let Some(logical) = self.logical {
            write!(f, ", logical address {logical}")?;
        }
        write!(f, ": {}: {}", self.problem, self.fate.in_words())?;
        for (number, file) in self.files.iter().enumerate() {
            let before = if number == 0 { "; in" } else { "," };
            write!(f, "{before} {} at {}", file.path.display(), file.offset)?;
        }
        Ok(())
    }
}
