//! Changes that a client asks for: many in one message, and no thread waits for each.
//!
//! # Invariants
//! - The kernel caches only what is true: once commands are applied, it is told which names and
//!   inodes they changed, if it knows them. Until then programs may see the state before.
//! - The kernel decides by what it knows whether a user may take a name out of a sticky directory.
//!   So it is told at once when another inode has the name.
//! - An inode that is about to lose a name is opened, so that a program which refers to it can go
//!   on.
//! - A link replaces a file of its name, so that a client need not ask what is there.
//! - Memory is bounded: after [`MOST_UNTOLD`] commands all of them are applied.
//! - What is changed is the inode that was checked, in the directory that was checked, whatever
//!   moves meanwhile.
//! - What follows a command that failed to make an inode, or to move one, changes nothing of what
//!   is there instead. So no command finds an inode by a path that waits to be made.
//! - What the client sent before it stopped or ended is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, Scope};
use std::time::Duration;

use larder::commands::{Change, Changes, Command, LocalChanges, Original};
use larder::{CommandError, CommandProblem, Directory, Inode, SetAttributes};
use larder_ioctl::channel::{Kind, ReceiveNews, ReceiveReply, Token, frame};
use larder_platform::errno::in_words;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::input::{self, Ahead, Frame};
use super::rights::{self, Cleared, original_of};
use super::{Grant, removal};
use crate::protocol::Notice;
use crate::protocol::abi::ShownId;
use crate::server::access::Caller;
use crate::server::attributes::PERMISSIONS;
use crate::server::call::{Outcome, Refused, failed};
use crate::server::numbers::number_of;
use crate::server::reach::Reach;
use crate::server::refusal::{Refusal, refuse};
use crate::server::state::Server;
use crate::transport::Notify;

/// The most commands that the kernel was not told of.
pub(super) const MOST_UNTOLD: usize = 1024;
/// When the kernel has forgotten no inode for so long, it keeps the rest of a tree.
const SILENCE: Duration = Duration::from_millis(2);
/// The server waits no longer than this for the kernel to forget a tree.
const PATIENCE: Duration = Duration::from_secs(1);
const SET_GID: u32 = 0o2000;
/// After so much data another thread writes it back, so that the one that applies commands need
/// not. Writeback frees its memory early, and new data takes that memory while processors still
/// have it in their caches.
const WRITE_BACK_BYTES: usize = 8 << 20;
/// The client is told of each further step of so many bytes.
const STEP_BYTES: u64 = 1 << 20;

/// Applies the commands that follow the request below the directory of `grant`.
pub(super) fn change(
    server: &Server,
    grant: &Grant,
    socket: &UnixStream,
    kernel: &dyn Notify,
) -> Result<Vec<u8>, Refusal> {
    let (directory, caller) = (grant.writable_directory(server)?, grant.caller(server));
    let owner = caller.stored_ids().map_err(|errno| {
        let (user, group) = (caller.user().number(), caller.group().number());
        let ids = format!("user {user} and group {group}");
        refuse(
            errno,
            &format!("map-users and map-groups of the mount have no ids to store for {ids}"),
        )
    })?;
    let client = socket.try_clone().map_err(|error| refuse(Errno::AGAIN, &in_words(&error)))?;
    let changes = Changes::below(directory.clone(), owner);
    let changes = changes.while_it(move || !has_hung_up(&client));
    let tree = Tree { server, caller, base: directory, originals: Reach::new(caller), changes };
    let mut changing = Changing {
        tree,
        kernel,
        socket,
        untold: Vec::new(),
        failed: Failed::default(),
        made: None,
        commands: 0,
        removed: 0,
        unwritten_bytes: 0,
    };
    let (read, ended, stream_bytes) = thread::scope(|scope| {
        let write_back = Worker::new(scope, || {
            // Data that cannot be written back stays dirty: fsync meets the error again.
            let _ = server.filesystem.write_back();
        });
        let rest = Rest(socket);
        let mut stream_bytes = 0;
        let read = match input::ahead(scope, socket) {
            Ok(frames) => changing.read(&frames, &mut stream_bytes, &write_back),
            Err(error) => Err(refuse(Errno::AGAIN, &in_words(&error))),
        };
        if read.is_ok() {
            mem::forget(rest);
        }
        (read, changing.apply_all(), stream_bytes)
    });
    // The last names of inodes may be gone, and nobody refers to them any more.
    let commands = changing.commands;
    drop(changing);
    server.filesystem.delete_unlinked();
    read?;
    ended.map_err(|_| gone())?;
    Ok(ReceiveReply::Received { stream_bytes, subvolumes: 0, commands }.body())
}

