//! `larder mount`.

mod background;
mod helper;
mod memory;
mod options;
mod remount;

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Context, bail, ensure};
use clap::Args;
use larder::Filesystem;
use larder_fuse::Server;
use larder_mkfs::{MkfsOptions, mkfs};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::memory::Memory;
use self::options::{Options, Subvolume};
use super::Outcome;
use super::mkfs::caller;
use crate::ending::wait_for_ending_servers;
use crate::message;
use crate::report::{self, LogLevel, Reporter};
use crate::units::parse_size;

pub use helper::run_as_helper;

/// Mount a file system through FUSE
///
/// Every program can use it then, without kernel btrfs; mounting needs no root where fusermount3 is
/// installed. Errors are reported before this returns. End it with `larder umount`.
///
/// What goes wrong is reported: on the terminal with -f, otherwise to journald or syslog. In the
/// foreground the exit code is 1 if the last commit did not reach the devices; see `larder health`.
///
/// Options are those of mount and of btrfs:
///   ro, rw                what may be changed
///   nodev, nosuid, noexec what files may do
///   allow_other           other users may look in
///   subvol=PATH, subvolid=ID
///                         the subvolume to show; otherwise the default one
///   degraded, device=PATH with devices missing; a further device
///   compress, compress=ALGO:LEVEL, compress-force likewise
///                         compress new data: zlib, lzo or zstd
///   nodatacow, nodatasum  write new files in place; without checksums
///   max_inline=BYTES      keep files up to this size in trees (2048)
///   commit=SECONDS        how often to commit (30)
///   discard               tell devices what is free
///   notreelog             make fsync a commit
///   writeback_cache       let the kernel keep what programs write, and bring it later: many small
///                         writes become fast, and what write(2) would refuse (no space left, a
///                         quota) a program hears from fsync, or from close, which it may not look at
///   noatime, relatime, strictatime, nodiratime
///                         when to keep times of last access: unless told otherwise never
///   user_subvol_rm_allowed
///                         users may delete subvolumes that are theirs
///   no_io_uring           take requests through /dev/fuse, also where the kernel offers io_uring
///                         (see /sys/module/fuse/parameters/enable_uring)
///   rescue=nologreplay    with ro, which never replays a log: say so
/// Others that only say what is so anyway are accepted (flushoncommit, ssd, space_cache=v2, …); what
/// cannot be obeyed is refused with the reason. With `remount` what is mounted goes on with the other
/// options: ro, rw, and all that can change then. Only root can change ro and rw, and nobody what
/// is shown, to whom, and which times of last access are kept.
///
/// fsync makes a file durable on every mount. sync(2) and syncfs(2) make everything durable on mounts
/// for writing that root makes in the machine's first mount namespace, with Linux 6.18 or newer; the
/// table of mounts shows them as fuseblk, with a loop device that is attached to the image or device.
/// Other mounts do not hear of sync(2): after it, the next commit makes everything durable.
///
/// Examples:
///   larder mount disk.img ~/mnt
///   larder mount --create 8G new.img ~/mnt
///   larder mount -o ro,subvol=snapshots/monday disk.img /mnt
///   larder mount -o remount,rw /mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, override_usage = "larder mount [OPTIONS] <DEVICE>... <MOUNTPOINT>")]
pub struct Mount {
    /// Options, with commas between them
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Serve in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Make a file of this size with an empty file system first
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    create: Option<u64>,
    /// The most memory that the server has resident, at least 128M; unless told otherwise an eighth of the
    /// machine's, but at most 1G. Where it is reached things get slower. What programs have open is not
    /// bounded: each inode takes up to 2K
    #[arg(long, value_name = "SIZE", value_parser = Memory::parse)]
    memory: Option<Memory>,
    /// How much the server reports: to the terminal in the foreground, otherwise to journald or syslog
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// Serve for the process that started this one
    #[arg(long, hide = true, conflicts_with = "foreground")]
    served: bool,
    /// Image files or block devices, then the directory to mount at
    #[arg(required = true, num_args = 1.., value_names = ["DEVICE", "MOUNTPOINT"])]
    paths: Vec<PathBuf>,
}

impl Mount {
    pub fn run(self) -> Outcome {
        // What is wrong with the command line is found before anything is started.
        let options = Options::parse(self.options.iter().map(String::as_str))?;
        if options.remounts {
            let mountpoint = self.paths.last().context("no mountpoint was given")?;
            return remount::remount(mountpoint, &self.options);
        }
        ensure!(self.paths.len() > 1, "give what to mount, and the directory to mount it at");
        let memory = self.memory.unwrap_or_else(Memory::of_this_machine);
        if !self.foreground && !self.served {
            return background::start(self.arguments(), memory.environment());
        }
        if self.foreground && memory.environment().next().is_some() {
            return Err(self.begin_again(memory));
        }
        let reporter = if self.served {
            background::end_with_starter()?;
            report::to_system_log(self.log_level)?
        } else {
            report::to_terminal(self.log_level)?
        };
        // In the background nobody reads what a command says at its end.
        Ok(self.serve(&reporter).unwrap_or_else(|error| {
            tracing::error!("{}", message(&error));
            ExitCode::FAILURE
        }))
    }

    /// Runs this program anew in this process, with what the allocator reads when it begins. Returns why it cannot.
    fn begin_again(&self, memory: Memory) -> anyhow::Error {
        let program = match env::current_exe().context("this program cannot find itself") {
            Ok(program) => program,
            Err(error) => return error,
        };
        let mut command = Command::new(program);
        command.args(["mount", "-f"]).args(self.arguments()).envs(memory.environment());
        anyhow::Error::new(command.exec()).context("this program cannot begin again")
    }

