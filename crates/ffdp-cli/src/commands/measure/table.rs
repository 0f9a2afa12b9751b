//! The measures as a table for people.

use std::fmt::Write;

use ffdp_image::metrics::{
    InverseConsistency, JacobianReport, Learn2RegReport, TargetRegistrationError,
};

use super::report::{Images, Labels, Report};

/// The text that `measure` prints to stdout.
pub fn table(report: &Report) -> String {
    let parts = [
        report.images.as_ref().map(images),
        report.labels.as_ref().map(labels),
        report.jacobian.as_ref().map(determinants),
        report.inverse_consistency.as_ref().map(consistency),
        report.learn2reg.as_ref().map(challenge),
        report.landmarks_mm.as_ref().map(landmarks),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// A line of a name and a value.
fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "  {name:<22}{value}");
}

/// Four decimals, or a dash where there is no value.
fn number(value: f64) -> String {
    if value.is_nan() { "-".to_string() } else { format!("{value:.4}") }
}

fn images(images: &Images) -> String {
    let mut text = format!("similarity of images ({} voxels)\n", images.voxels);
    let mut line = |name: &str, value: String| line(&mut text, name, value);
    line("NCC", number(images.ncc));
    line(
        "local correlation^2",
        format!("{} ({}^3 windows, foreground or mask)", number(images.local_ncc), images.window),
    );
    let bins = format!("{0} x {0} bins", images.bins);
    line("MI", format!("{} nats ({bins})", number(images.mutual_information)));
    line("NMI", number(images.normalized_mutual_information));
    line("SSIM", images.ssim.map_or("- (needs 11 voxels along each axis)".into(), number));
    line("MSE", format!("{:.6e}", images.mean_squared_error));
    line("PSNR", format!("{} dB (range {})", number(images.psnr), images.range));
    text
}

fn labels(labels: &Labels) -> String {
    let scored = labels.labels.len() - labels.absent.len();
    let mut text = format!("labels ({scored} scored; distances in mm)\n");
    line(&mut text, "mean Dice", number(labels.mean.dice));
    let inverse = number(labels.inverse_volume_dice);
    line(&mut text, "InvDice", format!("{inverse} (weights 1 / volume in the fixed map)"));
    let head = ["Dice", "HD95", "HD90", "HD90cum", "HD100", "ASSD", "fixed", "moved"];
    row(&mut text, "label", &head.map(str::to_string));
    for label in &labels.labels {
        let (overlap, surface) = (&label.overlap, &label.surface);
        let values = [
            overlap.dice,
            surface.hd95,
            surface.hd90,
            surface.hd90_cumulative,
            surface.hd100,
            surface.assd,
        ];
        let voxels = [overlap.fixed_voxels, overlap.moved_voxels].map(|count| count.to_string());
        let named = label.name.iter().map(|name| format!("  {name}"));
        let cells: Vec<String> = values.map(number).into_iter().chain(voxels).collect();
        row_with(&mut text, &overlap.id.to_string(), &cells, &named.collect::<String>());
    }
    let mean = &labels.mean;
    let values =
        [mean.dice, mean.hd95, mean.hd90, mean.hd90_cumulative, mean.hd100, mean.assd].map(number);
    row(&mut text, "mean", &values);
    text
}

fn row(text: &mut String, name: &str, cells: &[String]) {
    row_with(text, name, cells, "");
}

/// A row with something of any length at its end.
fn row_with(text: &mut String, name: &str, cells: &[String], last: &str) {
    let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
    let _ = writeln!(text, "  {name:>8}{cells}{last}");
}

fn determinants(report: &JacobianReport) -> String {
    let mut text = "det J of the warp\n".to_string();
    let head = ["min", "1 %", "median", "99 %", "max", "<= 0 (%)"];
    row(&mut text, "", &head.map(str::to_string));
    for (name, d) in
        [("forward", report.forward), ("backward", report.backward), ("central", report.central)]
    {
        let percent = 100.0 * d.fold_fraction;
        row(&mut text, name, &[d.min, d.p1, d.p50, d.p99, d.max, percent].map(number));
    }
    let percent = 100.0 * report.true_fold_fraction;
    line(&mut text, "folds", format!("{} voxels ({percent:.4} %)", report.true_folds));
    line(&mut text, "SD of ln det J", number(report.sd_log));
    text
}

fn consistency(consistency: &InverseConsistency) -> String {
    let mut text = "inverse consistency\n".to_string();
    let InverseConsistency { mean_mm, p95_mm, max_mm, voxels, outside } = *consistency;
    let values =
        format!("mean {}, 95 % {}, max {} mm", number(mean_mm), number(p95_mm), number(max_mm));
    line(&mut text, "|phi(phi^-1(x)) - x|", values);
    line(&mut text, "voxels", format!("{voxels}; {outside} lead out of the warp's grid"));
    text
}

fn challenge(report: &Learn2RegReport) -> String {
    let mut text = "as Learn2Reg measures\n".to_string();
    line(&mut text, "mean Dice", number(report.mean_dice));
    line(&mut text, "mean HD95", format!("{} voxels", number(report.mean_hd95_voxels)));
    line(&mut text, "SDlogJ", number(report.sd_log_jacobian));
    line(&mut text, "true folds", format!("{} voxels", report.true_folds));
    text
}

fn landmarks(error: &TargetRegistrationError) -> String {
    let mut text = format!("landmarks ({} pairs; distances in mm)\n", error.errors_mm.len());
    let head = ["mean", "SD", "median", "95 %", "max"];
    row(&mut text, "", &head.map(str::to_string));
    for (name, e) in [("headers", error.before), ("through", error.after)] {
        row(&mut text, name, &[e.mean, e.sd, e.median, e.p95, e.max].map(number));
    }
    line(&mut text, "TRE30", number(error.tre30_mm));
    text
}
