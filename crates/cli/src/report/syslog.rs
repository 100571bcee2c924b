//! syslog: datagrams to its socket, as in RFC 3164.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process;

use jiff::Zoned;
use tracing::Level;

use super::sink::{IDENTIFIER, Sink};

/// Where syslog listens.
pub(super) const SOCKET: &str = "/dev/log";
/// The facility of daemons.
const FACILITY: u8 = 3;

/// The program that listens at a socket. It may come later, and may be restarted.
pub(super) struct Syslog {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl Syslog {
    pub(super) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), socket: None }
    }

    fn connect(&self) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(&self.path)?;
        Ok(socket)
    }
}

impl Sink for Syslog {
    fn write(&mut self, level: Level, text: &str) -> io::Result<()> {
        let message = message(level, &Zoned::now(), process::id(), text);
        if self.socket.as_ref().is_some_and(|socket| socket.send(message.as_bytes()).is_ok()) {
            return Ok(());
        }
        let socket = self.connect()?;
        socket.send(message.as_bytes())?;
        self.socket = Some(socket);
        Ok(())
    }
}

fn message(level: Level, now: &Zoned, pid: u32, text: &str) -> String {
    let severity = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    let priority = FACILITY * 8 + severity;
    let time = now.strftime("%b %e %H:%M:%S");
    // One line is one message.
    let text = text.replace('\n', " ");
    format!("<{priority}>{time} {IDENTIFIER}[{pid}]: {text}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use jiff::civil;
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn a_message_is_as_syslog_wants_it() {
        let time = civil::date(2026, 3, 4).at(5, 6, 7, 0).to_zoned(TimeZone::UTC).unwrap();
        let message = message(Level::WARN, &time, 77, "a bad copy\nwas healed");
        assert_eq!(message, "<28>Mar  4 05:06:07 larder[77]: a bad copy was healed");
    }

    #[test]
    fn syslog_may_come_later_and_start_anew() {
        let directory = std::env::temp_dir().join(format!("larder-syslog-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("log");
        let mut syslog = Syslog::at(&path);
        assert!(syslog.write(Level::INFO, "nobody listens").is_err());
        for text in ["first", "second"] {
            let listener = UnixDatagram::bind(&path).unwrap();
            syslog.write(Level::ERROR, text).unwrap();
            let mut buf = [0; 200];
            let len = listener.recv(&mut buf).unwrap();
            let got = String::from_utf8_lossy(&buf[..len]).into_owned();
            assert!(got.starts_with("<27>") && got.ends_with(text), "{got}");
            drop(listener);
            fs::remove_file(&path).unwrap();
        }
        fs::remove_dir(&directory).unwrap();
    }
}
