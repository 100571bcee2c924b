//! Telling clients how the server ended.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use larder_ioctl::channel::{Kind, frame};
use rustix::io::Errno;

use super::{Channel, MOST_CONNECTIONS};

/// How long a client may take to hear why the server waits.
const PATIENCE: Duration = Duration::from_secs(1);

impl Channel {
    /// Tells all clients that asked whether the last commit reached the devices, or why it did not.
    /// If this is dropped before, they assume that it did not.
    pub(in crate::server) fn say_how_it_ended(&self, failure: Option<&str>) {
        let watching = std::mem::take(&mut self.connections.lock().watching);
        for socket in watching {
            // A client that has gone does not want to know.
            let _ = match failure {
                None => frame::write(&socket, Kind::Done, &[]),
                Some(reason) => {
                    let body = frame::failed(Errno::IO.raw_os_error(), reason);
                    frame::write(&socket, Kind::Failed, &body)
                }
            };
        }
    }

    /// Tells all clients that asked how the server ends why it waits at this time.
    pub(in crate::server) fn say_why_it_waits(&self, why: &str) {
        // One that has gone, or reads nothing, does not hold up the others.
        self.connections.lock().watching.retain(|socket| {
            let _ = socket.set_write_timeout(Some(PATIENCE));
            frame::write(socket, Kind::Event, why.as_bytes()).is_ok()
        });
    }

    /// Notes that `socket` asks how the server ends, and confirms that, unless there are too many.
    pub(super) fn watch(&self, socket: UnixStream) {
        let Ok(confirmed) = socket.try_clone() else { return };
        {
            let watching = &mut self.connections.lock().watching;
            if watching.len() == MOST_CONNECTIONS {
                return;
            }
            watching.push(socket);
        }
        // In this order: a client that got the confirmation will be told.
        let _ = frame::write(&confirmed, Kind::Event, &[]);
    }
}
