//! The server of a mount that is about to end: making it commit, and learning how it ends.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use larder_fuse::usage::MountEntry;
use larder_ioctl::channel::{Channel, Ending, Request};

use crate::ending::server_of;

/// How long a server may take to answer before it is unmounted anyway.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections to the server of a mount, which outlast the mount.
pub struct MountServer {
    channel: Channel,
    /// `None` if it has too many clients.
    ending: Option<Ending>,
}

/// What a server reports.
pub enum News {
    /// All changes are durable, and the file system is still in use.
    Committed,
    /// The commit failed.
    Failed(io::Error),
    /// The last commit waits for a device, for this reason.
    Waits(String),
    /// It has ended, after a commit or without one.
    Ended(io::Result<()>),
}

impl MountServer {
    /// The server of `mount`, which is mounted at `mountpoint`; `None` if it does not serve this
    /// user, or answers too late.
    pub fn of(mount: &MountEntry, mountpoint: &Path) -> Option<Self> {
        let (answer, answered) = channel();
        let (source, mountpoint) = (mount.source.clone(), mountpoint.to_owned());
        // A thread, which a server that does not answer blocks as long as this process exists.
        thread::spawn(move || answer.send(connect(&source, &mountpoint)));
        answered.recv_timeout(PATIENCE).ok()?
    }

    /// Makes it commit. The news come in any order: the server ends the connection of a client that
    /// asks for a commit when its last mount has ended.
    pub fn commit(self) -> Receiver<News> {
        let (news, heard) = channel();
        let Self { mut channel, ending } = self;
        if let Some(ending) = ending {
            let news = news.clone();
            thread::spawn(move || {
                let ended = ending.wait(|why| drop(news.send(News::Waits(why))));
                news.send(News::Ended(ended))
            });
        }
        thread::spawn(move || match channel.call(&Request::Commit, &mut |_, _| Ok(())) {
            Ok(_) => drop(news.send(News::Committed)),
            // It ends, and says how.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => drop(news.send(News::Failed(error))),
        });
        heard
    }
}

fn connect(source: &Path, mountpoint: &Path) -> Option<MountServer> {
    match File::open(mountpoint) {
        Ok(root) => {
            let (channel, _) = Channel::of(&root).ok()??;
            Some(MountServer { channel, ending: Ending::of(&root).ok()? })
        }
        // Root may not look into a user's mount.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let server = server_of(source)?;
            let image = File::open(source).ok()?;
            let channel = Channel::of_process(server.pid, image.as_fd(), PATIENCE).ok()??;
            Some(MountServer { channel, ending: None })
        }
        Err(_) => None,
    }
}
