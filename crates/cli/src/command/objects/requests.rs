//! Requests to object storage, which users pay for.

use std::io::{self, Write};

use larder_objects::Requests;

use crate::print::{Cell, write_table};
use crate::units::Units;

/// Writes how many requests there were, and how many bytes they moved.
pub fn write_requests(out: &mut impl Write, requests: &Requests) -> io::Result<()> {
    let size = |bytes| Units::default().show(bytes);
    let row = |kind: &str, number: String, bytes: String| {
        vec![Cell::Left(kind.to_owned()), Cell::Right(number), Cell::Right(bytes)]
    };
    let counted = |kind, number: u64, bytes| row(kind, number.to_string(), size(bytes));
    let rows = [
        row("requests", "number".to_owned(), "bytes".to_owned()),
        vec![Cell::Rule, Cell::Rule, Cell::Rule],
        counted("get", requests.gets, requests.got_bytes),
        counted("put", requests.creates, requests.created_bytes),
        counted("replace", requests.replaces, requests.replaced_bytes),
        row("delete", requests.deletes.to_string(), "-".to_owned()),
        row("list", requests.lists.to_string(), "-".to_owned()),
    ];
    write_table(out, &rows)
}
