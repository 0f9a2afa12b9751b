//! `ffdp`: registration of 3-D images on the command line.

mod huge_pages;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: huge_pages::HugePages = huge_pages::HugePages;

fn main() -> ExitCode {
    ffdp_cli::main()
}
