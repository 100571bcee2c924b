//! Requests that no kernel makes.

use std::sync::Arc;

use larder::device::{Device, MemoryDevice};
use larder_ioctl::abi::{self, Envelope, MOST_IN_ENVELOPE};
use larder_mkfs::{MkfsOptions, mkfs_on};
use proptest::prelude::*;
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use super::Server;
use crate::options::ServerOptions;
use crate::protocol::abi::{InHeader, IoctlIn, IoctlOut, opcode};
use crate::protocol::{Answer, Notice, Reply, Request};
use crate::transport::{Handler, MustNotWait, Tell};

/// A kernel that ignores notices.
struct Deaf;

impl Tell for Deaf {
    fn now(&self, _notice: &Notice) -> Result<(), MustNotWait> {
        Ok(())
    }

    fn soon(&self, _notice: Notice) {}
}

/// An empty file system in memory.
pub(super) fn filesystem() -> larder::Filesystem {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("memory", 256 << 20));
    mkfs_on(std::slice::from_ref(&device), &MkfsOptions::default()).expect("it is made");
    let options = larder::OpenOptions::new().write(true).commit_interval(None);
    options.open_devices(vec![device]).expect("it opens")
}

fn server() -> Server {
    let filesystem = filesystem();
    let top = filesystem.subvolume("/").expect("it has a top level");
    let root = top.root().expect("it has a root");
    let file = top.create("file", 0o644).expect("a file is made");
    file.write_at(&[7; 5000], 0).expect("it is written");
    let server = Server::new(&filesystem, &top, ServerOptions::default()).expect("it serves");
    server.nodes.look_up(file.into_inode()).expect("it is entered");
    server.nodes.look_up(root.into_inode()).expect("it is entered");
    server
}

fn message(code: u32, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let header = InHeader { len, opcode: code, nodeid, unique: 1, ..InHeader::new_zeroed() };
    [header.as_bytes(), body].concat()
}

/// Serves a message. Returns the answer and the reply that was written.
fn handle(server: &Server, message: &[u8], room: usize) -> (Answer, Vec<u8>) {
    let mut room = vec![0; room];
    let mut reply = Reply::new(&mut room);
    let answer = match Request::parse(message) {
        Ok(request) => server.handle(&request, &mut reply, &Deaf),
        Err(errno) => Answer::Error(errno),
    };
    let len = reply.len();
    room.truncate(len);
    (answer, room)
}

#[test]
fn truncated_requests_are_refused() {
    let server = server();
    let whole = message(opcode::LOOKUP, 1, b"file\0");
    assert_eq!(handle(&server, &whole, 4096).0, Answer::Reply);
    for len in 0..whole.len() {
        assert_eq!(handle(&server, &whole[..len], 4096).0, Answer::Error(Errno::INVAL), "{len}");
    }
    let without_end = message(opcode::LOOKUP, 1, b"file");
    assert_eq!(handle(&server, &without_end, 4096).0, Answer::Error(Errno::INVAL));
    let unknown = message(opcode::GETATTR, 12_345, &[0; 16]);
    assert_eq!(handle(&server, &unknown, 4096).0, Answer::Error(Errno::STALE));
    let no_room = handle(&server, &message(opcode::GETATTR, 1, &[0; 16]), 50).0;
    assert_eq!(no_room, Answer::Error(Errno::OVERFLOW));
}

#[test]
fn a_listing_fits_any_buffer() {
    let server = server();
    for size in 0..600_u32 {
        let mut body = [0; 40];
        body[16..20].copy_from_slice(&size.to_ne_bytes());
        for code in [opcode::READDIR, opcode::READDIRPLUS] {
            let (answer, reply) = handle(&server, &message(code, 1, &body), 4096);
            assert_eq!(answer, Answer::Reply);
            assert!(reply.len() <= size as usize);
        }
    }
}

/// An ioctl on the top level.
fn ioctl(request: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    let call = IoctlIn { cmd: request, in_size: len, out_size: len, ..IoctlIn::new_zeroed() };
    message(opcode::IOCTL, 1, &[call.as_bytes(), data].concat())
}

#[test]
fn envelopes_are_opened_with_care() {
    let server = server();
    let requests = [
        abi::SNAP_CREATE_V2,
        abi::TREE_SEARCH_V2,
        abi::SPACE_INFO,
        abi::INO_PATHS,
        abi::LOGICAL_INO,
        abi::LOGICAL_INO_V2,
        abi::IN_ENVELOPE,
    ];
    let lens = [0, 15, 16, 56, 112, 200, MOST_IN_ENVELOPE as u32, MOST_IN_ENVELOPE as u32 + 1, !0];
    for request in requests {
        for (len, fill) in lens.iter().flat_map(|len| [0, 1, 0xFF].map(|fill| (*len, fill))) {
            let mut envelope = Envelope::new_zeroed();
            (envelope.version, envelope.request, envelope.len) = (1, request, len);
            envelope.data.fill(fill);
            let (answer, reply) =
                handle(&server, &ioctl(abi::IN_ENVELOPE, envelope.as_bytes()), 20_000);
            let most = size_of::<IoctlOut>() + size_of::<Envelope>();
            assert!(reply.len() <= most, "{request:x}, {len}, {fill}: {answer:?}");
            envelope.version = 2;
            let later = handle(&server, &ioctl(abi::IN_ENVELOPE, envelope.as_bytes()), 20_000).0;
            assert_eq!(later, Answer::Error(Errno::OPNOTSUPP));
        }
    }
    let cut_short = handle(&server, &ioctl(abi::IN_ENVELOPE, &[0; 100]), 20_000).0;
    assert_eq!(cut_short, Answer::Error(Errno::INVAL));
}

#[test]
fn interrupts_get_no_reply() {
    // An error would make the kernel send no more interrupts, or the same again.
    let answer = handle(&server(), &message(opcode::INTERRUPT, 0, &[7; 8]), 4096).0;
    assert_eq!(answer, Answer::Nothing);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Many requests of any kind, with any body, about any node, to one server.
    #[test]
    fn nothing_panics(
        requests in prop::collection::vec(
            (0_u32..60, prop::sample::select(vec![0_u64, 1, 256, 257, u64::MAX]),
             prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(b'f'), any::<u8>()], 0..200),
             0_usize..5000),
            1..40,
        ),
    ) {
        let server = server();
        for (code, nodeid, body, room) in requests {
            let (answer, reply) = handle(&server, &message(code, nodeid, &body), room);
            prop_assert!(reply.len() <= room, "{answer:?}");
        }
    }
}
