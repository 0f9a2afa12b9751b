//! The fused operations against the same operations composed from Burn's own, in one table.
//!
//! ```text
//! cargo bench --bench ops                                       CPU, 64^3 and 128^3
//! cargo bench --bench ops --features cuda -- --device cuda      128^3, 256^3, 512^3
//! cargo bench --bench ops -- lncc mse --size 96 --json a.json   rows whose name contains `lncc` or `mse`
//! ```
//! The executable that `cargo bench --no-run` leaves in `target/release/deps` runs without Rust.
//!
//! A row is the median of several runs after warm-up, with the device synchronised inside the timed
//! region. `GB/s` counts the fewest bytes that the operation must move (`B/voxel`, f32, every
//! operand once), whatever was moved; `of copy` divides it by the bandwidth of a copy on the same
//! device in the same run. `extra MB` is the memory taken beyond the inputs at the peak, results
//! and gradients included. A baseline that would take too much memory or time is skipped, and says so.

use std::process::ExitCode;

use clap::Parser;

mod support;

use support::{Args, Counting, Report, cases};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let bench = args.bench()?;
    let mut report = Report::new(&bench);
    let save = |report: &Report| args.json.as_ref().map_or(Ok(()), |path| report.write_json(path));
    // At once, so that a path that cannot be written is known before the work is done.
    save(&report)?;
    report.print_header();
    for size in args.sizes() {
        for case in cases().iter().filter(|case| args.wants_case(case)) {
            for variant in case.variants.iter().filter(|variant| args.wants(case, variant)) {
                report.add(bench.rows(case, variant, size, report.rows()));
                save(&report)?;
            }
        }
    }
    Ok(())
}
