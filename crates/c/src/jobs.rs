//! Long work: watched and cancelled.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::ops::ControlFlow;

use larder::{Filesystem, Job, JobStatus, Moved};

use crate::arguments::{elements_mut, path, reference};
use crate::filesystem::larder_fs;
use crate::outcome::{Failure, Outcome, number_of};

/// Bytes of the name of a kind of job, with the zero at its end.
pub const LARDER_JOB_KIND_BYTES: usize = 16;

/// Long work on a file system, and how far it is.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct larder_job {
    /// "scrub", "balance", "replace", "remove", "resize", "convert", "complete" or "add".
    pub kind: [c_char; LARDER_JOB_KIND_BYTES],
    /// Id of the device that it is about, or 0.
    pub device: u64,
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes to do, as far as it is known.
    pub total_bytes: u64,
    /// Bytes in a second.
    pub rate: u64,
    /// For how long it has run, in milliseconds.
    pub duration_ms: u64,
    /// Whether it pauses.
    pub is_paused: bool,
}

/// Is told now and then how far long work is, in the thread that called for it. Work goes on while it
/// returns true, and ends soon after it returned false: the call fails with EINTR then.
#[allow(non_camel_case_types)]
pub type larder_progress_callback =
    Option<unsafe extern "C" fn(job: *const larder_job, context: *mut c_void) -> bool>;

impl larder_job {
    fn of(job: &Job) -> Self {
        let status: JobStatus = job.status();
        let mut kind = [0; LARDER_JOB_KIND_BYTES];
        for (to, from) in kind.iter_mut().zip(status.kind.name().bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        Self {
            kind,
            device: status.kind.device().unwrap_or(0),
            done_bytes: status.done_bytes,
            total_bytes: status.total_bytes,
            rate: status.rate(),
            duration_ms: u64::try_from(status.duration.as_millis()).unwrap_or(u64::MAX),
            is_paused: status.is_paused,
        }
    }
}

/// Fills `jobs` with the jobs that go on, at most `count` of them. Returns how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_jobs(
    fs: *mut larder_fs,
    jobs: *mut larder_job,
    count: usize,
) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        let (fs, jobs) = unsafe { (reference(fs)?, elements_mut(jobs, count)?) };
        let running = fs.root.filesystem().jobs().running();
        for (place, job) in jobs.iter_mut().zip(&running) {
            *place = larder_job::of(job);
        }
        Ok(c_int::try_from(running.len()).unwrap_or(c_int::MAX))
    })
}

/// Asks the jobs of this kind, or of all kinds if it is NULL, to end: those that are about the device
/// of this id, or all if it is 0. Returns how many there were.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_cancel_jobs(
    fs: *mut larder_fs,
    kind: *const c_char,
    device: u64,
) -> c_int {
    number_of(|| {
        // SAFETY: C promises it.
        let fs = unsafe { reference(fs) }?;
        // SAFETY: C promises it.
        let wanted = if kind.is_null() { None } else { Some(unsafe { path(kind) }?.as_os_str()) };
        let mut running = fs.root.filesystem().jobs().running();
        running.retain(|job| {
            wanted.is_none_or(|wanted| wanted == job.kind().name())
                && (device == 0 || job.kind().device() == Some(device))
        });
        for job in &running {
            job.cancel();
        }
        Ok(c_int::try_from(running.len()).unwrap_or(c_int::MAX))
    })
}

/// What C is told of work.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) progress: larder_progress_callback,
    pub(crate) context: *mut c_void,
}

/// Does long work in another thread, while this one tells C how far it is.
pub(crate) fn watched<T: Send>(
    fs: &larder_fs,
    told: Told,
    work: impl FnOnce(&Filesystem) -> larder::Result<T> + Send,
) -> Outcome<T> {
    let filesystem = fs.root.filesystem();
    let look = |jobs: &[std::sync::Arc<Job>]| {
        let goes_on = |job: &std::sync::Arc<Job>| {
            let job = larder_job::of(job);
            // SAFETY: C gave the function, and the job lives until it returns.
            told.progress.is_none_or(|tell| unsafe { tell(&raw const job, told.context) })
        };
        if jobs.iter().all(goes_on) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let no_thread = |error: io::Error| {
        Failure::new(error.raw_os_error().unwrap_or(libc::EAGAIN), error.to_string())
    };
    Ok(filesystem.jobs().watch(|| work(filesystem), look).map_err(no_thread)??)
}

/// The same for work that moves content: none may have been wrong.
pub(crate) fn moved(
    fs: &larder_fs,
    told: Told,
    work: impl FnOnce(&Filesystem) -> larder::Result<Moved> + Send,
) -> Outcome<()> {
    let Moved { damaged_bytes, unreadable_bytes, .. } = watched(fs, told, work)?;
    match damaged_bytes + unreadable_bytes {
        0 => Ok(()),
        bad => Err(Failure::new(
            libc::EIO,
            format!("{bad} bytes were damaged before and still are: larder_check() names them"),
        )),
    }
}