/// Whether a client is gone.
fn has_hung_up(client: &UnixStream) -> bool {
    let mut polled = [PollFd::new(client, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().contains(PollFlags::HUP)
}

/// What a client sends behind a stream that ended early, also by a panic: it cannot be understood,
/// and the thread that reads ahead ends when this is dropped.
struct Rest<'s>(&'s UnixStream);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        // It fails if the client has gone already.
        let _ = shutdown(self.0, Shutdown::Read);
    }
}

/// A thread that does some work whenever it is asked to, until this is dropped.
struct Worker(SyncSender<()>);

impl Worker {
    fn new<'s>(scope: &'s Scope<'s, '_>, work: impl Fn() + Send + 's) -> Self {
        let (ask, asked) = mpsc::sync_channel(1);
        let run = move || asked.into_iter().for_each(|()| work());
        // Without a thread this is slower, no more.
        let _ = thread::Builder::new().name("larder-write".into()).spawn_scoped(scope, run);
        Self(ask)
    }

    /// Asks for the work, unless it is waiting to be done.
    fn ask(&self) {
        let _ = self.0.try_send(());
    }
}

pub(super) fn gone() -> Refusal {
    refuse(Errno::PIPE, "the client is gone")
}

/// A stream that is being applied.
pub(super) struct Changing<'s> {
    pub(super) tree: Tree<'s>,
    kernel: &'s dyn Notify,
    pub(super) socket: &'s UnixStream,
    /// What the kernel was not told of.
    pub(super) untold: Vec<Untold>,
    /// Commands that failed since the last one that had nothing to do with them.
    failed: Failed,
    /// The path of the last inode that was made.
    made: Option<Vec<u8>>,
    /// Commands that were accepted.
    commands: u64,
    /// Names that were removed.
    pub(super) removed: u64,
    /// Bytes of data since writeback was last asked for.
    unwritten_bytes: usize,
}

/// Paths of commands that failed, each with whether the command would have made the inode, so that
/// there is nothing below either. Commands that follow and depend on them would fail for the same
/// reason, or find what is not meant.
#[derive(Default)]
struct Failed(BTreeMap<Vec<u8>, bool>);

/// A change that the kernel does not know of.
pub(super) enum Untold {
    /// A name was made or removed.
    Name(Vec<u8>),
    /// Attributes of an inode changed; content too, if `with_content`. If the stream made the
    /// inode (`is_new`), it has no names but those that the stream gave it.
    Inode { path: Vec<u8>, with_content: bool, is_new: bool },
    /// The inode that the kernel knows by this number lost a name.
    Unnamed(u64),
    /// Just this.
    Notice(Notice),
}

