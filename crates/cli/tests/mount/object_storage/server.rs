//! Servers of object storage, behind a network.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_testkit::Scratch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::network::{Network, Weather};
use crate::support::{larder, succeed, wait_until};

/// A server of its own, with one bucket.
pub(crate) struct Bucket {
    service: Service,
    server: Child,
    server_port: u16,
    /// What the server keeps, if it keeps it in a directory.
    stored: Option<Scratch>,
    network: Network,
    /// The cache of the programs that use it.
    cache: Scratch,
    /// Whether programs encrypt what they put there.
    is_encrypted: bool,
}

/// What the server speaks.
#[derive(Clone, Copy)]
enum Service {
    S3,
    Azure,
    Google,
}

const BUCKET: &str = "photos";
const USER: &str = "ann";
const SECRET: &str = "a secret that no message has";

/// The account that Azurite has, and its key, which is not secret.
const AZURE_USER: &str = "devstoreaccount1";
const AZURE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

impl Bucket {
    /// One that keeps all in memory.
    pub(crate) fn in_memory() -> Self {
        let port = free_port();
        let mut server = Command::new(installed("moto_server", "moto/bin"));
        server.args(["-p", &port.to_string()]);
        let bucket = Self::started(Service::S3, &mut server, port, None);
        bucket.create();
        bucket
    }

    /// One that keeps all in a directory, and outlives its own end.
    pub(crate) fn in_directory() -> Self {
        let (port, stored) = (free_port(), Scratch::new());
        std::fs::create_dir(stored.path().join(BUCKET)).unwrap();
        let mut server = versitygw(port, stored.path());
        Self::started(Service::S3, &mut server, port, Some(stored))
    }

    /// One that speaks what Azure speaks, and keeps all in memory.
    pub(crate) fn of_azure() -> Self {
        let port = free_port();
        let mut server = Command::new(installed("azurite-blob", "azurite/node_modules/.bin"));
        server.args(["--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort"]);
        server.arg(port.to_string());
        let bucket = Self::started(Service::Azure, &mut server, port, None);
        bucket.create_container();
        bucket
    }

    /// One that speaks what Google's storage speaks, and keeps all in memory.
    pub(crate) fn of_google() -> Self {
        let port = free_port();
        let mut server = Command::new("/usr/bin/python3");
        server.args(["-c", include_str!("gcs.py"), &port.to_string()]);
        Self::started(Service::Google, &mut server, port, None)
    }

    /// The same, whose users encrypt what they put there.
    pub(crate) fn encrypted(mut self) -> Self {
        self.is_encrypted = true;
        self
    }

    /// What makes a file system there.
    pub(crate) fn create_arguments(&self) -> &'static [&'static str] {
        if self.is_encrypted { &["--create", "16G", "--encrypt"] } else { &["--create", "16G"] }
    }

    fn started(
        service: Service,
        server: &mut Command,
        server_port: u16,
        stored: Option<Scratch>,
    ) -> Self {
        let (server, network) = (start(server, server_port), Network::before(server_port));
        Self {
            service,
            server,
            server_port,
            stored,
            network,
            cache: Scratch::new(),
            is_encrypted: false,
        }
    }

    /// Ends the server in the middle of whatever it does, and starts it again.
    pub(crate) fn be_killed_and_start(&mut self) {
        let stored = self.stored.as_ref().expect("it keeps what it has");
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        self.server = start(&mut versitygw(self.server_port, stored.path()), self.server_port);
    }

    fn create(&self) {
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

    fn create_container(&self) {
        let line = format!(
            "const {{ContainerClient}} = require('@azure/storage-blob');
             new ContainerClient('{}', '{BUCKET}').create();",
            self.azure_connection()
        );
        let modules = concat!(env!("CARGO_TARGET_TMPDIR"), "/../azurite/node_modules");
        succeed(Command::new("node").args(["-e", &line]).env("NODE_PATH", modules));
    }

    fn azure_connection(&self) -> String {
        format!(
            "DefaultEndpointsProtocol=http;AccountName={AZURE_USER};AccountKey={AZURE_KEY};\
             BlobEndpoint=http://127.0.0.1:{}/{AZURE_USER};",
            self.server_port
        )
    }

    /// The URL of a place in the bucket.
    pub(crate) fn url(&self, place: &str) -> String {
        let scheme = match self.service {
            Service::S3 => "s3",
            Service::Azure => "az",
            Service::Google => "gs",
        };
        format!("{scheme}://{BUCKET}/{place}")
    }

    /// What a program needs to reach the bucket.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.network.port());
        let text = |text: &str| text.to_owned();
        let mut environment = match self.service {
            Service::S3 => vec![
                ("AWS_ACCESS_KEY_ID", text(USER)),
                ("AWS_SECRET_ACCESS_KEY", text(SECRET)),
                ("AWS_REGION", text("us-east-1")),
                ("AWS_ENDPOINT", endpoint),
                ("AWS_ALLOW_HTTP", text("true")),
            ],
            Service::Azure => vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", text(AZURE_USER)),
                ("AZURE_STORAGE_ACCOUNT_KEY", text(AZURE_KEY)),
                ("AZURE_STORAGE_ENDPOINT", format!("{endpoint}/{AZURE_USER}")),
                ("AZURE_ALLOW_HTTP", text("true")),
            ],
            Service::Google => vec![
                ("GOOGLE_SERVICE_ACCOUNT_KEY", google_account(&endpoint)),
                ("GOOGLE_ALLOW_HTTP", text("true")),
            ],
        };
        if self.is_encrypted {
            environment.push(("LARDER_KEY", text(SECRET)));
        }
        environment.push(("LARDER_CACHE", self.cache.path().to_str().unwrap().to_owned()));
        environment
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

    /// The port of the server itself, where the network is always good.
    pub(crate) fn port(&self) -> u16 {
        self.server_port
    }

    pub(crate) fn requests(&self) -> u64 {
        self.network.requests()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn google_account(endpoint: &str) -> String {
    let account = json!({
        "gcs_base_url": endpoint,
        "disable_oauth": true,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    });
    account.to_string()
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