    fn arguments(&self) -> impl Iterator<Item = OsString> {
        let options = self.options.iter().flat_map(|list| ["-o".into(), list.into()]);
        let create = self.create.iter().map(|size| format!("--create={size}").into());
        let paths = self.paths.iter().map(|path| path.clone().into_os_string());
        let memory = self.memory.map(|memory| format!("--memory={}", memory.bytes()).into());
        let log_level = [format!("--log-level={}", self.log_level.word()).into()];
        let arguments =
            options.chain(create).chain(memory).chain(log_level).chain([OsString::from("--")]);
        arguments.chain(paths).collect::<Vec<_>>().into_iter()
    }

    /// Mounts, and serves until it is unmounted.
    fn serve(self, reporter: &Reporter) -> Outcome {
        let mut options = Options::parse(self.options.iter().map(String::as_str))?;
        let (mountpoint, devices) = self.paths.split_last().context("no mountpoint was given")?;
        let mountpoint =
            mountpoint.canonicalize().with_context(|| mountpoint.display().to_string())?;
        let devices: Vec<PathBuf> =
            devices.iter().cloned().chain(options.devices.iter().map(PathBuf::from)).collect();
        if let Some(size) = self.create {
            create_image(&devices, size)?;
        }
        // Others are told where the devices are.
        let absolute =
            |device: &PathBuf| device.canonicalize().with_context(|| device.display().to_string());
        let devices: Vec<PathBuf> = devices.iter().map(absolute).collect::<anyhow::Result<_>>()?;
        wait_for_ending_servers(&devices);
        let memory = self.memory.unwrap_or_else(Memory::of_this_machine);
        options.server = memory.serve(options.server);
        let filesystem = memory.open(options.open_options()).open(&devices)?;
        if filesystem.needs_log_replay() {
            tracing::warn!(
                "a crash left a log; what was synced since the last commit is not shown"
            );
        }
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let mount = mount(&filesystem, &devices[0], &mountpoint, &options)?;
        // The server has it now: a remount closes it.
        drop(filesystem);
        mount.remount_with(self.options.clone(), {
            Box::new(move |said| {
                let now = Options::parse(said.iter().map(String::as_str));
                let settings = now.and_then(|now| now.settings(&options, &devices));
                settings.map(|settings| memory.limit(settings)).map_err(|error| message(&error))
            })
        });
        let ready = || if self.served { background::say_ready(reporter) } else { Ok(()) };
        let served = serve(&mount, &mountpoint, &mut signals, ready);
        // Whatever ended it: what was done is kept.
        let synced = mount.sync().with_context(|| {
            let generation = mount.generation().unwrap_or_default();
            format!("what was done since generation {generation} did not reach the devices")
        });
        let failure = synced.as_ref().err().map(message);
        mount.say_how_it_ended(failure.as_deref());
        served?;
        synced?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The subvolume to show.
fn shown(filesystem: &Filesystem, options: &Options) -> larder::Result<larder::Subvolume> {
    match &options.subvolume {
        Some(Subvolume::Path(path)) => filesystem.subvolume(path),
        Some(Subvolume::Id(id)) => filesystem.subvolume_by_id(*id),
        None => filesystem.default_subvolume(),
    }
}

fn mount(
    filesystem: &Filesystem,
    device: &Path,
    mountpoint: &Path,
    options: &Options,
) -> anyhow::Result<larder_fuse::Mount> {
    let server = Server::new(filesystem, &shown(filesystem, options)?, options.server)?;
    let mount_options =
        larder_fuse::MountOptions { source: device.into(), ..options.mount.clone() };
    larder_fuse::Mount::new(mountpoint, server, &mount_options)
        .with_context(|| mountpoint.display().to_string())
}

/// Serves requests until what is mounted at `mountpoint` is unmounted.
fn serve(
    mount: &larder_fuse::Mount,
    mountpoint: &Path,
    signals: &mut Signals,
    ready: impl FnOnce() -> io::Result<()>,
) -> anyhow::Result<()> {
    ready()?;
    if let Some(error) = mount.sync_error() {
        tracing::debug!("sync(2) does not reach this mount, only fsync does: {error}");
    }
    let handle = signals.handle();
    thread::scope(|scope| {
        scope.spawn(|| unmount_on_signals(signals, mount, mountpoint));
        let served = mount.serve();
        handle.close();
        served
    })?;
    Ok(())
}

/// Unmounts with each signal: who still uses the file system goes on doing so, and serving ends when the
/// last is done.
fn unmount_on_signals(signals: &mut Signals, mount: &larder_fuse::Mount, mountpoint: &Path) {
    for _ in signals.forever() {
        let unmounted = mount.unmount(false).or_else(|_| mount.unmount(true));
        if let Err(error) = unmounted {
            tracing::error!("{} cannot be unmounted: {error}", mountpoint.display());
        }
    }
}

/// Makes a file of `size` bytes with an empty file system.
fn create_image(devices: &[PathBuf], size: u64) -> anyhow::Result<()> {
    let [image] = devices else { bail!("--create makes one image") };
    if image.try_exists()? {
        bail!("{}: it is there already; without --create it is mounted", image.display());
    }
    let owner = Some(caller());
    mkfs(devices, &MkfsOptions { byte_count: Some(size), owner, ..MkfsOptions::default() })?;
    Ok(())
}