impl Changing<'_> {
    fn read(
        &mut self,
        frames: &Ahead,
        stream_bytes: &mut u64,
        write_back: &Worker,
    ) -> Result<(), Refusal> {
        let mut told_bytes = 0;
        loop {
            let frame = match frames.next() {
                Ok(None) => return Ok(()),
                Ok(Some(Frame::Data(frame))) => frame,
                Ok(Some(Frame::Token(token))) => {
                    self.tree.add_originals(token)?;
                    continue;
                }
                Err(error) => return Err(refuse(Errno::INVAL, &in_words(&error))),
            };
            for change in LocalChanges::new(&frame, *stream_bytes) {
                let change = change.map_err(|error| refuse(Errno::INVAL, &in_words(&error)))?;
                if let Some(Command::Write { data, .. }) = change.command() {
                    self.unwritten_bytes += data.len();
                }
                self.change(&change).map_err(|_| gone())?;
            }
            *stream_bytes += frame.len() as u64;
            frames.reuse(frame);
            if self.unwritten_bytes >= WRITE_BACK_BYTES {
                self.unwritten_bytes = 0;
                write_back.ask();
            }
            if *stream_bytes >= told_bytes + STEP_BYTES {
                told_bytes = *stream_bytes;
                let news = ReceiveNews::Read(told_bytes).body();
                frame::write(self.socket, Kind::Event, &news).map_err(|_| gone())?;
            }
        }
    }

    /// Makes a change of a client, which speaks of the ids that it is shown. An error means that
    /// the client is gone.
    fn change(&mut self, change: &Change<'_>) -> io::Result<()> {
        let owners = self.tree.caller.owners();
        let applied = match change.command() {
            Some(Command::Chown { path, uid, gid }) if !owners.is_empty() => {
                let (uid, gid) = (ShownId::new(uid as u32), ShownId::new(gid as u32));
                let next = self.tree.next_owner(path, uid, gid);
                next.map(|(uid, gid, inode)| {
                    let command = Command::Chown { path, uid, gid };
                    let named = |inode| Change::On { inode, command };
                    self.stored(&inode.map_or_else(|| change.by(command), named))
                })
            }
            Some(Command::SetXattr { path, name, data }) => owners
                .stored_xattr(name, data)
                .map(|data| self.stored(&change.by(Command::SetXattr { path, name, data: &data }))),
            _ => Ok(self.stored(change)),
        };
        applied.unwrap_or_else(|errno| self.refuse(change, errno))
    }

    /// Makes a change with the ids to store, unless it follows one that failed.
    fn stored(&mut self, change: &Change<'_>) -> io::Result<()> {
        if self.follows_failure(change) {
            return Ok(());
        }
        self.failed.0.clear();
        self.attempt(change)?;
        self.follows_failure(change);
        Ok(())
    }

    /// Whether a change would fail as an earlier one did. If it is a rename, nothing that follows
    /// under the new name is about the inode there.
    fn follows_failure(&mut self, change: &Change<'_>) -> bool {
        let follows = self.failed.explains(change.path());
        if let (Some(Command::Rename { to, .. }), true) = (change.command(), follows) {
            self.failed.0.entry(to.to_vec()).or_default();
        }
        follows
    }

    fn attempt(&mut self, change: &Change<'_>) -> io::Result<()> {
        self.tree.changes.make_room();
        let is_own =
            !self.tree.caller.may_everything() && rights::any_owner_may(change, &mut self.tree);
        if is_own && self.tree.changes.complete_new(change) {
            self.commands += 1;
            self.note(change);
            return Ok(());
        }
        let is_rename = matches!(change.command(), Some(Command::Rename { .. }));
        let needs_earlier = is_rename || self.tree.changes.is_about_new(change);
        if needs_earlier && !rights::is_free(&self.tree.caller) {
            // Earlier commands make what it changes, or what it replaces.
            self.apply_all()?;
            if self.follows_failure(change) {
                return Ok(());
            }
        }
        let mut prepared = self.prepare(change);
        if matches!(prepared, Err(Errno::NOENT)) {
            // Earlier commands may have to make it first.
            self.apply_all()?;
            if self.follows_failure(change) {
                return Ok(());
            }
            prepared = self.prepare(change);
        }
        let cleared = match prepared {
            Ok(cleared) => cleared,
            Err(errno) => return self.refuse(change, errno),
        };
        self.commands += 1;
        let change = &match (change.command(), cleared.inode()) {
            (Some(Command::Chmod { path, mode }), Some(inode)) => {
                let mode = rights::mode_set(mode, inode, &self.tree.caller);
                change.by(Command::Chmod { path, mode })
            }
            _ => *change,
        };
        if let Some(Command::Rmdir { path }) = change.command() {
            self.apply_all()?;
            self.tree.changes.forget(path);
            return removal::remove_tree(self, path);
        }
        self.note(change);
        // The group that the inode has now counts.
        let takes_set_gid = |inode: &&Inode| {
            let command = change.command();
            command.is_some_and(|it| rights::takes_set_gid(&it, inode, &self.tree.caller))
        };
        let losing = cleared.inode().filter(takes_set_gid);
        if let Err(error) = self.tree.changes.apply(change, cleared.checked()) {
            self.fail(&error)?;
            // There may be more errors, and what follows must know of all.
            self.apply_all()?;
        }
        if losing.is_some() || matches!(change.command(), Some(Command::Chown { .. })) {
            return self.end(change, losing);
        }
        let replaces =
            matches!(change.command(), Some(Command::Rename { .. } | Command::Link { .. }));
        let is_known = || self.untold.iter().any(|untold| matches!(untold, Untold::Unnamed(_)));
        if self.untold.len() >= MOST_UNTOLD || replaces && is_known() {
            self.apply_all()?;
        }
        Ok(())
    }

    /// Lets later checks see what `change` did, and takes setgid from `losing`.
    fn end(&mut self, change: &Change<'_>, losing: Option<&Inode>) -> io::Result<()> {
        self.apply_all()?;
        let Some(inode) = losing else { return Ok(()) };
        let taken = match change.command() {
            Some(Command::Chown { .. }) => inode.drop_privileges(false),
            _ => {
                let permissions = Some(inode.metadata().mode & PERMISSIONS & !SET_GID);
                inode.set_attributes(&SetAttributes { permissions, ..SetAttributes::default() })
            }
        };
        taken.or_else(|error| self.refuse(change, failed(error)))
    }

    fn refuse(&mut self, change: &Change<'_>, errno: Errno) -> io::Result<()> {
        let path = change.path();
        let (shown, error) = (String::from_utf8_lossy(path), in_words(&errno));
        let action = change.action();
        let message = format!("{action} {shown}: {error}");
        self.report(action.makes_name(), path, &message)
    }

    /// Checks that the caller may do that, and opens inodes that lose names.
    fn prepare(&mut self, change: &Change<'_>) -> Result<Cleared, Errno> {
        let cleared = rights::check(change, &mut self.tree)?;
        self.keep_unnamed(change)?;
        Ok(cleared)
    }

    fn keep_unnamed(&mut self, change: &Change<'_>) -> Outcome {
        let path = change.path();
        if !self.tree.server.hidden.is_empty() && !path.is_empty() {
            // It fails in a subvolume that is being received.
            self.tree.parent_and_name(path)?;
        }
        let Some(command) = change.command() else { return Ok(()) };
        match command {
            Command::Unlink { path } | Command::Rmdir { path } => self.keep(path),
            Command::Rename { path, to } => {
                if self.made.as_deref() != Some(path) {
                    self.keep(path)?;
                }
                self.keep_if_there(to)
            }
            Command::Link { path, .. } if self.tree.inode(path).is_ok() => {
                let unlink = Command::Unlink { path }.into();
                let cleared = self.prepare(&unlink)?;
                self.note(&unlink);
                self.tree
                    .changes
                    .apply(&unlink, cleared.checked())
                    .map_err(|error| errno_of(&error))
            }
            _ => Ok(()),
        }
    }

    /// Opens the inode that loses the name `path`, if the kernel knows it.
    fn keep(&mut self, path: &[u8]) -> Result<(), Errno> {
        let (directory, name) = self.tree.parent_and_name(path)?;
        let name = OsStr::from_bytes(name);
        if self.tree.server.hidden.has(&directory, name) {
            return Err(Errno::BUSY);
        }
        let (subvolume, number) = directory.child_id(name).map_err(failed)?;
        let nodes = &self.tree.server.nodes;
        let id = number_of(subvolume, number);
        if nodes.knows(id) {
            nodes.keep(directory.child(name).map_err(failed)?);
            self.untold.push(Untold::Unnamed(id));
        }
        Ok(())
    }

    /// As [`keep`](Self::keep), for a name that a new inode takes, which need not exist.
    fn keep_if_there(&mut self, path: &[u8]) -> Result<(), Errno> {
        match self.keep(path) {
            Err(Errno::NOENT) => Ok(()),
            kept => kept,
        }
    }

    /// Notes what the kernel has to be told of.
    fn note(&mut self, change: &Change<'_>) {
        let path = || change.path().to_vec();
        let Some(command) = change.command() else { return self.note_inode(change.path(), true) };
        match command {
            Command::Mkfile { .. }
            | Command::Mkdir { .. }
            | Command::Mknod { .. }
            | Command::Mkfifo { .. }
            | Command::Mksock { .. }
            | Command::Symlink { .. } => {
                self.made = Some(path());
                self.untold.push(Untold::Name(path()));
            }
            Command::Link { existing, .. } => {
                self.note_inode(existing, false);
                self.untold.push(Untold::Name(path()));
            }
            Command::Unlink { .. } => {
                self.made = None;
                self.untold.push(Untold::Name(path()));
            }
            Command::Rename { path, to } if self.made.as_deref() == Some(path) => {
                self.made = Some(to.to_vec());
                self.untold.push(Untold::Name(to.to_vec()));
            }
            Command::Rename { to, .. } => {
                self.made = None;
                self.untold.extend([Untold::Name(path()), Untold::Name(to.to_vec())]);
                self.note_inode(to, false);
            }
            Command::Write { path, .. }
            | Command::EncodedWrite { path, .. }
            | Command::Clone { path, .. }
            | Command::Truncate { path, .. }
            | Command::Fallocate { path, .. } => self.note_inode(path, true),
            _ => self.note_inode(&path(), false),
        }
    }

    fn note_inode(&mut self, path: &[u8], with_content: bool) {
        if let Some(Untold::Inode { path: last, with_content: last_with, .. }) =
            self.untold.last_mut()
            && last == path
        {
            *last_with |= with_content;
            return;
        }
        let is_new = self.made.as_deref() == Some(path);
        self.untold.push(Untold::Inode { path: path.to_vec(), with_content, is_new });
    }

    /// Applies all commands, and tells the kernel what they changed.
    fn apply_all(&mut self) -> io::Result<()> {
        let mut reported = Ok(());
        while let Err(error) = self.tree.changes.apply_deferred() {
            reported = reported.and(self.fail(&error));
        }
        self.tell();
        reported
    }

    /// Makes the kernel forget `directory`, which is about to be removed, and all that it knows
    /// below, and waits until it has done so: inodes that it still knew would be opened one by one.
    /// So it need not be told of each name.
    pub(super) fn forget_below(&self, above: &Directory, name: &OsStr, directory: &Directory) {
        let nodes = &self.tree.server.nodes;
        let id = nodes.id_of(above);
        if nodes.knows(id) {
            // It fails if the kernel does not know the name.
            let _ = self.kernel.notify(&Notice::name(id, name));
            nodes.wait_until_forgotten(nodes.id_of(directory), SILENCE, PATIENCE);
        }
    }

    /// Tells the kernel of all that it was not told of.
    pub(super) fn tell(&mut self) {
        let Self { tree, kernel, untold, .. } = self;
        let nodes = &tree.server.nodes;
        // The kernel then keeps size and times of files itself, until it has forgotten them.
        let keeps_times = tree.server.options.writeback_cache;
        let mut notices = BTreeSet::new();
        for change in untold.drain(..) {
            match change {
                Untold::Name(path) => {
                    let Ok((directory, name)) = tree.parent_and_name(&path) else { continue };
                    let id = nodes.id_of(&directory);
                    if nodes.knows(id) {
                        let name = OsStr::from_bytes(name);
                        notices.extend(Notice::name_and_directory(id, name));
                    }
                }
                Untold::Inode { path, with_content, is_new } => {
                    let Ok(id) = tree.node_of(&path, is_new) else { continue };
                    if nodes.knows(id) {
                        notices.insert(changed(id, with_content));
                        notices.extend(keeps_times.then(|| Notice::unused(&[id])));
                    }
                }
                Untold::Unnamed(id) => {
                    notices.insert(changed(id, false));
                    notices.extend(keeps_times.then(|| Notice::unused(&[id])));
                }
                Untold::Notice(notice) => drop(notices.insert(notice)),
            }
        }
        for notice in notices {
            // It fails if the kernel knows nothing to forget.
            let _ = kernel.notify(&notice);
        }
    }

    fn fail(&mut self, error: &CommandError) -> io::Result<()> {
        self.report(error.action.makes_name(), &error.path, &error.to_string())
    }

    /// Tells the client that a change of `path` failed, unless that follows from another failure.
    /// The change `makes` the inode, or finds it.
    fn report(&mut self, makes: bool, path: &[u8], message: &str) -> io::Result<()> {
        if self.failed.explains(path) {
            return Ok(());
        }
        self.failed.0.insert(path.to_vec(), makes);
        self.tell_failure(message)
    }

    pub(super) fn tell_failure(&self, message: &str) -> io::Result<()> {
        frame::write(self.socket, Kind::Event, &ReceiveNews::Failed(message.as_bytes()).body())
    }
}

