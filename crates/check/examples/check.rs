//! Checks the file system on the given devices.
use larder_device::{Access, Device, FileDevice};
use larder_volume::{OpenOptions, Volume};
use std::sync::Arc;
fn main() {
    let mut data = false;
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for a in std::env::args_os().skip(1) {
        if a == "--data" {
            data = true;
            continue;
        }
        devices.push(Arc::new(
            FileDevice::open(std::path::Path::new(&a), Access::ReadOnly).expect("opens"),
        ));
    }
    let volume = Volume::open(devices, &OpenOptions { degraded: true, ..OpenOptions::default() })
        .expect("volume");
    let options = larder_check::Options { check_data_csum: data, ..Default::default() };
    let report = larder_check::check(&volume, &options);
    print!("{report}");
    std::process::exit(i32::from(report.exit_code()));
}
