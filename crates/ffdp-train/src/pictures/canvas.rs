//! A raster of colours with lines and text.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use ffdp_burn::{Error, Result};

use super::font;

/// Red, green, blue.
pub type Color = [u8; 3];

/// An image being drawn; the origin is the upper left corner.
pub struct Canvas {
    pub width: usize,
    pub height: usize,
    pixels: Vec<Color>,
}

impl Canvas {
    pub fn new(width: usize, height: usize, background: Color) -> Self {
        Self { width, height, pixels: vec![background; width * height] }
    }

    /// Colours a pixel; nothing happens outside.
    pub fn set(&mut self, x: i64, y: i64, color: Color) {
        if (0..self.width as i64).contains(&x) && (0..self.height as i64).contains(&y) {
            self.pixels[y as usize * self.width + x as usize] = color;
        }
    }

    pub fn fill(&mut self, x: usize, y: usize, width: usize, height: usize, color: Color) {
        for j in y..y + height {
            for i in x..x + width {
                self.set(i as i64, j as i64, color);
            }
        }
    }

    /// A straight line, `width` pixels wide.
    pub fn line(&mut self, from: [f64; 2], to: [f64; 2], width: usize, color: Color) {
        let span = (to[0] - from[0]).abs().max((to[1] - from[1]).abs());
        if !span.is_finite() {
            return;
        }
        let steps = span.ceil().max(1.0);
        for i in 0..=steps as usize {
            let t = i as f64 / steps;
            let x = (from[0] + t * (to[0] - from[0])).round() as i64;
            let y = (from[1] + t * (to[1] - from[1])).round() as i64;
            for j in 0..width as i64 {
                for i in 0..width as i64 {
                    self.set(x + i - width as i64 / 2, y + j - width as i64 / 2, color);
                }
            }
        }
    }

    /// Writes text with its upper left corner at (x, y), each dot `scale` pixels wide.
    pub fn text(&mut self, x: usize, y: usize, text: &str, scale: usize, color: Color) {
        let [columns, rows] = font::GLYPH;
        for (index, c) in text.chars().enumerate() {
            let left = x + index * (columns + 1) * scale;
            for row in 0..rows {
                for column in (0..columns).filter(|&column| font::covers(c, column, row)) {
                    self.fill(left + column * scale, y + row * scale, scale, scale, color);
                }
            }
        }
    }

    /// Width of a text in pixels.
    pub fn text_width(text: &str, scale: usize) -> usize {
        text.chars().count() * (font::GLYPH[0] + 1) * scale
    }

    /// Saves the canvas as PNG.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let failed = |error: png::EncodingError| {
            Error::io(path, "write", std::io::Error::other(error.to_string()))
        };
        let file = File::create(path).map_err(|error| Error::io(path, "create", error))?;
        let (width, height) = (self.width as u32, self.height as u32);
        let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(self.pixels.as_flattened()).map_err(failed)
    }
}