fn errno_of(error: &CommandError) -> Errno {
    match &error.problem {
        CommandProblem::Filesystem(error) => Errno::from_raw_os_error(error.errno()),
        _ => Errno::INVAL,
    }
}

fn changed(id: u64, with_content: bool) -> Notice {
    if with_content { Notice::content(id, 0, 0) } else { Notice::attributes(id) }
}

impl Failed {
    /// Whether a command about `path` would fail for the same reason.
    fn explains(&self, path: &[u8]) -> bool {
        let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let is_made = |(end, _): (usize, &u8)| self.0.get(&path[..end]) == Some(&true);
        !self.0.is_empty() && (self.0.contains_key(path) || slashes.any(is_made))
    }
}

/// The tree below the directory of a request, as the caller may walk it.
pub(super) struct Tree<'s> {
    pub(super) server: &'s Server,
    pub(super) caller: Caller<'s>,
    base: Directory,
    /// Where files may be copied from.
    originals: Reach<'s>,
    pub(super) changes: Changes,
}

impl Tree<'_> {
    /// Lets the caller copy files below the directory that `token` stands for.
    fn add_originals(&mut self, token: Token) -> Result<(), Refusal> {
        let grant = self.server.channel.grants.redeem(token);
        let grant =
            grant.ok_or_else(|| refuse(Errno::PERM, "the token is not valid (any more)"))?;
        if grant.caller(self.server).owners() != self.caller.owners() {
            return Err(refuse(
                Errno::XDEV,
                "the mounts of both show different ids: copy with cp(1)",
            ));
        }
        self.originals.add(grant.directory(self.server)?);
        Ok(())
    }

    /// Whether the caller could walk to the original of a copy.
    pub(super) fn reaches_original(&mut self, inode: &Inode) -> Result<bool, Errno> {
        self.originals.contains(inode)
    }

    /// The inode at `path`.
    pub(super) fn inode(&mut self, path: &[u8]) -> Result<Inode, Errno> {
        if path.is_empty() {
            return Ok(Inode::clone(&self.base));
        }
        let (directory, name) = self.parent_and_name(path)?;
        directory.child(OsStr::from_bytes(name)).map_err(failed)
    }

    /// The user and the group to store for the inode at `path`, which gets this owner and group;
    /// and that inode, since they are right for no other.
    fn next_owner(
        &mut self,
        path: &[u8],
        user: ShownId,
        group: ShownId,
    ) -> Result<(u64, u64, Option<Original>), Errno> {
        let owners = self.caller.owners();
        let Ok(inode) = self.inode(path) else {
            // Earlier commands have yet to make it.
            return Ok((
                owners.stored_user(user)?.into(),
                owners.stored_group(group)?.into(),
                None,
            ));
        };
        let before = inode.metadata();
        let (user, group) = (owners.next_user(user, &before)?, owners.next_group(group, &before)?);
        Ok((user.into(), group.into(), Some(original_of(&inode))))
    }

    /// The kernel's number of the inode at `path`. Fails also if the kernel cannot know the inode:
    /// the inode `is_new`, so that it has no other names, and the kernel knows no directory of it.
    fn node_of(&mut self, path: &[u8], is_new: bool) -> Result<u64, Errno> {
        let nodes = &self.server.nodes;
        if path.is_empty() {
            return Ok(nodes.id_of(&self.base));
        }
        let (directory, name) = self.parent_and_name(path)?;
        if is_new && !nodes.knows(nodes.id_of(&directory)) {
            return Err(Errno::NOENT);
        }
        let (subvolume, number) = directory.child_id(OsStr::from_bytes(name)).map_err(failed)?;
        Ok(number_of(subvolume, number))
    }

    /// The directory that contains `path`, and the name there.
    pub(super) fn parent_and_name<'p>(
        &mut self,
        path: &'p [u8],
    ) -> Result<(Directory, &'p [u8]), Errno> {
        let Self { server, caller, changes, .. } = self;
        let found = changes.parent_and_name(path, |at, name| {
            rights::check_searches(caller, at).map_err(Refused)?;
            if server.hidden.has(at, name) { Err(Refused(Errno::BUSY)) } else { Ok(()) }
        });
        found.map(|(at, name)| (at, name.as_bytes())).map_err(|Refused(errno)| errno)
    }
}
