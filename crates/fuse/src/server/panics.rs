//! A handler that panics costs one request an error, over both transports.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use larder_testkit::{RingsOffered, Scratch};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::Server;
use super::hostile::filesystem;
use crate::options::{MountOptions, ServerOptions};
use crate::protocol::abi::opcode;
use crate::protocol::{Answer, Reply, Request};
use crate::transport::{self, DevFuse, Handler, Limits, Tell, Transport};

/// A server that panics when it looks up the name `panic`.
struct Fragile(Server);

impl Handler for Fragile {
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, kernel: &dyn Tell) -> Answer {
        let is_asked_for = request.opcode() == opcode::LOOKUP && request.payload() == b"panic\0";
        assert!(!is_asked_for, "a panic that the test wants");
        self.0.handle(request, reply, kernel)
    }
}

/// A mount that ends when this is dropped.
struct Mounted<'m>(&'m Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

fn panics_cost_one_request_each(io_uring: bool) {
    let scratch = Scratch::new();
    let filesystem = filesystem();
    let top = filesystem.subvolume("/").unwrap();
    let server = Fragile(Server::new(&filesystem, &top, ServerOptions::default()).unwrap());
    let options = MountOptions::default();
    let mounted = transport::mount(scratch.path(), &options, &ServerOptions::default()).unwrap();
    let limits = Limits::of(&ServerOptions::default());
    let options = MountOptions { io_uring, awake: false, ..options };
    let connection = DevFuse::new(mounted.device, &options, limits);
    thread::scope(|scope| {
        let serving = scope.spawn(|| connection.serve(&server, || ()));
        let mounted = Mounted(scratch.path());
        // More than there are threads, or entries of rings.
        for number in 0..300 {
            let error = fs::metadata(scratch.path().join("panic")).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{number}: {error}");
        }
        fs::write(scratch.path().join("file"), "bread").unwrap();
        assert_eq!(fs::read(scratch.path().join("file")).unwrap(), b"bread");
        drop(mounted);
        let served: io::Result<()> = serving.join().expect("no thread of the transport panics");
        served.unwrap();
    });
    filesystem.sync().unwrap();
}

#[test]
fn over_dev_fuse() {
    panics_cost_one_request_each(false);
}

#[test]
fn over_rings() {
    let _offered = RingsOffered::new();
    panics_cost_one_request_each(true);
}
