//! A raster of colours with lines and text.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ffdp_image::{Error, Result};
use png::{BitDepth, ColorType, Compression, Encoder};

use super::font;

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// An image being drawn; the origin is the upper left corner.
pub struct Canvas {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Row by row from the top.
    pub pixels: Vec<Rgb>,
}

impl Canvas {
    /// All of one colour.
    pub fn new(width: usize, height: usize, background: Rgb) -> Self {
        Self { width, height, pixels: vec![background; width * height] }
    }

    /// Colours a pixel; nothing happens outside.
    pub fn set(&mut self, x: i64, y: i64, color: Rgb) {
        if (0..self.width as i64).contains(&x) && (0..self.height as i64).contains(&y) {
            self.pixels[y as usize * self.width + x as usize] = color;
        }
    }

    /// Colours a rectangle, of which (x, y) is the upper left corner.
    pub fn fill(&mut self, x: usize, y: usize, width: usize, height: usize, color: Rgb) {
        for j in y..y + height {
            for i in x..x + width {
                self.set(i as i64, j as i64, color);
            }
        }
    }

    /// A straight line, `width` pixels wide.
    pub fn line(&mut self, from: [f64; 2], to: [f64; 2], width: usize, color: Rgb) {
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
    pub fn text(&mut self, x: usize, y: usize, text: &str, scale: usize, color: Rgb) {
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

    /// The picture as a PNG file; gray ones take a third of the space.
    fn png(&self, compression: Compression) -> Vec<u8> {
        let gray = self.pixels.iter().all(|[r, g, b]| r == g && g == b);
        let (color, bytes): (_, Vec<u8>) = match gray {
            true => (ColorType::Grayscale, self.pixels.iter().map(|pixel| pixel[0]).collect()),
            false => (ColorType::Rgb, self.pixels.as_flattened().to_vec()),
        };
        let mut png = Vec::new();
        let mut encoder = Encoder::new(&mut png, self.width as u32, self.height as u32);
        encoder.set_color(color);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(compression);
        let written = encoder.write_header().and_then(|mut file| file.write_image_data(&bytes));
        written.expect("memory can be written to, and a picture has pixels");
        png
    }

    /// The picture as the address of an image: a PNG inside, made in the least time.
    ///
    /// # Panics
    /// Without a pixel.
    pub fn data_url(&self) -> String {
        data_url(&self.png(Compression::Fast))
    }

    /// Saves the picture as PNG.
    ///
    /// # Errors
    /// A file that cannot be written.
    ///
    /// # Panics
    /// Without a pixel.
    pub fn save(&self, path: &Path) -> Result<()> {
        fs::write(path, self.png(Compression::default()))
            .map_err(|error| Error::io(path, "write", error))
    }
}

/// A PNG file as the address of an image.
pub fn data_url(png: &[u8]) -> String {
    format!("data:image/png;base64,{}", STANDARD.encode(png))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Colour type and bytes of a picture as it is read again.
    fn read(canvas: &Canvas) -> (ColorType, Vec<u8>) {
        let png = canvas.png(Compression::default());
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("it fits")];
        let info = reader.next_frame(&mut bytes).expect("whole");
        assert_eq!([info.width, info.height], [canvas.width as u32, canvas.height as u32]);
        (info.color_type, bytes)
    }

    #[test]
    fn pictures_are_read_as_they_were_drawn() {
        let mut canvas = Canvas::new(5, 3, [7; 3]);
        canvas.line([0.0, 1.0], [4.0, 1.0], 1, [200; 3]);
        let mut rows = vec![7; 15];
        rows[5..10].fill(200);
        assert_eq!(read(&canvas), (ColorType::Grayscale, rows));
        // Outside nothing is drawn.
        canvas.set(-1, 0, [1, 2, 3]);
        canvas.set(4, 2, [1, 2, 3]);
        let (color, bytes) = read(&canvas);
        assert_eq!((color, &bytes[42..]), (ColorType::Rgb, &[1, 2, 3][..]));
        assert!(canvas.data_url().starts_with("data:image/png;base64,iVBORw0KGgo"));
    }
}
