//! `larder mount`.

mod background;
mod cgroup;
mod follow;
mod further;
mod memory;
mod metrics;
mod open_files;
mod options;
mod part;
mod place;
mod remount;

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use larder::device::Place;
use larder::{Filesystem, OpenOptions};
use larder_device::InUse;
use larder_format::OwnerMap;
use larder_fuse::Server;
use larder_fuse::usage::{MountTable, holders, in_words, processes};
use larder_mkfs::{MkfsOptions, Owner, mkfs};
use larder_platform::errno;
use larder_volume::OpenError;
use signal_hook::iterator::{Handle, Signals};

use self::memory::Memory;
use self::options::Options;
use self::part::Part;
use super::mkfs::caller;
use crate::devices;
use crate::ending::server_of;
use crate::interrupt::{self, HalfMade};
use crate::message::message;
use crate::objects;
use crate::objects::Prices;
use crate::outcome::Outcome;
use crate::place::{PlaceOptions, located};
use crate::report::{self, LogLevel, Reporter};
use crate::state;
use larder_objects::parse_size;

/// The subvolume that holds all others.
const TOP_LEVEL: u64 = 5;
/// How often a device that another program writes to is tried again: most commands are done in a
/// moment.
const MOST_ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(30);

/// Mount a file system through FUSE
///
/// Every program can use it then, without kernel btrfs; mounting needs no root where fusermount3 is
/// installed. Errors are reported before this returns. End it with `larder umount`.
///
/// Problems are reported: on the terminal with -f, otherwise to journald or syslog. In the
/// foreground the exit code is 1 if the last commit did not reach the devices; see `larder health`.
///
/// --metrics writes a file for a collector such as that of Prometheus' node exporter, and removes it
/// at the end. LARDER_PRICES names a file with prices of requests to object storage.
///
/// Options are those of mount and of btrfs:
///   ro, rw                what may be changed
///   nodev, nosuid, noexec what files may do; dev, suid, exec after them revoke them
///   nosymfollow           symbolic links are not followed (root alone)
///   context=, fscontext=, defcontext=, rootcontext=
///                         labels of SELinux (root alone); ignored without SELinux
///   allow_other           other users may look in
///   subvol=PATH, subvolid=ID
///                         the subvolume to show; otherwise the default one
///   degraded, device=PATH although devices may be missing; a further device
///   follow, follow=SECONDS
///                         with ro, on object storage: show what another machine writes, no later
///                         than so many seconds after it is durable (5). Programs that have files open
///                         which that machine deletes get ESTALE. Content of an fsync appears with the
///                         next commit
///   key-file=PATH         the file with the key of what is encrypted on object storage
///   journal=PATH, journal-size=SIZE
///                         on object storage: fsync waits for a file, a block device, or a file in a
///                         directory of this machine, of so many bytes (1G), and the store gets what
///                         was synced afterwards. After a crash the next mount with this journal
///                         goes on from there
///   generation=N          with ro: an earlier state, as disk.img@N does (larder rescue find-roots
///                         lists them)
///   partition=N, offset=BYTES
///                         the same as --partition and --offset
///   compress, compress=ALGO:LEVEL, compress-force likewise
///                         compress new data: zlib, lzo or zstd
///   nodatacow, nodatasum  write new files in place; without checksums
///   max_inline=BYTES      keep files up to this size in trees (2048)
///   commit=SECONDS        how often to commit (30)
///   discard               tell devices what is free
///   notreelog             make fsync a commit
///   writeback_cache       let the kernel cache writes, and write them back later: many small writes
///                         become fast, and errors of write(2) (no space left, a quota) come from
///                         fsync instead, or from close, which many programs do not check
///   noatime, relatime, strictatime, nodiratime
///                         when to keep times of last access: by default never
///   map-users=OUTER:INNER:COUNT/..., map-groups=...
///                         show users with ids from INNER on, COUNT of them (1), as those from OUTER
///                         on, and store what OUTER makes as INNER's; likewise groups. Ids in no
///                         range are shown as nobody's, and nobody changes their files or makes
///                         files for them
///   squash=USER:GROUP     the user and the group to show, and to store, for ids in no range
///   user_subvol_rm_allowed
///                         users may delete subvolumes that are theirs
///   no_io_uring           take requests through /dev/fuse, also where the kernel offers io_uring
///                         (see /sys/module/fuse/parameters/enable_uring)
///   noawake               let processors sleep while programs use the mount. By default they stay
///                         awake while requests keep coming, since waking one takes longer than
///                         serving a request: root's mounts through /dev/cpu_dma_latency, others by
///                         threads of the lowest priority. That takes power, and no time from other
///                         programs
///   rescue=usebackuproot, usebackuproot, recovery
///                         if the roots of the last commit cannot be read, mount an earlier one for
///                         reading; with ro also one that no superblock names
///   rescue=ignorebadroots with ro: no tree is needed except those of files
///   rescue=ignoredatacsums
///                         with ro: data is read although its checksum is wrong or gone
///   rescue=ignoremetacsums
///                         with ro: tree blocks are read although their checksum is wrong
///   rescue=ignoresuperflags
///                         with ro: unknown flags, and unfinished changes of the format, are no
///                         obstacle
///   rescue=nologreplay, nologreplay, norecovery
///                         accepted with ro, which never replays a log
///   rescue=all            all of them; also several of them with colons between, and the short
///                         names ibadroots, idatacsums, imetacsums and isuperflags
/// These change nothing, since larder does always what they ask for or has no such thing:
///   acl, async, auto, barrier, datacow, datasum, default_permissions, defaults,
///   flushoncommit, loop, mand, noautodefrag, nodiscard, noenospc_debug, noflushoncommit,
///   noinode_cache, noiversion, nolazytime, nomand, norelatime, nossd, nossd_spread, nostrictatime,
///   silent, loud, skip_balance, space_cache, space_cache=v2, ssd, symfollow, treelog, and those for
///   other programs: _netdev, comment=…, helper=…, uhelper=…, user=…, noauto, nofail, nogroup,
///   noowner, nouser, nousers, x-…, X-…
/// These cannot be obeyed, and are refused with the reason:
///   alloc_start, autodefrag, bind, check_int, check_int_data, check_int_print_mask, clear_cache, dirsync,
///   enospc_debug, fatal_errors, fragment, inode_cache, iversion, lazytime, metadata_ratio, noacl,
///   nobarrier, nospace_cache, ref_verify, rescan_uuid_tree, sizelimit, space_cache=v1, ssd_spread,
///   sync, thread_pool
/// `remount` changes the options of a mount: ro, rw, and all others that can change. Only root can
/// change ro and rw. The subvolume that is shown, the users who see it, the ids that are mapped,
/// and the times of last access that are kept cannot change.
///
/// Root can mount a file system in further places while it is mounted: the same part of it, or
/// another subvolume. The running server serves these mounts too. Each mount has its own ro, nodev,
/// nosuid, noexec, subvol and subvolid. The other options are those of the first mount:
/// allow_other, maps of ids and times of last access are refused if they differ, and other
/// differences are reported and ignored. A mount for writing is refused while the file system is
/// mounted for reading: remount it first. Root can show a user's mount in another place with 'mount --bind'.
///
/// fsync makes a file durable on every mount. sync(2) and syncfs(2) make everything durable on
/// mounts for writing that root makes in the machine's first mount namespace, with Linux 6.18 or
/// newer; the table of mounts shows them as fuseblk.larder, with a loop device that is attached to
/// the image or device. Other mounts do not hear of sync(2): after it, the next commit makes
/// everything durable.
///
/// Examples:
///   larder mount disk.img ~/mnt
///   larder mount --create 8G new.img ~/mnt
///   larder mount --create 1T s3://bucket/photos ~/mnt
///   larder mount -o ro,subvol=snapshots/monday disk.img /mnt
///   larder mount -o ro disk.img@4711 /mnt
///   larder mount -o map-users=ann:root,map-groups=ann:root disk.img ~/mnt
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
    #[arg(long, value_name = "SIZE", value_parser = parse_size,
          conflicts_with_all = ["partition", "offset"])]
    create: Option<u64>,
    /// Encrypt the new file system on object storage, with the key that LARDER_KEY_FILE or its like
    /// gives
    #[arg(long, requires = "create")]
    encrypt: bool,
    /// The most memory that the server has resident, at least 128M; by default an eighth of the
    /// machine's, or of what its memory cgroup (a container) allows, but at most 1G. At the limit things get slower. Open inodes are not bounded: each
    /// takes up to 2K
    #[arg(long, value_name = "SIZE", value_parser = Memory::parse)]
    memory: Option<Memory>,
    /// Write what watchers want to know to this file every five seconds, in the text format of
    /// Prometheus
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// How much the server reports: to the terminal in the foreground, otherwise to journald or
    /// syslog
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// Serve for the process that started this one
    #[arg(long, hide = true, conflicts_with = "foreground")]
    served: bool,
    /// Attach the subvolume with this id for the server that started this process
    #[arg(long, hide = true, value_name = "ID")]
    part: Option<u64>,
    #[command(flatten)]
    place: PlaceOptions,
    /// Image files or block devices, then the directory to mount at
    #[arg(required = true, num_args = 1.., value_names = ["DEVICE", "MOUNTPOINT"])]
    paths: Vec<PathBuf>,
}

