//! A server that speaks S3, behind a network.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_testkit::Scratch;
use rustix::process::{Pid, Signal, kill_process};

use super::network::{Network, Weather};
use crate::support::{larder, wait_until};

/// A server that speaks S3, with one bucket.
pub(crate) struct S3 {
    server: Child,
    server_port: u16,
    /// What the server keeps, if it keeps it in a directory.
    stored: Option<Scratch>,
    network: Network,
}

const BUCKET: &str = "photos";
const USER: &str = "ann";
const SECRET: &str = "a secret that no message has";

impl S3 {
    /// One that keeps all in memory.
    pub(crate) fn in_memory() -> Self {
        let port = free_port();
        let mut server = Command::new(installed("moto_server", "moto/bin"));
        server.args(["-p", &port.to_string()]);
        let s3 = Self::started(&mut server, port, None);
        s3.create_bucket();
        s3
    }

    /// One that keeps all in a directory, and outlives its own end.
    pub(crate) fn in_directory() -> Self {
        let (port, stored) = (free_port(), Scratch::new());
        std::fs::create_dir(stored.path().join(BUCKET)).unwrap();
        let mut server = versitygw(port, stored.path());
        Self::started(&mut server, port, Some(stored))
    }

    fn started(server: &mut Command, port: u16, stored: Option<Scratch>) -> Self {
        let (server, network) = (start(server, port), Network::before(port));
        Self { server, server_port: port, stored, network }
    }

    /// Ends the server in the middle of whatever it does, and starts it again.
    pub(crate) fn be_killed_and_start(&mut self) {
        let stored = self.stored.as_ref().expect("it keeps what it has");
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        self.server = start(&mut versitygw(self.server_port, stored.path()), self.server_port);
    }

    fn create_bucket(&self) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.server_port)).unwrap();
        let request = format!(
            "PUT /{BUCKET} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.contains(" 200 "), "{reply}");
    }

    /// The URL of a place in the bucket.
    pub(crate) fn url(place: &str) -> String {
        format!("s3://{BUCKET}/{place}")
    }

    /// What a program needs to reach the bucket.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", USER.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.network.port())),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            // What is read comes from the server.
            ("LARDER_CACHE_SIZE", "0".to_owned()),
        ]
    }

    /// The program, with the environment for the bucket.
    pub(crate) fn larder(&self) -> Command {
        let mut command = larder();
        command.envs(self.environment());
        command
    }

    /// From now on, this happens to requests.
    pub(crate) fn set(&self, weather: Weather) {
        self.network.set(weather);
    }

    pub(crate) fn requests(&self) -> u64 {
        self.network.requests()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn versitygw(port: u16, folder: &Path) -> Command {
    let mut server = Command::new(installed("versitygw", "versitygw/bin"));
    server.args(["--port", &format!("127.0.0.1:{port}"), "posix"]).arg(folder);
    server.env("ROOT_ACCESS_KEY", USER).env("ROOT_SECRET_KEY", SECRET);
    server
}

/// Starts a server, and waits until it answers.
fn start(server: &mut Command, port: u16) -> Child {
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = server.spawn().unwrap_or_else(|error| panic!("{server:?}: {error}"));
    wait_until("the server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    child
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A program, where scripts/install-test-tools puts it if the system has none.
fn installed(name: &str, folder: &str) -> String {
    let path = format!("{}/../{folder}/{name}", env!("CARGO_TARGET_TMPDIR"));
    if Path::new(&path).exists() { path } else { name.to_owned() }
}
