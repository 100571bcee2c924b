//! What requests mean: the state of a server, and one file for each group of operations.
//!
//! # Invariants
//! - The library knows the file system. The server keeps only what the protocol needs besides:
//!   which inodes the kernel knows.
//! - An operation either answers in full or leaves an error and nothing of its reply.
//! - Each lookup that a reply counts has been entered into the table of nodes, and is taken back if
//!   the reply is not made.
//! - The operations are functions of the state ([`Server`]). This file alone calls them all.

mod access;
mod atime;
mod attributes;
mod call;
mod channel;
mod configuration;
mod data;
mod directory;
mod exchange;
mod forgotten;
mod further;
mod hidden;
#[cfg(test)]
mod hostile;
mod ids;
mod images;
mod init;
mod interrupt;
mod ioctl;
#[cfg(test)]
mod killed;
mod metrics;
mod namespace;
mod nodes;
mod numbers;
mod open;
mod owners;
mod page_tail;
#[cfg(test)]
mod panics;
mod pruning;
mod reach;
mod refusal;
mod shown_blocks;
mod state;
mod statfs;
mod thread;
mod unheard;
mod view;
mod walkers;
mod xattr;

use std::io;

use rustix::io::Errno;

use self::access::Caller;
use self::call::{Call, Outcome, failed};
use self::ids::Ids;
use self::thread::Thread;
use crate::protocol::{Answer, Operation, Reply, Request};
use crate::transport::{Handler, Notify, Tell};

pub use self::configuration::{FurtherMount, ReadFurther, ReadOptions, Settings};
pub(crate) use self::exchange::Exchange;
pub use self::state::Server;

impl Handler for Server {
    fn unheard(&self, request: &Request<'_>, body: &[u8], kernel: &dyn Tell) {
        unheard::undo(self, request, body, kernel);
    }

    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, kernel: &dyn Tell) -> Answer {
        let header = request.header();
        let (id, unique) = (header.nodeid, header.unique);
        let thread = Thread::new(header.pid, kernel);
        let ids = Ids::of(request, self, &thread);
        let runs_server = access::runs_server(header.uid, self.owner);
        let (thread, ids, shown_owners) = (&thread, &ids, &self.owners);
        let caller = Caller { ids, thread, runs_server, shown_owners };
        let call = Call { id, unique, caller, kernel };
        match Operation::of(request) {
            Err(errno) => Answer::Error(errno),
            Ok(Operation::Forget { lookups }) => {
                self.nodes.forget(call.id, lookups);
                self.filesystem.delete_unlinked();
                Answer::Nothing
            }
            Ok(Operation::BatchForget(forgets)) => {
                forgets.iter().for_each(|one| self.nodes.forget(one.nodeid, one.nlookup));
                self.filesystem.delete_unlinked();
                Answer::Nothing
            }
            Ok(Operation::Interrupt { unique }) => {
                self.interrupts.interrupt(unique);
                Answer::Nothing
            }
            Ok(operation) => {
                let outcome = serve(self, operation, &call, reply);
                self.pruning.note_growth(self.nodes.count_as_open());
                outcome.map_or_else(Answer::Error, |()| Answer::Reply)
            }
        }
    }
}

fn serve(
    server: &Server,
    operation: Operation<'_>,
    call: &Call<'_>,
    reply: &mut Reply<'_>,
) -> Outcome {
    match operation {
        Operation::Init(init) => init::agree(&init, &server.options, call, reply),
        Operation::Open(open) => open::open(server, call, open, reply),
        Operation::OpenDirectory if server.opens_directories() => {
            open::open_directory(server, call, reply)
        }
        Operation::Create { name, new } => open::create(server, call, name, &new, reply),
        Operation::Tmpfile { new } => open::create_unnamed(server, call, &new, reply),
        Operation::Release(release) => open::release(server, call, &release),
        Operation::Lookup { name } => namespace::lookup(server, call, name, reply),
        Operation::Readlink => namespace::readlink(server, call, reply),
        Operation::Symlink { name, target } => {
            namespace::symlink(server, call, name, target, reply)
        }
        Operation::Mknod { name, new } => namespace::mknod(server, call, name, &new, reply),
        Operation::Mkdir { name, new } => namespace::mkdir(server, call, name, new, reply),
        Operation::Unlink { name } => namespace::unlink(server, call, name),
        Operation::Rmdir { name } => namespace::rmdir(server, call, name),
        Operation::Rename { name, new_directory, new_name, flags } => {
            namespace::rename(server, call, name, new_directory, new_name, flags)
        }
        Operation::Link { inode, name } => namespace::link(server, call, inode, name, reply),
        Operation::GetAttr => attributes::get(server, call, reply),
        Operation::Statx => attributes::statx(server, call, reply),
        Operation::SetAttr(new) => attributes::set(server, call, &new, reply),
        Operation::Read(from) => data::read(server, call, &from, reply),
        Operation::Write { to, data } => data::write(server, call, &to, data, reply),
        Operation::Lseek(seek) => data::seek(server, call, &seek, reply),
        Operation::Fallocate(range) => data::allocate(server, call, &range),
        Operation::CopyFileRange(copy) => data::copy_range(server, call, &copy, reply),
        Operation::Fsync => data::sync(server, call),
        // umount(2) returns with the reply: after it nothing may change the file system.
        Operation::Destroy => {
            server.nodes.forget_all();
            server.filesystem.sync().map_err(failed)
        }
        Operation::Syncfs => server.filesystem.sync().map_err(failed),
        Operation::Readdir { from, plus } => directory::list(server, call, &from, plus, reply),
        Operation::Statfs => statfs::statfs(server, reply),
        Operation::SetXattr { name, value, flags, setxattr_flags } => {
            xattr::set(server, call, name, value, flags, setxattr_flags)
        }
        Operation::GetXattr { name, size } => xattr::get(server, call, name, size, reply),
        Operation::ListXattr { size } => xattr::list(server, call, size, reply),
        Operation::RemoveXattr { name } => xattr::remove(server, call, name),
        Operation::Ioctl { call: ioctl, data } => ioctl::serve(server, call, &ioctl, data, reply),
        Operation::ReleaseDirectory => Ok(()),
        // The kernel then does it alone: opens directories, locks, flushes when a file is closed.
        Operation::OpenDirectory | Operation::Other => Err(Errno::NOSYS),
        Operation::Interrupt { .. } | Operation::Forget { .. } | Operation::BatchForget(_) => {
            unreachable!("these are not answered")
        }
    }
}

/// Runs `serve`, and with it the threads for the control channel and for pruning.
pub(crate) fn beside(
    exchange: &Exchange,
    kernel: &dyn Notify,
    serve: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    channel::during(exchange, kernel, || exchange.pruning.during(exchange, kernel, serve))
}
