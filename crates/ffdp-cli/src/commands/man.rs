//! `ffdp man`: the manual, one page with every command.

use clap::Command;
use clap_mangen::Man;

use crate::failure::{Failure, Result};
use crate::printer::print_bytes_to_stdout;

/// Prints the page.
pub fn run(mut command: Command) -> Result<()> {
    let mut page = Vec::new();
    command.build();
    let failed = |reason| Failure::defect(format!("writing the manual page: {reason}"));
    Man::new(command.clone()).render(&mut page).map_err(failed)?;
    for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
        render_section(subcommand, &mut page).map_err(failed)?;
    }
    print_bytes_to_stdout(&page)
}

/// A command as a section of the one page: its synopsis, its text, its options, its closing words.
fn render_section(command: &Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    let title = format!("ffdp {}", command.get_name()).to_uppercase();
    page.extend_from_slice(format!(".SH {title}\n").as_bytes());
    let mut body = Vec::new();
    let man = Man::new(command.clone());
    man.render_synopsis_section(&mut body)?;
    man.render_description_section(&mut body)?;
    man.render_options_section(&mut body)?;
    if command.get_after_long_help().is_some() {
        man.render_extra_section(&mut body)?;
    }
    // Sections of a page of its own become subsections of this one.
    let body = String::from_utf8_lossy(&body).replace(".SH ", ".SS ");
    page.extend_from_slice(body.as_bytes());
    Ok(())
}
