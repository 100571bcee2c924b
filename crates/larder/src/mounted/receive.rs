//! Receiving into directories of mounted file systems.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use larder_ioctl::channel::{
    Channel, CheckpointRequest, Kind, ReceiveNews, ReceiveReply, ReceiveRequest, Request, frame,
};
use larder_platform::errno::in_words;
use larder_stream::{Checkpoints, MountedTarget};

use crate::{ReceiveError, ReceiveEvent, ReceiveOptions, ReceiveProblem, Received};

/// How much of the input goes to the server at once.
const PIECE_BYTES: usize = 256 << 10;

/// Like [`ReceiveSnapshots::receive`](crate::ReceiveSnapshots::receive), into a directory of a file
/// system that is mounted, by larder or by the kernel. Only root may do that and, on a mount of
/// larder, the user who mounted it.
///
/// On a mount of larder, a received subvolume can be opened once this returns. After an error, the
/// input may be read once more.
pub fn receive_mounted(
    directory: impl AsRef<Path>,
    input: impl Read + Send + 'static,
    options: &ReceiveOptions,
    observe: &mut dyn FnMut(ReceiveEvent<'_>) -> ControlFlow<()>,
) -> Result<Received, ReceiveError> {
    let failed = |error: io::Error| ReceiveError { unfinished: None, problem: error.into() };
    let open = File::open(&directory).map_err(failed)?;
    let Some((channel, _)) = Channel::of(&open).map_err(failed)? else {
        let mut target = MountedTarget::open(directory.as_ref()).map_err(failed)?;
        return larder_stream::receive(input, &mut target, options, observe);
    };
    let ReceiveOptions { stop_at_end, max_errors, force_decompress, checkpoints } = *options;
    let checkpoints = checkpoints.map(|Checkpoints { stream, every_bytes, from }| {
        CheckpointRequest { stream, every_bytes, from }
    });
    let request = ReceiveRequest { stop_at_end, max_errors, force_decompress, checkpoints };
    hand_over(&channel, &Request::Receive(request), input, observe).unwrap_or_else(|error| {
        Err(ReceiveError { unfinished: None, problem: ReceiveProblem::Served(in_words(&error)) })
    })
}

/// Makes the server at the other end of `channel` receive the input.
fn hand_over(
    channel: &Channel,
    request: &Request,
    input: impl Read + Send + 'static,
    observe: &mut dyn FnMut(ReceiveEvent<'_>) -> ControlFlow<()>,
) -> io::Result<Result<Received, ReceiveError>> {
    let socket = channel.socket();
    frame::write(socket, request.kind(), &request.body()).map_err(frame::of_socket)?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    // No thread waits for this one: its input may never end.
    let (to, stop) = (socket.try_clone()?, is_stopped.clone());
    thread::spawn(move || pass_on(input, &to, &stop));
    let mut body = Vec::new();
    loop {
        let event = match frame::read(socket, &mut body).map_err(frame::of_socket)? {
            Some(Kind::Event) => ReceiveNews::parse(&body)?,
            Some(Kind::Done) => return Ok(outcome(ReceiveReply::parse(&body)?)),
            Some(Kind::Failed) => return Err(frame::failure(&body)),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => return Err(frame::gone()),
        };
        let text;
        let event = match event {
            ReceiveNews::Begins { name, is_snapshot } => ReceiveEvent::Begins { name, is_snapshot },
            ReceiveNews::Failed(bytes) => {
                text = String::from_utf8_lossy(bytes);
                ReceiveEvent::Refused(&text)
            }
            ReceiveNews::Read(bytes) => ReceiveEvent::Read(bytes),
            ReceiveNews::Checkpoint(byte) => ReceiveEvent::Checkpoint(byte),
            ReceiveNews::Removed(_) => continue,
        };
        if observe(event).is_break() {
            is_stopped.store(true, Relaxed);
        }
    }
}

/// Passes the input on as frames. The other thread sees errors of the socket.
fn pass_on(mut input: impl Read, socket: &UnixStream, is_stopped: &AtomicBool) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = input.read(&mut piece);
        if is_stopped.load(Relaxed) {
            return frame::write(socket, Kind::Stop, b"receiving was stopped");
        }
        match read {
            Ok(0) => return frame::write(socket, Kind::End, &[]),
            Ok(len) => frame::write(socket, Kind::Data, &piece[..len])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return frame::write(socket, Kind::Stop, in_words(&error).as_bytes()),
        }
    }
}

fn outcome(reply: ReceiveReply) -> Result<Received, ReceiveError> {
    match reply {
        ReceiveReply::Received { stream_bytes, subvolumes, commands } => {
            Ok(Received { stream_bytes, subvolumes, commands })
        }
        ReceiveReply::Failed { unfinished, message } => {
            Err(ReceiveError { unfinished, problem: ReceiveProblem::Served(message) })
        }
    }
}
