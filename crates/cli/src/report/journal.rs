//! journald, in its own protocol.

use std::io;

use tracing::{Dispatch, Level, dispatcher};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::prelude::*;

use super::sink::{IDENTIFIER, Sink};

pub(super) struct Journal(Dispatch);

impl Journal {
    /// # Errors
    /// There is no journald.
    pub(super) fn connect() -> io::Result<Self> {
        let priorities = PriorityMappings {
            info: Priority::Informational,
            debug: Priority::Debug,
            ..PriorityMappings::new()
        };
        let layer = tracing_journald::layer()?
            .with_syslog_identifier(IDENTIFIER.into())
            .with_priority_mappings(priorities);
        Ok(Self(Dispatch::new(tracing_subscriber::registry().with(layer))))
    }
}

impl Sink for Journal {
    fn write(&mut self, level: Level, text: &str) -> io::Result<()> {
        // In this thread the journal is the one that listens.
        dispatcher::with_default(&self.0, || match level {
            Level::ERROR => tracing::error!("{text}"),
            Level::WARN => tracing::warn!("{text}"),
            Level::INFO => tracing::info!("{text}"),
            _ => tracing::debug!("{text}"),
        });
        Ok(())
    }
}
