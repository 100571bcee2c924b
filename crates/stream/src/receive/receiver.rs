//! From commands to subvolumes.

use std::io::Read;
use std::ops::ControlFlow;

use super::checkpoint::Checkpoints;
use super::encoded::Encoded;
use super::error::{CommandError, CommandProblem, ReceiveError, ReceiveProblem};
use super::path::{check_name, check_paths};
use super::target::{Base, Origin, Target};
use crate::wire::{Action, Command, CommandKind, Reader};

/// Commands between two calls of the observer.
const COMMANDS_PER_REPORT: u64 = 64;

/// How to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Stop at the end of the first stream. Otherwise all streams of the input are received.
    pub stop_at_end: bool,
    /// Stop after this number of commands that could not be applied; 0 for never.
    pub max_errors: u64,
    /// The receiver decompresses compressed data of the stream before it writes it. If this is off,
    /// the receiver stores such data as it was sent, if the target can hold that.
    pub force_decompress: bool,
    /// Take checkpoints, so that an interrupted receive can go on. The input has one stream then.
    pub checkpoints: Option<Checkpoints>,
}

impl Default for ReceiveOptions {
    /// All streams, no errors, and no checkpoints.
    fn default() -> Self {
        Self { stop_at_end: false, max_errors: 1, force_decompress: false, checkpoints: None }
    }
}

/// A report to the observer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A subvolume begins.
    Begins {
        /// Its name.
        name: &'a [u8],
        /// Whether it begins as a snapshot of its parent.
        is_snapshot: bool,
    },
    /// A command could not be applied; receiving goes on.
    Failed(&'a CommandError),
    /// As [`Failed`](Self::Failed), in the words of a mount's server.
    Refused(&'a str),
    /// The number of bytes read so far.
    Read(u64),
    /// There is a checkpoint at this byte. Earlier ones are no longer needed.
    Checkpoint(u64),
}

/// The result of receiving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the streams.
    pub stream_bytes: u64,
    /// Subvolumes that were finished.
    pub subvolumes: u64,
    /// Commands that were applied.
    pub commands: u64,
}

/// Applies the streams in `input`, which should be buffered, to `target`.
///
/// Calls `observe` with reports; it returns whether to go on. After an error, all that was applied
/// before it stays: finished subvolumes are complete, and the error names an unfinished one, if
/// there is one. A subvolume with a failed command is never finished.
pub fn receive(
    input: impl Read,
    target: &mut dyn Target,
    options: &ReceiveOptions,
    observe: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Received, ReceiveError> {
    let mut receiver = Receiver {
        target,
        options,
        observe,
        offset: 0,
        from: options.checkpoints.and_then(|checkpoints| checkpoints.from),
        checkpoint: 0,
        current: None,
        errors: 0,
        received: Received::default(),
    };
    let mut reader = Reader::new(input);
    let outcome = receiver.run(&mut reader);
    receiver.received.stream_bytes = reader.offset();
    match outcome {
        Ok(()) => Ok(receiver.received),
        Err(problem) => {
            // The first error is the one to report.
            let _ = receiver.leave(&problem);
            Err(ReceiveError { unfinished: receiver.current, problem })
        }
    }
}

struct Receiver<'a> {
    target: &'a mut dyn Target,
    options: &'a ReceiveOptions,
    observe: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    /// Offset of the next command in the input.
    offset: u64,
    /// Offset of the checkpoint that the next subvolume begins with.
    from: Option<u64>,
    /// Offset of the last checkpoint, or of the first command of the subvolume.
    checkpoint: u64,
    /// Name of the subvolume that is being received.
    current: Option<Vec<u8>>,
    /// Commands that could not be applied.
    errors: u64,
    received: Received,
}

