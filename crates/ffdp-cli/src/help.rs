//! How the help of a command with many flags is laid out: flags under headings, in an order that people read.
//!
//! `-h` is the short help: a flag has a line, the first sentence of what is said about it (if that is long, without its
//! default, and its part before a semicolon or colon), and the flags of the heading "Advanced" are left out. `--help` has
//! everything. A flag that no list names is advanced.

use clap::builder::{PossibleValue, StyledStr};
use clap::{Arg, ArgAction, Command};

/// Commands with fewer flags are read in one list.
const MOST_WITHOUT_HEADINGS: usize = 10;

/// Letters of a short help that fit next to a flag.
const LONGEST: usize = 76;

const ADVANCED: &str = "Advanced";

/// Flags below other headings that the short help leaves out, too.
const RARE: [&str; 12] = [
    "reference",
    "volume",
    "labels",
    "landmark_space",
    "features",
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
            "features",
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
            "jacobian_weight",
            "inverse_weight",
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
            "kernel",
            "start",
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
    (
        "Devices and large images",
        &["device", "devices", "share", "shards", "device_memory", "slabs"],
    ),
    (ADVANCED, &[]),
];

/// The command line with its help laid out; commands stand in the order of their list.
pub fn laid_out(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_string()).collect();
    names.into_iter().enumerate().fold(command.mut_args(shortened), |command, (order, name)| {
        command.mut_subcommand(name, |sub| {
            let sub = match sub.has_subcommands() {
                true => laid_out(sub),
                false => under_headings(sub.mut_args(shortened)),
            };
            sub.display_order(order)
        })
    })
}

/// The first sentence as the short help, and its start where it is long; all of it and the values as the long one.
fn shortened(arg: Arg) -> Arg {
    let (Some(help), None) = (arg.get_help().map(StyledStr::to_string), arg.get_long_help()) else {
        return arg;
    };
    let values = values(&arg);
    let first = help.split_once(". ").map_or(&*help, |(first, _)| first);
    let short =
        [" [default", ";", ":"].iter().fold(first, |text, end| match text.split_once(end) {
            Some((start, _)) if text.len() > LONGEST => start,
            _ => text,
        });
    let hidden = arg.is_hide_possible_values_set() || !values.is_empty();
    let short = short.to_string();
    arg.hide_possible_values(hidden).help(short).long_help(help + &values)
}

/// The values that a flag may have, a line each.
fn values(arg: &Arg) -> String {
    if !arg.get_action().takes_values() || arg.is_hide_possible_values_set() {
        return String::new();
    }
    let values = arg.get_possible_values();
    let width = values.iter().map(|value| value.get_name().len()).max().unwrap_or(0);
    let line = |value: &PossibleValue| {
        let about = value.get_help().map(StyledStr::to_string).unwrap_or_default();
        format!("\n- {:width$}  {about}", value.get_name()).trim_end().to_string()
    };
    let lines: String = values.iter().filter(|value| !value.is_hide_set()).map(line).collect();
    if lines.is_empty() { lines } else { format!("\n\nValues:{lines}") }
}

/// The command with its flags in the order of the headings. Clap orders headings by their first flags, and flags cannot
/// be moved within a command: it is made anew.
fn under_headings(command: Command) -> Command {
    if command.get_arguments().count() <= MOST_WITHOUT_HEADINGS {
        return command;
    }
    let own = [
        Arg::new("help")
            .short('h')
            .long("help")
            .action(ArgAction::Help)
            .help("Print this help (-h the short one)"),
        Arg::new("version")
            .short('V')
            .long("version")
            .action(ArgAction::Version)
            .help("Print the version"),
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
    fn help_lists_commands_in_the_order_of_their_list() {
        let command = Arguments::command();
        let listed: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let help = laid_out(command.clone()).render_long_help().to_string();
        let (_, commands) = help.split_once("Commands:\n").expect("there are commands");
        let shown: Vec<&str> = commands
            .lines()
            .take_while(|line| !line.is_empty())
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .collect();
        assert_eq!(shown, listed, "{help}");
        assert_eq!(shown[0], "register", "{help}");
    }

    /// A screen of a terminal.
    const SCREEN: [usize; 2] = [100, 52];

    #[test]
    fn the_short_help_of_register_is_a_screen_and_the_long_one_has_every_flag() {
        let mut command = laid_out(Arguments::command());
        let register = command.find_subcommand_mut("register").expect("a command");
        let short = register.render_help().to_string();
        let [columns, rows] = SCREEN;
        let wide: Vec<&str> = short.lines().filter(|line| line.chars().count() > columns).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        assert!(short.lines().count() <= rows, "{}:\n{short}", short.lines().count());
        let long = register.render_long_help().to_string();
        let mut places = HEADINGS.iter().map(|(heading, _)| long.find(&format!("\n{heading}:\n")));
        assert!(places.all(|place| place.is_some()), "{long}");
        for arg in
            Arguments::command().find_subcommand("register").expect("a command").get_arguments()
        {
            let flag = format!("--{}", arg.get_long().expect("every flag has a long name"));
            assert!(long.contains(&flag), "no {flag} in {long}");
        }
        assert!(!short.contains("--beta-div") && long.contains("gnk"), "{short}");
    }

    #[test]
    fn a_flag_has_a_line_of_a_terminal_in_the_short_help() {
        let mut command = laid_out(Arguments::command());
        for name in ["train", "predict", "synth", "import"] {
            let short = command.find_subcommand_mut(name).expect("a command").render_help();
            let short = short.to_string();
            let lines = short.lines().filter(|line| !line.starts_with("Usage:"));
            let wide: Vec<&str> = lines.filter(|line| line.chars().count() > SCREEN[0]).collect();
            assert!(wide.is_empty(), "{name}: {wide:#?}");
            assert!(!short.contains("[default\n"), "{short}");
        }
    }

    #[test]
    fn commands_that_are_laid_out_anew_are_read_as_before() {
        laid_out(Arguments::command()).debug_assert();
        for output in ["-o", "--output", "--out"] {
            let line = ["ffdp", "train", output, "run"];
            let found = laid_out(Arguments::command()).try_get_matches_from(line);
            assert!(found.is_ok(), "{output}: {found:?}");
        }
        let line = ["ffdp", "register", "-f", "a.nii", "-m", "b.nii", "-o", "out", "--lr", "0.5"];
        let found = laid_out(Arguments::command()).try_get_matches_from(line).expect("it is read");
        let register = found.subcommand_matches("register").expect("the command");
        assert_eq!(register.get_one::<f64>("lr"), Some(&0.5));
        for wrong in
            [&line[..6], &["ffdp", "register", "-m", "b.nii", "-o", "o", "--pairs", "p.csv"]]
        {
            assert!(
                laid_out(Arguments::command()).try_get_matches_from(wrong).is_err(),
                "{wrong:?}"
            );
        }
    }
}
