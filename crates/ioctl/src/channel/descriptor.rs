//! Passing descriptors over a socket, each with one byte.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends `descriptor`.
pub fn send(socket: impl AsFd, descriptor: impl AsFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [IoSlice::new(&[0])];
    retry_on_intr(|| sendmsg(&socket, &byte, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a descriptor; `None` if the other side sent none, or has ended.
pub fn receive(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    retry_on_intr(|| {
        let into = &mut [IoSliceMut::new(&mut byte)];
        recvmsg(&socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_descriptor_comes_between_bytes() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = UnixStream::pair().unwrap();
        ours.write_all(b"before").unwrap();
        send(&ours, &writer).unwrap();
        ours.write_all(b"after").unwrap();
        drop((ours, writer));
        let mut before = [0; 6];
        theirs.read_exact(&mut before).unwrap();
        let received = receive(&theirs).unwrap().expect("one was sent");
        File::from(received).write_all(b"bread").unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!((&before, &*rest), (b"before", "bread"));
        let mut rest = String::new();
        theirs.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "after");
        assert!(receive(&theirs).unwrap().is_none());
    }
}
