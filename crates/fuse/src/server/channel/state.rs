//! The server keeps a state for a client, and reads the devices for it.
//!
//! # Invariants
//! - The server keeps the state until the client closes the connection, or until a writer needs its
//!   space. Then the request fails. What the client read before is of that state.
//! - A client costs the server the memory of one frame.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use larder::device::Device;
use larder_ioctl::channel::{DeviceRange, Kind, StateCall, StateDevice, frame};
use larder_platform::errno::in_words;
use rustix::io::Errno;

use super::changes::gone;
use super::walk::get_written_data;
use crate::server::refusal::{Refusal, refuse};
use crate::server::state::Server;
use crate::transport::Notify;

/// Keeps a state, and reads from its devices for a client.
pub(super) fn keep(
    server: &Server,
    socket: &UnixStream,
    kernel: &dyn Notify,
) -> Result<Vec<u8>, Refusal> {
    get_written_data(server, kernel);
    let state = server.filesystem.keep_state()?;
    let served = serve(&state.devices(), socket, || state.ended().is_some());
    if let Some(reason) = state.ended() {
        return Err(refuse(Errno::STALE, reason));
    }
    served.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => refuse(Errno::INVAL, &in_words(&error)),
        _ => gone(),
    })?;
    Ok(Vec::new())
}

/// Serves calls until the client has no more, or the state `has_ended`.
fn serve(
    devices: &[Arc<dyn Device>],
    socket: &UnixStream,
    has_ended: impl Fn() -> bool,
) -> io::Result<()> {
    for device in devices {
        let device = StateDevice { len_bytes: device.len_bytes(), name: device.name().to_owned() };
        frame::write(socket, Kind::Event, &device.body())?;
    }
    frame::write(socket, Kind::Event, &[])?;
    let (mut body, mut data) = (Vec::new(), Vec::new());
    let device = |range: DeviceRange| {
        let found = usize::try_from(range.device).ok().and_then(|index| devices.get(index));
        found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "there is no such device"))
    };
    loop {
        match frame::read(socket, &mut body)? {
            Some(Kind::Data) => {}
            Some(Kind::End) | None => return Ok(()),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
        match StateCall::parse(&body)? {
            StateCall::ReadAhead(range) => device(range)?.readahead(range.offset, range.len_bytes),
            StateCall::Read(range) => {
                data.resize(range.len_bytes as usize, 0);
                match device(range)?.read_at(&mut data, range.offset) {
                    Ok(()) => frame::write(socket, Kind::Data, &data)?,
                    Err(_) if has_ended() => return Ok(()),
                    Err(error) => {
                        let failed = frame::failed(error.errno(), &error.to_string());
                        frame::write(socket, Kind::Event, &failed)?;
                    }
                }
            }
        }
    }
}
