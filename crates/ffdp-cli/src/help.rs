//! How the help of a command with many flags is laid out: flags under headings, in an order that people read.
//!
//! `-h` is the short help: a flag has a line, the first sentence of what is said about it, and the flags of the heading
//! "Advanced" are left out. `--help` has everything. A flag that no list names is advanced.

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};

/// Commands with fewer flags are read in one list.
const MOST_WITHOUT_HEADINGS: usize = 10;

const ADVANCED: &str = "Advanced";

/// Flags below other headings that the short help leaves out, too.
const RARE: [&str; 11] = [
    "reference",
    "volume",
    "labels",
    "landmark_space",
    "landmark_sigma",
    "label_terms",
    "background",
    "no_inverse",
    "shards",
    "hold_out",
    "resample",
];

/// The headings with the flags below them, of all commands; `COMMAND/FLAG` where a flag means something else there.
const HEADINGS: [(&str, &[&str]); 6] = [
    (
        "Inputs",
        &[
            "image",
            "files",
            "model",
            "data",
            "fixed",
            "moving",
            "list",
            "members",
            "apply/transform",
            "measure/transform",
            "warp",
            "inverse_warp",
            "reference",
            "pairs",
            "channels",
            "fixed_mask",
            "moving_mask",
            "mask",
            "initial",
            "size",
            "spacing",
            "plan/labels",
            "synth/labels",
            "statistics",
            "apply/landmarks",
            "apply/landmark_space",
            "resample",
            "volume",
            "align",
            "hold_out",
            "checkpoint",
            "carry",
        ],
    ),
    (
        "Method",
        &[
            "preset",
            "multimodal",
            "transform",
            "metric",
            "centre",
            "aligned",
            "search",
            "iterations",
            "shrink",
            "settings",
            "landmark_sigma",
            "label_terms",
            "method",
            "rounds",
            "linear_rounds",
            "average",
            "intensities",
            "resolution",
            "grid",
            "interpolation",
            "inverse",
            "network",
            "variant",
            "head",
            "affine",
            "integrate",
            "loss",
            "regularizer",
            "smoothness",
            "dice_weight",
            "epochs",
            "batch",
            "learning_rate",
            "seed",
            "refine",
            "modality",
            "subjects",
            "warp_mm",
            "attachment",
            "data_sigma",
            "sigma",
            "methods",
        ],
    ),
    (
        "Evaluation",
        &[
            "fixed_labels",
            "moving_labels",
            "labels",
            "label_names",
            "landmarks",
            "landmark_space",
            "learn2reg",
            "strict",
        ],
    ),
    (
        "Output",
        &[
            "output",
            "format",
            "background",
            "jacobian",
            "jacobian_out",
            "no_inverse",
            "overwrite",
            "resume",
            "plan",
            "json",
            "quiet",
            "verbose",
            "help",
        ],
    ),
    ("Devices and large images", &["device", "devices", "share", "shards", "device_memory", "slabs"]),
    (ADVANCED, &[]),
];

/// The command line with its help laid out.
pub fn laid_out(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_string()).collect();
    names.into_iter().fold(command.mut_args(shortened), |command, name| {
        command.mut_subcommand(name, |sub| match sub.has_subcommands() {
            true => laid_out(sub),
            false => under_headings(sub.mut_args(shortened)),
        })
    })
}

/// The first sentence as the short help, where nothing else is.
fn shortened(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().map(StyledStr::to_string) else { return arg };
    match (arg.get_long_help(), help.split_once(". ")) {
        (None, Some((first, _))) => arg.help(first.to_string()).long_help(help),
        _ => arg,
    }
}

/// The command with its flags in the order of the headings. Clap orders headings by their first flags, and flags cannot
/// be moved within a command: it is made anew.
fn under_headings(command: Command) -> Command {
    if command.get_arguments().count() <= MOST_WITHOUT_HEADINGS {
        return command;
    }
    let own = [
        Arg::new("help").short('h').long("help").action(ArgAction::Help).help("Print this help (-h the short one)"),
        Arg::new("version").short('V').long("version").action(ArgAction::Version).help("Print the version"),
    ];
    let place = |arg: &Arg| place(command.get_name(), arg.get_id().as_str());
    let mut args: Vec<(_, Arg)> =
        command.get_arguments().cloned().chain(own).map(|arg| (place(&arg), arg)).collect();
    args.sort_by_key(|(place, _)| *place);
    let args = args.into_iter().enumerate().map(|(order, ((heading, _), arg))| {
        let (heading, _) = HEADINGS[heading];
        let arg = arg.display_order(order).help_heading(heading);
        let rare = heading == ADVANCED || RARE.contains(&arg.get_id().as_str());
        if rare && !arg.is_required_set() { arg.hide_short_help(true) } else { arg }
    });
    let text = |text: Option<&StyledStr>| text.cloned().unwrap_or_default();
    let new = Command::new(command.get_name().to_string())
        .about(text(command.get_about()))
        .after_help("More flags, all values and what is written: --help")
        .groups(command.get_groups().cloned())
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(args);
    match command.get_after_long_help() {
        Some(closing) => new.after_long_help(closing.clone()),
        None => new,
    }
}

/// The heading of a flag, and where it stands below it; flags that are not listed keep their order.
fn place(command: &str, flag: &str) -> (usize, usize) {
    let here = format!("{command}/{flag}");
    let listed = |name: &str| {
        HEADINGS.iter().enumerate().find_map(|(heading, (_, flags))| {
            Some((heading, flags.iter().position(|listed| *listed == name)?))
        })
    };
    listed(&here).or_else(|| listed(flag)).unwrap_or((HEADINGS.len() - 1, usize::MAX))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    /// All commands that are run, those within commands too.
    fn leaves(command: &Command) -> Vec<&Command> {
        match command.has_subcommands() {
            true => command.get_subcommands().flat_map(leaves).collect(),
            false => vec![command],
        }
    }

    #[test]
    fn every_flag_that_has_a_heading_is_one_of_a_command() {
        let command = Arguments::command();
        let flags: Vec<(String, String)> = leaves(&command)
            .iter()
            .flat_map(|leaf| {
                let name = leaf.get_name().to_string();
                leaf.get_arguments().map(move |arg| (name.clone(), arg.get_id().to_string()))
            })
            .collect();
        for listed in HEADINGS.iter().flat_map(|(_, flags)| flags.iter()) {
            let known = flags.iter().any(|(command, flag)| match listed.split_once('/') {
                Some(here) => here == (command, flag),
                None => flag == listed,
            });
            assert!(known || *listed == "help", "{listed} is no flag");
        }
    }

    #[test]
    fn commands_that_are_laid_out_anew_are_read_as_before() {
        laid_out(Arguments::command()).debug_assert();
        let line = ["ffdp", "register", "-f", "a.nii", "-m", "b.nii", "-o", "out", "--lr", "0.5"];
        let found = laid_out(Arguments::command()).try_get_matches_from(line).expect("it is read");
        let register = found.subcommand_matches("register").expect("the command");
        assert_eq!(register.get_one::<f64>("lr"), Some(&0.5));
        for wrong in [&line[..6], &["ffdp", "register", "-m", "b.nii", "-o", "o", "--pairs", "p.csv"]] {
            assert!(laid_out(Arguments::command()).try_get_matches_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
