//! The page, the log and the numbers of a run.

use std::fs;

use serde_json::Value;

use crate::register;
use crate::support::{Folder, write_pair};

/// A short run with labels, its folder and what it wrote.
fn finished() -> (Folder, String) {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let labels = ["fixed_labels.nii.gz", "moving_labels.nii.gz"].map(|name| folder.path(name));
    let more = ["--fixed-labels", &labels[0], "--moving-labels", &labels[1], "-q"];
    register(&folder, "fixed.nii.gz", "moving.nii.gz", "out", &more).succeeded();
    let page = fs::read_to_string(folder.path("out/report.html")).expect("written");
    (folder, page)
}

#[test]
fn the_report_is_complete_and_needs_nothing_else() {
    let (folder, page) = finished();
    // Names of the SVG standard are no links; everything else would be.
    let page_without_names = page.replace("http://www.w3.org/2000/svg", "");
    for link in ["http:", "https:", "<script", "<link", "@import", "url(\"", "file:"] {
        assert!(!page_without_names.contains(link), "{link}");
    }
    assert!(
        !page_without_names.contains("src=\"") || page.contains("src=\"data:image/png;base64,")
    );
    // Three planes of nine views, each with its text.
    assert_eq!(page.matches("<img src=\"data:image/png;base64,").count(), 27);
    assert_eq!(page.matches("alt=\"").count(), 27);
    assert_eq!(page.matches("class=\"chart\"").count(), 1, "one stage");
    assert_eq!(page.matches("<polyline").count(), 2, "two levels");
    let metrics = fs::read_to_string(folder.path("out/metrics.json")).expect("written");
    let metrics: Value = serde_json::from_str(&metrics).expect("JSON");
    let hash = metrics["fixed"]["sha256"].as_str().expect("a hash");
    assert_eq!(hash.len(), 64);
    let labels = metrics["dice"]["labels"].as_array().expect("labels").len();
    assert_eq!(page.matches("class=\"dumbbell").count(), labels);
    for part in [hash, "--iterations", "gradient_floor", "converged", "RAS", "Folded in any"] {
        let there = page.contains(part) || part == "converged" && page.contains("all iterations");
        assert!(there, "no {part}");
    }
    // The tags close.
    for tag in ["section", "table", "figure", "svg", "tr", "td", "div"] {
        let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
        let opened =
            page.matches(&format!("{open}>")).count() + page.matches(&format!("{open} ")).count();
        assert_eq!(opened, page.matches(&close).count(), "{tag}");
    }
}

#[test]
fn names_of_files_cannot_break_the_page() {
    let folder = Folder::new();
    write_pair(&folder, 32, 3);
    let odd = "a<b>&\"c\".nii.gz";
    fs::copy(folder.path("moving.nii.gz"), folder.path(odd)).expect("copied");
    let few = ["--shrink", "2", "--iterations", "2", "-q"];
    register(&folder, "fixed.nii.gz", odd, "out", &few).succeeded();
    let page = fs::read_to_string(folder.path("out/report.html")).expect("written");
    assert!(page.contains("a&lt;b&gt;&amp;") && !page.contains("a<b>"));
}

#[test]
fn the_log_tells_everything_in_order() {
    let (folder, _) = finished();
    let log = fs::read_to_string(folder.path("out/log.jsonl")).expect("written");
    let events: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("an object per line")).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names.first(), Some(&"start"));
    assert_eq!(names.last(), Some(&"end"));
    let mut kinds = names.clone();
    kinds.dedup();
    let expected =
        ["start", "stage", "level", "loss", "level_end", "level", "loss", "level_end", "end"];
    assert_eq!(kinds, expected);
    let seconds: Vec<f64> = events.iter().filter_map(|event| event["seconds"].as_f64()).collect();
    assert!(seconds.len() == events.len() && seconds.is_sorted());
    let losses: Vec<f64> = events.iter().filter_map(|event| event["loss"].as_f64()).collect();
    assert!(losses.len() >= 4 && losses.iter().all(|loss| loss.is_finite()));
    assert_eq!(events[events.len() - 1]["outcome"], "improved");
    let time = events[0]["time"].as_str().expect("a time");
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
}

#[test]
fn the_measures_have_what_a_user_is_promised() {
    let (folder, _) = finished();
    let metrics = fs::read_to_string(folder.path("out/metrics.json")).expect("written");
    let metrics: Value = serde_json::from_str(&metrics).expect("JSON");
    for path in [
        "/folds/jacobian_central/p99",
        "/folds/sd_log_jacobian",
        "/similarity/before/ncc",
        "/stages/0/levels/1/losses/0",
        "/stages/0/levels/1/seconds",
        "/stages/0/loss_after",
        "/seconds/results",
        "/affine/0/0",
        "/threads",
        "/dice/inverse_volume_mean/after",
        "/dice/surfaces/hd95_mm/before",
        "/dice/surfaces/hd90_cumulative_mm/after",
    ] {
        assert!(metrics.pointer(path).is_some_and(Value::is_number), "{path} in {metrics}");
    }
    #[cfg(target_os = "linux")]
    assert!(metrics["peak_memory_bytes"].as_u64().is_some_and(|bytes| bytes > 10_000_000));
    let command = metrics["command"].as_array().expect("arguments");
    assert!(command.iter().any(|argument| argument == "register"));
}
