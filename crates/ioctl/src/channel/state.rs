//! The messages for reading the devices of a state that a server keeps.

use std::io;

use super::{Channel, Kind, Request, frame, invalid};

const READ: u64 = 1;
const READ_AHEAD: u64 = 2;

/// A device of a kept state; the body of an [`Event`](Kind::Event). After the last one comes an empty
/// body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDevice {
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Its name in messages.
    pub name: String,
}

/// What the client wants of a device; the body of [`Data`](Kind::Data) from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateCall {
    /// Read. The answer is [`Data`](Kind::Data), or an [`Event`](Kind::Event) with the
    /// [failure](frame::failed) of the device. If the state has ended, the request has failed.
    Read(DeviceRange),
    /// Prepare to read. There is no answer.
    ReadAhead(DeviceRange),
}

/// A range of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRange {
    /// Where the device is in the list.
    pub device: u64,
    /// Where the range starts, in bytes.
    pub offset: u64,
    /// How long the range is, in bytes.
    pub len_bytes: u64,
}

impl StateDevice {
    /// The body of its frame.
    pub fn body(&self) -> Vec<u8> {
        [&self.len_bytes.to_le_bytes()[..], self.name.as_bytes()].concat()
    }

    fn parse(body: &[u8]) -> io::Result<Self> {
        let (len_bytes, name) =
            body.split_first_chunk().ok_or(invalid("a device that is too short"))?;
        let name = String::from_utf8_lossy(name).into_owned();
        Ok(Self { len_bytes: u64::from_le_bytes(*len_bytes), name })
    }
}

impl StateCall {
    /// The body of its frame.
    pub fn body(&self) -> Vec<u8> {
        let (what, DeviceRange { device, offset, len_bytes }) = match self {
            Self::Read(range) => (READ, range),
            Self::ReadAhead(range) => (READ_AHEAD, range),
        };
        [what, *device, *offset, *len_bytes].map(u64::to_le_bytes).concat()
    }

    /// The call in a frame.
    pub fn parse(body: &[u8]) -> io::Result<Self> {
        let words: Vec<u64> =
            body.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [what, device, offset, len_bytes] = words[..] else {
            return Err(invalid("a call about a device of another length"));
        };
        let range = DeviceRange { device, offset, len_bytes };
        match what {
            READ if len_bytes <= frame::MOST_BYTES as u64 => Ok(Self::Read(range)),
            READ => Err(invalid("a read that is too long")),
            READ_AHEAD => Ok(Self::ReadAhead(range)),
            _ => Err(invalid("an unknown call about a device")),
        }
    }
}

impl Channel {
    /// Asks the server to keep the state of a commit as long as this connection exists. Returns the
    /// devices.
    ///
    /// # Errors
    /// The server's reason, with its message; `UnexpectedEof` if it ended.
    pub fn keep_state(&mut self) -> io::Result<Vec<StateDevice>> {
        let request = Request::State;
        let asked = frame::write(&self.socket, request.kind(), &request.body());
        asked.map_err(frame::of_socket)?;
        let (mut body, mut devices) = (Vec::new(), Vec::new());
        loop {
            match frame::read(&self.socket, &mut body).map_err(frame::of_socket)? {
                Some(Kind::Event) if body.is_empty() => return Ok(devices),
                Some(Kind::Event) => devices.push(StateDevice::parse(&body)?),
                Some(Kind::Failed) => return Err(frame::failure(&body)),
                Some(_) => return Err(invalid("a reply of another kind")),
                None => return Err(frame::gone()),
            }
        }
    }

    /// Reads from a device of the kept state into `buf`, at most
    /// [`MOST_BYTES`](frame::MOST_BYTES).
    ///
    /// # Errors
    /// The inner one is an error of the device. The outer one means that the state has ended.
    pub fn read_kept(
        &mut self,
        device: u64,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<io::Result<()>> {
        let range = DeviceRange { device, offset, len_bytes: buf.len() as u64 };
        self.send_kept(StateCall::Read(range))?;
        let mut body = Vec::new();
        match frame::read(&self.socket, &mut body).map_err(frame::of_socket)? {
            Some(Kind::Data) if body.len() == buf.len() => {
                buf.copy_from_slice(&body);
                Ok(Ok(()))
            }
            Some(Kind::Event) => Ok(Err(frame::failure(&body))),
            Some(Kind::Failed) => Err(frame::failure(&body)),
            Some(_) => Err(invalid("a reply of another kind")),
            None => Err(frame::gone()),
        }
    }

    /// Makes the server prepare to read from a device of the kept state.
    pub fn read_kept_ahead(&mut self, range: DeviceRange) -> io::Result<()> {
        self.send_kept(StateCall::ReadAhead(range))
    }

    fn send_kept(&self, call: StateCall) -> io::Result<()> {
        frame::write(&self.socket, Kind::Data, &call.body()).map_err(frame::of_socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let device = StateDevice { len_bytes: 1 << 40, name: "/dev/sdb".to_owned() };
        assert_eq!(StateDevice::parse(&device.body()).unwrap(), device);
        let range = DeviceRange { device: 2, offset: 1 << 50, len_bytes: 16384 };
        for call in [StateCall::Read(range), StateCall::ReadAhead(range)] {
            assert_eq!(StateCall::parse(&call.body()).unwrap(), call);
        }
    }

    #[test]
    fn invalid_messages_are_refused() {
        let too_long = frame::MOST_BYTES as u64 + 1;
        let range = DeviceRange { device: 0, offset: 0, len_bytes: too_long };
        assert!(StateCall::parse(&StateCall::Read(range).body()).is_err());
        assert!(StateCall::parse(&StateCall::ReadAhead(range).body()).is_ok());
        assert!(StateCall::parse(&[3; 32]).is_err());
        assert!(StateCall::parse(&[0; 24]).is_err());
        assert!(StateDevice::parse(&[0; 7]).is_err());
    }
}
