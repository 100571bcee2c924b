//! The queue between the threads that report and the one that writes.

use std::fmt::{self, Write};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::sink::Sink;

/// The most reports that wait to be written.
const MOST_WAITING: usize = 1024;

enum Entry {
    Report(Level, String),
    /// Answered when everything before it was written.
    Written(SyncSender<()>),
    End,
}

/// The thread that writes reports. Dropping this writes all earlier reports.
#[derive(Debug)]
pub struct Reporter {
    queue: SyncSender<Entry>,
    thread: Option<JoinHandle<()>>,
}

/// The input of events.
pub(super) struct Queue {
    queue: SyncSender<Entry>,
    /// Reports without room since the last that had some.
    lost: Arc<AtomicU64>,
}

impl Reporter {
    pub(super) fn start(sinks: Vec<Box<dyn Sink>>) -> io::Result<(Self, Queue)> {
        let (queue, entries) = sync_channel(MOST_WAITING);
        let lost = Arc::<AtomicU64>::default();
        let layer = Queue { queue: queue.clone(), lost: lost.clone() };
        let write = move || write_entries(&entries, &lost, sinks);
        let thread = thread::Builder::new().name("larder-report".into()).spawn(write)?;
        Ok((Self { queue, thread: Some(thread) }, layer))
    }

    /// Waits until all reports so far are written.
    pub fn flush(&self) {
        let (written, wait) = sync_channel(1);
        if self.queue.send(Entry::Written(written)).is_ok() {
            // An error means that the thread has ended, after it wrote everything.
            let _ = wait.recv();
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // Both fail only if the thread panicked, and then no thread is left to report to.
        let _ = self.queue.send(Entry::End);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        if self.queue.try_send(Entry::Report(*event.metadata().level(), text.0)).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// Writes one entry after another. An entry that cannot be written is lost: there is no other place
/// to report it.
fn write_entries(entries: &Receiver<Entry>, lost: &AtomicU64, mut sinks: Vec<Box<dyn Sink>>) {
    let mut write = |level, text: &str| {
        for sink in &mut sinks {
            let _ = sink.write(level, text);
        }
    };
    for entry in entries {
        match entry {
            Entry::Report(level, text) => write(level, &text),
            // It cannot fail: the thread that waits has the other end.
            Entry::Written(waiting) => drop(waiting.send(())),
            Entry::End => return,
        }
        match lost.swap(0, Relaxed) {
            0 => {}
            lost => write(Level::WARN, &format!("{lost} more messages came too fast to be kept")),
        }
    }
}

/// The message of an event, followed by its other fields.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use tracing::subscriber::with_default;
    use tracing_subscriber::prelude::*;

    use super::*;

    /// A sink that keeps reports, and waits before each until it may go on.
    struct Slow {
        written: Arc<Mutex<Vec<String>>>,
        may_write: Receiver<()>,
    }

    impl Sink for Slow {
        fn write(&mut self, level: Level, text: &str) -> io::Result<()> {
            let _ = self.may_write.recv();
            self.written.lock().unwrap().push(format!("{level} {text}"));
            Ok(())
        }
    }

    type Written = Arc<Mutex<Vec<String>>>;

    fn slow() -> (Slow, Written, Sender<()>) {
        let (go_on, may_write) = channel();
        let written = Written::default();
        (Slow { written: written.clone(), may_write }, written, go_on)
    }

    #[test]
    fn reports_are_written_in_order_before_the_end() {
        let (sink, written, go_on) = slow();
        drop(go_on);
        let (reporter, layer) = Reporter::start(vec![Box::new(sink)]).unwrap();
        with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!("bread is stale");
            reporter.flush();
            assert_eq!(*written.lock().unwrap(), ["WARN bread is stale"]);
            tracing::error!(loaves = 3, "no {}", "butter");
        });
        drop(reporter);
        assert_eq!(written.lock().unwrap()[1], "ERROR no butter loaves=3");
    }

    #[test]
    fn no_thread_waits_for_a_sink_and_lost_reports_are_counted() {
        let (sink, written, go_on) = slow();
        let (reporter, layer) = Reporter::start(vec![Box::new(sink)]).unwrap();
        let most = MOST_WAITING + 10;
        with_default(tracing_subscriber::registry().with(layer), || {
            (0..most).for_each(|number| tracing::info!("{number}"));
        });
        drop(go_on);
        drop(reporter);
        let written = written.lock().unwrap();
        let told = written.iter().find(|line| line.contains("more messages")).unwrap();
        let lost: usize = told.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(written.len() - 1 + lost, most);
    }
}
