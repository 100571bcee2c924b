//! Telling clients how the server ended.

use std::os::unix::net::UnixStream;

use larder_ioctl::channel::{Kind, frame};
use rustix::io::Errno;

use super::{Channel, MOST_CONNECTIONS};

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
