//! The network between larder and a server: it delays requests, loses some of them or their
//! replies, has outages, and answers in place of the server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// Each request takes so much longer.
    pub(crate) delay: Duration,
    /// So many requests of a hundred are lost, or their reply is, or half of what it holds, or the
    /// server is busy.
    pub(crate) errors_percent: u64,
    /// No request arrives.
    pub(crate) is_down: bool,
    /// The reply to requests that change something, in place of the server's: a status.
    pub(crate) refusal: Option<&'static str>,
}

/// A port that leads to a server.
pub(crate) struct Network {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    weather: Weather,
    requests: u64,
}

/// What happens to one request.
enum Fate {
    Arrives,
    IsLost,
    ReplyIsLost,
    ReplyIsCut,
    Refused(&'static str),
}

/// A request or a reply.
struct Message {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Network {
    /// A network before the server at `server_port`, in good weather.
    pub(crate) fn before(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        // It ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // The client sees that its connection ends.
                    let _ = carry(&client, server_port, &shared);
                });
            }
        });
        Self { port, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.state.lock().unwrap().weather = weather;
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> u64 {
        self.state.lock().unwrap().requests
    }
}

impl State {
    fn next(&mut self, request: &Message) -> (Fate, Duration) {
        let weather = self.weather;
        let number = self.requests;
        self.requests += 1;
        let changes = [&b"PUT "[..], b"POST ", b"DELETE "];
        let changes = changes.iter().any(|method| request.head.starts_with(method));
        // Spread evenly, so that each run has as many.
        let errors = weather.errors_percent;
        let fate = match weather.refusal {
            _ if weather.is_down => Fate::IsLost,
            Some(status) if changes => Fate::Refused(status),
            _ if number * errors % 100 + errors < 100 => Fate::Arrives,
            _ => match number * errors / 100 % 4 {
                0 => Fate::IsLost,
                1 => Fate::ReplyIsLost,
                2 => Fate::ReplyIsCut,
                _ => Fate::Refused("503 Service Unavailable"),
            },
        };
        (fate, weather.delay)
    }
}

/// Carries the requests of one connection.
fn carry(client: &TcpStream, server_port: u16, state: &Mutex<State>) -> io::Result<()> {
    let mut requests = BufReader::new(client);
    while let Some(request) = Message::read(&mut requests, false)? {
        let (fate, delay) = state.lock().unwrap().next(&request);
        thread::sleep(delay);
        match fate {
            Fate::IsLost => break,
            Fate::Refused(status) => {
                let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                (&mut &*client).write_all(reply.as_bytes())?;
                continue;
            }
            Fate::Arrives | Fate::ReplyIsLost | Fate::ReplyIsCut => {}
        }
        let server = TcpStream::connect(("127.0.0.1", server_port))?;
        request.write(&server)?;
        let is_head = request.head.starts_with(b"HEAD ");
        let reply = Message::read(&mut BufReader::new(&server), is_head)?;
        let Some(mut reply) = reply.filter(|_| !matches!(fate, Fate::ReplyIsLost)) else { break };
        if matches!(fate, Fate::ReplyIsCut) && request.head.starts_with(b"GET ") {
            reply.cut();
        }
        reply.write(client)?;
        if reply.header("connection").is_some_and(|text| text.eq_ignore_ascii_case("close")) {
            break;
        }
    }
    Ok(())
}

impl Message {
    /// The next one of a connection. `None` at its end.
    fn read(from: &mut impl BufRead, has_no_body: bool) -> io::Result<Option<Self>> {
        let mut message = Self { head: Vec::new(), body: Vec::new() };
        while !message.head.ends_with(b"\r\n\r\n") {
            if from.read_until(b'\n', &mut message.head)? == 0 {
                return Ok(None);
            }
        }
        let is_reply = message.head.starts_with(b"HTTP/");
        if has_no_body || message.head.starts_with(b"HTTP/1.1 204") {
            return Ok(Some(message));
        }
        if let Some(len) = message.header("content-length") {
            message.body = vec![0; len.parse().map_err(io::Error::other)?];
            from.read_exact(&mut message.body)?;
        } else if message.header("transfer-encoding").is_some() {
            read_chunks(from, &mut message.body)?;
        } else if is_reply {
            from.read_to_end(&mut message.body)?;
        }
        Ok(Some(message))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = str::from_utf8(&self.head).ok()?.lines();
        let mut headers = lines.filter_map(|line| line.split_once(':'));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Leaves half of the body, with a length that fits it.
    fn cut(&mut self) {
        let Some(len) = self.header("content-length").map(str::to_owned) else { return };
        self.body.truncate(self.body.len() / 2);
        let head = String::from_utf8_lossy(&self.head);
        let lines = head.split_inclusive("\r\n").map(|line| {
            let is_length = line.to_ascii_lowercase().starts_with("content-length:");
            if is_length { line.replace(&len, &self.body.len().to_string()) } else { line.into() }
        });
        self.head = lines.collect::<String>().into_bytes();
    }

    fn write(&self, mut to: &TcpStream) -> io::Result<()> {
        to.write_all(&self.head)?;
        to.write_all(&self.body)
    }
}

/// Reads a body in chunks, as it is.
fn read_chunks(from: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let start = body.len();
        from.read_until(b'\n', body)?;
        let line = String::from_utf8_lossy(&body[start..]).into_owned();
        let digits = line.trim_end().split(';').next().unwrap_or_default();
        let len = u64::from_str_radix(digits, 16).map_err(io::Error::other)?;
        from.take(len + 2).read_to_end(body)?;
        if len == 0 {
            return Ok(());
        }
    }
}
