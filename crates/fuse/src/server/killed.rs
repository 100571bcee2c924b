//! Programs that are killed while the server waits for a device end at once, and nothing stays of
//! what they asked for but the change itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_testkit::{RingsOffered, Scratch};
use parking_lot::{Condvar, Mutex};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

use super::Server;
use super::hostile::filesystem;
use crate::options::{MountOptions, ServerOptions};
use crate::protocol::{Answer, Reply, Request, abi::opcode};
use crate::transport::{self, DevFuse, Handler, Limits, Tell, Transport};

/// How long a program may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that does not answer requests of one kind for a while.
struct Silent {
    server: Server,
    silence: Mutex<Silence>,
    changed: Condvar,
}

#[derive(Default)]
struct Silence {
    /// Requests of this kind wait.
    opcode: u32,
    /// So many do.
    waiting: usize,
    /// Whether the caller of the last one still waited when the wait ended.
    caller_waited: bool,
}

impl Handler for Silent {
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>, kernel: &dyn Tell) -> Answer {
        let mut silence = self.silence.lock();
        if request.opcode() == silence.opcode {
            silence.waiting += 1;
            self.changed.notify_all();
            self.changed.wait_while(&mut silence, |silence| silence.opcode == request.opcode());
            silence.waiting -= 1;
            silence.caller_waited = kernel.caller_waits();
            self.changed.notify_all();
        }
        drop(silence);
        self.server.handle(request, reply, kernel)
    }

    fn unheard(&self, request: &Request<'_>, body: &[u8], kernel: &dyn Tell) {
        self.server.unheard(request, body, kernel);
    }
}

impl Silent {
    /// Runs `program`, which `work` is done with once its request of the kind `opcode` waits. Then
    /// the server answers.
    fn during<T>(
        &self,
        opcode: u32,
        program: &mut Command,
        work: impl FnOnce(&mut Child) -> T,
    ) -> (Child, T) {
        self.silence.lock().opcode = opcode;
        let mut program = program.stdout(Stdio::null()).spawn().unwrap();
        let mut silence = self.silence.lock();
        self.changed.wait_while(&mut silence, |silence| silence.waiting == 0);
        drop(silence);
        let done = work(&mut program);
        let mut silence = self.silence.lock();
        silence.opcode = 0;
        self.changed.notify_all();
        self.changed.wait_while(&mut silence, |silence| silence.waiting > 0);
        drop(silence);
        (program, done)
    }

    /// Whether a program ends when it is killed while its request of the kind `opcode` waits.
    fn ends_when_killed(&self, opcode: u32, program: &mut Command) -> bool {
        let ends = |program: &mut Child| {
            program.kill().unwrap();
            until(|| program.try_wait().unwrap().is_some())
        };
        let (mut program, has_ended) = self.during(opcode, program, ends);
        program.wait().unwrap();
        has_ended
    }
}

