//! The table in `docs/locking.md` is made from the ranks. `LARDER_REWRITE=1` writes it.

use std::fmt::Write;
use std::path::Path;

use larder_locks::rank::ALL;

const BEFORE: &str = "<!-- The ranks, from `locks/src/rank.rs`. -->\n\n";
const AFTER: &str = "\n<!-- End of the ranks. -->\n";

fn table() -> String {
    let mut table = String::from("| # | rank | lock | where | held while |\n");
    table.push_str("| --- | --- | --- | --- | --- |\n");
    for rank in ALL {
        let (step, name, lock) = (rank.step, rank.name, rank.lock);
        let (place, held_while) = (rank.place, rank.held_while);
        writeln!(table, "| {step} | `{name}` | {lock} | {place} | {held_while} |").unwrap();
    }
    table
}

#[test]
fn the_page_shows_the_ranks() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/locking.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEFORE).expect("the table begins");
    let (shown, after) = rest.split_once(AFTER).expect("the table ends");
    if std::env::var_os("LARDER_REWRITE").is_some() {
        let written = [before, BEFORE, &table(), AFTER, after].concat();
        return std::fs::write(path, written).unwrap();
    }
    let differs = "docs/locking.md; LARDER_REWRITE=1 cargo test -p larder-locks writes it anew";
    assert_eq!(shown, table(), "{differs}");
}

#[test]
fn steps_ascend() {
    let first = |step: &str| step.split(',').next().and_then(|step| step.parse::<u8>().ok());
    assert!(ALL.is_sorted_by_key(|rank| first(rank.step).expect("a number")));
}
