//! Checks an image, with all its data: `check IMAGE...`

use larder::check::{Options, check};

fn main() -> anyhow::Result<()> {
    let options = Options { check_data_csum: true, ..Options::default() };
    let report = check(std::env::args_os().skip(1), &options)?;
    print!("{report}");
    anyhow::ensure!(report.is_clean(), "there are errors");
    Ok(())
}