/// Waits until something is true. Returns whether it is.
fn until(mut is_true: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_true() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// A mount that ends when this is dropped.
struct Mounted<'m>(&'m Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

fn with_silent_server(io_uring: bool, test: impl FnOnce(&Silent, &Path)) {
    let scratch = Scratch::new();
    let filesystem = filesystem();
    let top = filesystem.subvolume("/").unwrap();
    top.create("there", 0o644).unwrap();
    let server = Server::new(&filesystem, &top, ServerOptions::default()).unwrap();
    let (silence, changed) = Default::default();
    let silent = Silent { server, silence, changed };
    let options = MountOptions { io_uring, awake: false, ..MountOptions::default() };
    let mounted = transport::mount(scratch.path(), &options, &ServerOptions::default()).unwrap();
    let limits = Limits::of(&ServerOptions::default());
    let connection = DevFuse::new(mounted.device, &options, limits);
    thread::scope(|scope| {
        let serving = scope.spawn(|| connection.serve(&silent, || ()));
        let mounted = Mounted(scratch.path());
        test(&silent, scratch.path());
        drop(mounted);
        let served: io::Result<()> = serving.join().expect("no thread of the transport panics");
        served.unwrap();
    });
    filesystem.sync().unwrap();
}

#[test]
fn killed_programs_end_while_the_server_waits() {
    with_silent_server(false, |silent, mount| {
        let at = |name: &str| -> PathBuf { mount.join(name) };
        let before = silent.server.nodes.count();
        let mut stat = Command::new("stat");
        assert!(silent.ends_when_killed(opcode::LOOKUP, stat.arg(at("there"))));
        // The kernel knows nothing of it.
        assert!(until(|| silent.server.nodes.count() == before));
        for (code, program, name) in [
            (opcode::CREATE, "touch", "file"),
            (opcode::MKDIR, "mkdir", "directory"),
            (opcode::UNLINK, "unlink", "there"),
        ] {
            let mut command = Command::new(program);
            assert!(silent.ends_when_killed(code, command.arg(at(name))), "{program}");
        }
        // What they asked for is done all the same, and seen.
        assert!(until(|| at("file").exists()));
        assert!(until(|| at("directory").is_dir()));
        assert!(until(|| !at("there").exists()));
        let file = silent.server.filesystem.subvolume("/").unwrap().lookup("file").unwrap();
        let node = silent.server.nodes.id_of(&file);
        assert!(!silent.server.nodes.get(node).unwrap().is_open_for_writing());
        let mut cat = Command::new("cat");
        assert!(silent.ends_when_killed(opcode::OPEN, cat.arg(at("file"))));
        let mut list = Command::new("ls");
        assert!(silent.ends_when_killed(opcode::READDIRPLUS, list.arg("-l").arg(mount)));
        assert_eq!(fs::read_dir(mount).unwrap().count(), 2);
    });
}

/// A thread that was killed in an ioctl leaves its number to the thread of its process that runs
/// another program, perhaps one with more rights.
#[test]
fn a_program_has_no_rights_of_the_one_that_takes_its_place() {
    no_rights_pass_on(false);
}

/// Requests that may take long end early there too.
#[test]
fn killed_programs_end_over_rings() {
    let _offered = RingsOffered::new();
    no_rights_pass_on(true);
    with_silent_server(true, |silent, mount| {
        let ioctl = "import fcntl, os, sys\nfcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x9408)";
        // More often than a queue has helpers.
        for _ in 0..20 {
            let mut python = Command::new("/usr/bin/python3");
            let python = python.args(["-c", ioctl]).arg(mount);
            assert!(silent.ends_when_killed(opcode::IOCTL, python));
        }
        let mut python = Command::new("/usr/bin/python3");
        let done = python.args(["-c", ioctl]).arg(mount).status().unwrap();
        assert!(done.success());
    });
}

fn no_rights_pass_on(io_uring: bool) {
    const ASK: &str = "import fcntl, os, sys, threading, time
def become():
    time.sleep(0.3)
    os.execv('/bin/sleep', ['sleep', '1000'])
threading.Thread(target=become).start()
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x80044C7F, bytearray(4), True)";
    with_silent_server(io_uring, |silent, mount| {
        let mut python = Command::new("/usr/bin/python3");
        let python = python.args(["-c", ASK]).arg(mount);
        let (mut program, has_become) = silent.during(opcode::IOCTL, python, |program| {
            let words = format!("/proc/{}/cmdline", program.id());
            until(|| fs::read(&words).is_ok_and(|words| words.starts_with(b"sleep")))
        });
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(has_become, "the kernel waits for the reply no longer");
        assert!(!silent.silence.lock().caller_waited, "the server must not look at the new one");
    });
}

#[test]
fn other_signals_interrupt_nothing() {
    const STAT: &str = "import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None); os.stat(sys.argv[1])";
    with_silent_server(false, |silent, mount| {
        let mut python = Command::new("/usr/bin/python3");
        let python = python.args(["-c", STAT]).arg(mount.join("there"));
        let (mut program, ()) = silent.during(opcode::LOOKUP, python, |program| {
            kill_process(Pid::from_child(program), Signal::USR1).unwrap();
            // It would have got an error by now.
            thread::sleep(Duration::from_millis(400));
        });
        assert!(program.wait().unwrap().success());
        assert!(silent.silence.lock().caller_waited);
    });
}