impl Receiver<'_> {
    fn run(&mut self, reader: &mut Reader<impl Read>) -> Result<(), ReceiveProblem> {
        let mut commands = 0_u64;
        while let Some(command) = reader.next()? {
            commands += 1;
            self.command(&command)?;
            let is_end = command == Command::End;
            if matches!(command, Command::Subvol { .. } | Command::Snapshot { .. }) {
                self.from.take().inspect(|from| reader.go_on_at(*from));
                self.checkpoint = reader.offset();
            }
            self.offset = reader.offset();
            if is_end && self.options.stop_at_end {
                return Ok(());
            }
            if self.is_checkpoint_due() {
                self.take_checkpoint()?;
            }
            if commands.is_multiple_of(COMMANDS_PER_REPORT) {
                self.report(Event::Read(self.offset))?;
            }
        }
        if commands == 0 { Err(ReceiveProblem::Empty) } else { Ok(()) }
    }

    fn report(&mut self, event: Event<'_>) -> Result<(), ReceiveProblem> {
        match (self.observe)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ReceiveProblem::Stopped(self.offset)),
        }
    }

    fn command(&mut self, command: &Command<'_>) -> Result<(), ReceiveProblem> {
        match *command {
            Command::Subvol { path, uuid, ctransid } => {
                self.begin(command, path, Origin { uuid, ctransid }, Base::Empty)
            }
            Command::Snapshot { path, uuid, ctransid, clone_uuid, clone_ctransid } => {
                let parent = Origin { uuid: clone_uuid, ctransid: clone_ctransid };
                self.begin(command, path, Origin { uuid, ctransid }, Base::Parent(parent))
            }
            Command::End => self.finish(),
            _ => self.apply(command),
        }
    }

    fn begin(
        &mut self,
        command: &Command<'_>,
        name: &[u8],
        sent: Origin,
        base: Base<'_>,
    ) -> Result<(), ReceiveProblem> {
        self.finish()?;
        let failed = |problem| CommandError::of(command, problem);
        check_name(name).map_err(failed)?;
        self.report(Event::Begins { name, is_snapshot: base != Base::Empty })?;
        let checkpoint = self.checkpoint_at(self.from);
        let base = checkpoint.as_deref().map_or(base, Base::Checkpoint);
        self.target.begin(name, sent, base).map_err(failed)?;
        self.current = Some(name.to_vec());
        Ok(())
    }

    fn apply(&mut self, command: &Command<'_>) -> Result<(), ReceiveProblem> {
        let outcome = match (&self.current, check_paths(command)) {
            (None, _) => Err(CommandError::of(command, CommandProblem::NoSubvolume)),
            (_, Err(problem)) => Err(CommandError::of(command, problem)),
            _ => self.apply_to_target(command),
        };
        match outcome {
            Ok(()) => {
                self.received.commands += 1;
                Ok(())
            }
            Err(error) => self.failed(error),
        }
    }

    fn apply_to_target(&mut self, command: &Command<'_>) -> Result<(), CommandError> {
        match *command {
            Command::EncodedWrite { path, offset, .. } if self.options.force_decompress => {
                let failed = |problem| CommandError::of(command, problem);
                let extent = Encoded::of(command).map_err(failed)?;
                let decoded = extent.decode().map_err(failed)?;
                let data = extent.part(&decoded).map_err(failed)?;
                self.target.apply(&Command::Write { path, offset, data })
            }
            _ => self.target.apply(command),
        }
    }

    /// The name of the checkpoint at this position.
    fn checkpoint_at(&self, position: Option<u64>) -> Option<String> {
        Some(Checkpoints::name(self.options.checkpoints?.stream, position?))
    }

    fn is_checkpoint_due(&self) -> bool {
        let since = self.offset - self.checkpoint;
        let is_due = |checkpoints: Checkpoints| since >= checkpoints.every_bytes.max(1);
        self.current.is_some() && self.options.checkpoints.is_some_and(is_due)
    }

    /// Takes a checkpoint of the subvolume that is being received, unless a command failed.
    fn take_checkpoint(&mut self) -> Result<(), ReceiveProblem> {
        while let Err(error) = self.target.apply_deferred() {
            self.failed(error)?;
        }
        if self.errors > 0 || self.current.is_none() || self.offset == self.checkpoint {
            return Ok(());
        }
        let Some(name) = self.checkpoint_at(Some(self.offset)) else { return Ok(()) };
        self.target.take_checkpoint(&name).map_err(|problem| {
            let path = name.into_bytes();
            CommandError { action: Action::Checkpoint, path, problem }
        })?;
        self.checkpoint = self.offset;
        self.report(Event::Checkpoint(self.offset))
    }

    /// Takes a last checkpoint if the input failed or the observer stopped the receiver. If a command
    /// failed, only applies what is deferred.
    fn leave(&mut self, problem: &ReceiveProblem) -> Result<(), ReceiveProblem> {
        match problem {
            ReceiveProblem::Stream(_) | ReceiveProblem::Stopped(_) => self.take_checkpoint(),
            _ => Ok(self.target.apply_deferred()?),
        }
    }

    /// Counts an error, and goes on if more are allowed.
    fn failed(&mut self, error: CommandError) -> Result<(), ReceiveProblem> {
        self.errors += 1;
        if self.errors == self.options.max_errors {
            return Err(error.into());
        }
        let _ = (self.observe)(Event::Failed(&error));
        Ok(())
    }

    /// Finishes the subvolume that is being received, if there is one.
    fn finish(&mut self) -> Result<(), ReceiveProblem> {
        if self.current.is_none() {
            return Ok(());
        }
        while let Err(error) = self.target.apply_deferred() {
            self.failed(error)?;
        }
        if self.errors > 0 {
            return Err(ReceiveProblem::Errors(self.errors));
        }
        self.target.finish().map_err(|problem| {
            let path = self.current.clone().unwrap_or_default();
            CommandError { action: Action::Command(CommandKind::End), path, problem }
        })?;
        self.current = None;
        self.received.subvolumes += 1;
        Ok(())
    }
}