impl Mount {
    pub fn run(mut self) -> Outcome {
        if let Some(path) = &mut self.metrics {
            // The server goes elsewhere.
            *path = std::path::absolute(&*path)?;
        }
        match self.place.place() {
            Place::Found => {}
            Place::Partition(number) => self.options.push(format!("partition={number}")),
            Place::Offset(offset) => self.options.push(format!("offset={offset}")),
        }
        if let Some((_, devices)) = self.paths.split_last_mut() {
            for device in devices {
                let (image, generation) = state::split(device);
                *device = image;
                self.options.extend(generation.map(|it| format!("generation={it}")));
            }
        }
        // Errors in the command line are found before anything is started.
        let options = Options::parse(self.options.iter().map(String::as_str))?;
        if options.remounts {
            let mountpoint = self.paths.last().context("no mountpoint was given")?;
            return remount::remount(mountpoint, &self.options);
        }
        ensure!(
            self.paths.len() > 1,
            "give the image or device to mount, and the directory to mount it at"
        );
        if let Some(subvolume) = self.part {
            return part::attach_for_server(subvolume, &self.paths);
        }
        open_files::allow_all()?;
        let memory = self.memory.unwrap_or_else(Memory::of_this_machine);
        let thrift = memory.environment().map(|(name, value)| (name, value.into()));
        let environment: Vec<(_, OsString)> = thrift.chain(options.environment()).collect();
        if !self.foreground && !self.served {
            return background::start(self.arguments(), environment);
        }
        if self.foreground && !environment.is_empty() {
            return Err(self.begin_again(environment));
        }
        let reporter = if self.served {
            background::end_with_starter()?;
            report::to_system_log(self.log_level)?
        } else {
            report::to_terminal(self.log_level)?
        };
        // In the background a command has no terminal to report to at its end.
        let code = self.serve(&reporter).unwrap_or_else(|error| {
            tracing::error!("{}", message(&error));
            ExitCode::FAILURE
        });
        let requests = larder_objects::requests_of_this_process();
        if requests != larder_objects::Requests::default() {
            tracing::info!("requests to object storage: {requests}");
        }
        Ok(code)
    }

