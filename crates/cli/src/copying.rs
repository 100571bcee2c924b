//! Copies of a command: their progress, their failures, and signals that end them.

use std::ops::ControlFlow;

use larder_copy::{Course, Event};
use larder_platform::errno::in_words;

use crate::interrupt;
use crate::message::on_one_line;
use crate::progress::Progress;

/// A course that shows its progress, and reports failures on standard error. A signal that is
/// [watched](interrupt::watch) for ends it.
pub fn shown<'p>(mut progress: Progress) -> Course<'p> {
    Course::observed(move |event| {
        if interrupt::check().is_err() {
            return ControlFlow::Break(());
        }
        match event {
            Event::Progress(copied) => progress.set(copied.bytes),
            Event::Failed(error) => {
                progress.say(&format!("ERROR: {}", on_one_line(&in_words(error))));
            }
            Event::NotKept { copy, attribute } => {
                let (copy, attribute) = (copy.display(), attribute.display());
                progress.say(&format!("WARNING: {copy}: cannot keep {attribute}"));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

/// How a copy went: a signal may be why it ended. Returns how many failures were reported.
pub fn ended(result: anyhow::Result<()>, course: &Course<'_>) -> anyhow::Result<usize> {
    interrupt::check()?;
    result.map(|()| usize::try_from(course.failures()).unwrap_or(usize::MAX))
}
