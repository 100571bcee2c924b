//! Panics, which are defects of this program: they are reported like everything else.

use std::panic::{self, PanicHookInfo};

/// Reports panics of all threads from now on, with their messages and places.
pub(super) fn report() {
    panic::set_hook(Box::new(|info| tracing::error!("{}", text(info))));
}

fn text(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("a panic without words");
    let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
    format!("a defect of larder, please report it: '{message}'{place}")
}
