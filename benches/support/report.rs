//! The table, and the same as JSON.

use std::path::Path;

use serde_json::json;

use super::{Bench, Row};

/// Rows so far, printed as they come.
pub struct Report {
    device: String,
    copy: f64,
    rows: Vec<Row>,
}

impl Report {
    /// An empty report.
    pub fn new(bench: &Bench) -> Self {
        Self { device: bench.name.clone(), copy: bench.copy, rows: Vec::new() }
    }

    /// The device, the copy and the names of the columns.
    pub fn print_header(&self) {
        println!("device {}, copy {:.1} GB/s (read + write)", self.device, self.copy);
        println!(
            "{:<28} {:<20} {:>4} {:<18} {:>10} {:>7} {:>9} {:>8} {:>10} {:>8}",
            "operation",
            "variant",
            "size",
            "pass",
            "ms",
            "B/voxel",
            "GB/s",
            "of copy",
            "extra MB",
            "x fused"
        );
    }

    /// The rows so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Prints and keeps rows.
    pub fn add(&mut self, rows: Vec<Row>) {
        for row in rows {
            let Row { op, variant, size, pass, .. } = &row;
            print!("{op:<28} {variant:<20} {size:>4} {pass:<18} ");
            match (&row.figures, &row.note) {
                (Some(f), _) => println!(
                    "{:>10.3} {:>7.0} {:>9.3} {:>7.2}% {:>10.1} {:>8.2}",
                    f.ms,
                    f.bytes_per_voxel,
                    f.gb_per_s,
                    100.0 * f.of_copy,
                    f.extra_mb,
                    self.against_fused(&row).unwrap_or(1.0)
                ),
                (None, note) => println!("{}", note.as_deref().unwrap_or_default()),
            }
            self.rows.push(row);
        }
    }

    /// Time over that of the first variant of the same operation, size and pass, which is ours.
    fn against_fused(&self, row: &Row) -> Option<f64> {
        let same = |other: &&Row| {
            (other.op, other.size, other.pass) == (row.op, row.size, row.pass)
                && other.variant == "fused"
        };
        let fused = self.rows.iter().find(same)?.figures?;
        Some(row.figures?.ms / fused.ms)
    }

    /// Writes everything to a file.
    pub fn write_json(&self, path: &Path) -> Result<(), String> {
        let document = json!({
            "bench": "ops",
            "version": env!("CARGO_PKG_VERSION"),
            "device": self.device,
            "copy_gb_per_s": self.copy,
            "rows": self.rows,
        });
        let text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}