    /// Runs this program anew in this process, with `environment` besides its own: the allocator
    /// reads it when it begins. Returns why it cannot.
    fn begin_again(&self, environment: Vec<(&'static str, OsString)>) -> anyhow::Error {
        let program = match env::current_exe().context("this program cannot find itself") {
            Ok(program) => program,
            Err(error) => return error,
        };
        let mut command = Command::new(program);
        command.args(["mount", "-f"]).args(self.arguments()).envs(environment);
        anyhow::Error::new(command.exec()).context("this program cannot begin again")
    }

    fn arguments(&self) -> impl Iterator<Item = OsString> {
        let options = self.options.iter().flat_map(|list| ["-o".into(), list.into()]);
        let create = self.create.iter().map(|size| format!("--create={size}").into());
        let encrypt = self.encrypt.then(|| OsString::from("--encrypt"));
        let paths = self.paths.iter().map(|path| path.clone().into_os_string());
        let memory = self.memory.map(|memory| format!("--memory={}", memory.bytes()).into());
        let metrics = self.metrics.iter().map(|path| {
            let mut argument = OsString::from("--metrics=");
            argument.push(path);
            argument
        });
        let log_level = [format!("--log-level={}", self.log_level.word()).into()];
        let arguments = options
            .chain(create)
            .chain(encrypt)
            .chain(memory)
            .chain(metrics)
            .chain(log_level)
            .chain([OsString::from("--")]);
        arguments.chain(paths).collect::<Vec<_>>().into_iter()
    }

    /// Mounts, and serves until it is unmounted. If another server has the devices open already,
    /// that one mounts them in a further place, and there is nothing to serve.
    fn serve(self, reporter: &Reporter) -> Outcome {
        let mut options = Options::parse(self.options.iter().map(String::as_str))?;
        let (mountpoint, devices) = self.paths.split_last().context("no mountpoint was given")?;
        let mountpoint = place::place(mountpoint)?;
        let devices: Vec<PathBuf> =
            devices.iter().cloned().chain(options.devices.iter().map(PathBuf::from)).collect();
        let made = match self.create {
            Some(size) => {
                Some(create_image(&devices, size, self.encrypt, &options.server.owner_map)?)
            }
            None => None,
        };
        let devices = devices::all(&devices, options.place)?;
        if options.server.follow.is_some() {
            follow::check(&devices)?;
        }
        // Other programs are told where the devices are.
        let absolute = |device: &PathBuf| {
            if larder_objects::is_url(device.as_os_str()) {
                return Ok(device.clone());
            }
            device.canonicalize().with_context(|| device.display().to_string())
        };
        let devices: Vec<PathBuf> = devices.iter().map(absolute).collect::<anyhow::Result<_>>()?;
        let memory = self.memory.unwrap_or_else(Memory::of_this_machine);
        let has_objects = devices.iter().any(|it| larder_objects::is_url(it.as_os_str()));
        let memory = if has_objects { memory.with_objects() } else { memory };
        options.server = memory.serve(options.server.clone());
        let ready = || if self.served { background::say_ready(reporter) } else { Ok(()) };
        let nodes = located(&devices, options.place);
        // For a server that has the node of a partition open, that is the whole.
        let is_node = (nodes != devices).then(|| "offset=0".to_owned());
        let words: Vec<String> = self.options.iter().cloned().chain(is_node).collect();
        let mut said = self.options.clone();
        let join = || further::join(&nodes, &mountpoint, &words);
        let mut opened = open(&devices, &nodes, &options, memory, join);
        if !options.mount.read_only
            && let Some(reason) = opened.as_ref().err().and_then(only_reading)
        {
            options.mount.read_only = true;
            said.push("ro".into());
            opened = open(&devices, &nodes, &options, memory, join);
            if opened.is_ok() {
                // As mount does with what is write-protected.
                tracing::warn!("{reason}: mounted read-only");
            }
        }
        let opened = opened?;
        let Some(filesystem) = opened else {
            // Another server has the new image.
            made.into_iter().for_each(HalfMade::keep);
            ready()?;
            return Ok(ExitCode::SUCCESS);
        };
        if filesystem.needs_log_replay() {
            tracing::warn!(
                "a crash left a log; changes that were synced since the last commit are not shown"
            );
        }
        let prices = Prices::from_environment()?;
        let mut signals = Signals::new(interrupt::heeded())?;
        let (mount, part) = mount(&filesystem, &nodes[0], &mountpoint, &options)?;
        made.into_iter().for_each(HalfMade::keep);
        // The server has it now: a remount closes it.
        drop(filesystem);
        // A server that has the node of a partition open is found by that alone.
        let images: Vec<PathBuf> =
            devices.iter().filter(|device| nodes.contains(device)).cloned().collect();
        let pause = options.server.time_between_looks();
        let followed = pause.map(|pause| (memory.open(options.open_options()), pause));
        let remounted = move |said: &[String]| {
            let now = Options::parse(said.iter().map(String::as_str));
            let settings = now.and_then(|now| now.settings(&options, &devices));
            settings.map(|settings| memory.limit(settings)).map_err(|error| message(&error))
        };
        let further = move |filesystem: &Filesystem, said: &[String], words: &str| {
            further::read(filesystem, &images, said, words).map_err(|error| message(&error))
        };
        mount.configure(&nodes, said, Box::new(remounted), Box::new(further));
        let begin = || {
            part.map_or(Ok(()), |part| part.attach(&mountpoint))?;
            Ok(ready()?)
        };
        let watched = self.metrics.as_deref().map(|path| (path, prices));
        let served = serve(&mount, &mountpoint, &mut signals, watched, followed, begin);
        // Whatever ended it, the changes are kept.
        let synced = mount.sync_at_the_end().with_context(|| {
            let generation = mount.generation().unwrap_or_default();
            format!("changes since generation {generation} did not reach the devices")
        });
        let failure = synced.as_ref().err().map(message);
        mount.say_how_it_ended(failure.as_deref());
        served?;
        synced?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The reason if a file system in this state is mounted read-only, whatever the user says.
fn only_reading(error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref::<larder::Error>()? {
        larder::Error::Open(OpenError::OnlyReading { device, state }) => {
            Some(format!("{device}: {state}"))
        }
        _ => None,
    }
}

/// Opens the file system to serve; `None` if `join` finds that another server does already. Other
/// programs see `nodes` in use then.
///
/// A server for writing that begins meanwhile has the devices locked, so that this one fails to
/// lock them, or finds the lock after it has opened them for reading. It joins the other then.
fn open(
    devices: &[PathBuf],
    nodes: &[PathBuf],
    options: &Options,
    memory: Memory,
    join: impl Fn() -> anyhow::Result<bool>,
) -> anyhow::Result<Option<Filesystem>> {
    for attempt in 1.. {
        if join()? {
            break;
        }
        let has_server = || nodes.iter().any(|device| server_of(device).is_some());
        match memory.open(options.open_options()).open(devices) {
            Ok(filesystem) => match writer_beside(nodes, options)? {
                None => return Ok(Some(filesystem)),
                Some(device) if attempt > MOST_ATTEMPTS && !has_server() => {
                    let usage = larder_device::in_use(device)?.unwrap_or(InUse::Locked);
                    bail!("{}: {usage}", device.display());
                }
                Some(_) => {}
            },
            Err(error) if !has_server() => return Err(error.into()),
            Err(_) => {}
        }
        thread::sleep(PAUSE);
    }
    Ok(None)
}

/// Those of `devices` that another program writes to, if they are only read here: its changes would
/// not be seen.
fn writer_beside<'d>(devices: &'d [PathBuf], options: &Options) -> io::Result<Option<&'d PathBuf>> {
    // A reader of objects sees one state, whatever a writer does meanwhile.
    let files = devices.iter().filter(|device| !larder_objects::is_url(device.as_os_str()));
    for device in files.filter(|_| options.mount.read_only) {
        if larder_device::has_writer(device)? {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

/// Mounts. Also returns the part to attach once the mount is served.
fn mount(
    filesystem: &Filesystem,
    device: &Path,
    mountpoint: &Path,
    options: &Options,
) -> anyhow::Result<(larder_fuse::Mount, Option<Part>)> {
    let shown = options.shown(filesystem)?;
    let mount_options =
        larder_fuse::MountOptions { source: device.into(), ..options.mount.clone() };
    if shown.id() == TOP_LEVEL || !larder_fuse::can_mount_parts() {
        let server = Server::new(filesystem, &shown, options.server.clone())?;
        let mount = larder_fuse::Mount::new(mountpoint, server, &mount_options)
            .with_context(|| mountpoint.display().to_string())?;
        return Ok((mount, None));
    }
    // So that other subvolumes can be mounted too.
    let top_level = filesystem.subvolume_by_id(TOP_LEVEL)?;
    let server = Server::new(filesystem, &top_level, options.server.clone())?;
    let (mount, tree) = larder_fuse::Mount::in_no_place(server, &mount_options)
        .with_context(|| mountpoint.display().to_string())?;
    Ok((mount, Some(Part::new(tree, shown.id(), shown.path()?))))
}

/// Serves requests until all mounts end. Meanwhile this thread calls `begin`, and then waits for
/// signals. Metrics go to the file `watched`. A writer is followed as `followed` says: how to open
/// the newest state, and the time between two looks.
fn serve(
    mount: &larder_fuse::Mount,
    mountpoint: &Path,
    signals: &mut Signals,
    watched: Option<(&Path, Prices)>,
    followed: Option<(OpenOptions, Duration)>,
    begin: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let Some(error) = mount.sync_error() {
        tracing::debug!(
            "sync(2) does not reach this mount, only fsync does: {}",
            errno::in_words(error)
        );
    }
    let closing = Closing(signals.handle());
    thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        let serve = || {
            let _closing = closing;
            mount.serve_and(move || {
                // Nothing else can be done about it here.
                let _ = begun.send(());
            })
        };
        let serving =
            thread::Builder::new().name("larder-serve".into()).spawn_scoped(scope, serve)?;
        // It ends with this thread's work.
        let (_watching, ends) = mpsc::channel();
        if let Some((path, prices)) = watched {
            let watch = move || metrics::keep_written(mount, path, prices, &ends);
            thread::Builder::new().name("larder-metrics".into()).spawn_scoped(scope, watch)?;
        }
        let (_following, ends) = mpsc::channel();
        if let Some((open, pause)) = followed {
            let follow = move || follow::keep_following(mount, &open, pause, &ends);
            thread::Builder::new().name("larder-follow".into()).spawn_scoped(scope, follow)?;
        }
        let outcome = match has_begun.recv() {
            Ok(()) => begin(),
            Err(_) => Err(anyhow!("{}: the mount ended at once", mountpoint.display())),
        };
        if outcome.is_err() {
            // The caller learns that it failed.
            let _ = mount.unmount(true);
        }
        unmount_on_signals(signals, mount, mountpoint);
        serving.join().map_err(|_| anyhow!("the thread that serves panicked"))??;
        outcome
    })
}

/// When this is dropped, no thread waits for signals any more, also while a panic unwinds.
struct Closing(Handle);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Unmounts with each signal, and commits at once: the sender may kill this process soon. Programs
/// that still use the file system go on, and serving ends when the last has gone.
fn unmount_on_signals(signals: &mut Signals, mount: &larder_fuse::Mount, mountpoint: &Path) {
    let serving = signals.handle();
    let place = mountpoint.display();
    for _ in signals.forever() {
        let entry = MountTable::of_this_process();
        let entry = entry.ok().and_then(|table| table.ours_at(mountpoint).cloned());
        let unmounted = mount.unmount(false).or_else(|_| mount.unmount(true));
        if let Err(error) = unmounted {
            tracing::error!("{place} cannot be unmounted: {}", errno::in_words(&error));
        }
        if let Err(error) = mount.commit() {
            tracing::error!("{place}: the commit on a signal failed: {}", errno::in_words(&error));
        } else if let Some(entry) = entry.filter(|_| !serving.is_closed()) {
            let users: Vec<_> = processes().collect();
            let holders = in_words(holders(&entry, &users));
            tracing::info!("{place}: committed, still used; the server goes on: {holders}");
        }
    }
}

/// Creates a file of `size` bytes with an empty file system, which the mount shows as the caller's.
/// It is removed unless it gets mounted.
fn create_image(
    devices: &[PathBuf],
    size: u64,
    is_encrypted: bool,
    map: &OwnerMap,
) -> anyhow::Result<HalfMade> {
    let [image] = devices else { bail!("--create makes one image") };
    let is_url = larder_objects::is_url(image.as_os_str());
    ensure!(
        is_url || !is_encrypted,
        "{}: --encrypt is for objects; give a URL, such as file:///DIRECTORY",
        image.display()
    );
    if !is_url && image.try_exists()? {
        bail!("{}: it exists already; without --create it is mounted", image.display());
    }
    let Owner { uid, gid } = caller();
    let nowhere = |kind: &str, id| {
        format!(
            "--create: the file system would be yours, and map-{kind}s maps {kind} {id} to no id"
        )
    };
    let owner = Some(Owner {
        uid: map.users.inner_if_any(uid).with_context(|| nowhere("user", uid))?,
        gid: map.groups.inner_if_any(gid).with_context(|| nowhere("group", gid))?,
    });
    if is_url {
        objects::create(image, size, is_encrypted)?;
        mkfs(devices, &MkfsOptions { owner, ..MkfsOptions::default() })?;
        return Ok(HalfMade::of(&[])?);
    }
    let made = HalfMade::of(devices)?;
    let options = MkfsOptions { byte_count: Some(size), owner, ..MkfsOptions::default() };
    match mkfs(devices, &options) {
        Ok(_) => Ok(made),
        Err(error) => {
            // It has undone its changes.
            made.keep();
            Err(error.into())
        }
    }
}
